//! Stores and witnesses that fail, lose commits, are another one, or two.

use std::time::Duration;

use super::{
    LONG, World, assert_distinct, clock, named, next, sequence, stop_after, take_held, twice, until,
};
use crate::registry::sequences::memory::RecordFault;
use crate::sequence::background::teller::Teller;
use crate::sequence::store::memory::{Fault, MemoryStore};
use crate::sequence::store::registry::RegistryStore;
use crate::sequence::store::{Ask, NewSequence, Outcome, SequenceSettings, Store};
use crate::sequence::{ControlError, Demand, NameState, Sequence, SequenceErrorKind, Sequences};
use crate::sys::guards::Guard;

fn world(hosts: usize) -> World {
    let world = World::with_hosts(hosts);
    world.create("a", SequenceSettings { step: 100, ..SequenceSettings::default() });
    for host in 1..hosts {
        world.database.replicate(0, host);
    }
    world
}

/// A node with a connection of its own, which may be turned to another host.
struct Node {
    sequences: Sequences,
    store: MemoryStore,
    a: Sequence,
}

impl Node {
    fn new(world: &World, witness: bool) -> Self {
        let store = world.database.store(0);
        let builder = Sequences::builder(Box::new(store.clone())).records(Box::new(world.records.clone()));
        let sequences = builder.witness(witness).lossless_failover(!witness).wait(LONG).build().unwrap();
        let a = sequence(&sequences, "a");
        Self { sequences, store, a }
    }

    /// In no promised order: ordered calls get nothing that lies below what they had, and would miss some duplicates.
    fn take(&self, count: u32, ids: &mut Vec<u64>) {
        ids.extend(self.a.runs(Demand::any(count)).unwrap().into_iter().flatten());
    }
}

#[test]
fn an_unknown_outcome_is_a_gap_and_never_a_grant() {
    for fault in [Fault::LandsUnseen, Fault::LandsLate, Fault::LostUnseen] {
        let world = world(1);
        let node = Node::new(&world, true);
        let mut ids = Vec::new();
        node.take(100, &mut ids);
        world.database.fail([fault, fault]);
        node.take(1_000, &mut ids);
        world.database.settle();
        node.take(1_000, &mut ids);
        assert_eq!(twice(&ids), 0, "{fault:?}");
        let stats = node.sequences.stats();
        assert_eq!(stats.grants.unknown, 2, "{stats:?}");
        stop_after(&node.sequences, ids.len() as u64);
    }
}

/// Ids that come twice after a commit was lost: the primary dies, and a replica that is behind is promoted.
fn after_a_lost_commit(witness: bool) -> usize {
    let world = world(2);
    let nodes = [Node::new(&world, witness), Node::new(&world, witness)];
    let mut ids = Vec::new();
    for round in 0..20 {
        let [old, new] = [round % 2, (round + 1) % 2];
        let [first, second] = [&nodes[(round / 2) % 2], &nodes[(round / 2 + 1) % 2]];
        world.database.replicate(old, new);
        // What is granted from here on is lost. Only one node has some of it: a node that has knows how far the name came.
        first.take(2_000, &mut ids);
        second.store.connect_to(new);
        second.take(2_000, &mut ids);
        first.store.connect_to(new);
        first.take(250, &mut ids);
    }
    let went_back: u64 = nodes.iter().map(|node| node.sequences.stats().grants.seen).sum();
    assert_eq!(went_back > 0, witness, "the witness is asked, or nothing is tested");
    for node in &nodes {
        node.sequences.shutdown();
    }
    twice(&ids)
}

#[test]
fn a_store_that_lost_commits_repeats_nothing_where_there_is_a_witness() {
    assert_eq!(after_a_lost_commit(true), 0);
}

#[test]
fn without_a_witness_a_fail_over_that_is_not_lossless_is_found_out() {
    assert!(after_a_lost_commit(false) > 0);
}

#[test]
fn two_primaries_repeat_nothing_where_there_is_a_witness() {
    let world = world(2);
    let nodes = [Node::new(&world, true), Node::new(&world, true)];
    nodes[1].store.connect_to(1);
    let mut ids = Vec::new();
    for round in 0..50 {
        for node in &nodes {
            node.take(60 + round, &mut ids);
        }
    }
    assert_eq!(twice(&ids), 0);
}

