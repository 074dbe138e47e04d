//! Leftovers, and what else has to do with them: the registry, the store and its place, and files beside them.

mod hosts;
mod witnesses;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::meddled::{Asked, MeddledStore};
use super::{LONG, World, clock, named, next, sequence, take_in_turns, twice};
use crate::registry::ClusterId;
use crate::registry::sequences::memory::MemoryRecords;
use crate::sequence::background::teller::Teller;
use crate::sequence::leftovers::format::Batch;
use crate::sequence::store::memory::MemoryStore;
use crate::sequence::store::registry::RegistryStore;
use crate::sequence::store::{Ask, NewSequence, Outcome, SequenceSettings, Store, StoreError};
use crate::sequence::{ControlError, Sequence, Sequences};
use crate::sys::guards::Guard;

fn world() -> World {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    world
}

/// A node that goes from the registry to a database under the same names: those are other sequences.
#[test]
fn leftovers_of_another_place_are_not_used_with_a_witness_either() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let registry = || RegistryStore::new(Box::new(world.records.clone()));
    registry().create(&named("a"), &NewSequence::default()).unwrap();
    let builder = Sequences::builder(Box::new(registry())).records(Box::new(world.records.clone()));
    let (sequences, mut teller) = builder.wait(LONG).data_dir(folder.path()).assemble_for_test();
    assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1);
    teller.stop();
    drop((sequences, teller));
    let (sequences, mut teller) = world.in_folder(folder.path()).assemble_for_test();
    assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1_001);
    let figures = sequences.stats().figures;
    assert_eq!((figures.reclaimed, figures.wasted.dropped), (999, 999), "{figures:?}");
}

/// How the newest leftovers come to lie under another number than those that the next life claims.
#[derive(Debug, Clone, Copy)]
enum Beside {
    /// The first file could not be read for one life.
    Unreadable,
    /// A restart that overlaps: the second life began before the first one had ended.
    Overlapping,
    /// The same in an earlier version, which noted no places.
    Older,
}

/// Makes files of leftovers what they were before a place stood in them.
fn without_places(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let Ok(mut batch) = Batch::decode(&fs::read(entry.path()).unwrap()) else { continue };
        for rest in &mut batch.names {
            rest.identity = rest.identity.split_once('\n').unwrap().1.into();
        }
        fs::write(entry.path(), batch.encode()).unwrap();
    }
}

/// Ids that came twice where a database that no witness watches was put back behind what lies there.
fn twice_behind_what_lies(beside: Beside) -> usize {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let life = || world.in_folder(folder.path()).witness(false).assemble_for_test();
    let path = folder.path().join("sequences.rest-0");
    let change_version = |by: u8| {
        let mut bytes = fs::read(&path).unwrap();
        bytes[7] = bytes[7].wrapping_add(by);
        fs::write(&path, bytes).unwrap();
    };
    let (first, mut teller) = life();
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&first, "a"), || teller.turn_now())).collect();
    let overlapping = matches!(beside, Beside::Overlapping | Beside::Older).then(life);
    teller.stop();
    drop((first, teller));
    let dump = world.database.dump(0);
    if overlapping.is_none() {
        change_version(1);
    }
    let (second, mut teller) = overlapping.unwrap_or_else(life);
    for _ in 0..1_500 {
        ids.push(next(&sequence(&second, "a"), || teller.turn_now()));
    }
    teller.stop();
    drop((second, teller));
    match beside {
        Beside::Unreadable => change_version(255),
        Beside::Overlapping => {}
        Beside::Older => without_places(folder.path()),
    }
    world.database.restore(0, &dump);
    let mark = world.database.mark(0, "a");
    let (third, mut teller) = life();
    let a = sequence(&third, "a");
    take_in_turns(200, &a, &mut ids, || teller.turn_now());
    // Else it could lie above what another host knows.
    assert!(
        world.database.mark(0, "a") == mark || !Guard::LeftMarksKept.holds(),
        "{beside:?}: it moved the mark"
    );
    twice(&ids)
}

#[test]
fn what_any_process_of_a_folder_left_shows_that_a_store_is_behind_it() {
    for beside in [Beside::Unreadable, Beside::Overlapping, Beside::Older] {
        let twice = || twice_behind_what_lies(beside);
        assert_eq!(twice(), 0, "{beside:?}");
        assert!(Guard::without(&[Guard::LeftMarksKept], twice) > 0, "{beside:?}");
    }
}

