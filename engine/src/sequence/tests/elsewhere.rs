//! Leftovers, and what else has to do with them: the registry, the store and its place, and files beside them.

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
    let (third, mut teller) = life();
    let a = sequence(&third, "a");
    take_in_turns(200, &a, &mut ids, || teller.turn_now());
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

/// Ids that came twice where a database was put back before a life that asks a witness, which no life before it did, and the
/// fence that this needs raised no mark.
fn twice_where_a_witness_begins() -> usize {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    let life = |witness| {
        let builder = world.in_folder(folder.path()).clock(clock.clone());
        builder.witness(witness).assemble_for_test()
    };
    let (first, mut teller) = life(false);
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&first, "a"), || teller.turn_now())).collect();
    teller.stop();
    drop((first, teller));
    world.database.restore(0, &dump);
    let (second, mut teller) = life(true);
    let a = sequence(&second, "a");
    let mut draw = |ids: &mut Vec<u64>| take_in_turns(200, &a, ids, || teller.turn_now());
    draw(&mut ids);
    assert!(second.status().behind.is_some());
    // Once more: what was granted and thrown away had moved the mark.
    world.database.restore(0, &dump);
    store.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    let before = ids.len();
    draw(&mut ids);
    assert!(ids.len() > before && second.status().behind.is_none());
    twice(&ids)
}

/// The process knows what an earlier life was granted, and a record that is made just now does not.
#[test]
fn a_witness_that_begins_has_not_seen_what_leftovers_show() {
    assert_eq!(twice_where_a_witness_begins(), 0);
}

/// Each keeps numbers below what this process was granted from being used.
const OWN_MARKS: [Guard; 3] = [Guard::OwnAboveWitness, Guard::GrantAboveOwn, Guard::FenceStays];

/// Ids that came twice where servers had no witness for a while, and the database is put back to that while in a later life. The
/// name may be used in the first life behind the while, or not before the next one.
fn twice_of_a_while_without_the_witness(put_back_in: usize, is_used_at_once: bool) -> usize {
    let (world, folder, clock) = (World::new(), tempfile::tempdir().unwrap(), clock());
    for name in ["a", "b"] {
        world.create(name, SequenceSettings { step: 100, ..SequenceSettings::default() });
    }
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let (mut all, mut dump) = ([Vec::new(), Vec::new()], world.database.dump(0));
    for (number, witness) in [true, false, true, true].into_iter().enumerate() {
        let builder = world.in_folder(folder.path()).clock(clock.clone());
        let (sequences, mut teller) = builder.witness(witness).assemble_for_test();
        let which = usize::from(number == 2 && !is_used_at_once);
        let (used, ids) = (sequence(&sequences, ["a", "b"][which]), &mut all[which]);
        let mut live = |ids: &mut Vec<u64>| take_in_turns(10, &used, ids, || teller.turn_now());
        live(ids);
        if sequences.status().behind.is_some() {
            for name in ["a", "b"] {
                store.raise(&named(name), world.database.mark(0, name).unwrap() + 1_000_000).unwrap();
            }
            store.record_identity().unwrap();
            clock.pass(Duration::from_secs(2));
        }
        if !witness {
            dump = world.database.dump(0);
        }
        let before = ids.len();
        live(ids);
        if number == put_back_in {
            world.database.restore(0, &dump);
            (0..20).for_each(|_| live(ids));
        }
        // A dump of before the fence that the life needed waits for another one.
        let waits = number == put_back_in && Guard::FenceStays.holds();
        assert!(ids.len() > before && sequences.status().behind.is_some() == waits);
        // It is killed.
    }
    all.iter().map(|ids| twice(ids)).sum()
}

#[test]
fn a_witness_that_begins_again_has_not_seen_what_was_granted_meanwhile() {
    for (put_back_in, is_used_at_once) in [(2, true), (3, true), (3, false)] {
        let twice = twice_of_a_while_without_the_witness(put_back_in, is_used_at_once);
        assert_eq!(twice, 0, "in life {put_back_in}, used at once: {is_used_at_once}");
    }
    let in_the_last = || twice_of_a_while_without_the_witness(3, true);
    assert!(Guard::without(&OWN_MARKS, in_the_last) > 0);
}

