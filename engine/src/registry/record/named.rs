//! What the record of a sequence says beside its mark: bytes 144 to 507.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::registry::sequences::MOST_GAPS;

/// The longest name, in bytes of UTF-8.
pub(in crate::registry) const NAME_BYTES: usize = 128;

/// Bytes of a record behind the owner's text and before the checksum.
pub(in crate::registry) const NAMED_BYTES: usize = 364;

/// The random name of a registry's time between two fences. A record of an earlier one may say less than was granted.
pub(in crate::registry) type EraId = [u8; 16];

const STRICT: u8 = 1;
const LOST: u8 = 2;

/// Whose record it is, and what it says beside the mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::registry) struct Named {
    /// Empty where it is lost.
    pub(in crate::registry) name: String,
    /// The era in which it was written.
    pub(in crate::registry) era: EraId,
    /// There was a record here, and nothing tells any more whose.
    pub(in crate::registry) is_lost: bool,
    pub(in crate::registry) gaps: Vec<(u64, u64)>,
    pub(in crate::registry) last: u64,
    pub(in crate::registry) step: u64,
    pub(in crate::registry) increment: u32,
    pub(in crate::registry) remainder: u32,
    pub(in crate::registry) strict: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NamedBytes {
    name_len: u8,
    name: [u8; NAME_BYTES],
    flags: u8,
    zeros: [u8; 6],
    last: U64,
    step: U64,
    increment: U32,
    remainder: U32,
    gaps_len: u8,
    more_zeros: [u8; 7],
    gaps: [[U64; 2]; MOST_GAPS],
    era: EraId,
    rest: [u8; 52],
}

const _: () = assert!(size_of::<NamedBytes>() == NAMED_BYTES, "the record's table in docs/registry.md");

impl Named {
    /// A slot that held the record of a name that nothing tells any more.
    pub(in crate::registry) fn lost(era: EraId) -> Self {
        Self {
            name: String::new(),
            era,
            is_lost: true,
            gaps: Vec::new(),
            last: 0,
            step: 0,
            increment: 0,
            remainder: 0,
            strict: false,
        }
    }

    pub(super) fn encode(&self) -> [u8; NAMED_BYTES] {
        assert!(self.name.len() <= NAME_BYTES, "a name of {} bytes", self.name.len());
        assert!(self.gaps.len() <= MOST_GAPS, "{} gaps", self.gaps.len());
        let mut name = [0; NAME_BYTES];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let mut gaps = [[U64::ZERO; 2]; MOST_GAPS];
        for (to, (first, end)) in gaps.iter_mut().zip(&self.gaps) {
            *to = [(*first).into(), (*end).into()];
        }
        let flags = if self.strict { STRICT } else { 0 } | if self.is_lost { LOST } else { 0 };
        let bytes = NamedBytes {
            name_len: self.name.len() as u8,
            name,
            flags,
            zeros: [0; 6],
            last: self.last.into(),
            step: self.step.into(),
            increment: self.increment.into(),
            remainder: self.remainder.into(),
            gaps_len: self.gaps.len() as u8,
            more_zeros: [0; 7],
            gaps,
            era: self.era,
            rest: [0; 52],
        };
        zerocopy::transmute!(bytes)
    }

    /// What the bytes of a record with that mark say: of an unused slot nothing.
    pub(super) fn decode(bytes: &[u8; NAMED_BYTES], mark: u64) -> Result<Option<Self>, Impossible> {
        let bytes: NamedBytes = zerocopy::transmute!(*bytes);
        let name = bytes.name.get(..usize::from(bytes.name_len)).ok_or(Impossible)?;
        let name = std::str::from_utf8(name).map_err(|_| Impossible)?;
        let (strict, is_lost) = (bytes.flags & STRICT != 0, bytes.flags & LOST != 0);
        if bytes.flags & !(STRICT | LOST) != 0 || (is_lost && !name.is_empty()) {
            return Err(Impossible);
        }
        if name.is_empty() && !is_lost {
            return Ok(None);
        }
        let gaps = bytes.gaps.get(..usize::from(bytes.gaps_len)).ok_or(Impossible)?;
        let gaps: Vec<(u64, u64)> = gaps.iter().map(|[first, end]| (first.get(), end.get())).collect();
        if !are_gaps(&gaps, mark) {
            return Err(Impossible);
        }
        Ok(Some(Self {
            name: name.to_owned(),
            era: bytes.era,
            is_lost,
            gaps,
            last: bytes.last.get(),
            step: bytes.step.get(),
            increment: bytes.increment.get(),
            remainder: bytes.remainder.get(),
            strict,
        }))
    }
}

/// Bytes that no program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Impossible;

/// Whether these are ranges below a mark, ascending and apart.
pub(super) fn are_gaps(gaps: &[(u64, u64)], mark: u64) -> bool {
    let mut below = 0;
    gaps.iter().all(|&(first, end)| {
        let is_next = below <= first && first < end && end <= mark;
        below = end;
        is_next
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named() -> Named {
        Named {
            name: "orders".into(),
            era: [9; 16],
            is_lost: false,
            gaps: vec![(10, 20), (20, 21), (30, 99)],
            last: (1 << 63) - 1,
            step: 1_000,
            increment: 3,
            remainder: 1,
            strict: true,
        }
    }

    #[test]
    fn what_was_written_is_read_and_an_unused_slot_says_nothing() {
        assert_eq!(Named::decode(&named().encode(), 99), Ok(Some(named())));
        assert_eq!(Named::decode(&[0; NAMED_BYTES], u64::MAX), Ok(None));
        let lost = Named::lost([3; 16]);
        assert_eq!(Named::decode(&lost.encode(), u64::MAX), Ok(Some(lost)));
        let longest = Named { name: "ü".repeat(NAME_BYTES / 2), gaps: vec![(0, 1); 0], ..named() };
        assert_eq!(Named::decode(&longest.encode(), 0), Ok(Some(longest)));
    }

    #[test]
    fn gaps_that_overlap_or_reach_above_the_mark_are_nonsense() {
        for gaps in [vec![(1, 1)], vec![(5, 9), (8, 12)], vec![(8, 12), (1, 2)], vec![(5, 101)]] {
            let named = Named { gaps: gaps.clone(), ..named() };
            assert_eq!(Named::decode(&named.encode(), 100), Err(Impossible), "{gaps:?}");
        }
        let mut bytes = named().encode();
        bytes[160] = MOST_GAPS as u8 + 1;
        assert_eq!(Named::decode(&bytes, 99), Err(Impossible));
    }

    #[test]
    fn a_name_that_is_none_and_flags_of_another_program_are_nonsense() {
        for (at, byte) in [(0, 129), (1, 0xff), (129, 4), (129, LOST)] {
            let mut bytes = named().encode();
            bytes[at] = byte;
            assert_eq!(Named::decode(&bytes, 99), Err(Impossible), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_again_the_same(bytes in prop::collection::vec(any::<u8>(), NAMED_BYTES), short in any::<bool>()) {
            let mut bytes: [u8; NAMED_BYTES] = bytes.try_into().unwrap();
            if short {
                bytes[0] %= 4;
                bytes[1..5].copy_from_slice(b"abcd");
                bytes[129] &= STRICT;
                bytes[160] = 0;
            }
            if let Ok(Some(found)) = Named::decode(&bytes, u64::MAX) {
                prop_assert_eq!(Named::decode(&found.encode(), u64::MAX), Ok(Some(found)));
            }
        }
    }
}
