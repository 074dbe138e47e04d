//! Without a witness: which store it is, and that no mark goes back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::world;
use crate::sequence::background::teller::Teller;
use crate::sequence::store::{Ask, Fence, Outcome, SequenceSettings, Store, StoreError, fence};
use crate::sequence::tests::meddled::MeddledStore;
use crate::sequence::tests::{
    LONG, SteppedClock, World, assert_distinct, clock, named, next, sequence, take_in_turns, twice, until,
};
use crate::sequence::{
    ControlError, Demand, NameState, Sequence, SequenceErrorKind, Sequences, fence_known_in,
};
use crate::sys::guards::Guard;

#[test]
fn without_a_witness_another_identity_closes_the_names_until_a_fence() {
    let world = world(2);
    let mut store = world.database.store(0);
    let settings = |sequences: Sequences| (sequence(&sequences, "a"), sequences);
    let builder = Sequences::builder(Box::new(store.clone())).wait(LONG);
    let (a, sequences) = settings(builder.build().unwrap());
    let mut ids = vec![a.next_ordered().unwrap()];
    world.database.replicate(0, 1);
    store.connect_to(1);
    let refused = (0..10_000).find_map(|_| a.next_ordered().map(|id| ids.push(id)).err());
    assert_eq!(refused.unwrap().kind(), SequenceErrorKind::StoreBehind);
    assert!(ids.len() >= 100, "what is held is used up first");
    assert!(sequences.status().behind.is_some());
    assert_eq!(a.figures().state, NameState::Behind);
    // The fence, as its command does it.
    store.raise(&named("a"), 5_000).unwrap();
    store.record_identity().unwrap();
    until("the fence", || a.try_next_ordered().map(|id| ids.push(id)).is_ok());
    assert!(*ids.last().unwrap() >= 5_000);
    assert_distinct(ids);
}

#[test]
fn a_store_that_a_program_accepts_is_gone_on_with_at_once() {
    let world = world(2);
    let mut store = world.database.store(0);
    let sequences = Sequences::builder(Box::new(store.clone())).wait(LONG).build().unwrap();
    let a = sequence(&sequences, "a");
    let mut ids = vec![a.next_ordered().unwrap()];
    world.database.replicate(0, 1);
    store.connect_to(1);
    let refused = (0..10_000).find_map(|_| a.next_ordered().map(|id| ids.push(id)).err());
    assert_eq!(refused.unwrap().kind(), SequenceErrorKind::StoreBehind);
    // Nothing is written into the store: it is not this that opens it.
    store.raise(&named("a"), 5_000).unwrap();
    sequences.accept_identity().wait().unwrap();
    assert_eq!(sequences.status().behind, None);
    ids.push(a.next_ordered().unwrap());
    assert!(*ids.last().unwrap() >= 5_000);
    assert_distinct(ids);
}

#[test]
fn without_a_witness_a_mark_that_went_back_closes_the_names_until_a_fence() {
    let world = world(1);
    let mut store = world.database.store(0);
    let sequences = Sequences::builder(Box::new(store.clone())).wait(LONG).build().unwrap();
    let a = sequence(&sequences, "a");
    let dump = world.database.dump(0);
    let mut ids = vec![a.next_ordered().unwrap()];
    world.database.restore(0, &dump);
    let refused = (0..10_000).find_map(|_| a.next_ordered().map(|id| ids.push(id)).err());
    assert_eq!(refused.unwrap().kind(), SequenceErrorKind::StoreBehind);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(a.try_next_ordered().is_err(), "the same identity is no reason to go on");
    store.raise(&named("a"), 5_000).unwrap();
    store.record_identity().unwrap();
    until("the fence", || a.try_next_ordered().map(|id| ids.push(id)).is_ok());
    assert_distinct(ids);
}

