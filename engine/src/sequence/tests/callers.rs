//! What callers get, by order, count, increment and end.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use tracing::Level;

use super::meddled::{Asked, slow};
use super::{AtEach, LONG, World, assert_distinct, clock, named, next, plain, sequence, stop_after, until};
use crate::clock::{Clock, Reading, SystemClock};
use crate::sequence::chain::line::MOST_WAITING;
use crate::sequence::store::{Alteration, HIGHEST, NewLast, NewSequence, SequenceSettings};
use crate::sequence::{
    ControlError, Demand, NamePattern, NameState, Numbers, PendingNumbers, Sequence, SequenceError,
    SequenceErrorKind, Sequences,
};
use crate::sys::guards::Guard;

#[test]
fn ids_begin_at_one_and_ascend_without_a_gap() {
    let (_world, sequences, a) = plain();
    let ids: Vec<u64> = (0..5_000).map(|_| a.next_ordered().unwrap()).collect();
    assert_eq!(ids, (1..=5_000).collect::<Vec<_>>());
    assert_eq!(a.take(7).unwrap().into_iter().collect::<Vec<_>>(), (5_001..=5_007).collect::<Vec<_>>());
    let runs = a.runs(Demand::ordered(20_000)).unwrap();
    let ids: Vec<u64> = runs.into_iter().flatten().collect();
    assert_eq!(ids, (5_008..25_008).collect::<Vec<_>>());
    let figures = sequences.shutdown().figures;
    assert_eq!((figures.issued, figures.moving()), (25_007, 0), "{figures:?}");
}

#[test]
fn an_increment_and_a_remainder_hold_over_segments() {
    let world = World::new();
    let settings = SequenceSettings { step: 10, increment: 3, remainder: 1, ..SequenceSettings::default() };
    world.create("a", settings);
    let sequences = world.builder().build().unwrap();
    let a = sequence(&sequences, "a");
    let mut expected = 1;
    for _ in 0..200 {
        assert_eq!((a.next_ordered().unwrap(), a.next_id().unwrap()), (expected, expected + 3));
        let numbers = a.take(5).unwrap();
        assert_eq!((numbers.first(), numbers.stride()), (expected + 6, 3));
        expected += 21;
    }
    stop_after(&sequences, 1_400);
}

#[test]
fn the_last_number_is_issued_and_then_none_until_the_end_is_moved() {
    let world = World::new();
    world.create("a", SequenceSettings { last: 1_500, ..SequenceSettings::default() });
    let sequences = world.builder().build().unwrap();
    let a = sequence(&sequences, "a");
    let ids: Vec<u64> = (0..1_500).map(|_| a.next_ordered().unwrap()).collect();
    assert_eq!(ids, (1..=1_500).collect::<Vec<_>>());
    assert_eq!(a.next_ordered().unwrap_err().kind(), SequenceErrorKind::Exhausted);
    assert_eq!(a.next_id().unwrap_err().kind(), SequenceErrorKind::Exhausted);
    assert_eq!(a.figures().state, NameState::Exhausted);
    let to = |last| Alteration { last: Some(last), ..Alteration::default() };
    let refused = sequences.alter(&named("a"), to(NewLast::At(1_000))).wait();
    assert!(matches!(refused, Err(ControlError::Refused { .. })), "{refused:?}");
    sequences.alter(&named("a"), to(NewLast::At(HIGHEST))).wait().unwrap();
    assert_eq!(a.next_ordered().unwrap(), 1_501);
    let info = sequences.alter(&named("a"), to(NewLast::Retired)).wait().unwrap();
    assert_eq!(info.row.settings.last, info.row.next - 1);
    stop_after(&sequences, 1_501);
}

#[test]
fn questions_without_end_keep_no_name_waiting() {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut context = Context::from_waker(Waker::noop());
    let mut call = a.request(Demand::ordered(1), LONG);
    assert!(Pin::new(&mut call).poll(&mut context).is_pending());
    let mut replies: Vec<_> = (0..100).map(|_| sequences.info(&named("a"))).collect();
    teller.turn_now();
    assert!(Pin::new(&mut call).poll(&mut context).is_ready(), "no id came");
    replies.retain_mut(|reply| Pin::new(reply).poll(&mut context).is_pending());
    assert!(!replies.is_empty(), "all were answered first");
    // Nor does it wait before it goes on with them.
    while !replies.is_empty() {
        assert!(teller.turn().is_zero() || replies.len() <= 16, "it waits with {} unanswered", replies.len());
        replies.retain_mut(|reply| Pin::new(reply).poll(&mut context).is_pending());
    }
}

