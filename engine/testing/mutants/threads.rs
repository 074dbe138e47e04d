//! Hands, handles, and the producer between them: an engine whose threads do not run.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use xuid_spill::{MemoryStorage, SpillId, Storage};

use crate::api::builder::{Assembly, assemble};
use crate::background::registry_thread::Job;
use crate::clock::engine_clock::EngineClock;
use crate::clock::{Clock, Supervisor};
use crate::mint::minter::{Ages, Minter};
use crate::mint::worker::Part;
use crate::registry::memory::MemoryRegistry;
use crate::registry::ownership::{Identity, Ownership, Window};
use crate::registry::{ClusterId, Genesis, Token};
use crate::settings::Settings;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::testing::mutants::only_without;
use crate::testing::simulation::history::{BEGIN, MS, SECOND};
use crate::testing::simulation::process::open_spill;
use crate::testing::support::clock::{SimClock, Time};
use crate::testing::support::faults::{Armed, FaultKind, Faults, FaultyClock, FaultyStorage, Point};
use crate::tiers::reserve::open::{self, OpenedSpill};
use crate::{Engine, Layout, Order};

fn engine() -> (Assembly, Arc<Faults>, Arc<Time>) {
    assembled(|_, _, _| open::none("there is none"))
}

/// With a spill on an empty disk of its own.
fn with_spill() -> (Assembly, Arc<Faults>, Arc<Time>) {
    assembled(|faults, genesis, ownership| {
        let wire = |storage: &MemoryStorage| -> Box<dyn Storage> {
            Box::new(FaultyStorage { storage: storage.clone(), faults: faults.clone() })
        };
        let disk = &mut Some(MemoryStorage::new());
        open_spill(disk, wire, SpillId::from_bytes([2; 16]), genesis, ownership)
    })
}

/// An engine of one worker with this spill, its faults, and its time.
pub(super) fn assembled(
    spill: impl FnOnce(&Arc<Faults>, &Genesis, &mut Ownership) -> OpenedSpill,
) -> (Assembly, Arc<Faults>, Arc<Time>) {
    let time = Time::new(BEGIN);
    let layout = Layout::default();
    let floor = layout.tick_at_ns(BEGIN).unwrap();
    let genesis = Genesis::new(ClusterId::from_bytes([1; 16]), layout, floor, 1);
    let faults = Faults::new(time.clone(), None);
    faults.set_working(true);
    let clock =
        Arc::new(FaultyClock { clock: SimClock::new(time.clone(), 77 * SECOND), faults: faults.clone() });
    let assembly = assemble(
        Box::new(MemoryRegistry::new(genesis)),
        Identity::new(Token([1; 16]), "test".into()),
        |genesis, ownership| spill(&faults, genesis, ownership),
        Settings { slots: 16, ..Settings::default() },
        clock,
        |_| unreachable!("the worker is free"),
    );
    (assembly.unwrap(), faults, time)
}

#[test]
fn a_handle_issues_nothing_after_the_shutdown() {
    only_without(&[Guard::LimitVoided], || {
        let (assembly, _, _) = engine();
        let engine = Engine::new(assembly.shared.clone(), Vec::new());
        let mut handle = engine.handle();
        handle.next_id().unwrap();
        assembly.shared.close();
        handle.next_id().ok().map(|id| format!("{id} was issued after the shutdown"))
    });
}

#[test]
fn a_turn_over_voids_what_threads_and_handles_have_in_hand() {
    only_without(&[Guard::TurnOverVoids], || {
        let (mut assembly, _, time) = engine();
        let engine = Engine::new(assembly.shared.clone(), Vec::new());
        let mut handle = engine.handle();
        time.pass(5 * MS);
        let mut call = || [engine.try_next_id(), handle.next_id()].map(|id| id.unwrap().raw());
        let (before, next) = (call(), call());
        assert_eq!(before.map(|id| id + 1), next, "each goes on with its run");
        time.pass(SECOND);
        assembly.producer.turn();
        let after = call();
        let kept = next.iter().zip(after).find(|(id, after)| *id + 1 == *after);
        kept.map(|(id, _)| format!("the run of {id} is in use after the turn-over"))
    });
}

