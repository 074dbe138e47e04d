//! A batch of leftovers as bytes. `docs/sequences.md` has the same as a table.

use std::sync::Arc;

use crate::registry::ClusterId;
use crate::sequence::chain::span::Span;
use crate::sequence::name::SequenceName;
use crate::sequence::store::HIGHEST;

/// How a file begins.
const SIGNATURE: [u8; 8] = [0x89, 0x58, 0x53, 0x52, 0x0d, 0x0a, 0x1a, 0x01];

/// Bytes of the header.
const HEADER: usize = 56;

/// Bytes of a range.
const RANGE: usize = 24;

/// Ranges of a name at most: their number is a byte.
pub(crate) const MOST_RANGES: usize = 255;

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Which file: drawn once, and kept from life to life.
    pub(crate) uuid: [u8; 16],
    /// Which of its lives.
    pub(crate) serial: u64,
    pub(crate) cluster: ClusterId,
    pub(crate) names: Vec<NameRest>,
}

/// What was left of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameRest {
    pub(crate) name: SequenceName,
    /// The store that granted it: one text for all names that have the same.
    pub(crate) identity: Arc<str>,
    /// Ascending, apart from each other, at most [`MOST_RANGES`].
    pub(crate) spans: Vec<Span>,
}

/// Why bytes are no batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Flaw {
    #[error("it is not a file of leftovers, or of another version")]
    Signature,
    #[error("it is cut off")]
    Short,
    #[error("its checksum does not fit")]
    Checksum,
    #[error("it says what cannot be")]
    Nonsense,
}

/// The store of a name, as a batch has it: where in which kind of store, and the store's identity, a line each.
pub(crate) fn store_text(place: &str, identity: &str) -> String {
    format!("{}\n{}", short(place), short(identity))
}

/// A line of at most 127 bytes: a longer one ends with its checksum.
fn short(text: &str) -> String {
    let line = text.replace('\n', " ");
    if line.len() <= MOST_LINE {
        return line;
    }
    let sum = crc32c::crc32c(line.as_bytes());
    format!("{}~{sum:08x}", &line[..line.floor_char_boundary(MOST_LINE - 9)])
}

/// Whether such a text is of this store, of whichever identity if none is given: a fail-over gives it another one. Without a
/// place it is of an earlier version.
pub(crate) fn is_of_store(text: &str, place: &str, identity: Option<&str>) -> bool {
    match (text.split_once('\n'), identity) {
        (Some((found, _)), None) => found == short(place),
        (Some(_), Some(identity)) => text == store_text(place, identity),
        (None, None) => true,
        (None, Some(identity)) => text == &identity[..identity.floor_char_boundary(MOST_TEXT)],
    }
}

/// The longest text in a batch, in bytes.
const MOST_TEXT: usize = 255;

/// The longest of the two lines in it.
const MOST_LINE: usize = 127;

