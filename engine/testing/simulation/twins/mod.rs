//! A machine's memory, copied while it runs, and both copies go on: the clock of at least one has leapt, as it does
//! where a machine is resumed from a snapshot.
//!
//! Memory cannot be copied here, so it is made twice: two worlds of one seed are the same to the last id, each over a
//! registry of its own. At the copy the second world's link is put to the first one's registry. From then on the two
//! meet: with the same token, the same operation numbers, the same ids in ring, queue and threads' hands, the same
//! writes in doubt, and the same answers under way. Each has its own copy of the disk.
//!
//! # What is checked
//! - T1 until the copy both got the same ids, or it is none;
//! - T2 from its first turn on, or a stop before that, the one whose clock leapt issues no id that the other one had or
//!   gets, and hands back none; a third process, which may open its disk and take its workers, shows what it left. For
//!   fresh and ordered ids of calls that do not wait that holds from the first reading of the clock on;
//! - T3 after a clean stop the accounts of each add up.
//!
//! `XUID_TWINS=100000 cargo test --release -p xuid-engine --lib twins` tries so many; a failure prints its seed, and
//! `XUID_TWIN=seed` tries that one alone.

mod met;
mod switch;
mod waiting;
mod world;

use std::collections::HashMap;

pub(crate) use world::Link;
use world::{World, layout, registry};
use xuid_spill::MemoryStorage;

use crate::Order;
use crate::registry::memory::Fault;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::testing::simulation::history::{BEGIN, MS, SECOND};
use crate::testing::simulation::{number, seed, seed_draws};
use crate::testing::support::clock::Change;
use crate::testing::support::rng::Rng;

/// Workers of the registry.
const WORKERS: u32 = 4;

/// Twins that are tried where nothing is out.
const TWINS: u64 = if cfg!(debug_assertions) { 300 } else { 3_000 };

/// Within so many the loss of a guard must show.
const MOST: u64 = 5_000;

/// From the seed up to the copy.
fn before(seed: u64) -> World {
    let mut rng = Rng::new(seed);
    seed_draws(rng.next());
    let disk = rng.chance(70).then(MemoryStorage::new);
    let workers = rng.within(1, 2) as u32;
    let mut world = World::begin(rng, &registry(), BEGIN, disk, workers);
    // Idle seconds, which the spill gets.
    for _ in 0..world.rng.below(8) {
        world.time.pass(SECOND);
        world.turn();
        world.job();
        world.deliver();
    }
    for _ in 0..world.rng.within(5, 80) {
        world.act(true);
    }
    if world.rng.chance(50) {
        // The clock went back a moment before, and the answer to a claim for that is under way, or has arrived.
        let back = world.rng.magnitude(SECOND, 5 * SECOND).cast_signed();
        world.clock.change(Change::Step(-back));
        world.turn();
        if world.rng.chance(30) {
            // It was stored, and nobody knows.
            let registry = lock(&world.link.to);
            registry.mend();
            registry.fail(Fault::LandsUnseen);
            registry.fail_reads(1);
        }
        world.job();
        if world.rng.chance(50) {
            world.deliver();
        }
    }
    world
}

/// What becomes of the second one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    /// Its clock leaps at once.
    Leaps,
    /// It runs for some seconds before that, in which its spill gets what both have.
    RunsOn,
    /// It does, and is killed at the leap, before its registry has done anything that it asked for.
    IsKilled,
}

/// What is wrong with what became of the two.
pub(crate) fn resumed_twice(seed: u64) -> Result<(), String> {
    resumed(seed, Second::Leaps)
}

