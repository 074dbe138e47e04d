//! Many threads on one name, and many names.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::meddled::{Asked, slow};
use super::{
    LONG, SteppedClock, World, assert_distinct, clock, named, next, sequence, stop_after, twice, until,
};
use crate::clock::{Clock, SECOND, boot_ns};
use crate::sequence::background::keeper::Keeper;
use crate::sequence::background::teller::Teller;
use crate::sequence::store::{NewSequence, SequenceSettings, Store};
use crate::sequence::{
    ControlError, Demand, NamePattern, Sequence, SequenceErrorKind, Sequences, UntoldNames,
};

/// Ids of one thread, in each way that there is.
fn hammer(a: &Sequence, number: u64, rounds: u64) -> Vec<u64> {
    let (mut ids, mut handle, mut last) = (Vec::new(), a.handle(), 0);
    for round in 0..rounds {
        let ordered = a.next_ordered().unwrap();
        assert!(ordered > last, "{ordered} after {last}");
        last = ordered;
        ids.extend([ordered, a.next_id().unwrap(), handle.next_id().unwrap()]);
        match (round + number) % 50 {
            0 => ids.extend(a.take(40).unwrap()),
            10 => ids.extend(a.runs(Demand::any(60)).unwrap().into_iter().flatten()),
            20 => {
                let run: Vec<u64> = a.runs(Demand::ordered(50)).unwrap().into_iter().flatten().collect();
                assert!(run.is_sorted() && run[0] > last);
                last = run[49];
                ids.extend(run);
            }
            30 => ids.extend(
                a.runs(Demand::ordered(5_000)).unwrap().into_iter().flatten().inspect(|id| last = *id),
            ),
            _ => {}
        }
    }
    ids
}

#[test]
fn eight_threads_hammer_one_name_and_no_id_comes_twice() {
    for step in [1, 7, 1_000] {
        let world = World::new();
        world.create("a", SequenceSettings { step, ..SequenceSettings::default() });
        let sequences = world.builder().build().unwrap();
        let a = sequence(&sequences, "a");
        let ids: Vec<u64> = std::thread::scope(|scope| {
            let a = &a;
            let threads: Vec<_> =
                (0..8).map(|number| scope.spawn(move || hammer(a, number, 1_500))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let issued = ids.len() as u64;
        assert_distinct(ids);
        let figures = sequences.stats().figures;
        // Each thread is over, so nothing is in its hands.
        assert_eq!((figures.moving(), figures.issued, figures.wasted.thread), (0, issued, 0), "{figures:?}");
        stop_after(&sequences, issued);
    }
}

#[test]
fn a_stop_under_callers_repeats_and_loses_nothing() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let mut all = Vec::new();
    for _ in 0..20 {
        let sequences = world.in_folder(folder.path()).build().unwrap();
        let a = sequence(&sequences, "a");
        let (begun, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let work = |number: usize| {
            let mut ids = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let got = match number % 4 {
                    0 => a.next_ordered().map(|id| ids.push(id)),
                    1 => a.next_id().map(|id| ids.push(id)),
                    2 => a.take(3).map(|numbers| ids.extend(numbers)),
                    _ => a.runs(Demand::ordered(70)).map(|runs| ids.extend(runs.into_iter().flatten())),
                };
                begun.fetch_or(got.is_ok(), Ordering::Relaxed);
                if got.is_err() {
                    break;
                }
            }
            ids
        };
        let work = &work;
        let ids: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || work(number))).collect();
            until("an id", || begun.load(Ordering::Relaxed));
            sequences.shutdown();
            stopped.store(true, Ordering::Relaxed);
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let figures = sequences.stats().figures;
        assert_eq!((figures.moving(), figures.issued, figures.held), (0, ids.len() as u64, 0), "{figures:?}");
        all.extend(ids);
    }
    assert_distinct(all);
}

