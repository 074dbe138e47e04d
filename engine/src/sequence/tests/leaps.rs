//! A leap of the clock, as in a copy of a machine that is resumed: what is held is void.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{LONG, World, clock, named, plain, sequence};
use crate::sequence::Demand;
use crate::sequence::chain::span::Span;
use crate::sequence::names::named::Named;
use crate::sequence::store::SequenceSettings;
use crate::sys::fork_word::GenerationWord;
use crate::sys::guards::Guard;

#[test]
fn a_leap_voids_what_segments_threads_and_handles_hold() {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let sequences = world.builder().clock(clock.clone()).build().unwrap();
    let a = sequence(&sequences, "a");
    let mut handle = a.handle();
    for _ in 0..2_000 {
        let _ = (a.next_id().unwrap(), a.next_ordered().unwrap(), handle.next_id().unwrap());
    }
    let granted = world.database.mark(0, "a").unwrap();
    clock.leap(Duration::from_mins(10));
    // The reading that sees it is the keeper's or that of any call which finds no id.
    super::until("the leap", || sequences.stats().figures.wasted.leap > 0);
    for _ in 0..10 {
        for id in [a.next_id().unwrap(), a.next_ordered().unwrap(), handle.next_id().unwrap()] {
            assert!(id >= granted, "{id} was held before the leap, below {granted}");
        }
    }
    drop(handle);
    sequences.publish();
    let figures = sequences.stats().figures;
    assert_eq!((figures.issued, figures.moving()), (6_030, 0), "{figures:?}");
    assert_eq!(sequences.shutdown().figures.moving(), 0);
}

/// Whether a caller that meets the leap first gets an id that was held before it.
fn is_void_at_once() -> bool {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().clock(clock.clone()).assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut out = Vec::new();
    while a.try_runs(Demand::ordered(1), &mut out).is_err() {
        teller.turn_now();
    }
    clock.leap(Duration::from_mins(10));
    a.try_runs(Demand::ordered(1), &mut out).is_err()
}

#[test]
fn the_call_that_meets_a_leap_gets_nothing_of_before_it() {
    assert!(is_void_at_once());
    assert!(!Guard::without(&[Guard::LeapVoidsSegments], is_void_at_once));
}

/// Whether leftovers that were claimed before a leap are issued after it.
fn are_leftovers_void() -> bool {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let folder = tempfile::tempdir().unwrap();
    let first = world.in_folder(folder.path()).build().unwrap();
    sequence(&first, "a").next_ordered().unwrap();
    first.shutdown();
    let (sequences, mut teller) = world.in_folder(folder.path()).clock(clock.clone()).assemble_for_test();
    teller.turn_now();
    assert_eq!(sequences.stats().figures.held, 999);
    clock.leap(Duration::from_mins(10));
    sequences.look_for_test();
    sequences.stats().figures.held == 0
}

#[test]
fn a_leap_voids_leftovers_that_no_name_has_taken() {
    assert!(are_leftovers_void());
    assert!(!Guard::without(&[Guard::LeapVoidsLeftovers], are_leftovers_void));
}

/// Whether a grant whose reply was under way when the clock leapt is used.
fn is_dropped_under_way() -> bool {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let leaping = clock.clone();
    world.records.before_swap(move || leaping.leap(Duration::from_mins(10)));
    let (sequences, mut teller) = world.builder().clock(clock).assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut out = Vec::new();
    assert!(a.try_runs(Demand::ordered(1), &mut out).is_err());
    teller.turn_now();
    sequences.stats().grants.leapt == 1
}

#[test]
fn a_grant_that_is_under_way_at_a_leap_is_not_used() {
    assert!(is_dropped_under_way());
    assert!(!Guard::without(&[Guard::LeapDropsSegment], is_dropped_under_way));
}

/// Whether leftovers that were being claimed when the clock leapt are kept.
fn are_claimed_leftovers_kept() -> bool {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let folder = tempfile::tempdir().unwrap();
    let first = world.in_folder(folder.path()).build().unwrap();
    sequence(&first, "a").next_ordered().unwrap();
    first.shutdown();
    let leaping = clock.clone();
    world.records.before_swap(move || leaping.leap(Duration::from_mins(10)));
    let (sequences, mut teller) = world.in_folder(folder.path()).clock(clock).assemble_for_test();
    teller.turn_now();
    let figures = sequences.stats().figures;
    assert_eq!((figures.reclaimed, figures.held + figures.wasted.dropped), (999, 999), "{figures:?}");
    figures.held > 0
}

#[test]
fn leftovers_whose_claim_is_under_way_at_a_leap_are_not_used() {
    assert!(!are_claimed_leftovers_kept());
    assert!(Guard::without(&[Guard::LeapDropsClaimed], are_claimed_leftovers_kept));
}

/// Whether a call that was served before a leap, and is read after it, gets what it was served with.
fn is_served_over_a_leap() -> bool {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().clock(clock.clone()).assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut context = Context::from_waker(Waker::noop());
    let [mut read, mut left] = [(); 2].map(|()| Box::pin(a.request(Demand::ordered(10), LONG)));
    assert!(read.as_mut().poll(&mut context).is_pending() && left.as_mut().poll(&mut context).is_pending());
    teller.turn_now();
    clock.leap(Duration::from_mins(10));
    sequences.look_for_test();
    let polled = read.as_mut().poll(&mut context);
    // Nor does what a call leaves behind come back.
    drop(left);
    let figures = sequences.stats().figures;
    assert_eq!(figures.moving(), 0, "{figures:?}");
    matches!(polled, Poll::Ready(Ok(_))) || figures.held > 0
}

#[test]
fn what_a_call_was_served_with_before_a_leap_is_wasted() {
    assert!(!is_served_over_a_leap());
    assert!(Guard::without(&[Guard::LeapWastesServed], is_served_over_a_leap));
}

#[test]
fn a_step_back_or_a_small_one_voids_nothing() {
    let (_world, sequences, a) = plain();
    let first = a.next_ordered().unwrap();
    sequences.look_for_test();
    assert_eq!(a.next_ordered().unwrap(), first + 1);
    assert_eq!(sequences.stats().figures.wasted.leap, 0);
}

/// What a thread took before a leap and gives back after it: another copy of this machine may give it back as well.
#[test]
fn what_was_taken_before_a_leap_and_comes_back_after_it_is_wasted() {
    let name = Named::new(named("a"), GenerationWord::new().unwrap(), false);
    let generation = name.word.load();
    name.append(&mut name.lock(), Span { first: 1, count: 100, increment: 1 }).wake();
    let taken = [(); 3].map(|()| name.pull(&mut name.lock(), 1).unwrap());
    name.give_back_now(Some(taken[0]), generation);
    assert_eq!(name.lock().chain.loose(), 1, "before the leap it is good");
    let _ = name.void(&mut name.lock());
    name.give_back_now(Some(taken[1]), generation);
    name.undo(taken[2], generation);
    let state = name.lock();
    assert_eq!((state.chain.loose(), state.books.waste.leap), (0, 2));
}
