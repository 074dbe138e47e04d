//! Workers left for others: by cause, and how long it takes.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::clock::Verdict;
use crate::stats::Switches;

const HOUR: i64 = 3_600 * SECOND as i64;

fn switches(clock: u64, lost: u64, unreadable: u64, resumed: u64) -> Switches {
    Switches { clock, lost, unreadable, resumed, copied: 0 }
}

#[test]
fn a_switch_takes_as_long_as_the_registry_does_from_the_reading_that_showed_the_step() {
    let mut driven = Driven::new(Settings::default());
    driven.run(5 * SECOND);
    let before = driven.worker();
    driven.cost = 4 * MS;
    driven.step(-HOUR);
    // Nobody looks at the clock: that is no part of the switch.
    driven.pass(900 * MS);
    // Somebody scrapes the figures, which is the first reading of all, and the producer is woken for it.
    let wakes = || driven.assembly.shared.producer.calls.load(std::sync::atomic::Ordering::Relaxed);
    let woken = wakes();
    assert_eq!(driven.stats().clock.verdict.name(), "behind");
    assert!(wakes() > woken, "the producer sleeps on");
    // It gets there a little later.
    driven.pass(3 * MS);
    driven.run(100 * MS);
    let stats = driven.stats();
    assert_eq!(stats.windows.switches, switches(1, 0, 0, 0));
    assert_eq!((stats.clock.verdict, stats.clock.entered.behind), (Verdict::Steady, 1));
    assert_ne!(driven.worker(), before);
    let switched = stats.windows.switched;
    assert_eq!(
        (switched.count(), switched.last()),
        (1, Duration::from_millis(7)),
        "3 ms, and a claim of 4 ms"
    );
    assert_eq!(switched.longest(), switched.last());
    driven.engine.runs(10, crate::Order::Any).unwrap();
}

#[test]
fn a_switch_that_had_to_wait_for_a_free_worker_took_that_long() {
    let mut driven = Driven::new(Settings::default());
    driven.run(5 * SECOND);
    // Every mark is ahead of the clock, for 20 s.
    let until = driven.assembly.shared.layout.tick_at_ns(START - 3_500 * SECOND).unwrap();
    for worker in 0..16 {
        driven.tamper(worker, |found| found.record.reserved_until = found.record.reserved_until.max(until));
    }
    driven.step(-HOUR);
    driven.run(60 * SECOND);
    assert_eq!(driven.stats().windows.switches, switches(0, 0, 0, 0));
    driven.run(60 * SECOND);
    let stats = driven.stats();
    assert_eq!((stats.windows.switches, stats.clock.verdict), (switches(1, 0, 0, 0), Verdict::Steady));
    let took = stats.windows.switched.last();
    assert!((Duration::from_secs(94)..=Duration::from_secs(97)).contains(&took), "{took:?}");
}

#[test]
fn a_worker_that_somebody_else_took_is_lost() {
    let mut driven = Driven::new(Settings::default());
    driven.run(5 * SECOND);
    let before = driven.worker();
    driven.tamper(before, |found| found.record.token = Token([9; 16]));
    driven.run(20 * SECOND);
    assert_eq!(driven.stats().windows.switches, switches(0, 1, 0, 0));
    assert_ne!(driven.worker(), before);
}

#[test]
fn a_worker_whose_record_is_gone_or_went_back_is_unreadable() {
    for gone in [true, false] {
        let mut driven = Driven::new(Settings::default());
        driven.run(5 * SECOND);
        let before = driven.worker();
        if gone {
            driven.registry.tamper_worker(before, None);
        } else {
            driven.tamper(before, |found| found.record.reserved_until -= 1_000);
        }
        driven.run(20 * SECOND);
        assert_eq!(driven.stats().windows.switches, switches(0, 0, 1, 0), "gone: {gone}");
        assert_ne!(driven.worker(), before);
    }
}

#[test]
fn a_leap_drops_all_that_was_granted_and_the_process_is_another_one_then() {
    let mut driven = Driven::new(Settings { workers: 3, ..Settings::default() });
    driven.run(5 * SECOND);
    let before = driven.engine.workers();
    let token = |driven: &Driven, worker: u32| driven.registry.clone().worker(worker).unwrap().record.token;
    assert_eq!(token(&driven, before[0]), Token([5; 16]));
    driven.step(HOUR);
    driven.run(5 * SECOND);
    let after = driven.engine.workers();
    assert!(after.len() == 3 && before.iter().all(|worker| !after.contains(worker)), "{before:?} {after:?}");
    let stats = driven.stats();
    assert_eq!((stats.windows.switches, stats.clock.jumps), (switches(0, 0, 0, 1), 1));
    // Else a write of the copy that goes on as before could be taken for one of ours.
    assert!(after.iter().all(|worker| token(&driven, *worker) != Token([5; 16])));
}