fn resumed(seed: u64, second: Second) -> Result<(), String> {
    let (mut one, mut two) = (before(seed), before(seed));
    if one.got != two.got {
        return Err("the worlds are not the same before the copy".into());
    }
    let registry = lock(&one.link.to).clone();
    registry.mend();
    registry.fail_reads(0);
    two.link.put_to(&registry);
    let known = two.got.len();
    two.rng = Rng::new(!seed);
    let mut rng = Rng::new(seed.rotate_left(32));
    if second != Second::Leaps {
        // Nobody calls, and nothing that it asks for is done yet.
        for _ in 0..rng.within(1, 6) {
            two.time.pass(SECOND);
            two.turn();
        }
    }
    let mut leap = Change::Step((3_600 * SECOND).cast_signed());
    if seed.is_multiple_of(5) {
        // Engine time may be ahead by as much. The clock is read before: a step back that no reading showed would hide it.
        for world in [&one, &two] {
            let _ = world.engine.stats();
        }
        leap = Change::Step((6 * SECOND).cast_signed());
    }
    two.clock.change(leap);
    if rng.chance(20) {
        // Both were stopped, and the first one's clock leaps as well.
        one.clock.change(leap);
        one.turn();
    }
    if rng.chance(30) {
        // Somebody scrapes the figures first.
        let _ = two.engine.stats();
    }
    if rng.chance(30) {
        // Somebody calls first.
        two.cut(rng.pick(&[Order::Fresh, Order::Ordered]));
    }
    if second == Second::IsKilled {
        two.turn();
        two.stopped = true;
    } else if rng.chance(30) {
        two.stop()?;
    } else {
        two.turn();
    }
    let disk = two.disk.take().filter(|_| two.stopped);
    if second != Second::IsKilled && rng.chance(50) {
        // What it asked for is done before the others do anything.
        (0..8).for_each(|_| two.job());
    }
    let (mut third, begins) = (None, rng.below(30));
    for round in 0..60 {
        one.act(false);
        if !two.stopped {
            two.act(false);
        }
        if round == begins {
            // It takes whatever is free.
            let (rng, now) = (Rng::new(seed ^ 3), one.time.now());
            third = Some(World::begin(rng, &registry, now, disk.clone(), WORKERS));
        }
        if let Some(third) = &mut third {
            third.act(false);
        }
    }
    for _ in 0..12 {
        [&mut one, &mut two].into_iter().chain(&mut third).for_each(|world| world.live(1));
    }
    for world in [&mut one, &mut two].into_iter().chain(&mut third).filter(|world| !world.stopped) {
        world.stop()?;
    }
    let mut all = vec![("the first", &one.got[..]), ("the second", &two.got[known..])];
    all.extend(third.as_ref().map(|third| ("a third", &third.got[..])));
    twice(&all).map_or(Ok(()), Err)
}

/// An id that came twice, of what each got.
fn twice(all: &[(&str, &[u64])]) -> Option<String> {
    let mut owners = HashMap::new();
    all.iter().flat_map(|(who, got)| got.iter().map(move |id| (*who, *id))).find_map(|(who, id)| {
        let other = owners.insert(id, who)?;
        let parts = layout().decode(crate::Id::new(id));
        Some(format!("an id came twice, from {other} and {who}: {parts:?}"))
    })
}

/// Something comes twice without these guards, within so many twins, and nothing does with it.
fn found_by_twins(out: &[Guard]) {
    let failure = |n: u64| resumed_twice(seed(n)).err().map(|why| (n, why));
    let found = Guard::without(out, || (0..MOST).find_map(failure));
    let Some((n, why)) = found else { panic!("without {out:?} nothing is wrong in {MOST} twins") };
    println!("without {out:?}, twins {n}: {why}");
    assert!(why.contains("an id came twice"), "{why}");
    assert_eq!(resumed_twice(seed(n)), Ok(()), "with every guard in place");
}

/// Two that are the same up to the copy, and do the same before it. The clock of the second one has leapt.
fn copied(before: impl Fn(&mut World)) -> (World, World) {
    copied_with(|| None, before)
}