#[test]
fn ordered_ids_ascend_over_a_fail_over() {
    let world = world(2);
    let nodes = [Node::new(&world, true), Node::new(&world, true)];
    let mut last = [0, 0];
    for round in 0..200_usize {
        if round % 10 == 3 {
            world.database.replicate(0, 1);
        }
        let node = (round / 3) % 2;
        nodes[node].store.connect_to(usize::from(round % 7 > 3));
        for _ in 0..90 {
            let id = nodes[node].a.next_ordered().unwrap();
            assert!(id > last[node], "{id} after {} in round {round}", last[node]);
            last[node] = id;
        }
    }
}

#[test]
fn while_the_witness_is_away_nothing_is_granted_and_it_costs_one_grant() {
    let world = world(1);
    let node = Node::new(&world, true);
    let mut ids = Vec::new();
    node.take(10, &mut ids);
    world.records.set_away(true);
    let refused = node.a.request(Demand::ordered(100_000), Duration::from_millis(1));
    drop(refused);
    until("the witness's trouble", || {
        // A grant that was under way is used up, too.
        while let Ok(id) = node.a.try_next_ordered() {
            ids.push(id);
        }
        node.sequences.status().witness_trouble.is_some()
    });
    assert_eq!(node.a.try_next_ordered().unwrap_err().kind(), SequenceErrorKind::StoreAway);
    let before = world.database.grants();
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(world.database.grants(), before, "the store is not asked in vain");
    world.records.set_away(false);
    node.take(1_000, &mut ids);
    assert_eq!((twice(&ids), node.sequences.status().witness_trouble), (0, None));
    stop_after(&node.sequences, ids.len() as u64);
}

/// A registry was fenced, and some of its names were not opened yet.
#[test]
fn a_name_whose_witness_is_closed_waits_for_a_person_and_holds_up_no_other() {
    let (world, clock) = (world(1), clock());
    world.create("b", SequenceSettings { strict: true, ..SequenceSettings::default() });
    world.records.set_closed("a", true);
    let sequences = world.builder().clock(clock.clone()).build().unwrap();
    let [a, b] = ["a", "b"].map(|name| sequence(&sequences, name));
    let refused = |a: &Sequence| a.next_ordered().unwrap_err().kind();
    assert_eq!(refused(&a), SequenceErrorKind::StoreBehind);
    let thrown_away = || sequences.stats().grants.unwitnessed;
    // It is counted behind the call's end.
    until("the grant's end", || thrown_away() == 1);
    for _ in 0..5 {
        clock.pass(Duration::from_secs(2));
        assert_eq!(refused(&a), SequenceErrorKind::StoreBehind);
        b.next_ordered().unwrap();
        assert_eq!(sequences.status().witness_trouble, None, "it answers");
    }
    assert_eq!(thrown_away(), 1, "the store is not asked in vain");
    world.records.set_closed("a", false);
    clock.pass(Duration::from_secs(2));
    a.next_ordered().unwrap();
    stop_after(&sequences, 6);
}

#[test]
fn an_answer_of_the_witness_that_is_lost_throws_the_grant_away() {
    for fault in [RecordFault::LandsUnseen, RecordFault::LostUnseen] {
        let world = world(1);
        let node = Node::new(&world, true);
        let mut ids = Vec::new();
        node.take(100, &mut ids);
        world.records.fail_after(1, fault);
        node.take(2_000, &mut ids);
        assert_eq!((twice(&ids), node.sequences.stats().grants.unwitnessed), (0, 1), "{fault:?}");
        stop_after(&node.sequences, ids.len() as u64);
    }
}

