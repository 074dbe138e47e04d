//! Lives one after the other, in one folder or in copies of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{World, assert_distinct, clock, named, next, sequence, take_held, twice, until};
use crate::registry::ClusterId;
use crate::registry::sequences::memory::MemoryRecords;
use crate::sequence::store::{SequenceSettings, Store};
use crate::sequence::{Demand, SequenceErrorKind, Sequences};
use crate::sys::guards::Guard;

fn rest_file(folder: &Path) -> PathBuf {
    folder.join("sequences.rest-0")
}

fn world() -> World {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    world.create("b", SequenceSettings { increment: 3, remainder: 1, ..SequenceSettings::default() });
    world
}

/// Some ids of both names, in no certain number.
fn live(sequences: &Sequences, ids: &mut Vec<u64>, more: u64) {
    let (a, b) = (sequence(sequences, "a"), sequence(sequences, "b"));
    for number in 0..50 + more {
        ids.push(a.next_ordered().unwrap());
        if number % 7 == 0 {
            ids.extend(a.runs(Demand::ordered(30)).unwrap().into_iter().flatten());
            b.next_ordered().unwrap();
        }
    }
}

#[test]
fn a_hundred_clean_restarts_lose_no_number() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    for life in 0..100 {
        let sequences = world.in_folder(folder.path()).build().unwrap();
        let a = sequence(&sequences, "a");
        // Four threads, as a server has them, and each stops when it has its answers.
        let threads = || -> Vec<u64> {
            (0..25 + life % 13)
                .flat_map(|count| a.runs(Demand::ordered(1 + count % 5)).unwrap().into_iter().flatten())
                .collect()
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..4).map(|_| scope.spawn(threads)).collect();
            for thread in running {
                ids.extend(thread.join().unwrap());
            }
        });
        let figures = sequences.shutdown().figures;
        assert_eq!((figures.moving(), figures.held, figures.wasted.total()), (0, 0, 0), "{figures:?}");
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "a gap, or an id twice");
    let granted = world.database.grants();
    assert!(granted < 100, "{granted} grants: what was saved was used");
}

#[test]
fn a_copied_folder_and_a_file_put_back_repeat_nothing() {
    let world = world();
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    let mut kept = Vec::new();
    for life in 0..12 {
        let sequences = world.in_folder(folder.path()).build().unwrap();
        live(&sequences, &mut ids, life);
        sequences.shutdown();
        kept.push(fs::read(rest_file(folder.path())).unwrap());
        // An earlier life's file, in the same folder and in a copy of it that lives at the same time.
        let earlier = &kept[kept.len() / 2];
        fs::write(rest_file(copy.path()), earlier).unwrap();
        fs::write(rest_file(folder.path()), if life % 3 == 0 { earlier } else { &kept[kept.len() - 1] })
            .unwrap();
        let twins =
            [world.in_folder(folder.path()).build().unwrap(), world.in_folder(copy.path()).build().unwrap()];
        for twin in &twins {
            live(twin, &mut ids, 3);
        }
        for twin in &twins {
            twin.shutdown();
        }
    }
    assert_distinct(ids);
}

#[test]
fn a_life_that_was_killed_leaves_nothing_and_its_file_is_not_used_again() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    let first = world.in_folder(folder.path()).build().unwrap();
    live(&first, &mut ids, 0);
    first.shutdown();
    let saved = fs::read(rest_file(folder.path())).unwrap();
    let killed = world.in_folder(folder.path()).build().unwrap();
    live(&killed, &mut ids, 0);
    let figures = killed.stats().figures;
    assert!(figures.reclaimed > 0, "{figures:?}");
    // What a kill leaves is the file that was claimed at the start.
    killed.shutdown();
    fs::write(rest_file(folder.path()), saved).unwrap();
    let third = world.in_folder(folder.path()).build().unwrap();
    live(&third, &mut ids, 0);
    assert_eq!(third.shutdown().figures.reclaimed, 0);
    // And its story goes on.
    let fourth = world.in_folder(folder.path()).build().unwrap();
    live(&fourth, &mut ids, 0);
    assert!(fourth.shutdown().figures.reclaimed > 0);
    assert_distinct(ids);
}

