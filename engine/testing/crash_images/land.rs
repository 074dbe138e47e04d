//! Land as the judge sees it: spans of ids, and the records of a spill's bytes, read without the spill's own code.

use std::ops::Range;

use xuid_id::Layout;
use xuid_spill::{Extent, SpillId};

/// Consecutive ids, the end excluded.
pub(crate) type Span = Range<u64>;

/// Where the slots of a spill begin, after two headers of a page each.
const SLOTS_AT: usize = 8_192;

/// Where the second header is.
const SECOND_HEADER_AT: usize = 4_096;

const RECORD: usize = 32;

/// How a header begins.
const SIGNATURE: [u8; 8] = *b"\x89XSPL\r\n\x1a";

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

/// Whose bytes these are, if a header is there. A header lies within a sector, so it is whole or absent.
pub(crate) fn spill_id(bytes: &[u8]) -> Option<SpillId> {
    let has_header = |at: &usize| bytes.get(*at..*at + SIGNATURE.len()) == Some(&SIGNATURE[..]);
    [0, SECOND_HEADER_AT].into_iter().find(has_header).map(|at| SpillId::from_bytes(number(bytes, at + 16)))
}

/// The records of a file that nobody tampered with, by slot: each has its index and an extent, or was never written.
pub(crate) fn slots(bytes: &[u8]) -> impl Iterator<Item = Option<(u64, Extent)>> {
    bytes.get(SLOTS_AT..).unwrap_or_default().chunks_exact(RECORD).map(|record| {
        let extent = Extent {
            first: u64::from_le_bytes(number(record, 0)),
            len: u32::from_le_bytes(number(record, 8)),
            ticks: u32::from_le_bytes(number(record, 12)),
        };
        (extent.len > 0).then(|| (u64::from_le_bytes(number(record, 16)), extent))
    })
}

/// What must come back out of a spill whose mark is `mark`: each record of the last lap, from the mark on.
pub(crate) fn replayable(bytes: &[u8], mark: u64) -> Vec<Extent> {
    let (capacity, found) = (slots(bytes).count() as u64, slots(bytes).flatten().collect::<Vec<_>>());
    let head = found.iter().map(|(index, _)| index + 1).max().unwrap_or(0);
    let from = mark.max(head.saturating_sub(capacity));
    found.into_iter().filter(|(index, _)| *index >= from).map(|(_, extent)| extent).collect()
}

/// Ids of the records from the mark on that are in `cached` and not in `left`: written, and lost by the cut.
pub(crate) fn lost(cached: &[u8], left: &[u8], mark: u64) -> u64 {
    let pairs = slots(cached).zip(slots(left));
    let gone = pairs.filter(|(cached, left)| cached != left).filter_map(|(cached, _)| cached);
    gone.filter(|(index, _)| *index >= mark).map(|(_, extent)| extent.ids()).sum()
}

/// The ids of extents, a span for each tick from `oldest` on.
pub(crate) fn spans(extents: &[Extent], layout: &Layout, oldest: u64) -> Vec<Span> {
    let stride = layout.stride();
    let of = |extent: &Extent| {
        let (first, len) = (extent.first, u64::from(extent.len));
        (0..u64::from(extent.ticks)).map(move |tick| first + tick * stride..first + tick * stride + len)
    };
    let young = |span: &Span| layout.tick_of(span.start) >= oldest;
    extents.iter().flat_map(of).filter(young).collect()
}

/// Sorts spans and joins those that touch. The first id that two of them have is the error.
pub(crate) fn merged(mut spans: Vec<Span>) -> Result<Vec<Span>, u64> {
    spans.sort_unstable_by_key(|span| span.start);
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.end > span.start => return Err(span.start),
            Some(last) if last.end == span.start => last.end = span.end,
            _ => merged.push(span),
        }
    }
    Ok(merged)
}

/// How many ids came again that were there before.
pub(crate) fn twice(mut spans: Vec<Span>) -> u64 {
    spans.sort_unstable_by_key(|span| span.start);
    let (mut count, mut end) = (0, 0);
    for span in spans {
        count += span.end.min(end).saturating_sub(span.start);
        end = end.max(span.end);
    }
    count
}

/// How many ids of `wanted` are not in `have`, which is merged, and the first of them.
pub(crate) fn missing(wanted: &[Span], have: &[Span]) -> (u64, Option<u64>) {
    let (mut count, mut first) = (0, None);
    for span in wanted {
        let mut at = span.start;
        let begin = have.partition_point(|other| other.end <= at);
        for other in have[begin..].iter().take_while(|other| other.start < span.end) {
            if other.start > at {
                first.get_or_insert(at);
                count += other.start - at;
            }
            at = other.end.min(span.end);
        }
        if at < span.end {
            first.get_or_insert(at);
            count += span.end - at;
        }
    }
    (count, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_counted_to_the_id() {
        let have = merged(vec![10..20, 30..40, 20..25]).unwrap();
        assert_eq!(have, [10..25, 30..40]);
        assert_eq!(missing(&[12..22, 31..32], &have), (0, None));
        assert_eq!(missing(&[5..12, 24..45, 50..51], &have), (5 + 5 + 5 + 1, Some(5)));
        assert_eq!(merged(vec![30..40, 10..31]), Err(30));
        assert_eq!(twice(vec![30..40, 10..31, 12..14, 12..13]), 1 + 2 + 1);
        assert_eq!(twice(vec![30..40, 10..30]), 0);
    }

    #[test]
    fn a_log_is_read_as_its_own_code_reads_it() {
        let disk = xuid_spill::MemoryStorage::new();
        let spill = SpillId::from_bytes([5; 16]);
        let identity = xuid_spill::Identity { spill, cluster: [1; 16], stride: 1 << 10, layout: [0; 16] };
        let mut log = xuid_spill::Log::create(Box::new(disk.clone()), identity, 8_192 + 16 * 32).unwrap();
        let extent = |n: u32| Extent { first: u64::from(n) << 20, len: 3, ticks: n + 1 };
        for n in 0..20 {
            log.append(&[extent(n)]).unwrap();
        }
        let bytes = disk.bytes();
        assert_eq!(spill_id(&bytes), Some(spill));
        let mut found = replayable(&bytes, 6);
        found.sort_unstable_by_key(|extent| extent.first);
        assert_eq!(found, (6..20).map(extent).collect::<Vec<_>>());
        // Nothing was synced, so nothing need survive.
        let left = disk.image(|_| false);
        assert_eq!(replayable(&left, 0), []);
        assert_eq!(lost(&bytes, &left, 18), extent(18).ids() + extent(19).ids());
    }
}
