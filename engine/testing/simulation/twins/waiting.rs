//! Calls that wait while memory is copied: those that have a part of their ids, and those that are done and not read.

use super::*;

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