#[test]
fn what_an_idle_name_left_is_kept_from_life_to_life() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    for life in 0..5 {
        let sequences = world.in_folder(folder.path()).build().unwrap();
        if life == 0 {
            assert_eq!(sequence(&sequences, "b").next_ordered().unwrap(), 1);
        }
        sequence(&sequences, "a").next_ordered().unwrap();
        let figures = sequences.shutdown().figures;
        assert_eq!((figures.moving(), figures.wasted.total()), (0, 0), "{figures:?}");
    }
    let sequences = world.in_folder(folder.path()).build().unwrap();
    assert_eq!(sequence(&sequences, "b").next_ordered().unwrap(), 4);
    sequences.shutdown();
}

#[test]
fn leftovers_of_another_cluster_or_of_a_registry_that_is_not_the_same_are_not_used() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    let saved = |ids: &mut Vec<u64>| {
        let sequences = world.in_folder(folder.path()).build().unwrap();
        live(&sequences, ids, 0);
        sequences.shutdown();
    };
    for cluster in [[9; 16], [8; 16]] {
        saved(&mut ids);
        let records = MemoryRecords::new(ClusterId::from_bytes(cluster));
        let other =
            world.without_records().records(Box::new(records)).data_dir(folder.path()).build().unwrap();
        if cluster != [9; 16] {
            // Another witness, for which names wait.
            other.accept_identity().wait().unwrap();
        }
        live(&other, &mut ids, 0);
        let (figures, status) = (other.shutdown().figures, other.status());
        assert!(figures.reclaimed == figures.wasted.dropped && figures.reclaimed > 0, "{figures:?}");
        assert!(status.leftovers.unwrap().contains("not used"));
    }
    assert_distinct(ids);
}

/// Without a witness, what another database granted is not this one's.
#[test]
fn without_a_witness_leftovers_of_another_store_are_dropped() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    let builder = || world.in_folder(folder.path()).witness(false);
    let sequences = builder().build().unwrap();
    live(&sequences, &mut ids, 0);
    sequences.shutdown();
    world.database.set_identity(0, "another one");
    let sequences = builder().lossless_failover(true).build().unwrap();
    live(&sequences, &mut ids, 0);
    let figures = sequences.shutdown().figures;
    assert_eq!(figures.reclaimed, figures.wasted.dropped, "{figures:?}");
    let sequences = builder().build().unwrap();
    live(&sequences, &mut ids, 0);
    let figures = sequences.shutdown().figures;
    assert!(figures.reclaimed > 0 && figures.wasted.dropped == 0, "{figures:?}");
    assert_distinct(ids);
}

/// What becomes of the file of a process that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The next life claims it.
    Claimed,
    /// A life that was killed did.
    ClaimedBefore,
    /// The registry has no record of it any more.
    Unknown,
}

/// Ids that came twice, where a fence after a fail-over went not as high as a process that was stopped meanwhile had been
/// granted.
fn twice_after_a_fence_that_went_too_low(left: Left) -> usize {
    let (mut world, folder) = (World::with_hosts(2), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    world.database.replicate(0, 1);
    let mut ids: Vec<u64> = Vec::new();
    for host in [0, 1] {
        let mut store = world.database.store(host);
        if host == 1 {
            store.raise(&named("a"), 100).unwrap();
            store.record_identity().unwrap();
        }
        let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
        let (sequences, mut teller) = builder.witness(false).data_dir(folder.path()).assemble_for_test();
        let a = sequence(&sequences, "a");
        teller.turn_now();
        for _ in 0..20 {
            let mut out = Vec::new();
            let _ = a.try_runs(Demand::any(40), &mut out);
            ids.extend(out.into_iter().flatten());
            teller.turn_now();
        }
        assert_eq!(sequences.status().behind.is_some(), host == 1 && Guard::LeftMarksKept.holds());
        teller.stop();
        drop((a, sequences, teller));
        match left {
            Left::Claimed => {}
            Left::ClaimedBefore => {
                let file = rest_file(folder.path());
                let saved = fs::read(&file).unwrap();
                let builder = Sequences::builder(Box::new(world.database.store(0)));
                let builder = builder.records(Box::new(world.records.clone())).witness(false);
                let (_killed, mut teller) = builder.data_dir(folder.path()).assemble_for_test();
                teller.turn_now();
                fs::write(file, saved).unwrap();
            }
            Left::Unknown => world.records = MemoryRecords::new(ClusterId::from_bytes([9; 16])),
        }
    }
    twice(&ids)
}

#[test]
fn without_a_witness_what_an_earlier_life_left_shows_that_a_fence_went_too_low() {
    for left in [Left::Claimed, Left::ClaimedBefore, Left::Unknown] {
        let twice = || twice_after_a_fence_that_went_too_low(left);
        assert_eq!(twice(), 0, "{left:?}");
        assert!(Guard::without(&[Guard::LeftMarksKept], twice) > 0, "{left:?}");
    }
}

#[test]
fn leftovers_serve_callers_while_the_store_is_away() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    let sequences = world.in_folder(folder.path()).build().unwrap();
    live(&sequences, &mut ids, 0);
    sequences.shutdown();
    world.database.set_away(0, true);
    let sequences = world.in_folder(folder.path()).wait(Duration::from_millis(50)).build().unwrap();
    let a = sequence(&sequences, "a");
    until("what was left", || a.next_ordered().map(|id| ids.push(id)).is_ok());
    let more = (0..100_000).map_while(|_| a.next_ordered().ok());
    ids.extend(more);
    world.database.set_away(0, false);
    sequences.shutdown();
    assert_distinct(ids);
}