/// The same, each with a disk of its own.
fn copied_with(disk: impl Fn() -> Option<MemoryStorage>, before: impl Fn(&mut World)) -> (World, World) {
    let begin = || {
        seed_draws(1);
        let mut world = World::begin(Rng::new(1), &registry(), BEGIN, disk(), 1);
        world.time.pass(20 * MS);
        before(&mut world);
        world
    };
    let (one, two) = (begin(), begin());
    two.link.put_to(&lock(&one.link.to));
    two.clock.change(Change::Step((3_600 * SECOND).cast_signed()));
    (one, two)
}

/// Something is wrong without this guard, and nothing with it.
fn found_without(guard: Guard, wrong: impl Fn() -> Option<String>) {
    assert_eq!(wrong(), None, "with every guard in place");
    let Some(why) = Guard::without(&[guard], wrong) else { panic!("without {guard:?} nothing is wrong") };
    println!("without {guard:?}: {why}");
}

#[test]
fn the_call_that_meets_a_leap_cuts_nothing_that_the_other_copy_has() {
    found_without(Guard::LeapStopsCuts, || {
        let found = [Order::Fresh, Order::Ordered].map(|order| {
            let (mut one, mut two) = copied(|_| ());
            one.cut(order);
            assert_eq!(one.got.len(), 1, "its clock is right");
            two.cut(order);
            let found = twice(&[("the first", &one.got), ("the second", &two.got)]);
            // A turn, and what is asked of the registry: then it serves again, of another window.
            two.live(2);
            two.got.clear();
            two.cut(order);
            assert_eq!(two.got.len(), 1, "{order:?}: it does not recover");
            found.or_else(|| twice(&[("the first", &one.got), ("the second", &two.got)]))
        });
        found.into_iter().flatten().next()
    });
}

#[test]
fn from_the_reading_on_that_sees_a_leap_no_thread_goes_on_with_its_run() {
    found_without(Guard::LeapVoidsAtOnce, || {
        // A run in the thread's hand and one in the handle's, from before the copy.
        let (_, mut two) = copied(|world| {
            assert!(world.engine.try_next_id().is_ok() && world.handles[0].next_id().is_ok());
        });
        let engine = two.engine.clone();
        let mut call =
            || [engine.try_next_id(), two.handles[0].next_id()].map(|id| id.map_or(0, crate::Id::raw));
        let (before, next) = (call(), call());
        assert_eq!(before.map(|id| id + 1), next, "each goes on with its run");
        let _ = engine.stats();
        let kept = next.into_iter().zip(call()).find(|(id, after)| id + 1 == *after);
        kept.map(|(id, _)| format!("the run of {id} is in use after the leap was seen"))
    });
}

/// Nothing comes twice in twins of which the second one does so, and something does without this guard.
fn found_where_the_second(second: Second, guard: Guard) {
    for n in 0..TWINS {
        assert_eq!(resumed(seed(n), second), Ok(()), "twins {n}");
    }
    let failure = |n: u64| resumed(seed(n), second).err().map(|why| (n, why));
    let found = Guard::without(&[guard], || (0..MOST).find_map(failure));
    let Some((n, why)) = found else { panic!("nothing is wrong in {MOST} twins without {guard:?}") };
    println!("twins {n}: {why}");
    assert!(why.contains("an id came twice"), "{why}");
}

/// An ensemble is not put back with a machine: it knows of one mark for two files, in which something else lies at one place.
#[test]
fn a_machine_that_ran_on_for_seconds_before_its_clock_leapt_leaves_nothing_in_its_spill_that_the_other_copy_has()
 {
    found_where_the_second(Second::RunsOn, Guard::LeapGivesUpSpill);
}

/// The mark of its spill was not moved by then.
#[test]
fn a_machine_that_is_killed_before_its_registry_answered_a_leap_leaves_nothing_to_the_next_process() {
    found_where_the_second(Second::IsKilled, Guard::LeapErasesSpill);
}

