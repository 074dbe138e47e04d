//! A rollback that resets the sequence.
//!
//! Generators that begin a new sequence whenever the clock reads another millisecond than for the last id. "Another"
//! was meant as "a later one". A clock that goes back by a step of NTP, a leap second or a hand reads another
//! millisecond too, whose ids were made already, and the sequence begins anew in it. Some did notice, waited for a few
//! milliseconds, and went on all the same.

use std::sync::{Arc, Mutex};

use xuid_id::Id;

use crate::clock::engine_clock::EngineClock;
use crate::clock::{Clock, Reading, Supervisor, Thresholds};
use crate::id::run::Run;
use crate::mint::minter::{Ages, Minter};
use crate::mint::worker::Part;
use crate::registry::ownership::Window;
use crate::sys::atomics::lock;
use crate::testing::incidents::{Ledger, small};
use crate::testing::support::rng::Rng;

const MS: u64 = 1_000_000;
const START: u64 = 100_000 * MS;

/// Clocks that show what they were told.
#[derive(Debug)]
struct Told(Mutex<Reading>);

impl Told {
    /// Time goes by on both, and the wall steps.
    fn go_on(&self, passed_ms: u64, step_ms: i64) {
        let mut at = lock(&self.0);
        at.boot += passed_ms * MS;
        at.wall = (at.wall + passed_ms * MS).saturating_add_signed(step_ms * MS.cast_signed());
    }

    fn tick(&self) -> u64 {
        lock(&self.0).wall / MS
    }
}

impl Clock for Told {
    fn read(&self) -> Reading {
        *lock(&self.0)
    }
}

/// So much time goes by and the wall steps by so much, then so many ids are asked for.
type Script = Vec<(u64, i64, u32)>;

/// Steps back of a millisecond up to a second, in the middle of bursts that use a tick's sequence up, and forward again
/// over the same ticks.
fn script(seed: u64) -> Script {
    let mut dice = Rng::new(seed);
    let mut script = Vec::new();
    for _ in 0..200 {
        let step = match dice.below(8) {
            0 => -dice.below(5).cast_signed(),
            1 => -dice.below(1_000).cast_signed(),
            2 => dice.below(1_000).cast_signed(),
            _ => 0,
        };
        script.push((dice.below(3), step, 1 + dice.below(12) as u32));
    }
    script
}

fn told() -> Arc<Told> {
    Arc::new(Told(Mutex::new(Reading { wall: START, boot: 0 })))
}

/// The engine's minter under a script. Its window holds every tick that the wall can show: nothing but the minter
/// itself keeps it from ticks that were cut.
fn engine(script: &Script) -> Ledger {
    let clock = told();
    let supervisor = Supervisor::new(Thresholds::default(), clock.read());
    let ages = Ages { max: 1_000_000, fresh_ns: 10 * MS, ordered: 50 };
    let mut engine_clock = EngineClock::new(small(), clock.clone(), supervisor);
    let mut minter = Minter::new(small(), ages);
    let now = engine_clock.now();
    let passed = minter.add(&now, Window::new(1, 1..10_000_000), 10_000_000);
    let past: u64 = passed.iter().map(xuid_spill::Extent::ids).sum();
    assert_eq!(past, (START / MS - 1) * 8, "what lies before now is set aside");

    let mut ledger = Ledger::default();
    let mut last_ordered = 0;
    for (n, (passed, step, count)) in script.iter().enumerate() {
        clock.go_on(*passed, *step);
        let mut left = *count;
        while left > 0 {
            let now = engine_clock.now();
            let least = minter.least_fresh(&now);
            let run = match n % 3 {
                0 => minter.any(&now, Part::Whole, left),
                1 => minter.fresh(&now, least, Part::Whole, left),
                _ => minter.ordered(&now, left),
            };
            let Some(run) = run else { break };
            if n % 3 == 2 {
                assert!(run.raw() > last_ordered, "an ordered id went back");
                last_ordered = run.raw() + u64::from(run.len()) - 1;
            }
            left -= run.len();
            ledger.add(raw(run));
        }
    }
    // What was passed over and set aside belongs to others: it must not have been issued as well.
    let aside = minter.take_aside();
    let plots = aside.iter().flat_map(|extent| {
        (0..extent.ticks).flat_map(|tick| {
            let first = extent.first + u64::from(tick) * small().stride();
            first..first + u64::from(extent.len)
        })
    });
    ledger.add(plots);
    ledger
}

fn raw(run: Run) -> impl Iterator<Item = u64> {
    run.into_iter().map(Id::raw)
}

/// The generator as it was written then.
fn old(script: &Script, is_new: impl Fn(u64, u64) -> bool) -> Ledger {
    let clock = told();
    let (mut ledger, mut last, mut sequence) = (Ledger::default(), 0, 0);
    for (passed, step, count) in script {
        clock.go_on(*passed, *step);
        for _ in 0..*count {
            let tick = clock.tick();
            if is_new(tick, last) {
                (last, sequence) = (tick, 0);
            }
            // It waits for a later millisecond once the sequence is used up.
            if sequence == small().sequences() {
                break;
            }
            ledger.add([small().encode(last, 1, sequence).raw()]);
            sequence += 1;
        }
    }
    ledger
}

#[test]
fn a_clock_that_goes_back_resets_nothing() {
    let mut ids = 0;
    for seed in 0..60 {
        let ledger = engine(&script(seed));
        assert!(ledger.again.is_empty(), "seed {seed}: {:?} again", ledger.again);
        ids += ledger.seen.len();
    }
    assert!(ids > 20_000, "{ids} ids are too few to show anything");
}

#[test]
fn negative_control_a_sequence_that_begins_anew_in_another_tick_repeats_ids() {
    let repeats = |seed: &u64| !old(&script(*seed), |tick, last| tick != last).again.is_empty();
    assert!((0..300).filter(repeats).count() > 290, "scripts that go back over used ticks");
    // In a later tick only, the very same generator and scripts repeat nothing.
    for seed in 0..300 {
        old(&script(seed), |tick, last| tick > last).check(1);
    }
}