/// Ids that came twice where a fail-over lost commits, of lives of which one asks a witness and the other does not.
fn twice_over_a_fail_over(is_first_witnessed: bool) -> usize {
    let (world, folder) = (World::with_hosts(2), tempfile::tempdir().unwrap());
    for name in ["a", "b"] {
        world.create(name, SequenceSettings::default());
    }
    world.database.replicate(0, 1);
    let life = |store: MemoryStore, witness| {
        let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
        builder.witness(witness).wait(LONG).data_dir(folder.path()).assemble_for_test()
    };
    let store = world.database.store(0);
    let (first, mut teller) = life(store.clone(), is_first_witnessed);
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&first, "a"), || teller.turn_now())).collect();
    // Until it holds so much that it asks for no more: the witness would raise the other host's mark.
    for _ in 0..10 {
        teller.turn_now();
    }
    store.connect_to(1);
    if is_first_witnessed {
        // The witness needs no fence for this, and the folder knows the other host from now on.
        next(&sequence(&first, "b"), || teller.turn_now());
    }
    // It is killed.
    drop((first, teller));
    let (second, mut teller) = life(store, !is_first_witnessed);
    let a = sequence(&second, "a");
    take_in_turns(100, &a, &mut ids, || teller.turn_now());
    twice(&ids)
}

#[test]
fn a_store_that_a_life_with_a_witness_went_over_to_waits_for_a_fence_where_the_next_one_has_none() {
    assert_eq!(twice_over_a_fail_over(true), 0);
    assert!(Guard::without(&[Guard::WitnessChangeFenced], || twice_over_a_fail_over(true)) > 0);
}

#[test]
fn a_store_that_a_life_without_a_witness_would_wait_for_is_not_gone_on_with_by_one_whose_witness_begins() {
    assert_eq!(twice_over_a_fail_over(false), 0);
    assert!(Guard::without(&[Guard::WitnessChangeFenced], || twice_over_a_fail_over(false)) > 0);
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

/// `sequence_witness` from `folder` to `registry`, or back, or another ensemble: that one has seen nothing of what was granted
/// before, either.
#[test]
fn another_witness_that_begins_waits_for_a_fence() {
    let cluster = |byte| MemoryRecords::new(ClusterId::from_bytes([byte; 16]));
    for other in [cluster(9).described("another kind"), cluster(8)] {
        assert_eq!(twice_at(&other), 0, "{other:?}");
        assert!(Guard::without(&[Guard::WitnessChangeFenced], || twice_at(&other)) > 0, "{other:?}");
    }
}

/// Ids that came twice where a database was put back before a life with another witness.
fn twice_at(other: &MemoryRecords) -> usize {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let dump = world.database.dump(0);
    let life = |records: &MemoryRecords| {
        let builder = world.without_records().records(Box::new(records.clone()));
        builder.data_dir(folder.path()).assemble_for_test()
    };
    let (first, mut teller) = life(&world.records);
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&first, "a"), || teller.turn_now())).collect();
    // It is killed.
    drop((first, teller));
    world.database.restore(0, &dump);
    let (second, mut teller) = life(other);
    let a = sequence(&second, "a");
    take_in_turns(100, &a, &mut ids, || teller.turn_now());
    twice(&ids)
}

/// Nobody saw what the store lost, so leftovers are used at the host that granted them alone.
#[test]
fn what_another_host_granted_without_a_witness_is_not_used_where_one_begins() {
    let (world, folder) = (World::with_hosts(2), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    world.database.replicate(0, 1);
    let life = |host, witness| {
        let builder = Sequences::builder(Box::new(world.database.store(host)));
        let builder = builder.records(Box::new(world.records.clone())).witness(witness);
        builder.wait(LONG).data_dir(folder.path()).assemble_for_test()
    };
    let (first, mut teller) = life(0, false);
    next(&sequence(&first, "a"), || teller.turn_now());
    teller.stop();
    drop((first, teller));
    let (second, mut teller) = life(1, true);
    let a = sequence(&second, "a");
    take_in_turns(10, &a, &mut Vec::new(), || teller.turn_now());
    let figures = second.stats().figures;
    assert!(figures.reclaimed > 0, "{figures:?}");
    assert_eq!(figures.reclaimed, figures.wasted.dropped, "{figures:?}");
}

/// Ids that came twice where a database was put back under a witness, to which a name was not shown since it began: a life
/// before it left numbers of that name, and the life in which the witness began did not use them.
fn twice_of_what_a_witness_never_saw(is_put_back: bool) -> usize {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    world.create("b", SequenceSettings::default());
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    let life = |witness| {
        let builder = world.in_folder(folder.path()).witness(witness).clock(clock.clone());
        builder.assemble_for_test()
    };
    let (first, mut teller) = life(false);
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&first, "a"), || teller.turn_now())).collect();
    teller.stop();
    drop((first, teller));
    if !is_put_back {
        // Before the fence, which goes as high as it knows.
        world.database.restore(0, &dump);
    }
    let (second, mut teller) = life(true);
    let b = sequence(&second, "b");
    assert!(b.try_next_ordered().is_err());
    teller.turn_now();
    assert!(second.status().behind.is_some());
    store.raise(&named("a"), if is_put_back { 20_000 } else { 501 }).unwrap();
    store.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    next(&b, || teller.turn_now());
    assert!(second.status().behind.is_none());
    teller.stop();
    drop((second, b, teller));
    if is_put_back {
        // Under a witness that needs no fence for that.
        world.database.restore(0, &dump);
    }
    let (third, mut teller) = life(true);
    let a = sequence(&third, "a");
    take_in_turns(200, &a, &mut ids, || teller.turn_now());
    assert!(third.stats().figures.reclaimed > 0);
    twice(&ids)
}