/// An id that came twice where a machine is put back to a snapshot of its memory and its disk, on which its registry is, after it
/// took ids from its spill.
fn twice_of_a_machine_that_was_put_back() -> Option<String> {
    let begin = || {
        seed_draws(1);
        let disk = Some(MemoryStorage::new());
        let mut world = World::begin(Rng::new(1), &registry(), BEGIN, disk, 1);
        // Idle seconds, which the spill gets.
        for _ in 0..8 {
            world.time.pass(SECOND);
            world.turn();
            world.job();
            world.deliver();
        }
        world
    };
    // More than is minted in so little time.
    let burst = |world: &mut World| {
        for _ in 0..100 {
            let mut runs = Vec::new();
            (0..8).for_each(|_| _ = world.engine.try_runs(256, Order::Any, &mut runs));
            world.got.extend(runs.into_iter().flatten().map(crate::Id::raw));
            world.turn();
            world.job();
            world.deliver();
            world.time.pass(MS);
        }
    };
    let (mut one, mut two) = (begin(), begin());
    burst(&mut one);
    let stats = one.engine.stats();
    assert!(
        stats.issued + stats.held.total() > stats.minted - stats.spilled,
        "nothing of the spill was used"
    );
    two.clock.change(Change::Step((3_600 * SECOND).cast_signed()));
    two.turn();
    burst(&mut two);
    assert!(!two.got.is_empty(), "it goes on");
    twice(&[("before", &one.got), ("after", &two.got)])
}

#[test]
fn a_machine_that_is_put_back_with_its_registry_issues_nothing_of_its_spill_again() {
    found_without(Guard::LeapGivesUpSpill, twice_of_a_machine_that_was_put_back);
}

#[test]
fn a_machine_that_was_copied_and_leapt_repeats_nothing_from_its_next_turn_on() {
    if let Some(seed) = number("XUID_TWIN") {
        return assert_eq!(resumed_twice(seed), Ok(()), "XUID_TWIN={seed}");
    }
    for n in 0..number("XUID_TWINS").unwrap_or(TWINS) {
        assert_eq!(resumed_twice(seed(n)), Ok(()), "XUID_TWIN={}", seed(n));
    }
}

macro_rules! mutants {
    ($($name:ident, $($guard:ident),+;)*) => {
        $(#[test]
        fn $name() {
            found_by_twins(&[$(Guard::$guard),+]);
        })*
    };
}

mutants! {
    a_leap_that_leaves_threads_their_runs_is_found_out, LeapDropsRuns;
    a_leap_that_leaves_the_queue_is_found_out, LeapDropsQueue;
    a_leap_that_leaves_the_ring_is_found_out, LeapDropsRing;
    a_leap_that_leaves_what_calls_gave_back_is_found_out, LeapDropsReturns;
    a_leap_that_leaves_what_calls_give_back_later_is_found_out, LeapWastesReturns;
    a_leap_that_leaves_what_calls_are_done_with_is_found_out, LeapWastesDone;
    a_leap_that_leaves_what_was_set_aside_is_found_out, LeapDropsAside;
    a_leap_that_leaves_what_the_producer_holds_is_found_out, LeapDropsReserve;
    a_leap_that_leaves_the_windows_is_found_out, LeapDropsWindows;
    a_leap_that_leaves_a_claim_under_way_is_found_out, LeapDropsClaim;
    a_leap_that_leaves_a_renewal_under_way_is_found_out, RenewalOfHeldWorker;
    a_leap_that_leaves_the_registry_thread_who_it_was_is_found_out, LeapResetsIdentity;
    a_leap_that_leaves_a_claim_in_doubt_is_found_out, LeapDrawsToken, LeapForgetsClaim;
    a_leap_that_leaves_a_grant_in_doubt_is_found_out, LeapForgetsGrant, LeapGivesUpSpill;
    a_leap_that_is_dealt_with_after_the_answers_is_found_out, LeapBeforeAnswers;
    a_stop_that_does_not_look_for_a_leap_is_found_out, LeapAtStop;
}
