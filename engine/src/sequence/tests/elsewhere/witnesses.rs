//! A witness that begins, ends or is another one than before: what it has not seen.

use super::*;
use crate::sequence::fence_known_in;
use crate::sequence::store::{Fence, Fenced, fence};

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

/// Ids that came twice where the life before was killed and left nothing, no witness is asked, and the database is put back to
/// before its last fence; and whether a fence that is told of as later than the lost one, by a clock that is behind, puts it right.
fn twice_of_a_dump_without_a_witness() -> (usize, bool) {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    world.database.set_clock(1_000);
    store.record_identity().unwrap();
    let life = || {
        let builder = Sequences::builder(Box::new(world.database.store(0)));
        let builder = builder.data_dir(folder.path()).wait(LONG).clock(clock.clone());
        let (sequences, teller) = builder.assemble_for_test();
        let a = sequence(&sequences, "a");
        (sequences, teller, a)
    };
    let (first, mut teller, a) = life();
    let mut ids = vec![next(&a, || teller.turn_now())];
    drop((first, teller, a));
    world.database.restore(0, &dump);
    world.database.set_clock(10);
    let (second, mut teller, a) = life();
    take_in_turns(200, &a, &mut ids, || teller.turn_now());
    let twice = twice(&ids);
    let after = fence_known_in(folder.path()).unwrap();
    let plan = Fence { above: Some(20_000), after, ..Fence::default() };
    assert!(is_later_told(&fence(&mut store, &plan).unwrap()));
    clock.pass(Duration::from_secs(2));
    teller.turn_now();
    let goes_on = next(&a, || teller.turn_now()) > 0 && second.status().behind.is_none();
    (twice, goes_on)
}

fn is_later_told(fenced: &Fenced) -> bool {
    fenced.identity.as_ref().and_then(|told| told.fenced.as_ref()).is_some_and(|at| at == "1002")
}

/// The folder remembers the fence, though its marks are gone with the process.
#[test]
fn a_dump_of_before_a_fence_waits_for_another_one_where_no_witness_is_asked() {
    assert_eq!(twice_of_a_dump_without_a_witness(), (0, true));
    assert!(Guard::without(&[Guard::FenceStays], twice_of_a_dump_without_a_witness).0 > 0);
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

/// What a witness of one host took for gaps, other hosts were granted.
#[test]
fn a_witness_that_is_said_to_be_of_all_from_now_on_needs_a_fence() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let records = || Box::new(world.records.clone().described("local"));
    let life = |is_shared| {
        let builder = Sequences::builder(Box::new(world.database.store(0))).records(records());
        let builder = builder.shared_witness(is_shared).data_dir(folder.path()).wait(LONG);
        let (sequences, teller) = builder.assemble_for_test();
        let a = sequence(&sequences, "a");
        (sequences, teller, a)
    };
    for _ in 0..2 {
        let (first, mut teller, a) = life(false);
        next(&a, || teller.turn_now());
        assert_eq!(first.status().behind, None);
    }
    let (second, mut teller, a) = life(true);
    take_in_turns(3, &a, &mut Vec::new(), || teller.turn_now());
    assert!(second.status().behind.is_some_and(|why| why.contains("of all")));
}

/// Ids that came twice where a fence went too low for a witness that begins, which a mark showed in the life in which it began: the
/// next one has learnt that witness, and knows of no mark.
fn twice_in_the_life_behind_the_one_in_which_a_witness_began() -> usize {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    let mut store = world.database.store(0);
    store.record_identity().unwrap();
    let dump = world.database.dump(0);
    let life = |witness| {
        let builder = world.in_folder(folder.path()).witness(witness).clock(clock.clone());
        let (sequences, teller) = builder.assemble_for_test();
        let a = sequence(&sequences, "a");
        (sequences, teller, a)
    };
    let (first, mut teller, a) = life(false);
    let mut ids: Vec<u64> = (0..2_500).map(|_| next(&a, || teller.turn_now())).collect();
    teller.stop();
    drop((first, teller, a));
    world.database.restore(0, &dump);
    clock.pass(Duration::from_secs(2));
    store.record_identity().unwrap();
    let (second, mut teller, a) = life(true);
    take_in_turns(10, &a, &mut ids, || teller.turn_now());
    assert!(second.status().behind.is_some_and(|why| why.contains("went back")), "by its mark");
    // It is killed, and what earlier lives left is not there any more, as where it was used up.
    drop((second, teller, a));
    fs::remove_file(folder.path().join("sequences.rest-0")).unwrap();
    let (third, mut teller, a) = life(true);
    take_in_turns(100, &a, &mut ids, || teller.turn_now());
    assert!(third.status().behind.is_some() || !Guard::ClosingIsKept.holds());
    twice(&ids)
}

#[test]
fn names_that_a_mark_closed_beside_a_witness_that_begins_stay_closed_in_later_lives() {
    assert_eq!(twice_in_the_life_behind_the_one_in_which_a_witness_began(), 0);
    let twice = twice_in_the_life_behind_the_one_in_which_a_witness_began;
    assert!(Guard::without(&[Guard::ClosingIsKept], twice) > 0);
}