#[test]
fn a_store_that_is_behind_what_an_earlier_life_left_closes_its_names() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    let dump = world.database.dump(0);
    let live = |ids: &mut Vec<u64>, most: usize| {
        let sequences = world.in_folder(folder.path()).witness(false).build().unwrap();
        let a = sequence(&sequences, "a");
        let refused = (0..most).find_map(|_| match a.runs(Demand::any(10)) {
            Ok(runs) => {
                ids.extend(runs.into_iter().flatten());
                None
            }
            Err(error) => Some(error.kind()),
        });
        sequences.shutdown();
        refused
    };
    let mut ids = Vec::new();
    assert_eq!(live(&mut ids, 1), None);
    let mark = world.database.mark(0, "a").unwrap();
    world.database.restore(0, &dump);
    assert_eq!(live(&mut ids, 1_000), Some(SequenceErrorKind::StoreBehind));
    assert_eq!(ids.len() as u64 + 1, mark, "what the first life left is issued");
    assert_distinct(ids);
}

/// A registry that elects a leader while a process starts.
#[test]
fn leftovers_wait_for_a_registry_that_is_away_for_a_moment() {
    for witness in [true, false] {
        let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
        let life = || {
            let builder = world.in_folder(folder.path()).witness(witness).clock(clock.clone());
            builder.assemble_for_test()
        };
        let (sequences, mut teller) = life();
        assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1);
        teller.stop();
        drop((sequences, teller));
        world.records.set_away(true);
        let (sequences, mut teller) = life();
        let a = sequence(&sequences, "a");
        for _ in 0..5 {
            assert!(a.try_next_ordered().is_err());
            clock.pass(Duration::from_secs(1));
            teller.turn_now();
        }
        world.records.set_away(false);
        assert_eq!(next(&a, || teller.turn_now()), 2, "with a witness: {witness}");
        teller.stop();
        let figures = sequences.stats().figures;
        assert_eq!((figures.wasted.total(), figures.moving()), (0, 0), "{figures:?}");
    }
}

/// Where a database grants without it, numbers do not wait for it for ever.
#[test]
fn leftovers_are_done_without_where_no_registry_is_needed_and_it_stays_away() {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    let life = || world.in_folder(folder.path()).witness(false).clock(clock.clone()).assemble_for_test();
    let (sequences, mut teller) = life();
    assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1);
    teller.stop();
    drop((sequences, teller));
    world.records.set_away(true);
    let (sequences, mut teller) = life();
    let a = sequence(&sequences, "a");
    for _ in 0..12 {
        clock.pass(Duration::from_secs(1));
        teller.turn_now();
    }
    assert_eq!(next(&a, || teller.turn_now()), 1_001);
    let figures = sequences.stats().figures;
    assert_eq!((figures.reclaimed, figures.wasted.dropped), (999, 999), "{figures:?}");
}

/// Why the second of two lives cannot use what the first one left.
#[derive(Debug, Clone, Copy)]
enum Unclaimed {
    Nothing,
    RegistryAway,
    OtherCluster,
    /// A registry of the same cluster that begins anew.
    OtherRecords,
    NoRecords,
}