#[test]
fn a_witness_has_not_seen_what_leftovers_show_in_later_lives_either() {
    for is_put_back in [false, true] {
        let twice = || twice_of_what_a_witness_never_saw(is_put_back);
        assert_eq!(twice(), 0, "put back: {is_put_back}");
        assert!(Guard::without(&OWN_MARKS, twice) > 0, "put back: {is_put_back}");
    }
}

/// That the witness is another one is to be written down, too.
#[test]
fn a_store_is_not_accepted_where_the_change_of_the_witness_cannot_be_written_down() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let life = |witness| world.in_folder(folder.path()).witness(witness).assemble_for_test();
    let (first, mut teller) = life(true);
    next(&sequence(&first, "a"), || teller.turn_now());
    drop((first, teller));
    let (second, mut teller) = life(false);
    let a = sequence(&second, "a");
    assert!(a.try_next_ordered().is_err());
    teller.turn_now();
    assert!(second.status().behind.is_some());
    let file = folder.path().join("sequences.store");
    fs::remove_file(&file).unwrap();
    fs::create_dir_all(file.join("full")).unwrap();
    let reply = second.accept_identity();
    teller.turn_now();
    assert!(matches!(reply.wait(), Err(ControlError::Refused { .. })));
}

/// Where its user could not read what is written in the store, or nothing was: else no fence would ever be one that is news.
#[test]
fn the_first_fence_that_can_be_read_is_noted_and_the_next_one_opens_the_names() {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    let life = |witness| {
        let builder = world.in_folder(folder.path()).clock(clock.clone());
        builder.witness(witness).assemble_for_test()
    };
    let (first, mut teller) = life(false);
    next(&sequence(&first, "a"), || teller.turn_now());
    drop((first, teller));
    let (second, mut teller) = life(true);
    let a = sequence(&second, "a");
    assert!(a.try_next_ordered().is_err());
    teller.turn_now();
    assert!(second.status().behind.is_some());
    let mut store = world.database.store(0);
    for is_open in [false, true] {
        store.record_identity().unwrap();
        clock.pass(Duration::from_secs(2));
        teller.turn_now();
        assert_eq!(second.status().behind.is_none(), is_open);
    }
}

/// Ids that came twice of a name that nobody used since a witness began, of which no life left anything, where the database is put
/// back to before the fence that this needed: at once, or in a later life.
fn twice_of_a_dump_of_before_the_fence(in_a_later_life: bool) -> usize {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    world.create("b", SequenceSettings::default());
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    let life = |witness| {
        let builder = world.in_folder(folder.path()).witness(witness).clock(clock.clone());
        let (sequences, teller) = builder.assemble_for_test();
        let [a, b] = ["a", "b"].map(|name| sequence(&sequences, name));
        (sequences, teller, a, b)
    };
    let (first, mut teller, a, b) = life(false);
    let mut ids: Vec<u64> = (0..10).map(|_| next(&a, || teller.turn_now())).collect();
    // It is killed.
    drop((first, teller, a, b));
    let (second, mut teller, a, b) = life(true);
    assert!(b.try_next_ordered().is_err());
    teller.turn_now();
    assert!(second.status().behind.is_some());
    for name in ["a", "b"] {
        store.raise(&named(name), 20_000).unwrap();
    }
    store.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    next(&b, || teller.turn_now());
    assert!(second.status().behind.is_none());
    let (mut sequences, mut a) = (second, a);
    if in_a_later_life {
        drop((sequences, teller, a, b));
        (sequences, teller, a, _) = life(true);
    }
    world.database.restore(0, &dump);
    take_in_turns(200, &a, &mut ids, || teller.turn_now());
    let twice = twice(&ids);
    store.raise(&named("a"), 40_000).unwrap();
    store.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    assert!(next(&a, || teller.turn_now()) > 0 && sequences.status().behind.is_none());
    twice
}

