//! A leap of the clock, as in a copy of a machine that is resumed: what is held is void.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::{LONG, SteppedClock, World, clock, named, next, plain, sequence, twice};
use crate::clock::{Clock, Reading};
use crate::sequence::chain::span::Span;
use crate::sequence::names::named::Named;
use crate::sequence::store::SequenceSettings;
use crate::sequence::{Demand, Sequence, SequenceError};
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

/// Whether a grant is used although another thread saw a leap after it was granted, while the one before it was used.
fn is_used_behind_a_leap() -> bool {
    let (world, clock) = (World::new(), clock());
    for name in ["a", "b"] {
        world.create(name, SequenceSettings::default());
    }
    let (sequences, mut teller) = world.builder().clock(clock.clone()).assemble_for_test();
    let seen_by = sequences.clone();
    teller.behind_grant = Some(Box::new(move || {
        clock.leap(Duration::from_mins(10));
        seen_by.look_for_test();
    }));
    let ask = |name| Box::pin(sequence(&sequences, name).request(Demand::ordered(10), LONG));
    let [mut first, mut second] = ["a", "b"].map(ask);
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    teller.turn_now();
    assert_eq!(world.database.batches()[0], 2, "both are granted at once");
    second.as_mut().poll(&mut context).is_ready()
}

#[test]
fn a_leap_that_another_thread_sees_between_two_grants_of_a_batch_drops_the_second() {
    assert!(!is_used_behind_a_leap());
    assert!(Guard::without(&[Guard::LeapDropsSegment], is_used_behind_a_leap));
}

/// Whether what a stop saves is kept although the clock leapt meanwhile: a copy of the process would save it, too.
fn is_saved_over_a_leap() -> bool {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let folder = tempfile::tempdir().unwrap();
    let (sequences, mut teller) = world.in_folder(folder.path()).clock(clock.clone()).assemble_for_test();
    assert!(sequence(&sequences, "a").try_next_ordered().is_err());
    teller.turn_now();
    sequence(&sequences, "a").try_next_ordered().unwrap();
    // The record of the file is about to be made.
    world.records.before_swap(move || clock.leap(Duration::from_mins(10)));
    sequences.shutdown();
    teller.stop();
    let figures = sequences.stats().figures;
    assert_eq!((figures.held, figures.saved + figures.wasted.dropped, figures.moving()), (0, 999, 0));
    figures.saved > 0
}

#[test]
fn what_a_stop_saves_while_the_clock_leaps_is_not_kept() {
    assert!(!is_saved_over_a_leap());
    assert!(Guard::without(&[Guard::LeapDropsSaved], is_saved_over_a_leap));
}

