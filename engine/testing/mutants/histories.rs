//! Whether the newer troubles bite: guards that stand against what disks do, taken out, and histories must notice.
//!
//! Each of them has a named test besides, in the table of [mutants](super::MUTANTS); here the misfortunes are what is
//! tested, and whoever makes them milder finds out.

use crate::sys::guards::Guard;
use crate::testing::simulation::workload::Theme;
use crate::testing::simulation::{history, seed};

/// Within so many histories it must show.
const MOST: u64 = 3_000;

/// The first history of a theme in which the loss of a guard shows as an id that came twice, or was about to.
fn bites(out: Guard, theme: Theme) {
    let signs = ["an id came twice", "does not own that tick", "was granted to node"];
    let is_sign = |why: &String| signs.iter().any(|sign| why.contains(sign));
    let failure = |n| history(seed(n), Some(theme), false).err().filter(is_sign);
    let found = Guard::without(&[out], || (0..MOST).find_map(|n| failure(n).map(|why| (n, why))));
    match found {
        Some((n, why)) => {
            println!("without {out:?}, history {n}: {why}");
            assert_eq!(history(seed(n), Some(theme), false).err(), None, "with every guard in place");
        }
        None => panic!("without {out:?} no history of {MOST} says one of {signs:?}"),
    }
}

#[test]
fn a_registry_with_one_copy_of_each_record_repeats_ids_when_sectors_rot() {
    bites(Guard::SecondCopy, Theme::Disk);
}

#[test]
fn a_spill_whose_mark_was_lost_repeats_ids_where_absent_is_zero() {
    bites(Guard::AbsentMarkRefused, Theme::Faults);
}