/// Ids that came twice where a database was put back between two lives, with or without a witness.
fn twice_where_unclaimed(why: Unclaimed, witness: bool) -> usize {
    let (world, folder, clock) = (world(), tempfile::tempdir().unwrap(), clock());
    let dump = world.database.dump(0);
    let builder = world.in_folder(folder.path()).witness(witness).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&sequences, "a"), || teller.turn_now())).collect();
    teller.stop();
    drop((sequences, teller));
    world.database.restore(0, &dump);
    let others = |cluster: u8| MemoryRecords::new(ClusterId::from_bytes([cluster; 16]));
    let builder = match why {
        Unclaimed::Nothing | Unclaimed::RegistryAway => world.builder(),
        Unclaimed::OtherCluster => world.without_records().records(Box::new(others(8))),
        Unclaimed::OtherRecords => world.without_records().records(Box::new(others(9))),
        Unclaimed::NoRecords => world.without_records(),
    };
    world.records.set_away(matches!(why, Unclaimed::RegistryAway));
    let builder = builder.data_dir(folder.path()).witness(witness).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let a = sequence(&sequences, "a");
    for _ in 0..100 {
        take_held(&a, &mut ids);
        clock.pass(Duration::from_secs(1));
        teller.turn_now();
    }
    let waits = !witness || matches!(why, Unclaimed::OtherCluster);
    assert_eq!(sequences.status().behind.is_some(), waits, "{why:?}");
    twice(&ids)
}

#[test]
fn leftovers_that_cannot_be_claimed_show_that_a_store_is_behind_them() {
    let others = [Unclaimed::OtherCluster, Unclaimed::OtherRecords];
    for why in [Unclaimed::Nothing, Unclaimed::RegistryAway, Unclaimed::NoRecords].into_iter().chain(others) {
        assert_eq!(twice_where_unclaimed(why, false), 0, "{why:?}");
    }
    // The witness of another registry has not seen what was granted before.
    for why in others {
        assert_eq!(twice_where_unclaimed(why, true), 0, "{why:?}");
    }
}

#[test]
fn a_life_while_the_database_is_away_loses_nothing_of_what_the_one_before_left() {
    for witness in [true, false] {
        let (world, folder) = (world(), tempfile::tempdir().unwrap());
        let life = || world.in_folder(folder.path()).witness(witness).assemble_for_test();
        let (sequences, mut teller) = life();
        assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 1);
        teller.stop();
        drop((sequences, teller));
        world.database.set_away(0, true);
        for _ in 0..3 {
            let (sequences, mut teller) = life();
            for _ in 0..5 {
                teller.turn_now();
            }
            teller.stop();
            assert_eq!(sequences.stats().figures.moving(), 0);
        }
        world.database.set_away(0, false);
        let (sequences, mut teller) = life();
        assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), 2, "with a witness: {witness}");
        teller.stop();
    }
}

/// What the folder remembers of the store is lost, in a life that needs no grant.
#[test]
fn leftovers_keep_the_name_of_the_store_that_granted_them() {
    let (world, folder) = (world(), tempfile::tempdir().unwrap());
    for life in 1..=4 {
        let (sequences, mut teller) = world.in_folder(folder.path()).witness(false).assemble_for_test();
        assert_eq!(next(&sequence(&sequences, "a"), || teller.turn_now()), life);
        teller.stop();
        let _ = fs::remove_file(folder.path().join("sequences.store"));
    }
}

#[test]
fn a_name_that_is_asked_for_while_a_stop_saves_leaves_nothing_behind() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    let names: Vec<String> = (0..2_000).map(|number| format!("n{number}")).collect();
    for name in &names {
        world.create(name, SequenceSettings { step: 5, ..SequenceSettings::default() });
    }
    let mut saved = 0;
    for life in 0..12 {
        let (sequences, hub, mut teller, _keeper) =
            world.in_folder(folder.path()).parts_for_test(life).unwrap();
        teller.turn_now();
        if life == 0 {
            for name in &names {
                next(&sequence(&sequences, name), || teller.turn_now());
            }
        } else {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (sequences, names) = (&sequences, &names);
                    scope.spawn(move || {
                        let own = names.iter().cycle().skip(thread * 500);
                        own.map(|name| sequences.sequence(&named(name))).take_while(Result::is_ok).count()
                    });
                }
                std::thread::sleep(Duration::from_millis(1));
                hub.close();
                teller.stop();
            });
        }
        if life == 0 {
            teller.stop();
        }
        let figures = sequences.stats().figures;
        assert_eq!((figures.held, figures.wasted.total(), figures.moving()), (0, 0, 0), "{figures:?}");
        assert!(life == 0 || figures.reclaimed == saved, "{figures:?}");
        saved = figures.saved;
    }
}
