//! Scripted histories: single cases, each written out by hand.

use std::time::Duration;

use xuid_id::DEFAULT_EPOCH_MS;

use crate::id::error::IdErrorKind;
use crate::registry::{Registry, Token, Versioned, WorkerRecord};
use crate::settings::Settings;
use crate::sys::atomics::lock;
use crate::testing::simulation::history::{BEGIN, History, MS, SECOND};
use crate::testing::simulation::network::State;
use crate::testing::simulation::store::Store;
use crate::testing::support::clock::Change;
use crate::testing::support::faults::{Armed, FaultKind, Point};
use crate::{Layout, Order};

const HOUR: u64 = 3_600 * SECOND;

fn settings() -> Settings {
    Settings { wait: Duration::ZERO, slots: 64, ..Settings::default() }
}

fn layout() -> Layout {
    Layout::new(51, 2, 10, 1_000, DEFAULT_EPOCH_MS).unwrap()
}

/// Nobody holds these workers, and they are reserved until then.
fn reserve(history: &History, workers: std::ops::Range<u32>, until_ns: u64) {
    let until = history.layout.tick_at_ns(until_ns).unwrap();
    let Store::Memory(registry) = &history.exchange.store else {
        panic!("a scripted history has one in memory")
    };
    for worker in workers {
        let version = registry.clone().worker(worker).unwrap().version + 1;
        let record = WorkerRecord {
            reserved_until: until,
            token: Token([9; 16]),
            operation: 1,
            owner: "somebody else".into(),
        };
        registry.tamper_worker(worker, Some(Versioned { record, version }));
    }
}

fn verdict(history: &History) {
    lock(&history.exchange.oracle).verdict().unwrap();
}

/// The case that the first prototype left open: the clock goes back behind the mark of every worker.
#[test]
fn with_every_mark_ahead_the_reserve_serves_and_then_calls_are_told_when_to_come_back() {
    for has_clock in [false, true] {
        let mut history = History::told(layout(), 1, has_clock, &settings());
        history.pass(20 * SECOND);
        let mine = history.nodes[0].process.as_ref().unwrap().engine.workers()[0];
        // Workers that nobody has used for ten minutes are free again ten minutes before this node's own time is.
        reserve(&history, 0..mine, history.time.now() - 600 * SECOND);
        reserve(&history, mine + 1..4, history.time.now() - 600 * SECOND);
        history.nodes[0].clock.change(Change::Step(-(2_700 * SECOND).cast_signed()));
        history.pass(3 * SECOND);

        let mut from_reserve = 0;
        let error = loop {
            match history.nodes[0].ask(256, Order::Any) {
                Ok(ids) => from_reserve += ids,
                Err(error) if from_reserve == 0 => panic!("the reserve has seconds of land: {error}"),
                Err(error) => break error,
            }
            history.pass(2 * MS);
        };
        assert!(from_reserve > 1_000_000, "{from_reserve} ids of the twenty seconds that went unused");
        assert_eq!(error.kind(), IdErrorKind::ClockBehind);
        for order in [Order::Any, Order::Fresh, Order::Ordered] {
            let error = history.nodes[0].ask(256, order).unwrap_err();
            assert_eq!(error.kind(), IdErrorKind::ClockBehind, "{order:?}");
            // The earliest mark is 35 minutes ahead, less what has passed since.
            let wait = error.retry_after().unwrap();
            let (least, most) = (Duration::from_mins(34), Duration::from_mins(35) + Duration::from_secs(1));
            assert!((least..most).contains(&wait), "{order:?} is told to wait {wait:?}");
        }

        // The clock catches up with the earliest mark; nothing else gets better.
        let wait = history.nodes[0].ask(1, Order::Fresh).unwrap_err().retry_after().unwrap();
        history.pass(wait.as_nanos() as u64 - SECOND);
        assert_eq!(history.nodes[0].ask(1, Order::Fresh).unwrap_err().kind(), IdErrorKind::ClockBehind);
        history.pass(3 * SECOND);
        assert_eq!(history.nodes[0].ask(1, Order::Fresh), Ok(1));
        assert_eq!(history.nodes[0].ask(1, Order::Any), Ok(1));
        verdict(&history);
    }
}

/// There is no tick that could be asked for, and so no job that would bring the registry's time.
#[test]
fn a_clock_that_was_before_the_epoch_is_followed_when_it_is_right_again() {
    for has_clock in [false, true] {
        let mut history = History::told(layout(), 2, has_clock, &settings());
        history.pass(100 * SECOND);
        // Ten minutes back there are workers to go to; so far below the epoch there are none, nor ticks.
        history.nodes[0].clock.change(Change::Step(-(600 * SECOND).cast_signed()));
        history.pass(10 * SECOND);
        // The registry was away when something was asked of it last, so what is known of its time does not count.
        lock(&history.nodes[0].end).state = State::Down;
        history.pass(70 * SECOND);
        history.nodes[0].clock.change(Change::Set(1));
        history.pass(10 * SECOND);
        history.nodes[0].clock.change(Change::Right);
        history.pass(3 * SECOND);
        history.better_times();
        history.recover().unwrap();
        verdict(&history);
    }
}