#[test]
fn a_store_that_is_away_is_noticed_when_what_is_held_is_used_up_and_not_before() {
    let world = world(1);
    let sequences = world.builder().wait(Duration::from_millis(20)).build().unwrap();
    let a = sequence(&sequences, "a");
    a.runs(Demand::ordered(1)).unwrap();
    world.database.set_away(0, true);
    let mut ids: Vec<u64> = (0..99).map(|_| a.next_ordered().unwrap()).collect();
    // A grant may have been under way.
    let refused = (0..1_000).find_map(|_| match a.next_ordered() {
        Ok(id) => {
            ids.push(id);
            None
        }
        Err(error) => Some(error),
    });
    let refused = refused.unwrap();
    assert_eq!(refused.kind(), SequenceErrorKind::StoreAway, "{refused}");
    assert!(refused.retry_after().unwrap() <= Duration::from_secs(1));
    assert_eq!(a.figures().state, NameState::Away);
    assert!(sequences.status().store_trouble.is_some());
    world.database.set_away(0, false);
    let begun = crate::clock::boot_ns();
    until("the store", || a.next_ordered().map(|id| ids.push(id)).is_ok());
    assert!(crate::clock::boot_ns() - begun < 2_000_000_000, "within two seconds");
    assert_distinct(ids);
    assert_eq!(sequences.status().store_trouble, None);
}

/// At a steady rate the store may be away for nine minutes of the clock before a call is refused.
#[test]
fn at_a_steady_rate_what_is_held_lasts_for_nine_minutes() {
    let (world, clock) = (world(1), clock());
    let sequences = world.builder().clock(clock.clone()).wait(Duration::ZERO).build().unwrap();
    let a = sequence(&sequences, "a");
    let mut out = Vec::new();
    let mut second = |refused_until: bool| {
        clock.pass(Duration::from_secs(1));
        sequences.wake_for_test();
        if refused_until {
            until("the grant", || a.try_runs(Demand::ordered(50), &mut out).is_ok());
            true
        } else {
            a.try_runs(Demand::ordered(50), &mut out).is_ok()
        }
    };
    for _ in 0..1_300 {
        assert!(second(true));
    }
    // The clock does not wait for the teller's thread: the store goes once a grant has come that was due.
    until("a grant", || second(true) && a.figures().figures.held >= 540 * 50);
    world.database.set_away(0, true);
    let lasted = (0..10_000).take_while(|_| second(false)).count();
    // Four times what was taken in ten minutes is the most that is held.
    assert!((540..=2_400).contains(&lasted), "{lasted} s");
}

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

/// Each guard of a grant taken out, and ids come twice.
#[test]
fn a_teller_without_a_guard_is_found_out() {
    // The teller's thread does not know what is out in this one, so its turns are done here.
    let attempt = |fault: Option<Fault>, goes_back: bool| {
        let world = world(1);
        let (sequences, mut teller) = world.builder().assemble_for_test();
        let a = sequence(&sequences, "a");
        let mut ids = Vec::new();
        let mut take = |teller: &mut Teller, count: u32| {
            for _ in 0..200 {
                let mut out = Vec::new();
                if a.try_runs(Demand::any(count), &mut out).is_ok() {
                    ids.extend(out.into_iter().flatten());
                    return;
                }
                teller.turn_now();
            }
        };
        take(&mut teller, 100);
        let dump = world.database.dump(0);
        world.database.fail(fault);
        take(&mut teller, 100);
        if goes_back {
            world.database.restore(0, &dump);
        }
        take(&mut teller, 100);
        take(&mut teller, 100);
        twice(&ids)
    };
    assert_eq!((attempt(Some(Fault::LostUnseen), false), attempt(None, true)), (0, 0));
    let unknown = || attempt(Some(Fault::LostUnseen), false);
    assert!(Guard::without(&[Guard::UnknownIsNoGrant, Guard::WitnessCompared], unknown) > 0);
    for guard in [Guard::WitnessFirst, Guard::WitnessCompared] {
        assert!(Guard::without(&[guard], || attempt(None, true)) > 0, "without {guard:?}");
    }
}