/// Of questions that take long, as a list does in an ensemble that is far.
#[test]
fn where_callers_wait_names_are_asked_for_behind_each_slow_question() {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let store = slow(world.database.store(0), &clock, Asked::List, Duration::from_millis(300));
    let (sequences, mut teller) =
        Sequences::builder(Box::new(store)).wait(LONG).clock(clock).assemble_for_test();
    let mut context = Context::from_waker(Waker::noop());
    let mut call = sequence(&sequences, "a").request(Demand::ordered(1), LONG);
    assert!(Pin::new(&mut call).poll(&mut context).is_pending());
    let mut replies: Vec<_> = (0..8).map(|_| sequences.list("", "", 10)).collect();
    teller.turn();
    assert!(Pin::new(&mut call).poll(&mut context).is_ready(), "no id came");
    replies.retain_mut(|reply| Pin::new(reply).poll(&mut context).is_pending());
    assert_eq!(replies.len(), 7);
}

#[test]
fn a_name_that_is_not_there_is_refused_at_once_and_found_when_it_is_made() {
    let (_world, sequences, _) = plain();
    let b = sequence(&sequences, "b");
    assert_eq!(b.next_ordered().unwrap_err().kind(), SequenceErrorKind::NoSequence);
    assert!(matches!(sequences.info(&named("A")).wait(), Err(ControlError::NoSequence { .. })));
    let new = NewSequence { start: 50, ..NewSequence::default() };
    sequences.create(&named("b"), new.clone()).wait().unwrap();
    sequences.create(&named("b"), new.clone()).wait().unwrap();
    assert_eq!(b.next_ordered().unwrap(), 50);
    let other = NewSequence { settings: SequenceSettings { strict: true, ..new.settings }, ..new };
    assert!(matches!(sequences.create(&named("b"), other).wait(), Err(ControlError::Exists { .. })));
    let listed = sequences.list("", "", 10).wait().unwrap();
    assert_eq!(listed.iter().map(|info| info.row.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    stop_after(&sequences, 1);
}

#[test]
fn a_name_that_fits_a_pattern_is_made_by_its_first_use_and_no_other_is() {
    let world = World::new();
    let sequences = world.builder().create([NamePattern::new("order:*")]).build().unwrap();
    assert_eq!(sequence(&sequences, "order:1").next_ordered().unwrap(), 1);
    assert_eq!(
        sequence(&sequences, "order").next_ordered().unwrap_err().kind(),
        SequenceErrorKind::NoSequence
    );
    stop_after(&sequences, 1);
}

#[test]
fn a_row_that_vanished_is_not_made_again() {
    let world = World::new();
    let sequences = world.builder().create([NamePattern::new("*")]).build().unwrap();
    let a = sequence(&sequences, "a");
    assert_eq!(a.next_ordered().unwrap(), 1);
    world.database.remove(0, "a");
    let refused = (0..10_000).find_map(|_| a.next_ordered().err());
    assert_eq!(refused.map(SequenceError::kind), Some(SequenceErrorKind::NoSequence));
    assert_eq!(world.database.mark(0, "a"), None);
    drop(sequences);
}

#[test]
fn a_row_that_is_gone_is_told_once_however_often_it_is_looked_for() {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings { step: 1, ..SequenceSettings::default() });
    let (sequences, mut teller) = world.builder().clock(clock.clone()).assemble_for_test();
    let a = sequence(&sequences, "a");
    assert_eq!(next(&a, || teller.turn_now()), 1);
    while a.try_next_ordered().is_ok() {}
    teller.turn_now();
    while a.try_next_ordered().is_ok() {}
    world.database.remove(0, "a");
    let errors = Arc::new(AtomicUsize::new(0));
    let mut refused = 0;
    let counted = errors.clone();
    let count = AtEach(Level::ERROR, move || _ = counted.fetch_add(1, Ordering::Relaxed));
    tracing::subscriber::with_default(count, || {
        for _ in 0..20 {
            refused += usize::from(a.try_next_ordered().is_err());
            teller.turn_now();
            clock.pass(Duration::from_secs(2));
        }
    });
    assert_eq!((refused, errors.load(Ordering::Relaxed)), (20, 1));
}

/// Nor after its name left memory, or in the process's next life, to which numbers of it were left.
#[test]
fn a_row_that_vanished_is_not_made_again_when_its_name_was_not_used_for_long() {
    for is_other_life in [false, true] {
        let (world, folder, clock) = (World::new(), tempfile::tempdir().unwrap(), clock());
        let build = || {
            let builder = world.in_folder(folder.path()).witness(false).lossless_failover(true);
            builder.create([NamePattern::new("*")]).clock(clock.clone()).build().unwrap()
        };
        let mut sequences = build();
        let a = sequence(&sequences, "a");
        let mut ids = vec![a.next_ordered().unwrap()];
        world.database.remove(0, "a");
        if is_other_life {
            sequences.shutdown();
            sequences = build();
        }
        let mut use_up = |a: &Sequence| {
            let refused = (0..10_000).find_map(|_| a.next_ordered().map(|id| ids.push(id)).err());
            assert_eq!(refused.map(SequenceError::kind), Some(SequenceErrorKind::NoSequence));
        };
        use_up(&sequence(&sequences, "a"));
        drop(a);
        until("the sweep", || {
            clock.pass(Duration::from_mins(1));
            sequences.wake_for_test();
            sequences.stats().names == 0
        });
        use_up(&sequence(&sequences, "a"));
        assert_distinct(ids);
        assert_eq!(world.database.mark(0, "a"), None);
    }
}

#[test]
fn a_count_that_is_none_or_too_large_is_refused() {
    let (_world, sequences, a) = plain();
    for count in [0, 131_073] {
        assert_eq!(a.runs(Demand::any(count)).unwrap_err().kind(), SequenceErrorKind::Count);
        assert_eq!(a.take(count).unwrap_err().kind(), SequenceErrorKind::Count);
    }
    let ids = a.runs(Demand::any(131_072)).unwrap();
    assert_eq!(ids.iter().map(Numbers::len).sum::<u32>(), 131_072);
    stop_after(&sequences, 131_072);
}

#[test]
fn a_contiguous_take_is_in_one_piece_and_what_lies_in_its_way_is_waste() {
    let (_world, sequences, a) = plain();
    let mut last = 0;
    for _ in 0..300 {
        let numbers = a.take(777).unwrap();
        assert!(numbers.first() > last && numbers.len() == 777);
        last = numbers.last();
    }
    let figures = sequences.shutdown().figures;
    assert_eq!((figures.moving(), figures.issued), (0, 300 * 777), "{figures:?}");
    // Alone at its store, a name's grants touch: nothing lies in the way.
    assert_eq!((figures.wasted.contiguous, last), (0, 300 * 777), "{figures:?}");
}

#[test]
fn neighbours_that_threads_take_at_once_are_neighbours_ascend_and_overlap_nowhere() {
    let world = World::new();
    world.create("a", SequenceSettings { step: 10, increment: 3, ..SequenceSettings::default() });
    let sequences = world.builder().step_max(500).build().unwrap();
    let a = sequence(&sequences, "a");
    let take = |width: u32| {
        let mut all: Vec<u64> = Vec::new();
        for round in 0..2_000 {
            let numbers = a.take(width + round % 3).unwrap();
            assert_eq!((numbers.len(), numbers.stride()), (width + round % 3, 3));
            all.extend(numbers);
            all.push(a.next_ordered().unwrap());
        }
        assert!(all.is_sorted_by(|one, next| one < next), "a thread's ids do not ascend");
        all
    };
    let ids: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = [1, 2, 7, 40].map(|width| scope.spawn(move || take(width))).into();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let issued = ids.len() as u64;
    assert_distinct(ids);
    stop_after(&sequences, issued);
}

#[test]
fn after_a_close_every_call_is_refused() {
    let (_world, sequences, a) = plain();
    let mut handle = a.handle();
    (0..10).for_each(|_| _ = (a.next_id().unwrap(), a.next_ordered().unwrap(), handle.next_id().unwrap()));
    sequences.shutdown();
    let refusals = [a.next_id(), a.next_ordered(), a.try_next_ordered(), handle.next_id()];
    for refused in refusals {
        assert_eq!(refused.unwrap_err().kind(), SequenceErrorKind::ShuttingDown);
    }
    assert!(sequences.sequence(&named("a")).is_err());
    assert!(matches!(sequences.info(&named("a")).wait(), Err(ControlError::ShuttingDown)));
}

struct Noted(AtomicBool);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Polls a future when it is woken, and only then.
fn drive<F: Future + Unpin>(mut future: F) -> F::Output {
    let noted = Arc::new(Noted(AtomicBool::new(true)));
    let waker = Waker::from(noted.clone());
    let mut result = None;
    until("the future", || {
        if noted.0.swap(false, Ordering::Acquire)
            && let Poll::Ready(value) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker))
        {
            result = Some(value);
        }
        result.is_some()
    });
    result.unwrap()
}