/// Fetches an id and, when it is told, another one, in a thread that has to wait for the first; meanwhile hands are
/// voided.
#[test]
fn of_a_run_that_comes_after_a_voiding_a_thread_that_waited_uses_one_id() {
    // Guards are a thread's own.
    let wrong = |out: &'static [Guard]| {
        let (mut assembly, _, time) = engine();
        let engine = &Engine::new(assembly.shared.clone(), Vec::new());
        // All there is.
        while engine.try_next_id().is_ok() {}
        let ids = std::thread::scope(|scope| {
            let call = |_| engine.next_id().unwrap().raw();
            let waiting = scope.spawn(move || Guard::without(out, || [0, 1].map(call)));
            while lock(&assembly.shared.gate).waiting() == 0 {
                std::thread::yield_now();
            }
            assembly.shared.void_runs();
            time.pass(5 * MS);
            assembly.producer.turn();
            waiting.join().unwrap()
        });
        (ids[1] == ids[0] + 1).then(|| format!("{} was issued of a run that is void", ids[1]))
    };
    assert_eq!(wrong(&[]), None, "with every guard in place");
    assert!(wrong(&[Guard::GenerationBeforeWait]).is_some(), "without it nothing is wrong");
}

#[test]
fn what_a_call_leaves_unread_after_the_stop_is_waste() {
    let (mut assembly, _, time) = engine();
    let engine = Engine::new(assembly.shared.clone(), Vec::new());
    // More than a tick has.
    let mut call = Box::pin(engine.request(5_000, Order::Fresh, Duration::from_secs(1)));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    time.pass(2 * MS);
    assembly.producer.turn();
    assert_eq!(lock(&assembly.shared.gate).waiting(), 0, "it is done, and nobody read it");
    assembly.shared.close();
    assembly.producer.finish();
    drop(call);
    let stats = engine.stats();
    assert_eq!((stats.held.total(), stats.issued), (0, 0), "{stats:#?}");
    assert_eq!(stats.minted, stats.spilled + stats.wasted.total(), "{stats:#?}");
}

#[test]
fn a_panic_of_the_producer_takes_requests_down() {
    only_without(&[Guard::PanicAnswers], || {
        let (mut assembly, faults, time) = engine();
        time.pass(5 * MS);
        let ring = &assembly.shared.ring;
        assert!(ring.take(&mut ring.cursor(0)).asked, "an empty partition is asked for");
        faults.arm(Some(Armed::NEXT_READING_PANICS));
        assembly.producer.turn_whatever_happens();
        assert!(!faults.take_injected().is_empty(), "it did panic");
        faults.arm(Some(Armed::NEXT_READING_PANICS));
        assembly.registry_thread.run_whatever_happens(Job::Look);
        assert_eq!(Engine::new(assembly.shared.clone(), Vec::new()).stats().panics, 2);
        let asked = ring.take(&mut ring.cursor(0)).asked;
        (!asked).then(|| "the next request wakes nobody".into())
    });
}

/// One with three times as much land as may be used, and its time.
fn minter() -> (Minter, EngineClock, Arc<Time>) {
    let (layout, settings) = (Layout::default(), Settings::default());
    let time = Time::new(BEGIN);
    let clock = SimClock::new(time.clone(), 77 * SECOND);
    let supervisor = Supervisor::new(settings.thresholds(), clock.read());
    let mut clock = EngineClock::new(layout, clock, supervisor);
    let mut minter = Minter::new(layout, Ages::of(&settings, &layout));
    let now = clock.now();
    let begin = now.tick.unwrap();
    drop(minter.add(&now, Window::new(0, begin..begin + 3 * minter.ages.max), 1));
    (minter, clock, time)
}

/// Were a frontier behind what it was cut to, ordered ids would wait for the next tick.
#[test]
fn ordered_ids_rise_above_the_whole_of_the_last_run_whatever_the_frontier_says() {
    only_without(&[Guard::OrderedRunWhole], || {
        let (mut minter, mut clock, _) = minter();
        Guard::without(&[Guard::FrontierFirst], || {
            let now = clock.now();
            let first = minter.ordered(&now, 8).unwrap();
            let next = minter.ordered(&now, 8)?;
            Some(format!("{next:?} after {first:?}"))
        })
    });
}