/// A registry that begins anew in a folder where another one was numbers anew.
#[test]
fn leftovers_of_another_cluster_move_no_registry_s_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for cluster in [1, 2] {
        let records = MemoryRecords::new(ClusterId::from_bytes([cluster; 16]));
        let registry = || RegistryStore::new(Box::new(records.clone()));
        registry().create(&named("a"), &NewSequence::default()).unwrap();
        let builder = Sequences::builder(Box::new(registry())).records(Box::new(records.clone()));
        let (sequences, mut teller) = builder.wait(LONG).data_dir(folder.path()).assemble_for_test();
        assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1);
        teller.stop();
    }
}

/// Ids that came twice where a fence after a fail-over went not as high as a process that overlapped with the next one had
/// been granted.
fn twice_after_a_fence_below_what_lies_beside() -> usize {
    let (world, folder) = (World::with_hosts(2), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let life = |host| {
        let builder = Sequences::builder(Box::new(world.database.store(host)));
        let builder = builder.records(Box::new(world.records.clone())).witness(false);
        builder.wait(LONG).data_dir(folder.path()).assemble_for_test()
    };
    let (first, mut teller) = life(0);
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&first, "a"), || teller.turn_now())).collect();
    let (second, mut other) = life(0);
    teller.stop();
    drop((first, teller));
    world.database.replicate(0, 1);
    ids.extend((0..2_500).map(|_| next(&sequence(&second, "a"), || other.turn_now())));
    other.stop();
    drop((second, other));
    let mut replica = world.database.store(1);
    replica.raise(&named("a"), 1_100).unwrap();
    replica.record_identity().unwrap();
    let (third, mut teller) = life(1);
    let a = sequence(&third, "a");
    take_in_turns(200, &a, &mut ids, || teller.turn_now());
    twice(&ids)
}

#[test]
fn what_lies_beside_shows_that_a_fence_went_too_low() {
    assert_eq!(twice_after_a_fence_below_what_lies_beside(), 0);
    let without = Guard::without(&[Guard::LeftMarksKept], twice_after_a_fence_below_what_lies_beside);
    assert!(without > 0);
}

/// A setting of a database that was started anew, which a person puts right.
#[test]
fn leftovers_wait_for_a_store_that_refuses_to_say_which_one_it_is() {
    let (world, folder, refuses) = (world(), tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let life = || {
        let (inner, refuses) = (world.database.store(0), refuses.clone());
        let meddle = move |asked| match asked {
            Asked::Identity if refuses.load(Ordering::Relaxed) => {
                Err(StoreError::Refused { why: "it can lose commits".into() })
            }
            _ => Ok(()),
        };
        let store = MeddledStore { inner, meddle, says_why: true };
        let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
        builder.witness(false).data_dir(folder.path()).assemble_for_test()
    };
    let (sequences, mut teller) = life();
    assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1);
    teller.stop();
    drop((sequences, teller));
    refuses.store(true, Ordering::Relaxed);
    let (sequences, mut teller) = life();
    let a = sequence(&sequences, "a");
    teller.turn_now();
    assert!(a.try_next_ordered().is_err() && sequences.status().store_trouble.is_some());
    refuses.store(false, Ordering::Relaxed);
    assert_eq!(next(&a, || teller.turn_now()), 2);
}

/// An ensemble that is away would be waited for.
#[test]
fn a_registry_that_only_leftovers_need_is_not_looked_after_between_grants() {
    for (witness, looks) in [(true, 1), (false, 0)] {
        let world = world();
        let (_sequences, mut teller) = world.builder().witness(witness).assemble_for_test();
        teller.turn();
        assert_eq!(world.records.maintained(), looks, "with a witness: {witness}");
    }
}

/// Marks that lie beside count for the place that they are of.
#[test]
fn what_lies_beside_and_is_of_another_place_closes_no_names() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let registry = || RegistryStore::new(Box::new(world.records.clone()));
    registry().create(&named("a"), &NewSequence::default()).unwrap();
    let life = || {
        let builder = Sequences::builder(Box::new(registry())).records(Box::new(world.records.clone()));
        builder.wait(LONG).data_dir(folder.path()).assemble_for_test()
    };
    // Two that overlap: the file of the second one is not that of the third one.
    let ((first, mut teller), (second, mut other)) = (life(), life());
    assert_eq!(next(&sequence(&second, "a"), || other.turn_now()), 1);
    teller.stop();
    other.stop();
    drop((first, teller, second, other));
    // It would know that the store is another one.
    fs::remove_file(folder.path().join("sequences.store")).unwrap();
    let (third, mut teller) = world.in_folder(folder.path()).witness(false).assemble_for_test();
    assert_eq!(next(&sequence(&third, "a"), || teller.turn_now()), 1);
    assert!(third.status().behind.is_none());
}