#[test]
fn names_share_a_commit_and_one_that_waits_delays_no_other() {
    let world = World::new();
    let names: Vec<String> = (0..500).map(|number| format!("n{number}")).collect();
    for name in &names {
        world.create(name, SequenceSettings::default());
    }
    let sequences = world.builder().build().unwrap();
    world.database.set_away(0, true);
    let waiting: Vec<_> =
        names.iter().map(|name| sequence(&sequences, name).request(Demand::ordered(1), LONG)).collect();
    let mut waiting: Vec<_> = waiting.into_iter().map(Box::pin).collect();
    let mut context = Context::from_waker(Waker::noop());
    for call in &mut waiting {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    world.database.set_away(0, false);
    until("all ids", || {
        waiting.retain_mut(|call| call.as_mut().poll(&mut context).is_pending());
        waiting.is_empty()
    });
    assert!(world.database.batches().contains(&64), "{:?}", world.database.batches());
    // A name that the store does not answer for in time holds up no other.
    let refused = sequence(&sequences, "none").request(Demand::ordered(1), LONG);
    drop(refused);
    assert_eq!(sequence(&sequences, "n7").next_ordered().unwrap(), 2);
    stop_after(&sequences, 501);
}

#[test]
fn a_thread_that_calls_many_names_keeps_a_run_of_each_or_gives_it_back() {
    let world = World::new();
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    for name in &names {
        world.create(name, SequenceSettings::default());
    }
    let sequences = world.builder().build().unwrap();
    let sequences_of: Vec<Sequence> = names.iter().map(|name| sequence(&sequences, name)).collect();
    let mut ids = vec![Vec::new(); 40];
    for round in 0..3_000_usize {
        let name = if round % 3 == 0 { round % 40 } else { round % 4 };
        let one = &sequences_of[name];
        ids[name].extend([one.next_id().unwrap(), one.next_ordered().unwrap()]);
    }
    ids.into_iter().for_each(assert_distinct);
    let figures = sequences.shutdown().figures;
    assert_eq!((figures.issued, figures.moving()), (6_000, 0), "{figures:?}");
}

#[test]
fn a_name_that_nobody_uses_leaves_the_table_and_goes_on_where_it_was() {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    let clock = clock();
    let sequences = world.builder().clock(clock.clone()).build().unwrap();
    let a = sequence(&sequences, "a");
    let ids: Vec<u64> = (0..10).map(|_| a.next_ordered().unwrap()).collect();
    drop(a);
    until("the sweep", || {
        clock.pass(Duration::from_mins(1));
        sequences.wake_for_test();
        sequences.stats().names == 0
    });
    let figures = sequences.stats().figures;
    assert_eq!((figures.issued, figures.held, figures.moving()), (10, 990, 0), "{figures:?}");
    assert_eq!(sequences.figures(&named("a")), None);
    assert_eq!(sequence(&sequences, "a").next_ordered().unwrap(), ids[9] + 1);
    stop_after(&sequences, 11);
}

/// By whom it is asked for is no matter: they are granted, and not issued.
#[test]
fn what_is_held_of_a_name_that_nobody_uses_is_told_of_it() {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    let clock = clock();
    let sequences = world.builder().clock(clock.clone()).build().unwrap();
    sequence(&sequences, "a").next_ordered().unwrap();
    let held = || sequences.info(&named("a")).wait().unwrap().here.figures.held;
    assert_eq!(held(), 999);
    until("the sweep", || {
        clock.pass(Duration::from_mins(1));
        sequences.wake_for_test();
        sequences.stats().names == 0
    });
    assert_eq!(held(), 999);
}

/// Time passes until no name is in the table.
fn all_leave(clock: &SteppedClock, keeper: &mut Keeper, teller: &mut Teller, sequences: &Sequences) {
    for _ in 0..50 {
        clock.pass(Duration::from_secs(20));
        keeper.turn();
        teller.turn_now();
    }
    assert_eq!(sequences.stats().names, 0);
}

/// Whether the next ordered id of a name, of which there was no room for what is known, lies below one that it issued
/// before: the store went back, and grants out of a gap of the witness.
fn goes_back_when_forgotten() -> bool {
    let (world, clock) = (World::with_hosts(2), clock());
    for name in ["a", "b"] {
        world.create(name, SequenceSettings { step: 100, ..SequenceSettings::default() });
    }
    let others = world.builder().build().unwrap();
    sequence(&others, "b").next_ordered().unwrap();
    others.shutdown();
    world.database.replicate(0, 1);
    world.database.store(0).raise(&named("b"), 5_000).unwrap();
    let store = world.database.store(0);
    let builder = Sequences::builder(Box::new(store.clone())).records(Box::new(world.records.clone()));
    let builder = builder.limit(1).idle(Duration::from_secs(1)).clock(clock.clone());
    let (sequences, _, mut teller, mut keeper) = builder.parts_for_test(7).unwrap();
    let mut issued = Vec::new();
    for name in ["a", "b", "b"] {
        issued.push(next(&sequence(&sequences, name), || teller.turn_now()));
        all_leave(&clock, &mut keeper, &mut teller, &sequences);
        // What is left of "a" stays, and for "b" there is no room.
        store.connect_to(usize::from(issued.len() == 2));
    }
    assert!(issued[1] >= 5_000);
    issued[2] < issued[1]
}

#[test]
fn ordered_ids_of_a_name_that_was_forgotten_ascend_over_a_fail_over() {
    assert!(!goes_back_when_forgotten());
}

/// Ids of a name that came twice: it was forgotten for want of room, and its store, which no witness watches, went back.
/// Whether that was noticed.
fn twice_when_forgotten(strict: bool, limit: usize) -> (usize, bool) {
    let (world, clock) = (World::new(), clock());
    for name in ["a", "b"] {
        world.create(name, SequenceSettings { strict, ..SequenceSettings::default() });
    }
    let dump = world.database.dump(0);
    let builder = world.without_records().limit(limit).idle(Duration::from_secs(1)).clock(clock.clone());
    let (sequences, _hub, mut teller, mut keeper) = builder.parts_for_test(7).unwrap();
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        ids = (0..5).map(|_| next(&sequence(&sequences, name), || teller.turn_now())).collect();
        all_leave(&clock, &mut keeper, &mut teller, &sequences);
    }
    world.database.restore(0, &dump);
    let b = sequence(&sequences, "b");
    // What was held is used up first, where it was kept.
    for _ in 0..1_500 {
        let mut call = Box::pin(b.request(Demand::ordered(1), LONG));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            if let Poll::Ready(got) = call.as_mut().poll(&mut context) {
                ids.extend(got.into_iter().flatten().map(|numbers| numbers.first()));
                break;
            }
            teller.turn_now();
        }
    }
    (twice(&ids), sequences.status().behind.is_some())
}

