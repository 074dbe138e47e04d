//! A store or a witness that is away, and is back.

use std::time::Duration;

use super::world;
use crate::registry::ClusterId;
use crate::registry::sequences::memory::MemoryRecords;
use crate::sequence::api::builder::SequencesBuilder;
use crate::sequence::store::registry::RegistryStore;
use crate::sequence::store::{NewSequence, SequenceSettings, Store};
use crate::sequence::tests::{
    LONG, World, assert_distinct, clock, named, next, sequence, take_held, take_in_turns, until,
};
use crate::sequence::{Demand, NameState, SequenceErrorKind, Sequences};

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

/// Has a store, or a witness, go away and come back, while nobody needs numbers: whether trouble was told shortly before it was
/// back, and 60 s behind that.
fn is_told(builder: SequencesBuilder, set_away: impl Fn(bool)) -> [bool; 2] {
    let clock = clock();
    let (sequences, mut teller) = builder.clock(clock.clone()).assemble_for_test();
    let (a, mut ids) = (sequence(&sequences, "a"), Vec::new());
    // So much is held in the end that a name that is idle needs no more.
    take_in_turns(200, &a, &mut ids, || teller.turn_now());
    let is_trouble = || {
        let status = sequences.status();
        status.store_trouble.is_some() || status.witness_trouble.is_some()
    };
    set_away(true);
    for _ in 0..10_000 {
        if is_trouble() {
            break;
        }
        take_held(&a, &mut ids);
        teller.turn_now();
    }
    assert!(is_trouble());
    let held = sequences.stats().figures.held;
    assert!(held > 2_000, "{held}");
    let mut tells_behind = |seconds: u32| {
        for _ in 0..seconds {
            clock.pass(Duration::from_secs(1));
            teller.turn();
        }
        is_trouble()
    };
    let away = tells_behind(1_200);
    set_away(false);
    [away, tells_behind(60)]
}

/// Else an alert, and the state of every name, stay as they were in an outage that is over, for as long as what is held lasts.
#[test]
fn a_store_that_is_back_is_told_to_be_back_also_where_no_name_needs_it() {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    assert_eq!(is_told(world.builder(), |is_away| world.database.set_away(0, is_away)), [true, false]);
}

#[test]
fn a_witness_that_is_back_is_told_to_be_back_also_where_no_name_needs_it() {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    assert_eq!(is_told(world.builder(), |is_away| world.records.set_away(is_away)), [true, false]);
}

/// The registry's identity is known without asking it.
#[test]
fn a_registry_that_is_away_is_not_told_to_be_back_where_no_name_needs_it() {
    let records = MemoryRecords::new(ClusterId::from_bytes([9; 16]));
    let registry = || RegistryStore::new(Box::new(records.clone()));
    registry().create(&named("a"), &NewSequence::default()).unwrap();
    let builder = Sequences::builder(Box::new(registry())).wait(LONG);
    assert_eq!(is_told(builder, |is_away| records.set_away(is_away)), [true, false]);
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