/// The witness has no record of such a name, and the folder knows when the fence was.
#[test]
fn a_dump_of_before_the_fence_that_a_witness_needed_waits_for_another_one() {
    for in_a_later_life in [false, true] {
        let twice = || twice_of_a_dump_of_before_the_fence(in_a_later_life);
        assert_eq!(twice(), 0, "in a later life: {in_a_later_life}");
        assert!(Guard::without(&[Guard::FenceStays], twice) > 0, "in a later life: {in_a_later_life}");
    }
}

/// A name of a life without a witness, one in which a witness began behind a fence, and a dump of before the fence put back.
fn put_back_before_the_fence(lossless: bool) -> (TempDir, Sequences, Teller, Sequence) {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    let life = |witness, lossless| {
        let builder = world.in_folder(folder.path()).witness(witness).clock(clock.clone());
        let (sequences, teller) = builder.lossless_failover(lossless).assemble_for_test();
        let a = sequence(&sequences, "a");
        (sequences, teller, a)
    };
    let (first, mut teller, a) = life(false, false);
    next(&a, || teller.turn_now());
    drop((first, teller, a));
    let (second, mut teller, a) = life(true, false);
    assert!(a.try_next_ordered().is_err());
    teller.turn_now();
    assert!(second.status().behind.is_some());
    store.raise(&named("a"), 20_000).unwrap();
    store.record_identity().unwrap();
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    assert!(next(&a, || teller.turn_now()) >= 20_000);
    drop((second, teller, a));
    world.database.restore(0, &dump);
    store.raise(&named("a"), 40_000).unwrap();
    let (sequences, teller, a) = life(true, lossless);
    (folder, sequences, teller, a)
}

#[test]
fn a_store_that_lacks_a_fence_is_gone_on_with_once_it_is_accepted() {
    let (_folder, sequences, mut teller, a) = put_back_before_the_fence(false);
    assert!(a.try_next_ordered().is_err());
    teller.turn_now();
    assert!(sequences.status().behind.is_some());
    let reply = sequences.accept_identity();
    teller.turn_now();
    reply.wait().unwrap();
    assert!(next(&a, || teller.turn_now()) >= 40_000);
    take_in_turns(100, &a, &mut Vec::new(), || teller.turn_now());
    assert!(sequences.status().behind.is_none(), "it is accepted, and not for one grant");
}

/// Else each grant would be told of as one of another store.
#[test]
fn a_fence_that_is_gone_is_missed_once_at_most_where_the_store_loses_nothing() {
    let (_folder, sequences, mut teller, a) = put_back_before_the_fence(true);
    assert!(next(&a, || teller.turn_now()) >= 40_000);
    take_in_turns(100, &a, &mut Vec::new(), || teller.turn_now());
    let stats = sequences.stats();
    assert!(stats.grants.granted >= 2 && stats.identity_changes <= 1, "{stats:?}");
}

/// Ids that came twice of two hosts on one database, each with the witness that a server has by default beside a registry of its
/// own: what its own host was granted. A replica that lacks the latest grants is promoted.
fn twice_of_hosts_with_witnesses_of_their_own() -> usize {
    let (world, clock) = (World::with_hosts(2), clock());
    world.create("a", SequenceSettings::default());
    world.database.store(0).record_identity().unwrap();
    let host = |cluster: u8| {
        let (store, cluster) = (world.database.store(0), ClusterId::from_bytes([cluster; 16]));
        let builder = Sequences::builder(Box::new(store.clone()))
            .records(Box::new(MemoryRecords::new(cluster).described("local")));
        let (sequences, teller) = builder.wait(LONG).clock(clock.clone()).assemble_for_test();
        let a = sequence(&sequences, "a");
        (store, sequences, teller, a)
    };
    let mut hosts = [host(1), host(2)];
    let mut ids = Vec::new();
    for (_, _, teller, a) in &mut hosts {
        ids.push(next(a, || teller.turn_now()));
    }
    world.database.replicate(0, 1);
    // The replica gets no more.
    for (_, _, teller, a) in &mut hosts {
        take_in_turns(100, a, &mut ids, || teller.turn_now());
    }
    for (store, ..) in &hosts {
        store.connect_to(1);
    }
    for (_, _, teller, a) in &mut hosts {
        take_in_turns(3_000, a, &mut ids, || teller.turn_now());
    }
    twice(&ids)
}

