//! Workers left for others: by cause, and how long it takes.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::clock::Verdict;
use crate::stats::Switches;

const HOUR: i64 = 3_600 * SECOND as i64;

fn switches(clock: u64, lost: u64, unreadable: u64, resumed: u64) -> Switches {
    Switches { clock, lost, unreadable, resumed }
}

#[test]
fn a_switch_takes_as_long_as_the_registry_does_from_the_reading_that_showed_the_step() {
    let mut hand = Hand::new(Settings::default());
    hand.run(5 * SECOND);
    let before = hand.worker();
    hand.cost = 4 * MS;
    hand.step(-HOUR);
    // Nobody looks at the clock: that is no part of the switch.
    hand.pass(900 * MS);
    // Somebody scrapes the figures, which is the first reading of all, and the producer is woken for it.
    let wakes = || hand.assembly.shared.producer.calls.load(std::sync::atomic::Ordering::Relaxed);
    let woken = wakes();
    assert_eq!(hand.stats().clock.verdict.name(), "behind");
    assert!(wakes() > woken, "the producer sleeps on");
    // It gets there a little later.
    hand.pass(3 * MS);
    hand.run(100 * MS);
    let stats = hand.stats();
    assert_eq!(stats.windows.switches, switches(1, 0, 0, 0));
    assert_eq!((stats.clock.verdict, stats.clock.entered.behind), (Verdict::Steady, 1));
    assert_ne!(hand.worker(), before);
    let switched = stats.windows.switched;
    assert_eq!(
        (switched.count(), switched.last()),
        (1, Duration::from_millis(7)),
        "3 ms, and a claim of 4 ms"
    );
    assert_eq!(switched.longest(), switched.last());
    hand.engine.runs(10, crate::Order::Any).unwrap();
}

#[test]
fn a_switch_that_had_to_wait_for_a_free_worker_took_that_long() {
    let mut hand = Hand::new(Settings::default());
    hand.run(5 * SECOND);
    // Every mark is ahead of the clock, for 20 s.
    let until = hand.assembly.shared.layout.tick_at_ns(START - 3_500 * SECOND).unwrap();
    for worker in 0..16 {
        hand.tamper(worker, |found| found.record.reserved_until = found.record.reserved_until.max(until));
    }
    hand.step(-HOUR);
    hand.run(60 * SECOND);
    assert_eq!(hand.stats().windows.switches, switches(0, 0, 0, 0));
    hand.run(60 * SECOND);
    let stats = hand.stats();
    assert_eq!((stats.windows.switches, stats.clock.verdict), (switches(1, 0, 0, 0), Verdict::Steady));
    let took = stats.windows.switched.last();
    assert!((Duration::from_secs(94)..=Duration::from_secs(97)).contains(&took), "{took:?}");
}

#[test]
fn a_worker_that_somebody_else_took_is_lost() {
    let mut hand = Hand::new(Settings::default());
    hand.run(5 * SECOND);
    let before = hand.worker();
    hand.tamper(before, |found| found.record.token = Token([9; 16]));
    hand.run(20 * SECOND);
    assert_eq!(hand.stats().windows.switches, switches(0, 1, 0, 0));
    assert_ne!(hand.worker(), before);
}

#[test]
fn a_worker_whose_record_is_gone_or_went_back_is_unreadable() {
    for gone in [true, false] {
        let mut hand = Hand::new(Settings::default());
        hand.run(5 * SECOND);
        let before = hand.worker();
        if gone {
            hand.registry.tamper_worker(before, None);
        } else {
            hand.tamper(before, |found| found.record.reserved_until -= 1_000);
        }
        hand.run(20 * SECOND);
        assert_eq!(hand.stats().windows.switches, switches(0, 0, 1, 0), "gone: {gone}");
        assert_ne!(hand.worker(), before);
    }
}

#[test]
fn a_leap_drops_all_that_was_granted_and_the_process_is_another_one_then() {
    let mut hand = Hand::new(Settings { workers: 3, ..Settings::default() });
    hand.run(5 * SECOND);
    let before = hand.engine.workers();
    let token = |hand: &Hand, worker: u32| hand.registry.clone().worker(worker).unwrap().record.token;
    assert_eq!(token(&hand, before[0]), Token([5; 16]));
    hand.step(HOUR);
    hand.run(5 * SECOND);
    let after = hand.engine.workers();
    assert!(after.len() == 3 && before.iter().all(|worker| !after.contains(worker)), "{before:?} {after:?}");
    let stats = hand.stats();
    assert_eq!((stats.windows.switches, stats.clock.jumps), (switches(0, 0, 0, 1), 1));
    // Else a write of the copy that goes on as before could be taken for one of ours.
    assert!(after.iter().all(|worker| token(&hand, *worker) != Token([5; 16])));
}