#[test]
fn a_store_that_goes_back_repeats_no_number_of_a_name_that_was_forgotten() {
    for (strict, limit) in [(false, 1_000), (false, 1), (true, 1_000), (true, 1)] {
        assert_eq!(twice_when_forgotten(strict, limit), (0, true), "strict: {strict}, room for {limit}");
    }
}

/// A call that stood before the name's lock while a stop ended those in line would wait its whole time.
#[test]
fn no_call_joins_a_line_that_a_stop_has_ended() {
    for round in 0..40 {
        let world = World::new();
        world.create("a", SequenceSettings::default());
        let (sequences, hub, mut teller, _keeper) = world.builder().parts_for_test(round).unwrap();
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (a, hub, stopped) = (sequence(&sequences, "a"), &hub, &stopped);
                scope.spawn(move || {
                    let mut context = Context::from_waker(Waker::noop());
                    loop {
                        let mut call = Box::pin(a.request(Demand::ordered(1), LONG));
                        if call.as_mut().poll(&mut context).is_ready() {
                            break;
                        }
                        if !hub.is_closed() {
                            continue;
                        }
                        while !stopped.load(Ordering::SeqCst) {
                            std::thread::yield_now();
                        }
                        assert!(call.as_mut().poll(&mut context).is_ready(), "it waits in vain");
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(3));
            hub.close();
            teller.stop();
            stopped.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn names_that_somebody_tries_keep_no_other_one_from_being_looked_up() {
    let world = World::new();
    world.create("good", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().assemble_for_test();
    for number in 0..5_000 {
        assert!(sequence(&sequences, &format!("mistyped:{number}")).try_next_ordered().is_err());
    }
    let good = sequence(&sequences, "good");
    assert!(good.try_next_ordered().is_err());
    // All of them were looked at, and no more of them is looked up later.
    for _ in 0..100 {
        teller.turn();
    }
    // In the next second names are looked up again.
    let until = boot_ns() + 3 * SECOND;
    let mut answered = false;
    while !answered && boot_ns() < until {
        answered = good.try_next_ordered().is_ok();
        (0..20).for_each(|_| _ = teller.turn());
    }
    assert!(answered, "it waits behind names that nobody waits for");
}

/// A name that was used, then forgotten for want of room, and whose row vanished.
#[test]
fn a_row_that_vanished_is_not_made_again_also_where_the_name_was_forgotten() {
    let (world, clock) = (World::new(), clock());
    let builder = world.without_records().create([NamePattern::new("*")]);
    let builder = builder.limit(1).idle(Duration::from_secs(1)).clock(clock.clone());
    let (sequences, _hub, mut teller, mut keeper) = builder.parts_for_test(7).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(next(&sequence(&sequences, name), || teller.turn_now()), 1);
        all_leave(&clock, &mut keeper, &mut teller, &sequences);
    }
    world.database.remove(0, "b");
    let b = sequence(&sequences, "b");
    for _ in 0..5 {
        assert!(b.try_next_ordered().is_err());
        teller.turn_now();
    }
    assert_eq!(b.try_next_ordered().unwrap_err().kind(), SequenceErrorKind::NoSequence);
    // One that is new is made, and one whose row is there goes on.
    assert_eq!(next(&sequence(&sequences, "d"), || teller.turn_now()), 1);
    assert!(next(&sequence(&sequences, "c"), || teller.turn_now()) > 1);
}

/// Two processes that want more than the largest step in one piece: each is granted it at once, or never.
#[test]
fn neighbours_are_of_one_grant_whatever_the_largest_step_is() {
    let world = World::new();
    world.create("a", SequenceSettings { step: 10, ..SequenceSettings::default() });
    let both: Vec<_> = (0..2).map(|_| world.builder().step_max(10).assemble_for_test()).collect();
    let mut calls: Vec<_> = both
        .iter()
        .map(|(sequences, _)| {
            Box::pin(sequence(sequences, "a").request(Demand::any(1_000).contiguous(), LONG))
        })
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    let mut first = Vec::new();
    for ((_, mut teller), mut call) in both.into_iter().zip(calls) {
        teller.turn_now();
        let Poll::Ready(Ok(numbers)) = call.as_mut().poll(&mut context) else {
            panic!("more grants than one")
        };
        first.push(numbers[0].first());
    }
    assert_eq!(first, [1, 1_001]);
}

/// A client that tries names without a row leaves nothing behind: as many as come in a second leave the table in one.
#[test]
fn names_that_were_only_tried_leave_the_table_as_fast_as_they_came() {
    let (world, clock) = (World::new(), clock());
    let (sequences, hub, mut teller, mut keeper) =
        world.builder().limit(1_000).clock(clock.clone()).parts_for_test(7).unwrap();
    for number in 0..60_000 {
        let refused = sequence(&sequences, &format!("n{number}")).try_next_ordered().unwrap_err();
        assert_eq!(refused.kind(), SequenceErrorKind::Overloaded);
    }
    while hub.has_due() {
        teller.turn_now();
    }
    for _ in 0..20 {
        clock.pass(Duration::from_secs(1));
        keeper.turn();
        teller.turn_now();
    }
    let left = sequences.stats().names;
    assert!(left <= 1_000, "{left} of 60,000 names are in the table 20 s later, which has room for 1,000");
}

/// Also while the store is away, and nothing that was tried can leave.
#[test]
fn names_of_which_nothing_is_known_are_bounded_and_keep_none_out_that_was_there() {
    let (world, clock) = (World::new(), clock());
    for name in ["a", "b"] {
        world.create(name, SequenceSettings::default());
    }
    let builder = world.builder().limit(1).idle(Duration::from_secs(1)).clock(clock.clone());
    let (sequences, _, mut teller, mut keeper) = builder.parts_for_test(7).unwrap();
    let issued = next(&sequence(&sequences, "a"), || teller.turn_now());
    all_leave(&clock, &mut keeper, &mut teller, &sequences);
    let (one, other) = (UntoldNames::new(130_000), UntoldNames::new(130_000));
    let bring_up = |name: &str, by: &UntoldNames| sequences.sequence_within(&named(name), by);
    let is_refused =
        |name: &str| bring_up(name, &other).is_err_and(|error| error.kind() == SequenceErrorKind::Overloaded);
    let b = bring_up("b", &one).unwrap();
    let tried: Vec<_> = (1..130_000).map(|number| bring_up(&format!("n{number}"), &one).unwrap()).collect();
    assert!(one.is_full() && bring_up("one-more", &one).is_err());
    // Others have what is left.
    let others: Vec<_> = (0..1_072).map(|number| bring_up(&format!("o{number}"), &other).unwrap()).collect();
    assert!(is_refused("one-more"));
    assert_eq!(bring_up("a", &other).unwrap().try_next_ordered().unwrap(), issued + 1);
    assert!(sequences.sequence(&named("not-a-stranger-s")).is_ok());
    next(&b, || teller.turn_now());
    assert!(!is_refused("one-more") && is_refused("another"), "the store has told of one of them");
    drop((b, tried, others));
    all_leave(&clock, &mut keeper, &mut teller, &sequences);
    assert!(!is_refused("another"));
}

/// Nor those that were there, and of which nothing but how far they came could be kept.
#[test]
fn a_name_whose_numbers_found_no_room_comes_back_though_there_is_none_for_names_that_are_new() {
    let (world, clock) = (World::new(), clock());
    let builder = world.builder().limit(1).idle(Duration::from_secs(1)).clock(clock.clone());
    let (sequences, _, mut teller, mut keeper) = builder.parts_for_test(7).unwrap();
    for name in ["a", "b"] {
        world.create(name, SequenceSettings::default());
        next(&sequence(&sequences, name), || teller.turn_now());
    }
    all_leave(&clock, &mut keeper, &mut teller, &sequences);
    let none = UntoldNames::new(0);
    assert!(sequences.sequence_within(&named("c"), &none).is_err());
    for name in ["a", "b"] {
        assert!(sequences.sequence_within(&named(name), &none).is_ok(), "{name} was there");
    }
}

/// An earlier life had numbers of it, though this one was not told of its settings yet.
#[test]
fn a_name_that_lives_on_leftovers_takes_no_place_of_names_that_are_new() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let life = || world.in_folder(folder.path()).assemble_for_test();
    let (first, mut teller) = life();
    next(&sequence(&first, "a"), || teller.turn_now());
    teller.stop();
    drop((first, teller));
    let (second, mut teller) = life();
    let strangers = UntoldNames::new(1);
    let a = second.sequence_within(&named("a"), &strangers).unwrap();
    assert!(strangers.is_full(), "nothing is known of it yet");
    teller.turn_now();
    assert!(!strangers.is_full());
    assert_eq!(next(&a, || teller.turn_now()), 2);
}

/// Of more names than are looked up in a second that are not there.
#[test]
fn names_that_one_caller_asks_for_in_vain_keep_no_other_caller_s_name_waiting() {
    let (world, clock) = (World::new(), clock());
    world.create("good", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().clock(clock).assemble_for_test();
    let [one, other] = [UntoldNames::new(4_096), UntoldNames::new(4_096)];
    let mut context = Context::from_waker(Waker::noop());
    let mut ask = |name: &str, within| {
        let found = sequences.sequence_within(&named(name), within).unwrap();
        let mut call = Box::pin(found.request(Demand::ordered(1), LONG));
        assert!(call.as_mut().poll(&mut context).is_pending());
        call
    };
    let mut in_vain: Vec<_> = (0..2_000).map(|number| ask(&format!("n{number}"), &one)).collect();
    let mut good = ask("good", &other);
    for _ in 0..100 {
        teller.turn();
    }
    assert!(good.as_mut().poll(&mut context).is_ready());
    in_vain.retain_mut(|call| call.as_mut().poll(&mut context).is_pending());
    assert!(in_vain.len() > 1_000, "{} names were looked up at once", 2_000 - in_vain.len());
}

/// Of more of them than may wait.
#[test]
fn calls_for_names_that_are_not_there_have_places_of_their_own_and_are_looked_at_once_a_second() {
    let (world, clock) = (World::new(), clock());
    world.create("good", SequenceSettings { strict: true, ..SequenceSettings::default() });
    let (sequences, hub, mut teller, _keeper) =
        world.builder().clock(clock.clone()).parts_for_test(7).unwrap();
    let good = sequence(&sequences, "good");
    assert_eq!(next(&good, || _ = teller.turn()), 1);
    let mut context = Context::from_waker(Waker::noop());
    let callers: Vec<_> = (0..8).map(|_| UntoldNames::new(4_096)).collect();
    let (mut in_vain, mut refused) = (Vec::new(), 0);
    for number in 0..28_000 {
        let found =
            sequences.sequence_within(&named(&format!("n{number}")), &callers[number / 4_000]).unwrap();
        let mut call = Box::pin(found.request(Demand::ordered(1), LONG));
        match call.as_mut().poll(&mut context) {
            Poll::Pending => in_vain.push(call),
            Poll::Ready(result) => {
                assert_eq!(result.unwrap_err().kind(), SequenceErrorKind::Overloaded);
                refused += 1;
            }
        }
    }
    assert_eq!((in_vain.len(), refused), (25_000, 3_000));
    assert_eq!((good.places(), sequences.stats().waiting), (100_000, 25_000));
    // A second begins.
    clock.pass(Duration::from_nanos(SECOND - hub.now() % SECOND));
    while hub.has_due() {
        teller.turn();
    }
    clock.pass(Duration::from_millis(150));
    let mut call = Box::pin(good.request(Demand::ordered(1), LONG));
    assert!(call.as_mut().poll(&mut context).is_pending());
    teller.turn();
    assert!(
        call.as_mut().poll(&mut context).is_ready(),
        "it stands behind those that wait for the next second"
    );
    assert!(!hub.has_due());
    clock.pass(Duration::from_secs(1));
    teller.turn();
    assert!(hub.has_due(), "they are looked at again");
}

/// Of what it knew of names that left the table, one with its numbers and one without.
#[test]
fn a_row_that_is_gone_is_not_made_again_below_what_is_known_of_an_unused_name() {
    let (world, clock) = (World::new(), clock());
    let builder = Sequences::builder(Box::new(world.database.store(0))).limit(1);
    let builder = builder.idle(Duration::from_secs(1)).clock(clock.clone());
    let (sequences, _, mut teller, mut keeper) = builder.parts_for_test(7).unwrap();
    for name in ["a", "b"] {
        world.create(name, SequenceSettings::default());
        next(&sequence(&sequences, name), || teller.turn_now());
    }
    all_leave(&clock, &mut keeper, &mut teller, &sequences);
    for name in ["a", "b"] {
        world.database.remove(0, name);
        let reply = sequences.create(&named(name), NewSequence::default());
        teller.turn_now();
        assert!(matches!(reply.wait(), Err(ControlError::Refused { .. })), "{name}");
        assert_eq!(world.database.mark(0, name), None);
    }
}

/// How long the teller is about its first turn where a caller waits for a name, and others create 64, by a question each or by their
/// first use. A commit takes 3 ms.
fn waits_beside_creations(by_use: bool) -> Duration {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings { strict: true, ..SequenceSettings::default() });
    let store = slow(world.database.store(0), &clock, Asked::Create, Duration::from_millis(3));
    let builder = Sequences::builder(Box::new(store)).create([NamePattern::new("n*")]);
    let (sequences, mut teller) = builder.clock(clock.clone()).assemble_for_test();
    let mut context = Context::from_waker(Waker::noop());
    let mut wait_for = |name: &str| {
        let mut call = Box::pin(sequence(&sequences, name).request(Demand::ordered(1), LONG));
        assert!(call.as_mut().poll(&mut context).is_pending());
        call
    };
    let names: Vec<String> = (0..64).map(|number| format!("n{number}")).collect();
    let (mut replies, mut calls) = (Vec::new(), Vec::new());
    if by_use {
        calls.extend(names.iter().map(|name| wait_for(name)));
    } else {
        replies.extend(names.iter().map(|name| sequences.create(&named(name), NewSequence::default())));
    }
    let begun = clock.read().boot;
    let mut call = wait_for("a");
    while call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        teller.turn();
    }
    let waited = Duration::from_nanos(clock.read().boot - begun);
    for _ in 0..100 {
        teller.turn();
    }
    assert!(replies.into_iter().all(|reply| reply.wait().is_ok()));
    assert!(
        calls.iter_mut().all(|call| call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready())
    );
    waited
}

#[test]
fn creations_at_a_database_keep_no_strict_name_waiting_for_long() {
    for by_use in [false, true] {
        let waited = waits_beside_creations(by_use);
        assert!(waited < Duration::from_millis(50), "by use: {by_use}: {waited:?}");
    }
}
