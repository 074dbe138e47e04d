//! Negative controls: a guard is taken out, and the simulation must notice within so many histories. A simulation that
//! notices nothing proves nothing.
//!
//! The guards of the spill's mark stand in two lines: what is read from the registry when a spill is opened, and what
//! each grant compares. Each is enough, so they are taken out together.

use super::script::Theme;
use super::{history, seed};
use crate::guards::Guard;

/// Within so many histories the loss of a guard must show.
const MOST: u64 = 2_000;

/// The loss of these guards shows as one of `signs` in histories of that theme.
fn shows(out: &[Guard], theme: Theme, signs: &[&str]) {
    let is_sign = |why: &String| signs.iter().any(|sign| why.contains(sign));
    let failure = |n: &u64| history(seed(*n), Some(theme), false).err().filter(is_sign);
    let found = Guard::without(out, || (0..MOST).find_map(|n| failure(&n).map(|why| (n, why))));
    match found {
        Some((n, why)) => println!("without {out:?}, history {n}: {why}"),
        None => panic!("without {out:?} no history of {MOST} says: {signs:?}"),
    }
}

/// An id that came twice, or one that was about to: it was issued from land of somebody else, or is in two places.
const TWICE: [&str; 3] = ["an id came twice", "does not own that tick", "a plot in two places"];

#[test]
fn windows_that_begin_before_the_mark_repeat_ids() {
    shows(&[Guard::WindowAfterMark], Theme::Crashes, &TWICE);
}

#[test]
fn a_worker_whose_mark_is_ahead_leaves_its_node_without_land() {
    shows(&[Guard::MarkNotAhead], Theme::Crashes, &["not recovered"]);
}

#[test]
fn windows_without_a_bound_burn_years_of_a_record() {
    shows(&[Guard::FurthestWindow], Theme::Far, &["and the registry's time allows"]);
}

#[test]
fn an_unknown_outcome_taken_for_ours_repeats_ids() {
    shows(&[Guard::UnknownIsNotOurs], Theme::Faults, &TWICE);
}

#[test]
fn a_record_read_back_without_its_token_repeats_ids() {
    shows(&[Guard::OwnToken], Theme::Faults, &TWICE);
}

#[test]
fn a_record_read_back_without_its_operation_repeats_ids() {
    shows(&[Guard::OwnOperation], Theme::Faults, &TWICE);
}

#[test]
fn handing_back_inside_a_tick_repeats_ids() {
    shows(&[Guard::HandBackWholeTicks], Theme::Crashes, &TWICE);
}

#[test]
fn cutting_what_was_handed_back_repeats_ids() {
    shows(&[Guard::HandBackLast], Theme::SmallSteps, &TWICE);
}

#[test]
fn cutting_ahead_of_the_clock_shows() {
    shows(&[Guard::NotAboveClock], Theme::Calm, &["while E never passed tick"]);
}

#[test]
fn a_clock_that_goes_back_without_a_switch_shows() {
    shows(&[Guard::ClockBackAtSwitch], Theme::SmallSteps, &["back to"]);
}

#[test]
fn extents_used_before_their_mark_moved_repeat_ids() {
    shows(&[Guard::MarkFirst], Theme::Crashes, &TWICE);
}

#[test]
fn a_mark_that_the_spill_tells_itself_repeats_ids() {
    shows(&[Guard::MarkOfRegistry, Guard::GrantAtMark], Theme::Crashes, &TWICE);
}

#[test]
fn ordered_ids_that_do_not_wait_for_the_clock_burn_land() {
    shows(&[Guard::OrderedRises], Theme::Far, &["not recovered"]);
}

#[test]
fn with_every_guard_in_place_the_histories_of_the_controls_find_nothing() {
    for theme in [Theme::Crashes, Theme::Far, Theme::Faults, Theme::SmallSteps, Theme::Calm] {
        for n in 0..50 {
            if let Err(why) = history(seed(n), Some(theme), false) {
                panic!("history {n}: {why}");
            }
        }
    }
}