#[test]
fn a_witness_that_each_host_has_of_its_own_is_no_proof() {
    assert_eq!(twice_of_hosts_with_witnesses_of_their_own(), 0);
    assert!(Guard::without(&[Guard::UnsharedIsWatched], twice_of_hosts_with_witnesses_of_their_own) > 0);
}

/// Ids that came twice where leftovers lie of a host that died with their grant, which the promoted one gave to another process.
fn twice_of_leftovers_over_a_fail_over() -> usize {
    let (world, folder, clock) = (World::with_hosts(2), tempfile::tempdir().unwrap(), clock());
    world.create("a", SequenceSettings::default());
    world.database.store(0).record_identity().unwrap();
    world.database.replicate(0, 1);
    let records = MemoryRecords::new(ClusterId::from_bytes([9; 16])).described("local");
    let life = |host| {
        let builder = Sequences::builder(Box::new(world.database.store(host)));
        let builder = builder.records(Box::new(records.clone())).data_dir(folder.path());
        builder.wait(LONG).clock(clock.clone()).assemble_for_test()
    };
    let (first, mut teller) = life(0);
    next(&sequence(&first, "a"), || teller.turn_now());
    teller.stop();
    drop((first, teller));
    let (mut promoted, mut granted) = (world.database.store(1), Vec::new());
    promoted.grant(&[Ask { name: named("a"), count: 2_000, least: 1 }], &mut granted);
    let Some(Outcome::Granted { first, end, .. }) = granted.pop() else { panic!("it has ids") };
    let mut ids: Vec<u64> = (first..end).collect();
    promoted.raise(&named("a"), 20_000).unwrap();
    promoted.record_identity().unwrap();
    let (second, mut teller) = life(1);
    let (a, before) = (sequence(&second, "a"), ids.len());
    take_in_turns(20, &a, &mut ids, || teller.turn_now());
    assert!(ids.len() > before, "it goes on behind the fence");
    twice(&ids)
}

#[test]
fn leftovers_of_a_host_that_was_left_are_not_used_beside_a_witness_of_one_host() {
    assert_eq!(twice_of_leftovers_over_a_fail_over(), 0);
}

/// Whoever vouches for the store vouches for no mark of this very process: beside a witness that does not see the grants of all, its
/// gaps are what others were granted.
#[test]
fn beside_a_witness_of_its_own_a_process_uses_no_grant_below_its_own_where_a_person_vouches() {
    let (world, clock) = (World::with_hosts(2), clock());
    world.create("a", SequenceSettings::default());
    world.database.store(0).record_identity().unwrap();
    let host = |cluster: u8| {
        let (store, cluster) = (world.database.store(0), ClusterId::from_bytes([cluster; 16]));
        let builder = Sequences::builder(Box::new(store.clone()))
            .records(Box::new(MemoryRecords::new(cluster).described("local")))
            .lossless_failover(true);
        let (sequences, teller) = builder.wait(LONG).clock(clock.clone()).assemble_for_test();
        let a = sequence(&sequences, "a");
        (store, sequences, teller, a)
    };
    let mut hosts = [host(1), host(2)];
    let mut ids = Vec::new();
    for (_, _, teller, a) in &mut hosts {
        ids.push(next(a, || teller.turn_now()));
    }
    world.database.replicate(0, 1);
    // More than the other one asks for at once later, and then that one's next grant, above it.
    for ((_, _, teller, a), times) in hosts.iter_mut().zip([2_000, 40]) {
        take_in_turns(times, a, &mut ids, || teller.turn_now());
    }
    for (store, ..) in &hosts {
        store.connect_to(1);
    }
    // The one with the higher mark is first: what the replica grants lies in a gap of its record.
    for (_, _, teller, a) in hosts.iter_mut().rev() {
        take_in_turns(3_000, a, &mut ids, || teller.turn_now());
    }
    assert_eq!(twice(&ids), 0);
}
