//! The doors of the fuzz targets to decoders that this crate keeps to itself, and what must hold for texts of any kind.
//!
//! There only under `cfg(fuzzing)`, which the build of `tests/fuzz` sets, and in tests, where the same bodies run under
//! proptest. Each body panics where an invariant is broken.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use xuid_id::{Id, Layout, Parts};

use crate::registry::ClusterId;
use crate::registry::local::fuzzing as local;
#[cfg(feature = "zookeeper")]
use crate::registry::zookeeper::fuzzing as zookeeper;
use crate::sequence::leftovers::format::Batch;
use crate::sequence::{NamePattern, SequenceName};

/// Both copies of a local registry's header.
pub fn local_header(input: &[u8]) {
    local::header(input);
}

/// A sector of a local registry.
pub fn local_record(input: &[u8]) {
    local::record(input);
}

/// A whole local registry.
pub fn local_registry(input: &[u8]) {
    local::registry(input);
}

/// A node of a registry in an ensemble.
#[cfg(feature = "zookeeper")]
pub fn zookeeper_node(input: &[u8]) {
    zookeeper::node(input);
}

/// `[what is put right, a file of leftovers]`: bit 1 gives it its signature, bits 2 and 4 its checksums. What is read is
/// written as the same bytes, and the ids of a name ascend, each below 2^63.
pub fn leftovers(input: &[u8]) {
    let Some((&right, rest)) = input.split_first() else { return };
    let mut bytes = rest.to_vec();
    if right & 1 != 0 && bytes.len() >= 8 {
        bytes[..8].copy_from_slice(b"\x89XSR\r\n\x1a\x01");
    }
    if bytes.len() >= 60 {
        let end = bytes.len() - 4;
        for (bit, part, at) in [(2, 0..52, 52), (4, 56..end, end)] {
            if right & bit != 0 {
                let sum = crc32c::crc32c(&bytes[part]);
                bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
    let Ok(batch) = Batch::decode(&bytes) else { return };
    assert_eq!(batch.encode(), bytes);
    for rest in &batch.names {
        let mut above = 0;
        for span in &rest.spans {
            assert!(span.first >= above, "{:?} ascends", rest.spans);
            if span.count > 0 {
                assert!(span.id(span.count - 1) < 1 << 63);
                above = span.id(span.count - 1) + 1;
            }
        }
    }
}

/// What sequences are called, and where they are kept.
fn of_sequences(text: &str) {
    survives::<SequenceName>(text, str::to_owned);
    let pattern = NamePattern::new(text);
    assert_eq!(pattern.to_string(), text);
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    {
        use crate::sequence::store::database::DatabaseUrl;
        let Ok(url) = text.parse::<DatabaseUrl>() else { return };
        assert!(DatabaseUrl::has_scheme(text) && !url.hosts().is_empty());
        // The password and what follows the name of the database are not shown, and nothing else is left out.
        let shown = url.to_string();
        let again: DatabaseUrl = shown.parse().unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert!(again.to_string() == shown && !again.has_password());
        assert_eq!((again.kind(), again.hosts()), (url.kind(), url.hosts()));
    }
}

/// Texts of a command line: what is taken is written back, and read again, as the same value.
pub fn texts(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Some(id) = survives::<Id>(text, digits) {
        assert!(id.raw() < 1 << 63);
        let parts = Layout::default().decode(id);
        assert_eq!(Layout::default().encode(parts.tick, parts.worker, parts.sequence), id);
    }
    survives::<ClusterId>(text, str::to_ascii_lowercase);
    survives::<xuid_spill::SpillId>(text, str::to_ascii_lowercase);
    of_sequences(text);
    if let Ok(layout) = text.parse::<Layout>() {
        assert_eq!(Layout::from_bytes(layout.to_bytes()), Ok(layout));
        assert_eq!(layout.to_text().parse(), Ok(layout));
    }
    #[cfg(feature = "zookeeper")]
    {
        use crate::registry::zookeeper::{Credentials, ZooKeeperUrl};
        if let Ok(url) = text.parse::<ZooKeeperUrl>() {
            assert_eq!(url.to_string().parse(), Ok(url.clone()));
            assert!(url.path().starts_with('/') && !url.path().ends_with('/') && !url.path().contains("//"));
            assert!(url.hosts().split(',').all(|host| host.rsplit_once(':').is_some()));
        }
        if let Some(credentials) = Credentials::new(text) {
            assert!(text.contains(':') && format!("{credentials:?}") == "Credentials(..)");
        }
    }
}

/// What is taken is written as `canonical` says, and that is taken as the same again.
fn survives<T: FromStr + Display + PartialEq + Debug>(
    text: &str,
    canonical: impl Fn(&str) -> String,
) -> Option<T> {
    let value: T = text.parse().ok()?;
    let written = value.to_string();
    assert_eq!(written, canonical(text));
    assert!(written.parse().is_ok_and(|again: T| again == value), "{text:?} is {written:?}");
    Some(value)
}

/// A number without what a parser of numbers passes over.
fn digits(text: &str) -> String {
    let text = text.trim();
    let digits = text.strip_prefix('+').unwrap_or(text).trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { digits.to_owned() }
}

/// A layout of 16 bytes, a tick, a worker, a sequence and a time of 8, against arithmetic in 128 bits.
pub fn layout(input: &[u8]) {
    let Some((&(mut bytes), rest)) = input.split_first_chunk::<16>() else { return };
    // Widths that fill an id are rare among bytes.
    if bytes[0] & 0x80 != 0 {
        (bytes[1], bytes[2], bytes[3]) = (bytes[1] % 23, 1 + bytes[2] % 24, bytes[3] % 2);
        bytes[0] = 63 - bytes[1] - bytes[2];
    }
    let mut numbers = rest.as_chunks::<8>().0.iter().map(|bytes| u128::from(u64::from_le_bytes(*bytes)));
    let Ok(layout) = Layout::from_bytes(bytes) else { return };
    let [time, worker, sequence] = [bytes[0], bytes[1], bytes[2]].map(u32::from);
    assert!((40..=63).contains(&(time + worker + sequence)), "40 to 63 bits are filled");
    assert_eq!(layout.to_bytes(), bytes);

    let mut next = |sides: u128| numbers.next().unwrap_or(0) % sides;
    let (t, w, s) = (next(1 << time), next(1 << worker), next(1 << sequence));
    let plain = (t * (1 << worker) + w) * (1 << sequence) + s;
    let raw = if bytes[3] == 1 { (t * (1 << sequence) + s) * (1 << worker) + w } else { plain };
    let id = layout.encode(t as u64, w as u32, s as u32);
    assert_eq!((u128::from(id.raw()), u128::from(layout.plot_of(id))), (raw, plain));
    let Parts { tick, worker: w2, sequence: s2, unix_ms } = layout.decode(id);
    assert_eq!((u128::from(tick), u128::from(w2), u128::from(s2)), (t, w, s));
    assert_eq!(layout.tick_of(id.raw()), tick);
    assert_eq!(u128::from(layout.last_tick()), (1 << time) - 1);
    assert_eq!(u128::from(layout.stride()), 1 << (worker + sequence));

    let (tick_us, epoch_ms) = (u128::from(layout.tick_us()), u128::from(layout.epoch_ms()));
    let most = u128::from(u64::MAX);
    assert_eq!(u128::from(unix_ms), (epoch_ms + t * tick_us / 1_000).min(most), "the beginning of tick {t}");
    let ns = epoch_ms * 1_000_000 + t * tick_us * 1_000;
    assert_eq!(u128::from(layout.tick_to_ns(tick)), ns.min(most));
    let at = next(1 << 64);
    let held = at.checked_sub(epoch_ms * 1_000_000).map(|since| (since / (tick_us * 1_000)) as u64);
    assert_eq!(layout.tick_at_ns(at as u64), held);
    if ns <= most {
        assert_eq!(layout.tick_at_ns(ns as u64), Some(tick), "a tick holds its own beginning");
    }
    assert_eq!(u128::from(layout.ticks_in_ns(at as u64)), at.div_ceil(tick_us * 1_000));
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn layouts() -> impl Strategy<Value = Vec<u8>> {
        (0u8..=20, 1u8..=24, prop_oneof![Just(1_000u32), 1u32..=3_600_000_000], any::<u64>(), 0u32..64)
            .prop_map(|(worker, sequence, tick_us, epoch, shift)| {
                let (tick_us, epoch) = (tick_us.to_le_bytes(), (epoch >> shift).to_le_bytes());
                [&[63 - worker - sequence, worker, sequence, 0][..], &tick_us, &epoch].concat()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_layout_does_what_arithmetic_in_128_bits_does(layout in layouts(), numbers in any::<[u8; 32]>(), wide: bool) {
            let mut numbers = numbers;
            // Ticks of this century, not only such as are near the last one.
            if !wide { numbers[5..8].fill(0) }
            super::layout(&[layout, numbers.to_vec()].concat());
        }

        #[test]
        fn texts_that_are_taken_are_written_back(text in prop_oneof![
            "[ +]?[0-9]{1,20}", "[+0-9a-fA-F][0-9a-f]{31}", "[+0-9a-f]{30,34}", "[0-9]{1,2}/[0-9]{1,2}/[0-9]{1,2}",
            "zookeeper://[a-z0-9:,.\\[\\]]{0,20}/[a-z/.]{0,12}", "[ @a-z:*]{0,20}",
            "(postgres|mysql)://[a-z:]{0,9}@?[a-z0-9:,.\\[\\]]{0,20}/[a-z?/]{0,6}", ".{0,40}"
        ]) {
            super::texts(text.as_bytes());
        }

        #[test]
        fn a_file_of_leftovers_is_read_as_it_is_written_or_refused(
            right in any::<u8>(), count in 0u8..3, header in vec(any::<u8>(), 56), records in vec(0u8..4, 0..120),
        ) {
            let mut header = header;
            header[48..52].copy_from_slice(&[count, 0, 0, 0]);
            super::leftovers(&[vec![right | 7], header, records].concat());
        }

        #[test]
        fn bytes_that_are_no_layout_are_refused(bytes in vec(any::<u8>(), 0..60)) {
            super::layout(&bytes);
            super::texts(&bytes);
        }
    }
}