#[test]
fn a_copy_that_one_record_shows_voids_all_that_is_held_and_is_said_from_then_on() {
    let mut driven = Driven::new(Settings { workers: 3, ..Settings::default() });
    driven.run(5 * SECOND);
    let before = driven.engine.workers();
    assert!(!driven.notes(&["a copy of this machine"]));
    // It renewed one of the three.
    driven.tamper(before[0], |found| {
        found.record.operation += 1_000;
        found.record.reserved_until += 1_000;
    });
    driven.run(20 * SECOND);
    let after = driven.engine.workers();
    assert!(after.len() == 3 && before.iter().all(|worker| !after.contains(worker)), "{before:?} {after:?}");
    let token = |worker: u32| driven.registry.clone().worker(worker).unwrap().record.token;
    assert!(after.iter().all(|worker| token(*worker) != Token([5; 16])));
    let stats = driven.stats();
    assert_eq!(stats.windows.switches, Switches { copied: 1, ..Switches::default() });
    assert!(stats.wasted.step > 0 && stats.clock.jumps == 0, "{:?}", stats.wasted);
    assert!(driven.engine.status().ready && driven.notes(&["a copy of this machine", "find the copy"]));
}

#[test]
fn a_fresh_call_between_two_workers_waits_for_the_second_one() {
    let mut driven = Driven::new(Settings::default());
    driven.run(5 * SECOND);
    driven.step(HOUR);
    // All that was held is dropped, and another worker is asked for.
    driven.assembly.producer.turn();
    assert!(driven.engine.workers().is_empty());
    let mut call = pin!(driven.engine.request(1, crate::Order::Fresh, Duration::from_millis(50)));
    let mut context = Context::from_waker(Waker::noop());
    let refused = call.as_mut().poll(&mut context);
    assert!(refused.is_pending(), "{refused:?}");
    driven.run(5 * MS);
    let served = call.as_mut().poll(&mut context);
    assert!(matches!(served, Poll::Ready(Ok(_))), "{served:?}");
}

#[test]
fn a_fresh_call_that_is_the_first_to_see_a_leap_believed_waits_for_the_next_window() {
    let mut driven = Driven::new(Settings::default());
    driven.run(5 * SECOND);
    driven.step(HOUR);
    driven.run(59 * SECOND);
    assert_eq!(driven.stats().clock.verdict.name(), "ahead");
    driven.pass(SECOND + MS);
    let mut context = Context::from_waker(Waker::noop());
    let wait = Duration::from_millis(50);
    let mut first = pin!(driven.engine.request(1, crate::Order::Fresh, wait));
    assert!(first.as_mut().poll(&mut context).is_pending(), "the leap is believed, and every window past");
    // The renewal is asked for and not done yet.
    driven.assembly.producer.turn();
    let mut second = pin!(driven.engine.request(1, crate::Order::Fresh, wait));
    assert!(second.as_mut().poll(&mut context).is_pending());
    driven.run(5 * MS);
    for mut call in [first, second] {
        let served = call.as_mut().poll(&mut context);
        assert!(matches!(served, Poll::Ready(Ok(_))), "{served:?}");
    }
}

#[test]
fn a_worker_that_was_asked_for_is_not_left_when_the_clock_goes_back() {
    let mut driven = Driven::new(Settings { pinned: Some(7), ..Settings::default() });
    driven.run(5 * SECOND);
    driven.step(-10 * SECOND as i64);
    driven.run(2 * SECOND);
    assert_eq!((driven.worker(), driven.stats().windows.switches.total()), (7, 0));
    let status = driven.engine.status();
    assert!(!status.fresh && driven.notes(&["worker 7 only", "10.0 s behind"][..1]), "{status:?}");
    driven.run(20 * SECOND);
    assert!(driven.engine.status().ready, "the clock has passed what was issued");
}

#[test]
fn a_clock_that_comes_back_from_beyond_the_last_tick_is_served_again() {
    let epoch_ms = START / MS - 86_400_000;
    // 2^28 ms are three days.
    let layout = Layout::new(28, 10, 25, 1_000, epoch_ms);
    let layout = layout.unwrap_or_else(|_| Layout::new(29, 10, 24, 1_000, epoch_ms).unwrap());
    let years = 3 * 365 * 24 * HOUR;
    let mut driven =
        Driven::starting_at(START.checked_add_signed(years).unwrap(), layout, Settings::default());
    driven.run(5 * SECOND);
    assert!(!driven.engine.status().ready && driven.notes(&["time bits reach from", "set the clock right"]));
    assert!(!driven.engine.try_next_id().unwrap_err().is_retryable());
    driven.step(-years);
    driven.turn();
    assert!(driven.engine.try_next_id().unwrap_err().is_retryable(), "it is behind, which passes");
    driven.run(5 * SECOND);
    assert!(driven.engine.status().ready, "{:?}", driven.engine.status());
    assert_eq!(driven.stats().windows.switches, switches(1, 0, 0, 0));
    driven.engine.runs(10, crate::Order::Any).unwrap();
}