/// Ids that came twice where a dump is put back beside servers, one table after the other: the rows, and behind them what it
/// has of fences. Of `xuid_store` there is nothing meanwhile, or still what was in it.
fn twice_of_a_dump_in_parts(is_nothing_there: bool) -> usize {
    let (world, clock) = (world(1), clock());
    world.create("b", SequenceSettings { step: 100, ..SequenceSettings::default() });
    let mut store = world.database.store(0);
    let rows = world.database.dump(0);
    store.record_identity().unwrap();
    let whole = world.database.dump(0);
    store.record_identity().unwrap();
    let still = world.database.dump(0);
    let builder = Sequences::builder(Box::new(store.clone())).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let [a, b] = ["a", "b"].map(|name| sequence(&sequences, name));
    next(&a, || teller.turn_now());
    // Another node uses the other name.
    let mut granted = Vec::new();
    store.grant(&[Ask { name: named("b"), count: 2_000, least: 1, floor: 0 }], &mut granted);
    let Some(Outcome::Granted { first, end, .. }) = granted.pop() else { panic!("it has ids") };
    let mut ids: Vec<u64> = (first..end).collect();
    world.database.restore(0, if is_nothing_there { &rows } else { &still });
    take_in_turns(10, &a, &mut Vec::new(), || teller.turn_now());
    assert!(sequences.status().behind.is_some());
    world.database.restore(0, &whole);
    // As the grant that was thrown away had moved it.
    store.raise(&named("a"), 1_000).unwrap();
    clock.pass(Duration::from_secs(2));
    take_in_turns(20, &b, &mut ids, || teller.turn_now());
    let twice = twice(&ids);
    store.raise(&named("b"), 5_000).unwrap();
    store.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    assert!(sequences.status().behind.is_none(), "that is news");
    twice
}

#[test]
fn names_that_a_mark_closed_are_not_opened_by_an_old_fence_that_a_dump_brings_back() {
    for is_nothing_there in [true, false] {
        assert_eq!(twice_of_a_dump_in_parts(is_nothing_there), 0, "nothing there: {is_nothing_there}");
    }
}

#[test]
fn names_that_a_mark_closed_say_so_again_behind_another_store_that_answered_for_a_while() {
    let (world, clock) = (world(2), clock());
    let store = world.database.store(0);
    let builder = Sequences::builder(Box::new(store.clone())).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let (a, dump) = (sequence(&sequences, "a"), world.database.dump(0));
    next(&a, || teller.turn_now());
    world.database.replicate(0, 1);
    world.database.restore(0, &dump);
    take_in_turns(10, &a, &mut Vec::new(), || teller.turn_now());
    let why = sequences.status().behind;
    assert!(why.as_ref().is_some_and(|why| why.contains("the mark of 'a' went back")), "{why:?}");
    for (host, is_it_said) in [(1, false), (0, true)] {
        store.connect_to(host);
        clock.pass(Duration::from_secs(2));
        teller.turn_now();
        let now = sequences.status().behind;
        let says_so = now.as_ref().is_some_and(|now| now.contains("the mark of 'a' went back"));
        assert_eq!(says_so, is_it_said, "{now:?}");
    }
}

/// Ids that came twice, where the store is another one and nothing but its identity says so.
fn twice_of_another_store() -> usize {
    let world = world(2);
    let store = world.database.store(0);
    let (sequences, mut teller) = Sequences::builder(Box::new(store.clone())).assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut ids: Vec<u64> = Vec::new();
    for turn in 0..300 {
        let mut out = Vec::new();
        if turn == 10 {
            // Its marks are ahead of this node's, and behind another node's.
            world.database.replicate(0, 1);
            let mut behind = world.database.store(0);
            let mut granted = Vec::new();
            let ask = Ask { name: named("a"), count: 10_000, least: 1, floor: 0 };
            behind.grant(&[ask], &mut granted);
            let Some(Outcome::Granted { first, end, .. }) = granted.pop() else { panic!("it has ids") };
            ids.extend(first..end);
            store.connect_to(1);
        }
        let _ = a.try_runs(Demand::any(90), &mut out);
        ids.extend(out.into_iter().flatten());
        teller.turn_now();
    }
    twice(&ids)
}

#[test]
fn another_identity_that_is_not_noticed_repeats_ids() {
    assert_eq!(twice_of_another_store(), 0);
    assert!(Guard::without(&[Guard::IdentityCompared], twice_of_another_store) > 0);
}

