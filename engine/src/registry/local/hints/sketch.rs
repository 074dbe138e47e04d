//! What is noted of a sequence's record: 48 bytes that tell it from an older one.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::registry::local::format::{Place, Row};
use crate::registry::{ClusterId, Token};

/// How many bytes.
pub(super) const SKETCH: usize = 48;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SketchBytes {
    version: U64,
    value: U64,
    token: [u8; 16],
    operation: U64,
    zeros: [u8; 4],
    checksum: U32,
}

const _: () = assert!(size_of::<SketchBytes>() == SKETCH, "the table in docs/registry.md");

/// CRC-32C of the cluster, the slot and everything before the checksum.
fn checksum(cluster: ClusterId, slot: u32, bytes: &[u8; SKETCH]) -> u32 {
    let place = crc32c::crc32c_append(crc32c::crc32c(&cluster.bytes()), &slot.to_le_bytes());
    crc32c::crc32c_append(place, &bytes[..SKETCH - 4])
}

/// A record as it is noted.
pub(super) fn encode(cluster: ClusterId, row: &Row) -> [u8; SKETCH] {
    let mut bytes = SketchBytes {
        version: row.version.into(),
        value: row.value.into(),
        token: row.token.0,
        operation: row.operation.into(),
        zeros: [0; 4],
        checksum: U32::ZERO,
    };
    bytes.checksum = checksum(cluster, row.place.slot, &zerocopy::transmute!(bytes)).into();
    zerocopy::transmute!(bytes)
}

/// The record that was noted, without its name and settings; `None` if none was.
pub(super) fn decode(cluster: ClusterId, place: Place, bytes: &[u8; SKETCH]) -> Option<Row> {
    let found: SketchBytes = zerocopy::transmute!(*bytes);
    if found.version.get() == 0 || found.checksum.get() != checksum(cluster, place.slot, bytes) {
        return None;
    }
    Some(Row {
        version: found.version.get(),
        value: found.value.get(),
        token: Token(found.token),
        operation: found.operation.get(),
        ..Row::genesis(place, 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_says_what_tells_a_record_and_passes_in_its_place_only() {
        let (cluster, place) = (ClusterId::from_bytes([7; 16]), Place::sequence(3));
        let row =
            Row { version: 9, value: 5_000, token: Token([4; 16]), operation: 2, ..Row::genesis(place, 0) };
        let bytes = encode(cluster, &row);
        assert_eq!(decode(cluster, place, &bytes), Some(row));
        assert_eq!(decode(cluster, Place::sequence(4), &bytes), None);
        assert_eq!(decode(ClusterId::from_bytes([8; 16]), place, &bytes), None);
        assert_eq!(decode(cluster, place, &[0; SKETCH]), None);
        for bit in 0..SKETCH * 8 {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(cluster, place, &torn), None, "bit {bit}");
        }
    }
}