impl Batch {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.names.len() * 64);
        bytes.extend(SIGNATURE);
        bytes.extend(self.uuid);
        bytes.extend(self.serial.to_le_bytes());
        bytes.extend(self.cluster.bytes());
        bytes.extend((self.names.len() as u32).to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        for NameRest { name, identity, spans } in &self.names {
            debug_assert!(spans.len() <= MOST_RANGES && identity.len() <= 255);
            for text in [name.as_str(), identity] {
                bytes.push(text.len() as u8);
                bytes.extend(text.as_bytes());
            }
            bytes.push(spans.len() as u8);
            for span in spans {
                bytes.extend(span.first.to_le_bytes());
                bytes.extend(span.count.to_le_bytes());
                bytes.extend(span.increment.to_le_bytes());
                bytes.extend([0; 4]);
            }
        }
        let records = crc32c::crc32c(&bytes[HEADER..]);
        bytes.extend(records.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or(Flaw::Short)?;
        if header[..8] != SIGNATURE {
            return Err(Flaw::Signature);
        }
        let (records, checksum) = rest.split_last_chunk::<4>().ok_or(Flaw::Short)?;
        let fits = |bytes: &[u8], checksum: [u8; 4]| crc32c::crc32c(bytes) == u32::from_le_bytes(checksum);
        let mut reader = Reader(&header[8..]);
        let (uuid, serial) = (reader.array()?, u64::from_le_bytes(reader.array()?));
        let (cluster, count) = (ClusterId::from_bytes(reader.array()?), u32::from_le_bytes(reader.array()?));
        if !fits(&header[..HEADER - 4], reader.array()?) || !fits(records, *checksum) {
            return Err(Flaw::Checksum);
        }
        let mut reader = Reader(records);
        let mut identity = Arc::from("");
        // Each name takes some bytes, so that many are there.
        let names = (0..count).map(|_| reader.name(&mut identity)).collect::<Result<_, _>>()?;
        if reader.0.is_empty() { Ok(Self { uuid, serial, cluster, names }) } else { Err(Flaw::Nonsense) }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Flaw> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Flaw::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Flaw::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn text(&mut self) -> Result<&'a str, Flaw> {
        let [len] = self.array()?;
        std::str::from_utf8(self.take(usize::from(len))?).map_err(|_| Flaw::Nonsense)
    }

    /// A name, and the store of the one before it, which is mostly its own, too.
    fn name(&mut self, before: &mut Arc<str>) -> Result<NameRest, Flaw> {
        let name = SequenceName::new(self.text()?).map_err(|_| Flaw::Nonsense)?;
        let identity = self.text()?;
        if **before != *identity {
            *before = identity.into();
        }
        let identity = before.clone();
        let [ranges] = self.array()?;
        // Not collected: that would have room for four, and there may be a hundred thousand names.
        let mut spans = Vec::with_capacity(usize::from(ranges));
        for _ in 0..ranges {
            spans.push(self.span()?);
        }
        // Not by the next that fits: that of another increment may lie below it.
        let apart = spans.windows(2).all(|pair| pair[0].above() <= pair[1].first);
        if apart { Ok(NameRest { name, identity, spans }) } else { Err(Flaw::Nonsense) }
    }

    fn span(&mut self) -> Result<Span, Flaw> {
        let bytes: [u8; RANGE] = self.array()?;
        let mut reader = Reader(&bytes);
        let (first, count) = (u64::from_le_bytes(reader.array()?), u64::from_le_bytes(reader.array()?));
        let increment = u32::from_le_bytes(reader.array()?);
        let beyond = count.checked_sub(1).and_then(|steps| steps.checked_mul(u64::from(increment)));
        let last = beyond.and_then(|beyond| first.checked_add(beyond)).ok_or(Flaw::Nonsense)?;
        if increment == 0 || last > HIGHEST || reader.array()? != [0; 4] {
            return Err(Flaw::Nonsense);
        }
        Ok(Span { first, count, increment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A name, its store, and spans as gap, count and increment.
    type Parts = (String, String, Vec<(u64, u64, u32)>);

    fn batch(names: Vec<Parts>) -> Batch {
        let names = names.into_iter().map(|(name, identity, parts)| {
            let mut next = 1;
            let spans = parts.into_iter().map(|(gap, count, increment)| {
                let span = Span { first: next + gap, count, increment };
                next = span.end();
                span
            });
            NameRest {
                name: SequenceName::new(&name).unwrap(),
                identity: identity.into(),
                spans: spans.collect(),
            }
        });
        let cluster = ClusterId::from_bytes([7; 16]);
        Batch { uuid: [3; 16], serial: 9, cluster, names: names.collect() }
    }

    #[test]
    fn a_store_is_told_by_its_place_and_its_identity_however_long_they_are() {
        let long = |end: &str| format!("{}{end}", "ä".repeat(200));
        for [place, other] in [
            ["here".to_owned(), "there".to_owned()],
            [String::new(), "here".to_owned()],
            [long("1"), long("2")],
            ["a\nb".to_owned(), "a".to_owned()],
        ] {
            for [own, others] in [["db 7".to_owned(), "db 8".to_owned()], [long("1"), long("2")]] {
                let text = store_text(&place, &own);
                assert!(text.len() <= MOST_TEXT);
                assert!(is_of_store(&text, &place, None) && is_of_store(&text, &place, Some(&own)), "{text}");
                assert!(
                    !is_of_store(&text, &other, None) && !is_of_store(&text, &other, Some(&own)),
                    "{text}"
                );
                assert!(!is_of_store(&text, &place, Some(&others)), "{text}");
            }
        }
        let is_of = |identity| is_of_store("db 7", "here", identity);
        assert!(is_of(None) && is_of(Some("db 7")) && !is_of(Some("db 8")), "of an earlier version");
    }

    fn any_batch() -> impl Strategy<Value = Batch> {
        let parts = prop::collection::vec((0_u64..9, 1_u64..1 << 40, 1_u32..9), 0..5);
        prop::collection::vec(("[a-zü:]{1,20}", "[ -~]{0,20}", parts), 0..6).prop_map(batch)
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let bytes = batch(vec![("ab".into(), "x".into(), vec![(4, 6, 2)])]).encode();
        assert_eq!(bytes[..8], *b"\x89XSR\r\n\x1a\x01");
        assert_eq!((bytes[24], bytes[32], bytes[48]), (9, 7, 1));
        let mut records = vec![2, b'a', b'b', 1, b'x', 1];
        records.extend([5_u64.to_le_bytes(), 6_u64.to_le_bytes()].concat());
        records.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[56..bytes.len() - 4], records);
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        let mut batch = batch(vec![("a".into(), "x".into(), vec![(4, 6, 2), (0, 3, 1)])]);
        assert_eq!(Batch::decode(&batch.encode()), Ok(batch.clone()));
        for first in [1, 5, 15] {
            batch.names[0].spans[1].first = first;
            assert_eq!(Batch::decode(&batch.encode()), Err(Flaw::Nonsense), "{first}");
        }
    }

    /// The next number of the first that fits lies in the second.
    #[test]
    fn ranges_of_before_and_after_a_change_of_the_increment_are_read() {
        let mut batch = batch(vec![("a".into(), "x".into(), vec![(2, 1_000, 2), (0, 1, 1)])]);
        let above = batch.names[0].spans[0].above();
        for increment in [1, 3] {
            batch.names[0].spans[1] = Span { first: above, count: 1_000, increment };
            assert_eq!(Batch::decode(&batch.encode()), Ok(batch.clone()), "{increment}");
        }
        batch.names[0].spans[1].first = above - 1;
        assert_eq!(Batch::decode(&batch.encode()), Err(Flaw::Nonsense));
    }

    proptest! {
        #[test]
        fn a_batch_is_read_as_it_was_written(batch in any_batch()) {
            prop_assert_eq!(Batch::decode(&batch.encode()), Ok(batch));
        }

        #[test]
        fn a_byte_that_changed_is_found_out_and_nothing_panics(
            batch in any_batch(), at in any::<prop::sample::Index>(), change in 1_u8..=255, cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = batch.encode();
            prop_assert!(Batch::decode(&bytes[..cut.index(bytes.len())]).is_err());
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert!(Batch::decode(&bytes).is_err());
        }

        #[test]
        fn bytes_of_any_kind_are_refused_or_read(records in prop::collection::vec(any::<u8>(), 0..200), count in 0_u32..4) {
            let mut bytes = batch(Vec::new()).encode();
            bytes.truncate(HEADER);
            bytes[48..52].copy_from_slice(&count.to_le_bytes());
            let checksum = crc32c::crc32c(&bytes[..52]).to_le_bytes();
            bytes[52..56].copy_from_slice(&checksum);
            bytes.extend(&records);
            bytes.extend(crc32c::crc32c(&records).to_le_bytes());
            if let Ok(batch) = Batch::decode(&bytes) {
                prop_assert_eq!(batch.encode(), bytes);
            }
        }
    }
}