#[test]
fn land_that_is_too_old_is_not_cut() {
    only_without(&[Guard::AgeOfWindow], || {
        let (mut minter, mut clock, time) = minter();
        let (layout, max_age) = (Layout::default(), minter.ages.max);
        time.pass(2 * layout.tick_to_ns(max_age).saturating_sub(layout.tick_to_ns(0)));
        let now = clock.now();
        let run = minter.any(&now, Part::Whole, 1).unwrap();
        let age = now.tick.unwrap() - layout.tick_of(run.raw());
        (age > max_age).then(|| format!("an id that is {age} ticks old, and {max_age} is the most"))
    });
}

/// The run in hand is counted before the clock is read: whatever becomes of the call, nothing is counted twice, and the
/// handle neither goes back nor on with what it had.
#[test]
fn a_panic_in_a_handles_miss_costs_the_rest_of_its_run_and_no_more() {
    for goes_on in [false, true] {
        let (assembly, faults, _) = engine();
        let engine = Engine::new(assembly.shared.clone(), Vec::new());
        let mut handle = engine.handle();
        let mut seen: std::collections::HashSet<_> = (0..3).map(|_| handle.next_id().unwrap()).collect();
        assembly.shared.void_runs();
        faults.arm(Some(Armed::NEXT_READING_PANICS));
        let call = AssertUnwindSafe(|| handle.next_id());
        assert!(catch_unwind(call).is_err());
        if goes_on {
            seen.extend((0..3).map(|_| handle.next_id().unwrap()));
        }
        drop(handle);
        assert_eq!(seen.len(), if goes_on { 6 } else { 3 });
        let stats = engine.stats();
        assert_eq!(stats.issued, seen.len() as u64);
        assert_eq!(stats.minted, stats.issued + stats.wasted.total(), "{stats:#?}");
    }
}

/// A turn that appends to the spill has the land of a second in its hands.
#[test]
fn what_a_turn_had_in_its_hands_when_it_panicked_is_waste_and_is_counted() {
    let (assembly, faults, time) = with_spill();
    let Assembly { shared, mut producer, jobs: _jobs, .. } = assembly;
    let engine = Engine::new(shared.clone(), Vec::new());
    let figures = |what: &str| {
        let stats = engine.stats();
        assert_eq!(stats.moving(), 0, "{what}: {stats:#?}");
        stats
    };
    time.pass(1_500 * MS);
    faults.arm(Some(Armed { point: Point::Spill, after: 0, kind: FaultKind::Panic }));
    producer.turn_whatever_happens();
    assert!(!faults.take_injected().is_empty(), "it did panic");
    let stats = figures("after the panic");
    assert!(stats.panics == 1 && stats.wasted.panic >= 400 * 4_096, "{stats:#?}");
    assert_eq!(stats.spilled, 0);
    time.pass(20 * MS);
    producer.turn_whatever_happens();
    assert!(engine.try_next_id().is_ok(), "it goes on");
    shared.close();
    producer.finish();
    engine.publish();
    let after = figures("after the stop");
    assert_eq!((after.wasted.panic, after.held.total()), (stats.wasted.panic, 0), "{after:#?}");
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A disk that stands still, or a panic over it, must not keep callers waiting that the stop has refused.
#[test]
fn a_stop_wakes_those_who_wait_before_it_writes_to_the_spill() {
    let (assembly, faults, time) = with_spill();
    let Assembly { shared, mut producer, jobs: _jobs, .. } = assembly;
    let engine = Engine::new(shared.clone(), Vec::new());
    let mut call = Box::pin(engine.request(5_000_000, Order::Any, Duration::from_mins(1)));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    time.pass(500 * MS);
    shared.close();
    faults.arm(Some(Armed { point: Point::Spill, after: 0, kind: FaultKind::Panic }));
    let stopped = catch_unwind(AssertUnwindSafe(|| producer.finish()));
    assert!(stopped.is_err(), "the disk was not written");
    assert!(woken.0.load(Ordering::Relaxed), "the call sleeps until its time is over");
}

/// What a call for fresh ids passes by is set aside, and waits there for the producer.
#[test]
fn what_a_fresh_call_passes_by_is_held_at_once() {
    let (assembly, _, time) = engine();
    let engine = Engine::new(assembly.shared.clone(), Vec::new());
    time.pass(300 * MS);
    let mut runs = Vec::new();
    engine.try_runs(5, Order::Fresh, &mut runs).unwrap();
    let stats = engine.stats();
    assert!(stats.held.reserve >= 280 * 4_096, "{stats:#?}");
    assert_eq!((stats.issued, stats.served.minter, stats.moving()), (5, 5, 0), "{stats:#?}");
}
