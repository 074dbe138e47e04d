//! Calls that wait while memory is copied: those that have a part of their ids, and those that are done and not read.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::world::poll;
use super::*;
use crate::{Pending, Run};

/// A call for more than there is at the copy, and less than comes soon after it.
const COUNT: u32 = 400;

fn begun(world: &World, order: Order) -> Pin<Box<Pending>> {
    let mut call = Box::pin(world.engine.request(COUNT, order, Duration::from_mins(1)));
    assert!(poll(&mut call).is_pending(), "{order:?}");
    call
}

/// A millisecond in which all that is due is done.
fn serve(world: &mut World) {
    world.turn();
    (0..9).for_each(|_| world.job());
    (0..9).for_each(|_| world.deliver());
    world.time.pass(MS);
}

/// Lives until the call is served, and reads it.
fn read(world: &mut World, call: &mut Pin<Box<Pending>>) {
    let before = world.got.len();
    let result = (0..500).find_map(|_| {
        serve(world);
        match poll(call) {
            Poll::Ready(result) => Some(result.unwrap()),
            Poll::Pending => None,
        }
    });
    world.take(Ok(result.expect("the call is served")));
    assert_eq!(world.got.len() - before, COUNT as usize);
}

/// Two that are copied when each has a call, which waits, or is done and not read.
fn copied_with_a_call(
    order: Order,
    is_done: bool,
    disk: impl Fn() -> Option<MemoryStorage>,
) -> [(World, Pin<Box<Pending>>); 2] {
    let calls = std::cell::RefCell::new(Vec::new());
    let (one, two) = copied_with(disk, |world| {
        calls.borrow_mut().push(begun(world, order));
        let waits = |world: &World| lock(&world.assembly.shared.gate).waiting() > 0;
        for _ in (0..500).take_while(|_| is_done) {
            if waits(world) {
                serve(world);
            }
        }
        assert_eq!(waits(world), !is_done, "{order:?}");
    });
    let mut calls = calls.into_inner().into_iter();
    [one, two].map(|world| (world, calls.next().expect("each has one")))
}

fn between(one: &World, two: &World) -> Option<String> {
    twice(&[("the first", &one.got), ("the second", &two.got)])
}

#[test]
fn a_call_that_waits_over_a_leap_gets_nothing_of_what_it_had_gathered_before() {
    found_without(Guard::LeapDropsGathered, || {
        let found = [Order::Any, Order::Fresh].map(|order| {
            let mut both = copied_with_a_call(order, false, || None);
            for (world, call) in &mut both {
                read(world, call);
            }
            let [(mut one, _), (mut two, _)] = both;
            let found = between(&one, &two);
            one.stop().unwrap();
            two.stop().unwrap();
            found
        });
        found.into_iter().flatten().next()
    });
}

/// Three idle seconds, and ids in ring and queue.
fn filled(world: &mut World) {
    for _ in 0..3 {
        serve(world);
        world.time.pass(SECOND);
    }
    world.turn();
    world.turn();
}

/// Takes all that calls of any age get now.
fn drain(world: &mut World) {
    let mut runs = Vec::new();
    while world.engine.try_runs(1, Order::Any, &mut runs).is_ok() {}
    world.take(Ok(runs));
}

#[test]
fn a_call_that_gathers_over_a_leap_gets_nothing_of_what_it_had_before() {
    found_without(Guard::LeapWastesInHand, || {
        let (mut one, mut two) = copied(filled);
        drain(&mut one);
        let shared = two.assembly.shared.clone();
        let mut runs = Vec::new();
        let since = shared.check_open().unwrap();
        let gather = |runs: &mut Vec<Run>| {
            shared.with_thread_state(|thread_run, thread_state| {
                shared.gather_whole(9, since, runs, thread_run, thread_state)
            })
        };
        assert!(gather(&mut runs).is_ok());
        // Its thread stands still until the leap was dealt with, and ids came after it.
        two.turn();
        for _ in 0..20 {
            serve(&mut two);
        }
        if gather(&mut runs).is_err() {
            assert_eq!(runs.iter().map(Run::len).sum::<u32>(), 18, "there are ids to be had");
            return None;
        }
        two.take(Ok(runs));
        between(&one, &two)
    });
}

/// A call of the second one has gathered ids that the first one has, and waits for the gate while the leap is dealt with.
/// How many of them were wasted, when they came back or were read: none where it came to the gate before that.
fn wasted_of_a_call_at_the_gate(waits: bool) -> u64 {
    let (mut one, mut two) = copied(filled);
    let count = 40 + one.engine.stats().held.total() as u32;
    drain(&mut one);
    let (shared, engine) = (two.assembly.shared.clone(), two.engine.clone());
    let gate = lock(&shared.gate);
    let call = std::thread::spawn(move || {
        if waits {
            let mut call = Box::pin(engine.request(count, Order::Any, Duration::from_mins(1)));
            assert!(poll(&mut call).is_pending());
            return Some(call);
        }
        let mut runs = Vec::new();
        assert!(engine.try_runs(count, Order::Any, &mut runs).is_err() && runs.is_empty());
        None
    });
    while shared.ring.ids() > 0 || shared.queue.len() > 0 {
        std::thread::yield_now();
    }
    drop(gate);
    two.turn();
    two.waiting.extend(call.join().unwrap());
    for _ in 0..100 {
        serve(&mut two);
        two.time.pass(100 * MS);
        two.read();
        if two.waiting.is_empty() {
            drain(&mut two);
        }
    }
    assert!(two.waiting.is_empty(), "the call waits on in vain");
    assert_eq!(between(&one, &two), None);
    one.stop().unwrap();
    two.stop().unwrap();
    shared.returns.voided()
}

