//! How callers share what there is when more is asked for: large calls that wait, and small ones beside them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::{Caller, Id, IdError, Order, Pending, Run};

/// More than a worker mints in 30 ms.
const LARGE: u32 = 131_072;

fn poll(pending: &mut Pending) -> Poll<Result<Vec<Run>, IdError>> {
    Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()))
}

/// A call that waits from now on, or why it may not.
fn begun(mut call: Pending) -> Result<Pending, IdError> {
    match poll(&mut call) {
        Poll::Pending => Ok(call),
        Poll::Ready(result) => Err(result.unwrap_err()),
    }
}

/// An engine whose reserve is spent.
fn spent() -> Driven {
    let mut driven = Driven::new(Settings::default());
    driven.run(5 * SECOND);
    driven.spend();
    driven
}

/// Calls that wait for a minute.
fn ask(driven: &Driven, calls: usize, order: Order, caller: &Caller) -> Vec<Pending> {
    (0..calls).map(|_| ask_for(driven, Duration::from_mins(1), order, caller)).collect()
}

/// A call that waits.
fn ask_for(driven: &Driven, wait: Duration, order: Order, caller: &Caller) -> Pending {
    let mut pending = driven.engine.request(LARGE, order, wait).on_behalf_of(caller);
    assert!(poll(&mut pending).is_pending());
    pending
}

#[test]
fn one_that_asks_for_everything_beforehand_is_served_in_turn_with_one_that_asks_for_little() {
    for order in [Order::Any, Order::Fresh] {
        let mut driven = spent();
        let (greedy, modest) = (Caller::default(), Caller::default());
        let mut all = ask(&driven, 100, order, &greedy);
        driven.run(40 * MS);
        for round in 0..5 {
            let mut one = ask(&driven, 1, order, &modest).remove(0);
            let begun = driven.boot();
            while poll(&mut one).is_pending() {
                // Its own 32 ms, those of the call before it, and those of the one that was under way.
                assert!(driven.boot() - begun < 110 * MS, "{order:?}, round {round}");
                driven.run(MS);
            }
        }
        all.retain_mut(|pending| poll(pending).is_pending());
        assert!((90..98).contains(&all.len()), "{order:?}: {} left", all.len());
    }
}

/// A hundred connections with all the calls that they may have, say: whoever comes then finds a place.
#[test]
fn callers_that_ask_for_all_there_is_to_wait_in_leave_places_to_others() {
    let driven = spent();
    let ask_one = |caller: &Caller| {
        begun(driven.engine.request(LARGE, Order::Any, Duration::from_mins(1)).on_behalf_of(caller))
    };
    let greedy: Vec<Caller> = (0..120).map(|_| Caller::default()).collect();
    let (mut all, mut refused) = (Vec::new(), 0);
    for caller in (0..1_024).flat_map(|_| &greedy) {
        match ask_one(caller) {
            Ok(pending) => all.push(pending),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("too many calls wait"), "{error}");
            }
        }
    }
    assert!(refused > 20_000 && all.len() > 80_000, "{refused} refused, {} wait", all.len());
    let modest = Caller::default();
    let few: Vec<_> = (0..256).map(|_| ask_one(&modest)).collect();
    assert!(few.iter().all(Result::is_ok));
    // What ends leaves its place.
    drop(all);
    let mut driven = driven;
    driven.run(SECOND);
    drop(ask(&driven, 2_000, Order::Any, &greedy[0]));
}

/// Its calls end one after the other while later ones wait.
#[test]
fn one_whose_waits_are_short_gets_its_share_beside_one_whose_waits_are_long() {
    let mut driven = spent();
    let (hasty, patient) = (Caller::default(), Caller::default());
    let mut all = ask(&driven, 64, Order::Any, &patient);
    let (mut calls, mut got, mut ended) = (Vec::new(), 0, 0);
    for ms in 0..2_000 {
        calls.retain_mut(|call| match poll(call) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                (got, ended) = (got + u32::from(result.is_ok()), ended + 1);
                false
            }
        });
        // The first four come apart.
        while calls.len() < (1 + ms / 12).min(4) {
            calls.push(ask_for(&driven, Duration::from_millis(50), Order::Any, &hasty));
        }
        driven.run(MS);
    }
    all.retain_mut(|pending| poll(pending).is_pending());
    let others = 64 - all.len();
    assert!(ended > 100, "most of them run out of time");
    // 62 in all.
    assert!((20..=40).contains(&got) && (20..=40).contains(&others), "{got}, others {others}");
}