/// Ids that came twice, where the store that was left at a fail-over comes back, whose own identity is written in it.
fn twice_of_a_store_that_was_left() -> usize {
    let world = world(2);
    world.create("b", SequenceSettings { step: 100, ..SequenceSettings::default() });
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let (sequences, mut teller) = Sequences::builder(Box::new(store.clone())).assemble_for_test();
    let [a, b] = ["a", "b"].map(|name| sequence(&sequences, name));
    let mut ids: Vec<u64> = Vec::new();
    let mut turns = |of: &Sequence, count: u32| {
        for _ in 0..count {
            let mut out = Vec::new();
            let _ = of.try_runs(Demand::any(50), &mut out);
            ids.extend(out.into_iter().flatten().filter(|_| of.name() == b.name()));
            teller.turn_now();
        }
    };
    turns(&a, 5);
    // A fail-over, and its fence.
    world.database.replicate(0, 1);
    store.connect_to(1);
    turns(&a, 5);
    store.raise(&named("a"), 5_000).unwrap();
    store.raise(&named("b"), 5_000).unwrap();
    store.record_identity().unwrap();
    std::thread::sleep(Duration::from_millis(1_100));
    turns(&a, 5);
    assert!(sequences.status().behind.is_none(), "it goes on with the store that was fenced");
    // Another node goes on there, too.
    let mut granted = Vec::new();
    world
        .database
        .store(1)
        .grant(&[Ask { name: named("b"), count: 2_000, least: 1, floor: 0 }], &mut granted);
    let Some(Outcome::Granted { first, end, .. }) = granted.pop() else { panic!("it has ids") };
    // The old primary is back, without a fence of its own.
    store.connect_to(0);
    turns(&b, 300);
    ids.extend(first..end);
    twice(&ids)
}

#[test]
fn a_store_that_was_left_and_is_gone_back_to_for_its_old_fence_repeats_ids() {
    assert_eq!(twice_of_a_store_that_was_left(), 0);
    assert!(Guard::without(&[Guard::FenceIsNews], twice_of_a_store_that_was_left) > 0);
}

/// Numbers that came twice, where a node went over to a store that it could not write down, was killed, and went back to the
/// one that it had left; and whether it was told meanwhile that this waits for the folder.
fn twice_after_a_fail_over_on_a_full_disk() -> (usize, bool) {
    let (world, folder) = (world(2), tempfile::tempdir().unwrap());
    world.database.store(0).record_identity().unwrap();
    world.database.replicate(0, 1);
    let life = |host: usize| {
        let store = Box::new(world.database.store(host));
        let builder = Sequences::builder(store).records(Box::new(world.records.clone()));
        builder.witness(false).data_dir(folder.path()).assemble_for_test()
    };
    let take = |sequences: &Sequences, teller: &mut Teller, ids: &mut Vec<u64>| {
        let a = sequence(sequences, "a");
        for _ in 0..3_000 {
            match a.try_next_ordered() {
                Ok(id) => ids.push(id),
                Err(_) => teller.turn_now(),
            }
        }
    };
    let mut ids = Vec::new();
    let (first, mut teller) = life(0);
    take(&first, &mut teller, &mut ids);
    // A fail-over, with a fence.
    world.database.store(1).raise(&named("a"), 10_000).unwrap();
    world.database.store(1).record_identity().unwrap();
    let (second, mut teller) = life(1);
    // Nothing can be put in the place of this.
    let (file, kept) = (folder.path().join("sequences.store"), folder.path().join("kept"));
    std::fs::rename(&file, &kept).unwrap();
    std::fs::create_dir_all(file.join("full")).unwrap();
    take(&second, &mut teller, &mut ids);
    let waits = second.status().behind.is_some_and(|why| why.contains("can't remember"));
    // Killed; the disk has room again.
    std::fs::remove_dir_all(&file).unwrap();
    std::fs::rename(&kept, &file).unwrap();
    let (third, mut teller) = life(0);
    take(&third, &mut teller, &mut ids);
    (twice(&ids), waits)
}

#[test]
fn a_store_that_can_not_be_written_down_is_not_gone_on_with() {
    assert_eq!(twice_after_a_fail_over_on_a_full_disk(), (0, true));
    let (twice, waits) = Guard::without(&[Guard::IdentityIsKept], twice_after_a_fail_over_on_a_full_disk);
    assert!(twice > 0 && !waits);
}

