//! Whether the newer troubles bite: guards that stand against what disks do, taken out, and histories must notice.
//!
//! Each of them has a named test besides, in the table of [mutants](super::MUTANTS); here the misfortunes are what is
//! tested, and whoever makes them milder finds out.

use crate::sys::guards::Guard;
use crate::testing::mutants::{Caught, Mutant};
use crate::testing::simulation::workload::Theme;

/// Within so many histories it must show.
const MOST: u64 = 3_000;

/// An id that came twice, or was about to.
const SIGNS: &[&str] = &["an id came twice", "does not own that tick", "was granted to node"];

/// A history of a theme shows the loss of a guard.
fn bites(out: &'static [Guard], theme: Theme) {
    let mutant = Mutant { name: "bites", out, keeps: "", caught: Caught::History(theme, SIGNS) };
    match mutant.shows(Some(theme), SIGNS, MOST) {
        Some((n, why)) => println!("without {out:?}, history {n}: {why}"),
        None => panic!("without {out:?} no history of {MOST} says one of {SIGNS:?}"),
    }
}

#[test]
fn a_registry_with_one_copy_of_each_record_repeats_ids_when_sectors_rot() {
    bites(&[Guard::SecondCopy], Theme::Disk);
}

#[test]
fn a_spill_whose_mark_was_lost_repeats_ids_where_absent_is_zero() {
    bites(&[Guard::AbsentMarkRefused], Theme::Faults);
}