#[test]
fn small_calls_beside_large_ones_that_wait_get_ids_of_each_tick_and_leave_half_to_them() {
    let mut driven = spent();
    let mut large = ask(&driven, 1_000, Order::Any, &Caller::default());
    let (mut small, mut refused) = (0_u64, 0);
    for _ in 0..1_000 {
        driven.run(MS);
        // Fifty clients that are quick; a thread's run comes to 64 ids.
        for _ in 0..50 {
            match driven.engine.try_next_id().map(Id::raw) {
                Ok(_) => small += 1,
                Err(_) => refused += 1,
            }
        }
    }
    large.retain_mut(|pending| poll(pending).is_pending());
    let given = (1_000 - large.len() as u64) * u64::from(LARGE);
    assert!(refused < 500, "{refused} refused, {small} served");
    // A second's ids are 4.096 million.
    assert!(given > 3_800_000, "{given} to the large ones");
    // Those that take all they can get are no exception.
    let before = large.len();
    for _ in 0..1_000 {
        driven.run(MS);
        while driven.engine.try_runs(64, Order::Any, &mut Vec::new()).is_ok() {}
    }
    large.retain_mut(|pending| poll(pending).is_pending());
    let given = (before - large.len()) as u64 * u64::from(LARGE);
    assert!((1_800_000..2_300_000).contains(&given), "{given} to the large ones");
}

#[test]
fn a_client_that_does_not_read_makes_no_burst_for_the_others() {
    let mut driven = Driven::spilling(Settings::default());
    driven.run(3 * SECOND);
    let stalled = Caller::default();
    driven.spend();
    let mut long = ask_for(&driven, Duration::from_mins(1), Order::Any, &stalled);
    let mut short = ask_for(&driven, Duration::from_millis(29_500), Order::Any, &stalled);
    let begun = driven.boot();
    stalled.set_pause(true);
    driven.run(5 * SECOND);
    let (spilled, turns, layout) = (driven.stats().spilled, driven.turns, driven.engine.layout());
    for _ in 5..30 {
        let end = driven.boot() + SECOND;
        // In the middle of a second, and at its end.
        for until in [end - 400 * MS, end] {
            driven.run(until - driven.boot());
            let id = driven.engine.try_next_id().unwrap();
            let age = driven.clock.read().wall - layout.tick_to_ns(layout.tick_of(id.raw()));
            assert!(age <= 2 * SECOND, "an id that is {} ms old", age / MS);
        }
        let is_over = driven.boot() - begun >= 29_500 * MS;
        assert_eq!(poll(&mut short).is_ready(), is_over, "its time is over in time");
    }
    // 4,096 each millisecond.
    let spilled = driven.stats().spilled - spilled;
    assert!(spilled >= 23 * 4_096_000, "{spilled} ids went to the spill");
    assert!(driven.turns - turns < 300, "{} turns in 25 s", driven.turns - turns);
    assert!(poll(&mut long).is_pending() && driven.stats().waiting == 1);
    // It reads again.
    let wakes = || driven.assembly.shared.producer.calls.load(std::sync::atomic::Ordering::Relaxed);
    let before = wakes();
    stalled.set_pause(false);
    assert!(wakes() > before, "the producer sleeps on");
    driven.turn();
    assert!(matches!(poll(&mut long), Poll::Ready(Ok(_))));
}