/// It has no tick to ask for, so nothing but a look brings the registry's time; and once it knew that, a minute alone
/// makes it believe no leap.
#[test]
fn a_process_that_began_with_a_clock_before_the_epoch_serves_when_it_is_right() {
    for has_clock in [false, true] {
        let mut history = History::told(layout(), 2, has_clock, &settings());
        history.crash(0);
        history.nodes[0].clock.change(Change::Set(HOUR));
        history.start(0);
        history.pass(10 * SECOND);
        assert!(history.nodes[0].ask(1, Order::Any).is_err(), "there is no tick");
        // While its clock is behind it looks; at the end in vain, and what comes unasked then is not the registry's
        // time.
        history.nodes[0].clock.change(Change::Step(-(60 * SECOND).cast_signed()));
        history.pass(10 * SECOND);
        lock(&history.nodes[0].end).state = State::Down;
        history.pass(10 * SECOND);
        history.nodes[0].clock.change(Change::Step((60 * SECOND).cast_signed()));
        history.pass(10 * SECOND);
        history.better_times();
        history.recover().unwrap();
        verdict(&history);
    }
}

/// While E was past the last tick nobody could renew the window; back in time, only this node's own worker is free.
#[test]
fn the_only_free_worker_may_be_the_one_that_was_held_before_the_leap() {
    let ends_2035 = Layout::new(39, 4, 20, 1_000, DEFAULT_EPOCH_MS).unwrap();
    let mut history = History::told(ends_2035, 1, false, &settings());
    history.pass(SECOND);
    let mine = history.nodes[0].process.as_ref().unwrap().engine.workers()[0];
    let far = BEGIN + 24 * 365 * 4 * HOUR;
    reserve(&history, 0..mine, far);
    reserve(&history, mine + 1..4, far);
    history.nodes[0].clock.change(Change::Step((24 * 365 * 20 * HOUR).cast_signed()));
    history.pass(300 * SECOND);
    assert_eq!(history.nodes[0].ask(1, Order::Fresh).unwrap_err().kind(), IdErrorKind::Exhausted);
    history.better_times();
    history.recover().unwrap();
    verdict(&history);
}

/// A panic of the producer is a defect, and it goes on; what the registry thread answered just then is lost with it,
/// and must not be waited for. So it is with the registry thread itself, which has no answer then.
#[test]
fn a_panic_over_a_job_of_the_registry_thread_or_its_answer_leaves_nobody_without_a_worker() {
    let mut panics = [0; 2];
    for after in 0..24 {
        let mut history = History::told(layout(), 1, true, &settings());
        history.crash(0);
        // A process that begins without its registry asks for a worker again and again.
        lock(&history.nodes[0].end).state = State::Down;
        history.start(0);
        history.pass(SECOND);
        lock(&history.nodes[0].end).state = State::Up;
        history.nodes[0].faults.arm(Some(Armed { point: Point::Clock, after, kind: FaultKind::Panic }));
        history.pass(10 * SECOND);
        for (count, whose) in panics.iter_mut().zip(["panics of a producer", "panics of a registry thread"]) {
            *count += history.nodes[0].tally.notes.get(whose).copied().unwrap_or(0);
        }
        history.better_times();
        history.recover().unwrap();
        verdict(&history);
    }
    assert!(panics.iter().sum::<u64>() > 20 && panics.iter().all(|count| *count > 3), "{panics:?} panics");
}

/// What the judge of recoveries must not forgive: a node without a process, and one without a worker.
#[test]
fn a_node_that_does_not_run_or_has_no_worker_has_not_recovered() {
    let mut history = History::told(layout(), 2, true, &settings());
    history.pass(SECOND);
    history.better_times();
    history.nodes[1].crash(false);
    let why = history.recover().unwrap_err();
    assert!(why.contains("not recovered: node 1"), "{why}");

    for has_clock in [true, false] {
        let mut history = History::told(layout(), 1, has_clock, &settings());
        history.pass(SECOND);
        history.better_times();
        history.crash(0);
        reserve(&history, 0..4, BEGIN + 24 * HOUR);
        history.start(0);
        let recovered = history.recover();
        // A registry that has a clock never lets marks be so far ahead; without one nobody can tell.
        assert_eq!(recovered.is_err(), has_clock, "{recovered:?}");
        assert!(history.tally.recovery_ms.is_empty());
    }
}