#[test]
fn a_fresh_call_between_two_workers_waits_for_the_second_one() {
    let mut hand = Hand::new(Settings::default());
    hand.run(5 * SECOND);
    hand.step(HOUR);
    // All that was held is dropped, and another worker is asked for.
    hand.assembly.producer.turn();
    assert!(hand.engine.workers().is_empty());
    let mut call = pin!(hand.engine.request(1, crate::Order::Fresh, Duration::from_millis(50)));
    let mut context = Context::from_waker(Waker::noop());
    let refused = call.as_mut().poll(&mut context);
    assert!(refused.is_pending(), "{refused:?}");
    hand.run(5 * MS);
    let served = call.as_mut().poll(&mut context);
    assert!(matches!(served, Poll::Ready(Ok(_))), "{served:?}");
}

#[test]
fn a_fresh_call_that_is_the_first_to_see_a_leap_believed_waits_for_the_next_window() {
    let mut hand = Hand::new(Settings::default());
    hand.run(5 * SECOND);
    hand.step(HOUR);
    hand.run(59 * SECOND);
    assert_eq!(hand.stats().clock.verdict.name(), "ahead");
    hand.pass(SECOND + MS);
    let mut context = Context::from_waker(Waker::noop());
    let wait = Duration::from_millis(50);
    let mut first = pin!(hand.engine.request(1, crate::Order::Fresh, wait));
    assert!(first.as_mut().poll(&mut context).is_pending(), "the leap is believed, and every window past");
    // The renewal is asked for and not done yet.
    hand.assembly.producer.turn();
    let mut second = pin!(hand.engine.request(1, crate::Order::Fresh, wait));
    assert!(second.as_mut().poll(&mut context).is_pending());
    hand.run(5 * MS);
    for mut call in [first, second] {
        let served = call.as_mut().poll(&mut context);
        assert!(matches!(served, Poll::Ready(Ok(_))), "{served:?}");
    }
}

#[test]
fn a_worker_that_was_asked_for_is_not_left_when_the_clock_goes_back() {
    let mut hand = Hand::new(Settings { pinned: Some(7), ..Settings::default() });
    hand.run(5 * SECOND);
    hand.step(-10 * SECOND as i64);
    hand.run(2 * SECOND);
    assert_eq!((hand.worker(), hand.stats().windows.switches.total()), (7, 0));
    let status = hand.engine.status();
    assert!(!status.ready && hand.notes(&["worker 7 only", "10.0 s behind"][..1]), "{status:?}");
    hand.run(20 * SECOND);
    assert!(hand.engine.status().ready, "the clock has passed what was issued");
}

#[test]
fn a_clock_that_comes_back_from_beyond_the_last_tick_is_served_again() {
    let epoch_ms = START / MS - 86_400_000;
    // 2^28 ms are three days.
    let layout = Layout::new(28, 10, 25, 1_000, epoch_ms);
    let layout = layout.unwrap_or_else(|_| Layout::new(29, 10, 24, 1_000, epoch_ms).unwrap());
    let years = 3 * 365 * 24 * HOUR;
    let mut hand = Hand::starting_at(START.checked_add_signed(years).unwrap(), layout, Settings::default());
    hand.run(5 * SECOND);
    assert!(!hand.engine.status().ready && hand.notes(&["time bits reach from", "set the clock right"]));
    assert!(!hand.engine.try_next_id().unwrap_err().is_retryable());
    hand.step(-years);
    hand.turn();
    assert!(hand.engine.try_next_id().unwrap_err().is_retryable(), "it is behind, which passes");
    hand.run(5 * SECOND);
    assert!(hand.engine.status().ready, "{:?}", hand.engine.status());
    assert_eq!(hand.stats().windows.switches, switches(1, 0, 0, 0));
    hand.engine.runs(10, crate::Order::Any).unwrap();
}
