//! Stores and witnesses that fail, lose commits, are another one, or two.

mod fences;
mod identities;
mod outages;

use std::time::Duration;

use super::{LONG, World, clock, named, sequence, stop_after, twice, until};
use crate::registry::sequences::memory::RecordFault;
use crate::sequence::background::teller::Teller;
use crate::sequence::store::memory::{Fault, MemoryStore};
use crate::sequence::store::registry::RegistryStore;
use crate::sequence::store::{NewSequence, SequenceSettings, Store};
use crate::sequence::{Demand, Sequence, SequenceErrorKind, Sequences};
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
    let out = [Guard::UnknownIsNoGrant, Guard::WitnessCompared, Guard::OwnAboveWitness];
    assert!(Guard::without(&out, unknown) > 0);
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