#[test]
fn the_poll_that_meets_a_leap_gets_nothing_of_before_it() {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().clock(clock.clone()).assemble_for_test();
    let mut context = Context::from_waker(Waker::noop());
    let mut call = Box::pin(sequence(&sequences, "a").request(Demand::ordered(10), LONG));
    assert!(call.as_mut().poll(&mut context).is_pending());
    teller.turn_now();
    clock.leap(Duration::from_mins(10));
    assert!(matches!(call.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    assert_eq!(sequences.stats().figures.wasted.leap, 1_000);
}

/// A clock that leaps once, before a reading to come.
#[derive(Debug, Default)]
pub(super) struct TrapClock {
    clock: SteppedClock,
    /// Readings until then, that one included; none is to come at 0.
    pub(super) readings: AtomicU64,
}

impl Clock for TrapClock {
    fn read(&self) -> Reading {
        let readings = self.readings.load(Ordering::Relaxed);
        self.readings.store(readings.saturating_sub(1), Ordering::Relaxed);
        if readings == 1 {
            self.clock.leap(Duration::from_mins(10));
        }
        self.clock.read()
    }
}

/// Calls `next` until it meets a leap at the reading of that number within it; whether that call gets an id that was held
/// before.
fn is_returned(nth: u64, next: impl Fn(&Sequence) -> Result<u64, SequenceError>) -> bool {
    let (world, clock) = (World::new(), Arc::new(TrapClock::default()));
    world.create("a", SequenceSettings::default());
    let builder = world.builder().wait(Duration::ZERO).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let a = sequence(&sequences, "a");
    assert!(next(&a).is_err());
    teller.turn_now();
    for taken in 0..1_000 {
        // Before that the thread does not know the segment.
        clock.readings.store(if taken < 20 { 0 } else { nth }, Ordering::Relaxed);
        let id = next(&a);
        if sequences.stats().figures.wasted.leap > 0 {
            sequences.publish();
            assert_eq!(sequences.stats().figures.moving(), 0);
            return id.is_ok();
        }
    }
    panic!("no call reads the clock {nth} times");
}

/// A call for one number.
type Call = fn(&Sequence) -> Result<u64, SequenceError>;

#[test]
fn a_call_that_takes_an_id_and_then_meets_a_leap_does_not_return_it() {
    // When the next grant is asked for: a call for neighbours reads the clock then, and one that takes a run for the second time.
    let calls: [(u64, Call); 3] = [
        (1, Sequence::try_next_ordered),
        (1, |a| a.take(1).map(|numbers| numbers.into_iter().next().unwrap())),
        (2, Sequence::next_id),
    ];
    for (nth, next) in calls {
        assert!(!is_returned(nth, next), "reading {nth}");
        assert!(Guard::without(&[Guard::LeapWastesHit], || is_returned(nth, next)), "reading {nth}");
    }
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

/// Ids that came twice without a witness, where an older dump of the store was put back between two lives, and the clock
/// leapt while the second one claimed what the first one had left.
fn twice_of_a_store_that_went_back_before_a_leap() -> usize {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let (dump, folder) = (world.database.dump(0), tempfile::tempdir().unwrap());
    let first = world.in_folder(folder.path()).witness(false).build().unwrap();
    let a = sequence(&first, "a");
    let mut ids: Vec<u64> = (0..10).map(|_| a.next_ordered().unwrap()).collect();
    first.shutdown();
    world.database.restore(0, &dump);
    let leaping = clock.clone();
    world.records.before_swap(move || leaping.leap(Duration::from_mins(10)));
    let builder = world.in_folder(folder.path()).witness(false).clock(clock);
    let (sequences, mut teller) = builder.assemble_for_test();
    let a = sequence(&sequences, "a");
    for _ in 0..20 {
        let mut out = Vec::new();
        let _ = a.try_runs(Demand::any(40), &mut out);
        ids.extend(out.into_iter().flatten());
        teller.turn_now();
    }
    teller.stop();
    twice(&ids)
}

#[test]
fn leftovers_that_a_leap_made_void_still_show_that_a_store_is_behind_them() {
    assert_eq!(twice_of_a_store_that_went_back_before_a_leap(), 0);
    assert!(Guard::without(&[Guard::LeftMarksKept], twice_of_a_store_that_went_back_before_a_leap) > 0);
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

/// Whether what a call took before a leap is its caller's where a stop comes between it and its look, before the leap or
/// after.
fn is_kept_over_a_leap_and_a_stop(stop_first: bool) -> bool {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let (sequences, hub, mut teller, _) = world.builder().clock(clock.clone()).parts_for_test(7).unwrap();
    next(&sequence(&sequences, "a"), || teller.turn_now());
    let a = hub.names.find(&named("a")).unwrap();
    let generation = a.word.load();
    let segment = a.lock().head().unwrap();
    assert!(segment.take_one().is_some());
    if stop_first {
        teller.stop();
    }
    clock.leap(Duration::from_mins(10));
    hub.now();
    if !stop_first {
        teller.stop();
    }
    a.keep_hit(&mut a.lock(), (generation, 1))
}

#[test]
fn what_a_call_took_before_a_leap_is_wasted_also_where_a_stop_comes_before_its_look() {
    for stop_first in [false, true] {
        let is_kept = || is_kept_over_a_leap_and_a_stop(stop_first);
        assert!(!is_kept(), "a stop first: {stop_first}");
        assert!(Guard::without(&[Guard::LeapWastesHit], is_kept));
    }
}

/// Whether a call gets an id that was held before a leap, while another thread deals with that and stands in the middle of
/// the names. The name of the call is one that it comes to later, or one that comes back where it has been.
fn passes_a_leap(comes_back: bool) -> bool {
    let (world, clock) = (World::new(), clock());
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    for name in &names {
        world.create(name, SequenceSettings::default());
    }
    let (sequences, hub, mut teller, _) = world.builder().clock(clock.clone()).parts_for_test(7).unwrap();
    for name in &names {
        next(&sequence(&sequences, name), || teller.turn_now());
    }
    drop(hub.take_activated());
    let mut order = Vec::new();
    hub.names.each(|named| order.push(named.name.as_str().to_owned()));
    let asked = &order[if comes_back { 0 } else { 30 }];
    if comes_back {
        assert_eq!(hub.sweep(|named| named.name.as_str() == asked, 1), 1);
    }
    let middle = hub.names.find(&named(&order[20])).unwrap();
    let (says, said) = channel();
    thread::scope(|scope| {
        let state = middle.lock();
        clock.leap(Duration::from_mins(10));
        let (hub, sequences) = (&hub, &sequences);
        scope.spawn(move || _ = hub.look());
        while hub.leaps() == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        scope.spawn(move || {
            let got = sequence(sequences, asked).try_runs(Demand::ordered(1), &mut Vec::new());
            says.send(got.is_ok()).unwrap();
        });
        thread::sleep(Duration::from_millis(50));
        drop(state);
        said.recv().unwrap()
    })
}

#[test]
fn no_call_passes_a_leap_that_another_thread_deals_with() {
    assert!(!passes_a_leap(false));
    assert!(!passes_a_leap(true));
}

#[test]
fn leftovers_are_not_used_where_another_thread_sees_a_leap_when_they_are_given_out() {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let folder = tempfile::tempdir().unwrap();
    let life = || world.in_folder(folder.path()).clock(clock.clone()).assemble_for_test();
    let (sequences, mut teller) = life();
    next(&sequence(&sequences, "a"), || teller.turn_now());
    teller.stop();
    let (sequences, mut teller) = life();
    let (leaping, seen_by) = (clock.clone(), sequences.clone());
    teller.before_reclaim = Some(Box::new(move || {
        leaping.leap(Duration::from_mins(10));
        seen_by.look_for_test();
    }));
    teller.turn_now();
    let figures = sequences.stats().figures;
    assert_eq!((figures.reclaimed, figures.wasted.leap, figures.held), (999, 999, 0), "{figures:?}");
}

/// Claimed, and not given out since the database was away: another copy of this machine may have done the same.
#[test]
fn leftovers_that_wait_for_the_store_are_not_left_once_more_after_a_leap() {
    let (world, clock, folder) = (World::new(), clock(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let life = || world.in_folder(folder.path()).witness(false).clock(clock.clone()).assemble_for_test();
    let (sequences, mut teller) = life();
    next(&sequence(&sequences, "a"), || teller.turn_now());
    teller.stop();
    world.database.set_away(0, true);
    let (sequences, mut teller) = life();
    teller.turn_now();
    clock.leap(Duration::from_mins(10));
    teller.stop();
    let figures = sequences.stats().figures;
    assert_eq!((figures.reclaimed, figures.wasted.dropped, figures.saved), (999, 999, 0), "{figures:?}");
    world.database.set_away(0, false);
    let (sequences, mut teller) = life();
    assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1_001);
}
