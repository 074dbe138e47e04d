//! What must hold for a node of any bytes. One body serves the property test here and the fuzz target `zookeeper_node`.

use xuid_spill::SpillId;
use zookeeper_client::Stat;

use super::znode::{decode_genesis, decode_row, encode_genesis};
use crate::registry::ClusterId;
use crate::registry::record::{NO_SPILL, Place, SECTOR};

const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);
const SPILL: SpillId = SpillId::from_bytes([9; 16]);

pub(super) fn stat(version: i32) -> Stat {
    Stat {
        czxid: 1,
        mzxid: 2,
        pzxid: 1,
        ctime: 3,
        mtime: 4,
        version,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: 0,
        data_length: 512,
        num_children: 0,
    }
}

/// `[what is put right, version, data]`: bit 1 the checksum, bit 2 magic and version or place, bit 4 the record's
/// version, bits 8 and 32 the length, bit 16 the layout or the owner's
/// length.
pub(crate) fn node(input: &[u8]) {
    let Some((&[right, version], data)) = input.split_first_chunk() else { return };
    genesis(right, data);
    for (place, spill) in [(Place::worker(5), NO_SPILL), (Place::mark(0), SPILL)] {
        row(right, i32::from(version.cast_signed()), data, place, spill);
    }
}

fn genesis(right: u8, data: &[u8]) {
    let mut data = data.to_vec();
    if right & 8 != 0 {
        data.resize(if right & 32 == 0 { 64 } else { 72 }, 0);
    }
    if let Some(end) = matches!(data.len(), 64 | 72).then(|| data.len() - 4) {
        if right & 2 != 0 {
            data[..12].copy_from_slice(b"\x89XZKR\r\n\x1a\x01\0\0\0");
            data[8] = if end == 60 { 1 } else { 3 };
        }
        if right & 16 != 0 {
            data[14..16].fill(0);
            data[13] &= 3;
            data[32..36].copy_from_slice(&[41, 10, 12, 0]);
        }
        if right & 1 != 0 {
            let sum = crc32c::crc32c(&data[..end]);
            data[end..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    match decode_genesis(&data) {
        Err(why) => assert!(why.starts_with("its "), "{why}"),
        Ok(found) => {
            // Encoded again it is what was there, but for the reserved bytes of an early version.
            let end = data.len() - 4;
            if end == 60 {
                data[56..end].fill(0);
                let sum = crc32c::crc32c(&data[..end]);
                data[end..].copy_from_slice(&sum.to_le_bytes());
            }
            assert_eq!(encode_genesis(&found), data);
            assert!(found.workers > 0 && found.first_worker + found.workers <= found.layout.workers());
        }
    }
}

fn row(right: u8, version: i32, data: &[u8], place: Place, spill: SpillId) {
    let mut data = data.to_vec();
    if right & 8 != 0 {
        data.resize(SECTOR, 0);
    }
    if data.len() == SECTOR {
        if right & 2 != 0 {
            data[0] = place.kind as u8;
            data[4..8].copy_from_slice(&place.slot.to_le_bytes());
            data[8..24].copy_from_slice(&spill.bytes());
        }
        if right & 4 != 0 {
            data[24..32].copy_from_slice(&i64::from(version).to_le_bytes());
        }
        if right & 16 != 0 {
            data[72] %= 65;
        }
        if right & 1 != 0 {
            let sum = crc32c::crc32c(&[&CLUSTER.bytes()[..], &data[..SECTOR - 4]].concat());
            data[SECTOR - 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let Ok(found) = decode_row(&data, &stat(version), CLUSTER, place, spill) else { return };
    assert_eq!(Ok(found.version), u64::try_from(version));
    assert!(found.place == place && found.spill == spill);
    let owner = found.owner.len();
    assert_eq!(owner, usize::from(data[72]));
    let again = found.encode(CLUSTER);
    for (range, why) in [(4..72, "its fields"), (80..80 + owner, "its owner")] {
        assert_eq!(again[range.clone()], data[range], "{why}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_node_of_any_bytes_is_read_as_the_format_says_or_refused(
            right in 0u8..32, version: u8, data in vec(any::<u8>(), 0..600)
        ) {
            super::node(&[vec![right, version], data].concat());
        }

        #[test]
        fn a_node_that_is_nearly_right_is_read_or_refused(version: u8, data in vec(any::<u8>(), 500..520)) {
            super::node(&[vec![0x1f, version], data].concat());
        }
    }
}
