//! Power cuts: images of a machine's disks at any moment, each opened by an engine that must not repeat an id.
//!
//! A machine with the real local registry and one or two engines, each with a spill, goes through random load, idling,
//! bursts, stops and kills (`scenario`). All along, between any two writes and syncs, images are made: any subset of
//! the sectors written since the last sync survives (`power`). Each is then switched on, lived on and drained
//! (`judge`); the power may be cut in its recovery, too. A sector of a spill is written whole or not at all, one of the
//! registry may be torn.
//!
//! # How to run
//! `XUID_TRIALS=0..50000 cargo test --release -p xuid-engine --lib -- --exact --ignored --nocapture
//! testing::campaigns::crash_images`. A trial is one image, of the scenario that its number says. A failure prints the
//! number.
//!
//! # Invariants
//! - I1 a trial derives from its number alone: its scenario from the number of its group, and what comes after the cut
//!   from its own.

mod host;
mod judge;
mod known;
mod land;
mod power;
mod scenario;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use crate::testing::campaigns::{Tally, said};
use crate::testing::crash_images::judge::{Case, judge};
pub(crate) use crate::testing::crash_images::land::twice;
use crate::testing::crash_images::power::Fault;
use crate::testing::crash_images::scenario::Scenario;
use crate::testing::simulation::{DRAWS, seed};
use crate::testing::support::rng::Rng;

/// Images of one scenario. A scenario costs about as much as judging two.
const IMAGES: u64 = 16;

/// The seeds of scenarios are apart from those of what comes after.
const SCENARIOS: u64 = 0x636f_7572_7365;

/// A scenario, or what went wrong before any cut.
type Outcome = Rc<Result<Scenario, String>>;

thread_local! {
    /// The scenario that this thread judges images of, by number.
    static SCENARIO: RefCell<Option<(u64, Outcome)>> = const { RefCell::new(None) };
}

/// Does something that may panic: a finding like any other.
fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let result = catch_unwind(AssertUnwindSafe(work));
    DRAWS.set(None);
    result.unwrap_or_else(|panic| Err(format!("panicked: {}", said(&*panic))))
}

/// The scenario of this number. Images of one scenario mostly come one after the other, so the last one is kept.
fn scenario_of(number: u64, fault: Fault) -> Outcome {
    SCENARIO.with_borrow_mut(|kept| {
        if let Some((_, scenario)) = kept.as_ref().filter(|(found, _)| *found == number) {
            return Rc::clone(scenario);
        }
        let scenario = Rc::new(caught(|| scenario::run(seed(number ^ SCENARIOS), IMAGES as usize, fault)));
        *kept = Some((number, Rc::clone(&scenario)));
        scenario
    })
}

/// One image, by number. It failed if the tally has a failure.
fn trial(number: u64, fault: Fault) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let scenario = scenario_of(number / IMAGES, fault);
    let scenario = scenario.as_ref().as_ref().map_err(|why| format!("before any cut: {why}"))?;
    let Some(image) = scenario.images.get((number % IMAGES) as usize) else {
        return Err(format!("a scenario had {} images only", scenario.images.len()));
    };
    let case = Case { scenario, image, before: &scenario.issued[..image.issued], depth: 0 };
    let mut rng = Rng::new(seed(number));
    // What was counted until then counts, ids that came twice above all.
    if let Err(why) = caught(|| judge(&case, &mut rng, &mut tally)) {
        tally.failures.push(format!("image {number}: {why}"));
    }
    Ok(tally)
}

/// One trial of the campaign.
pub(crate) fn image(number: u64) -> Result<Tally, String> {
    trial(number, Fault::default())
}

mod mutants {
    //! Negative controls: a guard is taken out, and an image must show it.

    use super::*;
    use crate::sys::guards::Guard;

    /// Within so many images the loss of a guard must show.
    const MOST: u64 = 2_000;

    fn failure(n: u64, fault: Fault) -> Option<(Tally, String)> {
        let mut tally = match trial(n, fault) {
            Ok(tally) => tally,
            Err(why) => return Some((Tally::default(), why)),
        };
        tally.failures.pop().map(|why| (tally, why))
    }

    fn shows(out: &[Guard], fault: Fault, sign: &str) {
        let says = |(_, why): &(Tally, String)| why.contains(sign);
        let found = Guard::without(out, || {
            SCENARIO.set(None);
            (0..MOST).find_map(|n| failure(n, fault).filter(says).map(|(tally, why)| (n, tally, why)))
        });
        SCENARIO.set(None);
        match found {
            Some((n, tally, why)) => {
                println!("without {out:?}, {fault:?}, image {n}: {why}");
                assert_eq!(tally.duplicates > 0, why.contains("an id came twice"), "{}", tally.duplicates);
                assert_eq!(
                    failure(n, Fault::default()).map(|(_, why)| why),
                    None,
                    "with every guard in place"
                );
            }
            None => panic!("without {out:?}, {fault:?}, no image of {MOST} says: {sign}"),
        }
    }

    macro_rules! mutants {
        ($($name:ident, [$($guard:ident)?], {$($fault:ident)?}, $sign:literal;)*) => {
            $(#[test]
            fn $name() {
                let fault = Fault { $($fault: true,)? ..Fault::default() };
                shows(&[$(Guard::$guard)?], fault, $sign);
            })*
        };
    }

    mutants! {
        without_the_sync_between_copies_a_cut_loses_a_record, [SyncBetween], {}, "a record was lost";
        without_the_second_copy_a_cut_takes_a_record_back, [SecondCopy], {}, "a record went back";
        a_hint_that_is_written_before_its_record_refuses_a_start_after_a_cut,
            [HintLast], {}, "was restored from a backup";
        extents_used_before_their_mark_moved_come_twice_after_a_cut, [MarkFirst], {}, "an id came twice";
        a_clean_stop_whose_sync_does_nothing_loses_what_it_spilled,
            [], {spill_not_synced}, "a clean stop had spilled";
        a_mark_that_is_not_awaited_lets_ids_come_twice_after_a_cut,
            [], {mark_not_awaited}, "an id came twice";
    }

    #[test]
    fn with_every_guard_in_place_the_images_of_the_mutants_find_nothing() {
        for n in 0..if cfg!(debug_assertions) { 64 } else { 512 } {
            if let Some((_, why)) = failure(n, Fault::default()) {
                panic!("image {n}: {why}");
            }
        }
    }
}
