//! Files of any bytes: no panic, nothing believed that is not valid, nothing changed that is refused.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::bodies::{self, put_right};

/// Records that are nearly right, and some that are no records.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let record = prop_oneof![
        6 => (any::<[u8; 28]>()).prop_map(|bytes| [&bytes[..], &[0; 4]].concat()),
        2 => Just(vec![0; 32]),
        1 => Just(vec![0xff; 32]),
    ];
    (vec(record, 0..40), 0usize..32).prop_map(|(records, cut)| {
        let bytes = records.concat();
        bytes[..bytes.len() - cut.min(bytes.len())].to_vec()
    })
}

fn inputs() -> impl Strategy<Value = Vec<u8>> {
    const HEADERS: u8 = put_right::HEADER_A | put_right::HEADER_B;
    const RECORDS: u8 = put_right::RECORD_SUMS | put_right::INDEXES | put_right::EXTENTS;
    let right = prop_oneof![
        4 => Just(HEADERS | RECORDS | put_right::LENGTH),
        2 => Just(put_right::HEADER_A | RECORDS | put_right::LENGTH),
        2 => any::<u8>().prop_map(|bits| bits | HEADERS),
        2 => any::<u8>().prop_map(|bits| bits | put_right::HEADER_B | put_right::HEADER_SUMS),
        1 => any::<u8>(),
    ];
    let headers = prop_oneof![Just(vec![0; 256]), vec(any::<u8>(), 256)];
    (right, any::<u8>(), any::<u8>(), headers, records())
        .prop_map(|(right, mark, cut, headers, records)| [vec![right, mark, cut], headers, records].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_file_of_any_bytes_is_read_as_the_format_says_or_refused_unchanged(input in inputs()) {
        bodies::log(&input);
    }

    #[test]
    fn a_file_of_noise_is_refused_unchanged(input in vec(any::<u8>(), 0..600)) {
        bodies::log(&input);
    }
}