#[test]
fn a_store_that_could_not_be_written_down_is_gone_on_with_once_it_can() {
    let (world, folder, clock) = (world(1), tempfile::tempdir().unwrap(), clock());
    let builder = Sequences::builder(Box::new(world.database.store(0))).clock(clock.clone());
    let (sequences, mut teller) = builder.data_dir(folder.path()).assemble_for_test();
    let file = folder.path().join("sequences.store");
    std::fs::create_dir_all(file.join("full")).unwrap();
    let a = sequence(&sequences, "a");
    for _ in 0..5 {
        assert!(a.try_next_ordered().is_err());
        clock.pass(Duration::from_secs(2));
        teller.turn_now();
    }
    assert!(teller_refuses_to_accept(&sequences, &mut teller));
    std::fs::remove_dir_all(&file).unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    // What was granted meanwhile is a gap.
    assert!(next(&a, || teller.turn_now()) > 1);
    assert_eq!(sequences.status().behind, None);
}

/// Whether an operator who wants the store to be gone on with is told that this cannot be written down.
fn teller_refuses_to_accept(sequences: &Sequences, teller: &mut Teller) -> bool {
    let reply = sequences.accept_identity();
    teller.turn_now();
    matches!(reply.wait(), Err(ControlError::Refused { why }) if why.contains("written down"))
}

/// A dump, a fence by a clock that is far ahead, the dump put back on a host, the clock right, and a fence: what a server is told
/// that knows of the first one, and what it and its next life are granted behind one that is told of that.
fn told_behind_a_fence_by_a_fast_clock(host: usize) -> (Option<String>, [u64; 2]) {
    let (world, folder, clock) = (world(2), tempfile::tempdir().unwrap(), clock());
    let store = world.database.store(0);
    let mut person = store.clone();
    let life = || {
        let builder = Sequences::builder(Box::new(store.clone())).data_dir(folder.path());
        let (sequences, teller) = builder.clock(clock.clone()).assemble_for_test();
        let a = sequence(&sequences, "a");
        (sequences, teller, a)
    };
    let dump = world.database.dump(0);
    world.database.set_clock(86_400);
    person.record_identity().unwrap();
    let (sequences, mut teller, a) = life();
    next(&a, || teller.turn_now());
    world.database.restore(host, &dump);
    store.connect_to(host);
    take_in_turns(10, &a, &mut Vec::new(), || teller.turn_now());
    assert!(sequences.status().behind.is_some(), "nothing went back");
    world.database.set_clock(10);
    person.raise(&named("a"), 5_000).unwrap();
    person.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    let told = sequences.status().behind;
    let after = fence_known_in(folder.path()).unwrap();
    fence(&mut person, &Fence { after, ..Fence::default() }).unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    let first = next(&a, || teller.turn_now());
    assert_eq!(sequences.status().behind, None);
    drop((sequences, teller, a));
    let (sequences, mut teller, a) = life();
    let second = next(&a, || teller.turn_now());
    assert_eq!(sequences.status().behind, None);
    (told, [first, second])
}

#[test]
fn a_fence_that_was_made_while_the_database_s_clock_was_fast_is_put_right_by_one_that_is_told_of_it() {
    for host in [0, 1] {
        let (told, [first, second]) = told_behind_a_fence_by_a_fast_clock(host);
        assert!(told.as_ref().is_some_and(|why| why.contains("--data-dir")), "host {host}: {told:?}");
        assert!(second >= 5_000 && second > first, "host {host}: {first}, {second}");
    }
}