#[test]
fn a_future_is_woken_with_its_ids_or_when_its_time_is_over() {
    let (world, sequences, a) = plain();
    let runs = drive(a.request(Demand::ordered(5_000), LONG)).unwrap();
    assert_eq!(runs.into_iter().flatten().collect::<Vec<_>>(), (1..=5_000).collect::<Vec<_>>());
    world.database.set_away(0, true);
    let late = drive(a.request(Demand::ordered(131_000), Duration::from_millis(30)));
    assert_eq!(late.unwrap_err().kind(), SequenceErrorKind::StoreAway);
    // One that is dropped gives up its place.
    let mut dropped = a.request(Demand::ordered(131_000), LONG);
    assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(dropped);
    world.database.set_away(0, false);
    assert_eq!(sequences.stats().waiting, 0);
    let next = drive(a.request(Demand::ordered(1), LONG)).unwrap();
    assert_eq!(next[0].first(), 5_001);
    stop_after(&sequences, 5_001);
}

/// Each is memory, for as long as its caller says and the store is away.
#[test]
fn so_many_calls_may_wait_and_one_more_is_refused_at_once() {
    let (world, sequences, a) = plain();
    assert_eq!(a.next_ordered().unwrap(), 1);
    world.database.set_away(0, true);
    let places = a.places();
    assert_eq!(places, MOST_WAITING);
    let poll = |call: &mut PendingNumbers| Pin::new(call).poll(&mut Context::from_waker(Waker::noop()));
    let waits = |_| {
        let mut call = a.request(Demand::ordered(131_000), LONG);
        assert!(poll(&mut call).is_pending());
        call
    };
    let mut calls: Vec<PendingNumbers> = (0..places).map(waits).collect();
    assert_eq!(a.places(), 0);
    let refused = drive(a.request(Demand::ordered(131_000), LONG)).unwrap_err().kind();
    assert!(matches!(refused, SequenceErrorKind::StoreAway | SequenceErrorKind::Overloaded), "{refused:?}");
    assert!(a.take(131_000).is_err());
    let mut served = calls.remove(0);
    drop(calls);
    assert_eq!(a.places(), places - 1);
    world.database.set_away(0, false);
    // A place is another call's as soon as its own is served, also where nobody looks.
    until("the place is free", || a.places() == places);
    assert_eq!(sequences.stats().waiting, 0);
    assert!(poll(&mut served).is_ready());
}