#[test]
fn a_call_whose_caller_pauses_is_ended_in_time_although_nothing_else_is_due() {
    for waits in [false, true] {
        let mut driven = spent();
        let caller = Caller::default();
        caller.set_pause(true);
        let call = driven.engine.request(LARGE, Order::Any, Duration::from_millis(100));
        let mut call = call.on_behalf_of(&caller);
        assert!(!waits || poll(&mut call).is_pending());
        driven.turn();
        let pause = driven.turn();
        assert_eq!(pause <= Duration::from_millis(100), waits, "{pause:?}");
    }
}

/// All ids of so many ticks, the first of them so many ticks ago, as a spill brings them.
fn brought(driven: &mut Driven, ago: u64, ticks: u32) -> xuid_spill::Extent {
    let layout = driven.engine.layout();
    let tick = layout.tick_at_ns(driven.clock.read().wall).unwrap();
    let first = layout.encode(tick - ago, 9, 0).raw();
    let brought = xuid_spill::Extent { first, len: layout.sequences(), ticks };
    // As `Reserve::granted` counts it.
    driven.assembly.producer.reserve.tally.replayed += brought.ids();
    brought
}

/// How many ids calls that wait are given in a turn.
fn given_in_a_turn(driven: &mut Driven) -> u64 {
    let shared = driven.engine.shared().clone();
    let before = shared.counters.tickets_in.value();
    driven.assembly.producer.turn();
    shared.counters.tickets_in.value() - before
}

/// No other thread gets to the gate while a pass of service lasts, and a grant may bring 64 s of land at once.
#[test]
fn a_pass_of_service_ends_long_before_all_that_a_grant_brought_is_given_out() {
    let mut driven = spent();
    let _all = ask(&driven, 2_000, Order::Any, &Caller::default());
    let grant = brought(&mut driven, 70_000, 64_000);
    driven.assembly.producer.reserve.keep([grant]);
    let given = given_in_a_turn(&mut driven);
    // 65,536 quanta, some milliseconds.
    assert!(given <= 1 << 24, "{given} ids in one pass under the gate's lock");
}

/// The wall was set ahead: what was fresh is too old for a call that waits, which would gather all of it in vain.
#[test]
fn ids_that_became_too_old_are_gathered_for_no_call() {
    let mut driven = spent();
    let _waiting = ask(&driven, 1, Order::Any, &Caller::default());
    let old = brought(&mut driven, 4_000_000, 1_000);
    let reserve = &mut driven.assembly.producer.reserve;
    let expired = reserve.tally.expired;
    reserve.fresh.push(old);
    let given = given_in_a_turn(&mut driven);
    assert!(given <= u64::from(LARGE), "{given} ids");
    assert_eq!(driven.assembly.producer.reserve.tally.expired - expired, old.ids());
}

/// Of a long queue they are looked for seldom, and a client may ask again and again and go: what it leaves takes a place of all.
#[test]
fn calls_that_went_make_room_behind_one_that_waits_on() {
    let mut driven = spent();
    (0..10_000).for_each(|_| driven.registry.fail(crate::registry::memory::Fault::Away));
    crate::sys::atomics::lock(&driven.assembly.shared.gate).minter.abandon();
    driven.spend();
    let caller = Caller::default();
    let first = ask(&driven, 1, Order::Any, &caller);
    for _ in 0..2 {
        drop(ask(&driven, 2_000, Order::Any, &caller));
        assert_eq!(driven.stats().waiting, 2_001);
        driven.run(200 * MS);
        assert_eq!(driven.stats().waiting, 1, "those that went stay");
    }
    drop(first);
}

#[test]
fn calls_beyond_a_bound_are_told_to_come_back_and_take_no_memory() {
    let mut driven = spent();
    let ask = |driven: &Driven| begun(driven.engine.request(LARGE, Order::Fresh, Duration::from_mins(1)));
    let waiting: Vec<Pending> = (0..100_000).map(|_| ask(&driven).unwrap()).collect();
    assert!(ask(&driven).is_err_and(IdError::is_retryable), "no bound");
    drop(waiting);
    driven.run(MS);
    assert!(ask(&driven).is_ok(), "those that went make room");
}