/// Ids that came twice, and whether a fence opens the names, where a mark went back under a process that used up what it held and
/// stopped, so that its next life knows of no mark.
fn twice_in_the_life_behind_a_mark_that_went_back() -> (usize, bool) {
    let (world, folder, clock) = (world(1), tempfile::tempdir().unwrap(), clock());
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    let life = || {
        let builder = Sequences::builder(Box::new(world.database.store(0)));
        let builder = builder.data_dir(folder.path()).clock(clock.clone());
        let (sequences, teller) = builder.assemble_for_test();
        let a = sequence(&sequences, "a");
        (sequences, teller, a)
    };
    let mut ids = Vec::new();
    let (first, mut teller, a) = life();
    take_in_turns(5, &a, &mut ids, || teller.turn_now());
    world.database.restore(0, &dump);
    take_in_turns(3_000, &a, &mut ids, || teller.turn_now());
    assert!(first.status().behind.is_some());
    teller.stop();
    drop((first, teller, a));
    let (second, mut teller, a) = life();
    take_in_turns(100, &a, &mut ids, || teller.turn_now());
    let twice = twice(&ids);
    store.raise(&named("a"), 100_000).unwrap();
    store.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    (twice, next(&a, || teller.turn_now()) > 0 && second.status().behind.is_none())
}

#[test]
fn names_that_a_mark_closed_stay_closed_in_later_lives_until_a_fence() {
    assert_eq!(twice_in_the_life_behind_a_mark_that_went_back(), (0, true));
    let twice = || twice_in_the_life_behind_a_mark_that_went_back().0;
    assert!(Guard::without(&[Guard::ClosingIsKept], twice) > 0);
}

/// A database under one process, of which it takes so many ids, whose dump is put back then; and how long it goes on with what it
/// holds, until its names are closed. It stops, and what is left of a turn is in its folder.
fn closed_by_a_mark(world: &World, folder: &Path, clock: &Arc<SteppedClock>, ids: &mut Vec<u64>) {
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone())).witness(false);
    let (sequences, mut teller) = builder.data_dir(folder).clock(clock.clone()).assemble_for_test();
    let a = sequence(&sequences, "a");
    ids.push(next(&a, || teller.turn_now()));
    world.database.restore(0, &dump);
    while sequences.status().behind.is_none() {
        take_in_turns(1, &a, ids, || teller.turn_now());
    }
    teller.stop();
    assert!(sequences.stats().figures.saved > 0, "it held some of them");
}

/// They were granted before, and nothing about them is in doubt.
#[test]
fn what_was_held_when_a_mark_closed_the_names_is_used_up_in_the_next_life_too() {
    let (world, folder, clock, mut ids) = (world(1), tempfile::tempdir().unwrap(), clock(), Vec::new());
    closed_by_a_mark(&world, folder.path(), &clock, &mut ids);
    let builder = world.in_folder(folder.path()).witness(false).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let (a, before) = (sequence(&sequences, "a"), ids.len());
    for _ in 0..200 {
        ids.extend(a.try_next_ordered());
        teller.turn_now();
    }
    assert!(ids.len() > before && twice(&ids) == 0, "{} behind {before}", ids.len());
    assert!(sequences.status().behind.is_some());
    assert_eq!(a.try_next_ordered().unwrap_err().kind(), SequenceErrorKind::StoreBehind);
}

/// A database that is slow to come back is no reason to ask for one fence more.
#[test]
fn a_server_that_was_down_when_its_store_was_fenced_does_not_say_that_it_waits_for_a_fence() {
    let (world, folder, clock, mut ids) = (world(1), tempfile::tempdir().unwrap(), clock(), Vec::new());
    closed_by_a_mark(&world, folder.path(), &clock, &mut ids);
    let mut person = world.database.store(0);
    person.raise(&named("a"), 100_000).unwrap();
    person.record_identity().unwrap();
    let is_away = Arc::new(AtomicBool::new(true));
    let is_there = is_away.clone();
    let meddle = move |_| {
        if is_away.load(Ordering::Relaxed) {
            Err(StoreError::Away { why: "it begins".into() })
        } else {
            Ok(())
        }
    };
    let store = MeddledStore { inner: world.database.store(0), meddle, says_why: true };
    let builder = Sequences::builder(Box::new(store)).data_dir(folder.path()).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let a = sequence(&sequences, "a");
    for _ in 0..3 {
        teller.turn_now();
        clock.pass(Duration::from_secs(2));
        let status = sequences.status();
        assert!(status.behind.is_none() && status.store_trouble.is_some(), "{status:?}");
    }
    is_there.store(false, Ordering::Relaxed);
    assert!(next(&a, || teller.turn_now()) >= 100_000);
    assert_eq!(sequences.status().behind, None);
}