#[test]
fn a_try_never_waits_and_what_is_missing_comes_for_the_next_one() {
    let (_world, sequences, a) = plain();
    assert_eq!(a.try_next_ordered().unwrap_err().kind(), SequenceErrorKind::Overloaded);
    until("the grant", || a.try_next_ordered().is_ok());
    let mut out = Vec::new();
    until("the runs", || a.try_runs(Demand::ordered(300), &mut out).is_ok());
    assert_eq!(out.iter().map(Numbers::len).sum::<u32>(), 300);
    stop_after(&sequences, 301);
}

#[test]
fn strict_ids_ascend_over_two_nodes_without_a_gap() {
    let world = World::new();
    world.create("a", SequenceSettings { strict: true, ..SequenceSettings::default() });
    let nodes = [world.builder().build().unwrap(), world.builder().build().unwrap()];
    let mut expected = 1;
    for round in 0..40_u64 {
        let a = sequence(&nodes[round as usize % 2], "a");
        assert_eq!(a.next_ordered().unwrap(), expected);
        assert_eq!(a.take(3).unwrap().first(), expected + 1);
        assert_eq!(a.next_id().unwrap(), expected + 4);
        expected += 5;
    }
    for node in &nodes {
        let figures = node.shutdown().figures;
        assert_eq!((figures.issued, figures.wasted.total(), figures.moving()), (100, 0, 0), "{figures:?}");
    }
}