#[test]
fn what_a_call_has_in_hand_while_a_leap_is_dealt_with_goes_to_nobody() {
    for waits in [false, true] {
        let found = (0..1_000).find(|_| wasted_of_a_call_at_the_gate(waits) > 0);
        assert!(found.is_some(), "no call came to the gate behind the turn");
    }
}

#[test]
fn a_call_whose_caller_pauses_over_a_leap_keeps_nothing_of_what_it_had_gathered() {
    let callers = std::cell::RefCell::new(Vec::new());
    let (mut one, mut two) = copied(|world| {
        let caller = crate::Caller::default();
        let call = world.engine.request(COUNT, Order::Any, Duration::from_mins(1)).on_behalf_of(&caller);
        let mut call = Box::pin(call);
        assert!(poll(&mut call).is_pending());
        caller.set_pause(true);
        world.turn();
        callers.borrow_mut().push((caller, call));
    });
    let mut callers = callers.into_inner();
    two.turn();
    assert_eq!(two.engine.stats().held.total(), 0, "it has what the first one's has");
    for (world, (caller, call)) in [&mut one, &mut two].into_iter().zip(&mut callers) {
        caller.set_pause(false);
        read(world, call);
    }
    assert_eq!(between(&one, &two), None);
}

#[test]
fn a_call_that_was_done_before_a_leap_and_is_read_after_it_waits_on_for_other_ids() {
    found_without(Guard::LeapWastesDone, || {
        let found = [Order::Any, Order::Fresh, Order::Ordered].map(|order| {
            let [(mut one, mut first), (mut two, mut second)] = copied_with_a_call(order, true, || None);
            two.turn();
            let Poll::Ready(result) = poll(&mut first) else { panic!("{order:?}: it is done") };
            one.take(result);
            assert_eq!(one.got.len(), COUNT as usize);
            match poll(&mut second) {
                Poll::Ready(result) => two.take(result),
                Poll::Pending => read(&mut two, &mut second),
            }
            let found = between(&one, &two);
            one.stop().unwrap();
            two.stop().unwrap();
            found
        });
        found.into_iter().flatten().next()
    });
}

#[test]
fn what_a_call_was_done_with_before_a_leap_is_wasted_when_it_is_left_after_it() {
    found_without(Guard::LeapWastesReturns, || {
        let found = [false, true].map(|stops| {
            let disk = || Some(MemoryStorage::new());
            let [(mut one, first), (mut two, second)] = copied_with_a_call(Order::Any, true, disk);
            two.turn();
            let wasted = two.engine.stats().wasted.step;
            drop(second);
            one.waiting.push(first);
            one.read();
            assert_eq!(one.got.len(), COUNT as usize);
            if stops {
                two.stop().unwrap();
                // No window came since: what it left on its disk for the next process is of before the leap.
                let left = two.engine.stats().spilled;
                return (left > 0).then(|| format!("{left} ids that the other copy has are on the disk"));
            }
            two.live(20);
            let found = between(&one, &two);
            let more = two.engine.stats().wasted.step - wasted;
            assert!(found.is_some() || more == u64::from(COUNT), "{more} of them are counted as waste");
            found
        });
        assert_eq!(found[0].is_some(), found[1].is_some(), "{found:?}");
        found.into_iter().flatten().next()
    });
}

#[test]
fn a_call_that_was_done_before_a_leap_is_refused_what_it_had_after_a_stop_too() {
    for reads in [true, false] {
        let [(_, _), (mut two, second)] = copied_with_a_call(Order::Any, true, || None);
        two.waiting.push(second);
        // It is the stop that finds the leap.
        two.stop_and(reads).unwrap();
        assert_eq!((two.got.len(), two.waiting.len()), (0, 0));
    }
}

#[test]
fn a_call_that_waits_on_after_a_leap_ends_in_its_time() {
    let [(_, _), (mut two, mut second)] = copied_with_a_call(Order::Ordered, true, || None);
    two.turn();
    assert!(poll(&mut second).is_pending());
    two.time.pass(61 * SECOND);
    two.turn();
    let Poll::Ready(result) = poll(&mut second) else { panic!("it waits beyond its deadline") };
    let refused = result.unwrap_err();
    let once = crate::stats::Refused { not_ready: 1, ..Default::default() };
    assert_eq!(two.engine.stats().refused, once, "{refused}");
    two.stop().unwrap();
}