/// Whether ids come twice of a name that was due before callers waited for it, and of a store that goes back.
fn twice_of_a_name_due_twice() -> bool {
    let world = world(2);
    let (sequences, mut teller) = world.builder().assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut ids: Vec<u64> = Vec::new();
    let mut out = Vec::new();
    while a.try_runs(Demand::any(50), &mut out).is_err() {
        teller.turn_now();
    }
    // Due in calm, and then with a caller that waits, who goes away.
    let _ = a.try_runs(Demand::any(1_000), &mut Vec::new());
    world.database.restore(0, &world.database.dump(1));
    teller.turn_now();
    for _ in 0..20 {
        let _ = a.try_runs(Demand::any(100), &mut out);
        teller.turn_now();
    }
    ids.extend(out.into_iter().flatten());
    twice(&ids) > 0
}

#[test]
fn a_name_that_is_due_twice_is_asked_for_once() {
    assert!(!twice_of_a_name_due_twice());
    assert!(Guard::without(&[Guard::AskedOnce], twice_of_a_name_due_twice));
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
            let ask = Ask { name: named("a"), count: 10_000, least: 1 };
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
    world.database.store(1).grant(&[Ask { name: named("b"), count: 2_000, least: 1 }], &mut granted);
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

/// Ids that came twice, where a person opened a registry's record after a fence and said too little.
fn twice_of_a_registry_that_says_too_little() -> usize {
    let records = World::new().records;
    let registry = || RegistryStore::new(Box::new(records.clone()));
    let new = |start| {
        let settings = SequenceSettings { step: 100, ..SequenceSettings::default() };
        NewSequence { start, settings, ..NewSequence::default() }
    };
    registry().create(&named("a"), &new(1)).unwrap();
    let (sequences, mut teller) = Sequences::builder(Box::new(registry())).assemble_for_test();
    let a = sequence(&sequences, "a");
    let mut ids: Vec<u64> = Vec::new();
    for turn in 0..40 {
        let mut out = Vec::new();
        let _ = a.try_runs(Demand::any(90), &mut out);
        ids.extend(out.into_iter().flatten());
        if turn == 10 {
            records.lose("a");
            registry().create(&named("a"), &new(50)).unwrap();
        }
        teller.turn_now();
    }
    assert!(ids.len() > 1_000);
    twice(&ids)
}

#[test]
fn a_process_is_not_granted_again_what_it_was_granted_before() {
    assert_eq!(twice_of_a_registry_that_says_too_little(), 0);
    assert!(Guard::without(&[Guard::GrantAboveOwn], twice_of_a_registry_that_says_too_little) > 0);
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

/// Else an alert, and the state of every name, stay as they were in an outage that is over, for as long as what is held lasts.
#[test]
fn a_store_that_is_back_is_told_to_be_back_also_where_no_name_needs_it() {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().clock(clock.clone()).assemble_for_test();
    let (a, mut ids) = (sequence(&sequences, "a"), Vec::new());
    let mut take = |teller: &mut Teller| {
        take_held(&a, &mut ids);
        teller.turn_now();
    };
    // So much is held in the end that a name that is idle needs no more.
    for _ in 0..200 {
        take(&mut teller);
    }
    world.database.set_away(0, true);
    for _ in 0..10_000 {
        if sequences.status().store_trouble.is_some() {
            break;
        }
        take(&mut teller);
    }
    assert!(sequences.status().store_trouble.is_some());
    let held = sequences.stats().figures.held;
    assert!(held > 2_000, "{held}");
    // Nobody calls for a while.
    for _ in 0..1_200 {
        clock.pass(Duration::from_secs(1));
        teller.turn();
    }
    world.database.set_away(0, false);
    for _ in 0..60 {
        clock.pass(Duration::from_secs(1));
        teller.turn();
    }
    assert!(sequences.status().store_trouble.is_none());
}

/// What is left lasts for long, and nothing asks the witness before.
#[test]
fn a_witness_that_was_away_for_a_moment_of_the_start_is_told_to_be_back() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let life = || world.in_folder(folder.path()).assemble_for_test();
    let (sequences, mut teller) = life();
    assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1);
    teller.stop();
    drop((sequences, teller));
    let (sequences, mut teller) = life();
    world.records.set_away(true);
    teller.turn_now();
    assert!(sequences.status().witness_trouble.is_some());
    world.records.set_away(false);
    assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 2);
    assert!(sequences.status().witness_trouble.is_none());
}