/// Whether a call that came after a strict grant was asked for is served with it, although another node's came later.
fn is_served_too_early() -> bool {
    let world = World::new();
    world.create("a", SequenceSettings { strict: true, ..SequenceSettings::default() });
    let (sequences, mut teller) = world.builder().assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut context = Context::from_waker(Waker::noop());
    let mut first = a.request(Demand::ordered(5), LONG);
    assert!(Pin::new(&mut first).poll(&mut context).is_pending());
    // While the witness is asked, the first call goes away and another one comes.
    let mut second = None;
    let late = Arc::new(Mutex::new((Some(first), None)));
    let (event, later) = (late.clone(), a.clone());
    world.records.before_swap(move || {
        let slots = &mut *event.lock().unwrap();
        slots.0 = None;
        let mut call = later.request(Demand::ordered(2), LONG);
        assert!(Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        slots.1 = Some(call);
    });
    teller.turn_now();
    std::mem::swap(&mut second, &mut late.lock().unwrap().1);
    let polled = Pin::new(second.as_mut().unwrap()).poll(&mut context);
    matches!(polled, Poll::Ready(Ok(_)))
}

#[test]
fn a_strict_grant_is_for_those_who_waited_when_it_was_asked_for() {
    assert!(!is_served_too_early());
    assert!(Guard::without(&[Guard::StrictServesWhoAsked], is_served_too_early));
}

#[test]
fn calls_for_strict_ids_that_arrive_together_share_a_commit() {
    let world = World::new();
    world.create("a", SequenceSettings { strict: true, ..SequenceSettings::default() });
    let sequences = world.builder().build().unwrap();
    let a = sequence(&sequences, "a");
    world.database.set_away(0, true);
    let ids: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(|| a.next_ordered().unwrap())).collect();
        until("the line", || sequences.stats().waiting == 64);
        world.database.set_away(0, false);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_distinct(ids);
    assert!(world.database.grants() <= 2, "{} commits", world.database.grants());
    stop_after(&sequences, 64);
}

#[test]
fn what_a_handle_and_a_thread_leave_is_issued_to_others() {
    let (_world, sequences, a) = plain();
    let mut ids: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut handle = a.handle();
                    let mine = (0..500).flat_map(|_| [a.next_id().unwrap(), handle.next_id().unwrap()]);
                    mine.collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let figures = sequences.stats().figures;
    assert_eq!((figures.issued, figures.wasted.total(), figures.moving()), (4_000, 0, 0), "{figures:?}");
    ids.extend((0..figures.held).map(|_| a.runs(Demand::any(1)).unwrap()[0].first()));
    ids.sort_unstable();
    // All that was granted is issued, what came back as well.
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    stop_after(&sequences, ids.len() as u64);
}

