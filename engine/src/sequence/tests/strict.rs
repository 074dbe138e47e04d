//! Strict ids ascend over processes, lives and fail-overs.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use super::{LONG, World, named, next, sequence};
use crate::sequence::store::{NewSequence, SequenceSettings, Store};
use crate::sequence::{Demand, Sequences};
use crate::sys::guards::Guard;

fn strict() -> SequenceSettings {
    SequenceSettings { strict: true, ..SequenceSettings::default() }
}

fn strict_world(hosts: usize) -> World {
    let world = World::with_hosts(hosts);
    world.create("a", strict());
    for host in 1..hosts {
        world.database.replicate(0, host);
    }
    world
}

/// An id that another process takes.
fn elsewhere(world: &World) -> u64 {
    let others = world.builder().build().unwrap();
    sequence(&others, "a").next_ordered().unwrap()
}

/// Whether ids of a call that went away when it had been served come after a higher one of another process: to a call of
/// the next life, before the store has said that the name is strict.
fn is_left_for_later() -> bool {
    let (world, folder) = (strict_world(1), tempfile::tempdir().unwrap());
    let (sequences, mut teller) = world.in_folder(folder.path()).assemble_for_test();
    let mut context = Context::from_waker(Waker::noop());
    let mut call = Box::pin(sequence(&sequences, "a").request(Demand::ordered(5), LONG));
    assert!(call.as_mut().poll(&mut context).is_pending());
    teller.turn_now();
    drop(call);
    assert_eq!(elsewhere(&world), 6);
    sequences.shutdown();
    teller.stop();
    let figures = sequences.stats().figures;
    assert_eq!((figures.moving(), figures.saved + figures.wasted.strict), (0, 5), "{figures:?}");
    let (sequences, mut teller) = world.in_folder(folder.path()).assemble_for_test();
    teller.turn_now();
    let tried = sequence(&sequences, "a").try_next_ordered();
    tried.is_ok_and(|id| id < 6)
}

#[test]
fn what_a_strict_call_left_behind_is_no_later_call_s() {
    assert!(!is_left_for_later());
    assert!(Guard::without(&[Guard::StrictHoldsNothing], is_left_for_later));
}

#[test]
fn a_name_that_is_found_to_be_strict_issues_nothing_that_it_held() {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().wait(Duration::ZERO).assemble_for_test();
    let (a, mut turn) = (sequence(&sequences, "a"), || teller.turn_now());
    assert_eq!(next(&a, &mut turn), 1);
    let mut handle = a.handle();
    // Ten, so that its run has some left.
    let ten = (0..10).map(|_| handle.next_id().unwrap()).count();
    assert_eq!((ten, a.next_id().is_ok()), (10, true));
    // Somebody makes the row strict.
    world.database.remove(0, "a");
    let new = NewSequence { start: 5_000, settings: strict(), ..NewSequence::default() };
    world.database.store(0).create(&named("a"), &new).unwrap();
    // It holds ids until its next grant, which is due now.
    let held = a.runs(Demand::ordered(500)).unwrap();
    assert!(held.iter().all(|numbers| numbers.first() < 1_001));
    turn();
    for id in [a.try_next_ordered(), a.next_id(), handle.next_id()] {
        assert!(id.is_err(), "{id:?} was held");
    }
    assert!(next(&a, &mut turn) >= 5_000);
    drop(handle);
    sequences.publish();
    assert_eq!(sequences.stats().figures.moving(), 0);
}

/// Whether a process returns a strict id that is not above all that it returned before, where the store goes back and
/// there is no witness.
fn descends_without_a_witness() -> bool {
    let world = strict_world(2);
    let store = world.database.store(0);
    let builder = Sequences::builder(Box::new(store.clone())).lossless_failover(true).wait(LONG);
    let (sequences, mut teller) = builder.assemble_for_test();
    let (a, mut turn) = (sequence(&sequences, "a"), || teller.turn_now());
    let before: Vec<u64> = (0..5).map(|_| next(&a, &mut turn)).collect();
    store.connect_to(1);
    next(&a, &mut turn) <= before[4]
}

#[test]
fn strict_ids_of_one_process_ascend_also_where_a_store_without_a_witness_goes_back() {
    assert!(!descends_without_a_witness());
    assert!(Guard::without(&[Guard::GrantAboveOwn], descends_without_a_witness));
}

#[test]
fn strict_ids_of_two_processes_ascend_over_fail_overs_where_they_share_a_witness() {
    let world = strict_world(2);
    let process = || {
        let store = world.database.store(0);
        let builder = Sequences::builder(Box::new(store.clone())).records(Box::new(world.records.clone()));
        (builder.wait(LONG).build().unwrap(), store)
    };
    let processes = [process(), process()];
    let mut last = 0;
    for round in 0..200_usize {
        let (sequences, store) = &processes[round % 2];
        // Each is at another host, and now and then they meet.
        store.connect_to((round / 5 + round) % 2);
        if round % 17 == 0 {
            world.database.replicate(0, 1);
        }
        let id = sequence(sequences, "a").next_ordered().unwrap();
        assert!(id > last, "{id} after {last} in round {round}");
        last = id;
    }
}

#[test]
fn a_strict_call_for_more_than_the_largest_step_is_served_by_one_grant() {
    let world = strict_world(1);
    let (sequences, mut teller) = world.builder().step_max(10).assemble_for_test();
    let (a, mut turn) = (sequence(&sequences, "a"), || teller.turn_now());
    // The first grant tells that it is strict.
    assert_eq!(next(&a, &mut turn), 1);
    let mut context = Context::from_waker(Waker::noop());
    let mut call = Box::pin(a.request(Demand::ordered(50), LONG));
    assert!(call.as_mut().poll(&mut context).is_pending());
    turn();
    assert!(call.as_mut().poll(&mut context).is_ready());
    assert_eq!(world.database.mark(0, "a"), Some(52));
}