/// A call for more than is held, and one for less behind it. Both wait.
fn in_line(a: &Sequence, wait: Duration, more: u32) -> [PendingNumbers; 2] {
    let mut calls = [a.request(Demand::ordered(more), wait), a.request(Demand::ordered(5), LONG)];
    for call in &mut calls {
        assert!(Pin::new(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    calls
}

#[test]
fn what_is_too_little_for_a_call_that_leaves_is_for_those_behind_it() {
    let (world, sequences, a) = plain();
    assert_eq!(a.next_ordered().unwrap(), 1);
    world.database.set_away(0, true);
    let [large, small] = in_line(&a, Duration::from_millis(30), 131_000);
    assert_eq!(drive(large).unwrap_err().kind(), SequenceErrorKind::StoreAway);
    assert_eq!(drive(small).unwrap()[0].first(), 2);
    let [large, small] = in_line(&a, LONG, 131_000);
    drop(large);
    assert_eq!(drive(small).unwrap()[0].first(), 7);
    stop_after(&sequences, 11);
}

#[test]
fn the_last_numbers_are_for_those_for_whom_they_are_enough() {
    let world = World::new();
    world.create("a", SequenceSettings { step: 10, last: 15, ..SequenceSettings::default() });
    let sequences = world.builder().build().unwrap();
    let a = sequence(&sequences, "a");
    world.database.set_away(0, true);
    let [large, small] = in_line(&a, LONG, 100);
    world.database.set_away(0, false);
    assert_eq!(drive(large).unwrap_err().kind(), SequenceErrorKind::Exhausted);
    assert_eq!(drive(small).unwrap()[0].first(), 1);
    stop_after(&sequences, 5);
}

/// A clock at which one thread is kept.
#[derive(Debug, Default)]
struct KeepingClock {
    keeps: Mutex<Option<ThreadId>>,
    is_there: AtomicBool,
}

impl Clock for KeepingClock {
    fn read(&self) -> Reading {
        let is_kept = || *self.keeps.lock().unwrap() == Some(std::thread::current().id());
        if is_kept() {
            self.is_there.store(true, Ordering::Release);
            while is_kept() {
                std::thread::yield_now();
            }
        }
        SystemClock.read()
    }
}

/// A handle that a stop meets in the middle of a miss: it sets its limit when the stop has voided those of others.
#[test]
fn a_handle_that_a_stop_meets_in_a_miss_issues_nothing_after_it() {
    let (world, clock) = (World::new(), Arc::new(KeepingClock::default()));
    let settings = SequenceSettings { step: 1_000_000_000, ..SequenceSettings::default() };
    for number in 0..64 {
        world.create(&format!("n{number}"), settings);
    }
    let (sequences, hub, mut teller, _keeper) =
        world.builder().clock(clock.clone()).parts_for_test(7).unwrap();
    for number in 0..64 {
        next(&sequence(&sequences, &format!("n{number}")), || teller.turn_now());
    }
    // In the order in which a stop visits them.
    let mut names = Vec::new();
    hub.names.each(|named| names.push(named.clone()));
    let late = sequences.sequence(&names[60].name).unwrap();
    let (closing, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let early = names[0].lock();
        let (closing, stopped) = (&closing, &stopped);
        let caller = scope.spawn(move || {
            let mut handle = late.handle();
            while !closing.load(Ordering::Acquire) {
                handle.next_id().unwrap();
            }
            while !stopped.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            std::iter::from_fn(|| handle.next_id().ok()).take(10).count()
        });
        // Until its runs are long.
        std::thread::sleep(Duration::from_millis(20));
        *clock.keeps.lock().unwrap() = Some(caller.thread().id());
        while !clock.is_there.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        closing.store(true, Ordering::Release);
        hub.close();
        let stop = scope.spawn(move || teller.stop());
        // The stop stands before the first name, and the handle goes on to set its limit.
        std::thread::sleep(Duration::from_millis(100));
        *clock.keeps.lock().unwrap() = None;
        std::thread::sleep(Duration::from_millis(100));
        drop(early);
        stop.join().unwrap();
        stopped.store(true, Ordering::Release);
        assert_eq!(caller.join().unwrap(), 0, "ids of before the stop");
    });
}

/// Asks the sequence that served its caller, as an executor does that goes on where it is woken.
struct Asks(Sequence, AtomicBool);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let _ = (self.0.figures(), self.0.places());
        self.1.store(true, Ordering::Relaxed);
    }
}

/// The thread that calls this has more numbers in hand than it took, and the sequence has no others: a call that waits, and that
/// asks the sequence when it is woken.
fn wait_behind(
    a: &Sequence,
    mut next: impl FnMut() -> Result<u64, SequenceError>,
) -> (PendingNumbers, Arc<Asks>) {
    // Runs grow while they are used up fast.
    for _ in 0..41 {
        next().unwrap();
    }
    while a.try_next_ordered().is_ok() {}
    let asks = Arc::new(Asks(a.clone(), AtomicBool::new(false)));
    let mut waiting = a.request(Demand::any(1), LONG);
    let waker = Waker::from(asks.clone());
    assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_pending());
    (waiting, asks)
}

/// It would wait for the lock that its own thread holds.
#[test]
fn a_waker_of_who_is_served_by_what_a_thread_gives_back_may_ask_that_name() {
    let (tell, told) = channel();
    for has_handle in [true, false] {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let world = World::new();
            world.create("a", SequenceSettings::default());
            let (sequences, mut teller) = world.builder().assemble_for_test();
            let a = sequence(&sequences, "a");
            let _ = a.try_next_ordered();
            teller.turn_now();
            let (_waiting, asks) = if has_handle {
                let mut handle = a.handle();
                wait_behind(&a, || handle.next_id())
            } else {
                let thread = || wait_behind(&a, || a.next_id());
                std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
            };
            tell.send(asks.1.load(Ordering::Relaxed)).unwrap();
        });
        assert_eq!(told.recv_timeout(LONG), Ok(true), "with a handle: {has_handle}");
    }
}
