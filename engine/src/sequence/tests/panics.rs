//! Strangers' code that panics: adaptors of stores and registries, and wakers.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use super::meddled::{Asked, MeddledStore};
use super::{LONG, World, clock, next, sequence, take_held, twice};
use crate::registry::sequences::memory::MemoryRecords;
use crate::registry::sequences::{SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords};
use crate::registry::{ClusterId, ReadError, SwapError, Versioned};
use crate::sequence::store::{SequenceSettings, Store};
use crate::sequence::{Demand, Sequences};
use crate::testing::support::wakers::Fails;

/// When calls of an adaptor panic.
#[derive(Clone, Default)]
struct Defects {
    /// Reads, or changes, of records until one does.
    reads: Arc<AtomicU32>,
    swaps: Arc<AtomicU32>,
    /// The next question for a store's identity does.
    identity: Arc<AtomicBool>,
    /// Each grant does.
    grants: Arc<AtomicBool>,
    /// Each list does.
    lists: Arc<AtomicBool>,
}

fn strike(left: &AtomicU32) {
    let strikes = left.load(Ordering::Relaxed) == 1;
    left.store(left.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    assert!(!strikes, "an adaptor's defect");
}

struct DefectiveRecords(MemoryRecords, Defects);

impl SequenceRecords for DefectiveRecords {
    fn describe(&self) -> String {
        "panics".into()
    }

    fn cluster(&self) -> ClusterId {
        self.0.cluster()
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        strike(&self.1.reads);
        self.0.read(names, out);
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        strike(&self.1.swaps);
        self.0.swap(changes, out);
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        self.0.list(prefix, after, limit)
    }
}

fn defective_store(world: &World, defects: &Defects) -> impl Store + use<> {
    let (inner, defects) = (world.database.store(0), defects.clone());
    let meddle = move |asked| {
        let fails = match asked {
            Asked::Identity => defects.identity.swap(false, Ordering::Relaxed),
            Asked::Grant => defects.grants.load(Ordering::Relaxed),
            Asked::List => defects.lists.load(Ordering::Relaxed),
            Asked::Create | Asked::Raise | Asked::Read | Asked::Record => false,
        };
        assert!(!fails, "an adaptor's defect");
        Ok(())
    };
    MeddledStore { inner, meddle, says_why: false }
}

/// In which question the adaptors panic while leftovers are claimed.
#[derive(Debug, Clone, Copy)]
enum At {
    Nothing,
    Read,
    Swap,
    Identity,
}

/// Ids that came twice where a database without a witness was put back between two lives, and how many ids of leftovers the
/// second life has, and wastes.
fn twice_after_a_panic(at: At) -> (usize, u64, u64) {
    let (world, folder, defects) = (World::new(), tempfile::tempdir().unwrap(), Defects::default());
    world.create("a", SequenceSettings::default());
    let (dump, clock) = (world.database.dump(0), clock());
    let life = || {
        let store = defective_store(&world, &defects);
        let records = DefectiveRecords(world.records.clone(), defects.clone());
        let builder = Sequences::builder(Box::new(store)).records(Box::new(records)).clock(clock.clone());
        builder.witness(false).data_dir(folder.path()).assemble_for_test()
    };
    let (sequences, mut teller) = life();
    let mut ids: Vec<u64> = (0..10).map(|_| next(&sequence(&sequences, "a"), || teller.turn_now())).collect();
    teller.stop();
    drop((sequences, teller));
    world.database.restore(0, &dump);
    match at {
        At::Nothing => {}
        At::Read => defects.reads.store(1, Ordering::Relaxed),
        At::Swap => defects.swaps.store(1, Ordering::Relaxed),
        At::Identity => defects.identity.store(true, Ordering::Relaxed),
    }
    let (sequences, mut teller) = life();
    let a = sequence(&sequences, "a");
    for _ in 0..300 {
        take_held(&a, &mut ids);
        teller.turn_whatever_happens();
        clock.pass(Duration::from_secs(1));
        teller.turn_now();
    }
    let figures = sequences.stats().figures;
    (twice(&ids), figures.reclaimed, figures.wasted.total())
}

#[test]
fn a_panic_while_leftovers_are_claimed_forgets_neither_them_nor_how_far_the_store_had_come() {
    for at in [At::Nothing, At::Read, At::Swap, At::Identity] {
        assert_eq!(twice_after_a_panic(at), (0, 990, 0), "{at:?}");
    }
}

#[test]
fn leftovers_whose_claim_panics_each_time_do_not_keep_names_from_being_served() {
    let (world, folder, defects) = (World::new(), tempfile::tempdir().unwrap(), Defects::default());
    world.create("a", SequenceSettings::default());
    let clock = clock();
    let life = || {
        let records = DefectiveRecords(world.records.clone(), defects.clone());
        let builder = world.without_records().records(Box::new(records)).clock(clock.clone());
        builder.witness(false).data_dir(folder.path()).assemble_for_test()
    };
    let (sequences, mut teller) = life();
    next(&sequence(&sequences, "a"), || teller.turn_now());
    teller.stop();
    drop((sequences, teller));
    let (sequences, mut teller) = life();
    let a = sequence(&sequences, "a");
    for panics in 1..=10 {
        defects.reads.store(1, Ordering::Relaxed);
        assert!(a.try_next_ordered().is_err());
        // However often it turns.
        for _ in 0..3 {
            teller.turn_whatever_happens();
            assert_eq!(sequences.stats().panics, panics);
        }
        clock.pass(Duration::from_secs(1));
    }
    assert_eq!(next(&a, || teller.turn_now()), 1_001);
    let figures = sequences.stats().figures;
    assert_eq!((figures.reclaimed, figures.wasted.dropped), (999, 999), "{figures:?}");
}

/// Else the thread would spin, and say so each time, for as long as somebody waits.
#[test]
fn a_store_whose_adaptor_panics_at_each_grant_is_asked_a_few_times_a_second() {
    let (world, defects) = (World::new(), Defects::default());
    world.create("a", SequenceSettings::default());
    defects.grants.store(true, Ordering::Relaxed);
    let store = defective_store(&world, &defects);
    let sequences = Sequences::builder(Box::new(store)).wait(Duration::from_secs(2)).build().unwrap();
    let a = sequence(&sequences, "a");
    assert!(a.next_ordered().is_err());
    let panics = sequences.stats().panics;
    assert!((2..20).contains(&panics), "{panics} panics in 2 s");
    defects.grants.store(false, Ordering::Relaxed);
    assert_eq!(a.next_ordered().unwrap(), 1);
    sequences.shutdown();
}

#[test]
fn a_question_that_panics_keeps_no_name_from_being_asked_for_and_the_next_one_waits() {
    let (world, defects, clock) = (World::new(), Defects::default(), clock());
    world.create("a", SequenceSettings::default());
    let store = defective_store(&world, &defects);
    let builder = Sequences::builder(Box::new(store)).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    defects.lists.store(true, Ordering::Relaxed);
    let mut lists = [(); 2].map(|()| Box::pin(sequences.list("", "", 10)));
    let mut call = Box::pin(sequence(&sequences, "a").request(Demand::ordered(1), LONG));
    let mut context = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending());
    let wait = teller.turn_whatever_happens();
    assert!(call.as_mut().poll(&mut context).is_ready());
    assert!(wait > Duration::from_millis(100), "it would spin: {wait:?}");
    defects.lists.store(false, Ordering::Relaxed);
    teller.turn_whatever_happens();
    assert!(lists[1].as_mut().poll(&mut context).is_pending());
    clock.pass(Duration::from_secs(1));
    teller.turn_whatever_happens();
    assert!(lists[1].as_mut().poll(&mut context).is_ready());
    assert_eq!(sequences.stats().panics, 1);
}

#[test]
fn a_panic_in_a_stop_leaves_books_that_are_exact() {
    let (world, folder, defects) = (World::new(), tempfile::tempdir().unwrap(), Defects::default());
    world.create("a", SequenceSettings::default());
    let records = DefectiveRecords(world.records.clone(), defects.clone());
    let builder = world.without_records().records(Box::new(records)).witness(false);
    let sequences = builder.data_dir(folder.path()).build().unwrap();
    sequence(&sequences, "a").next_ordered().unwrap();
    defects.swaps.store(1, Ordering::Relaxed);
    let figures = sequences.shutdown().figures;
    assert_eq!((figures.wasted.dropped, figures.saved, figures.moving()), (999, 0, 0), "{figures:?}");
    assert_eq!(sequences.stats().panics, 1);
}

/// A waker that tells whether it was called.
struct Tells(AtomicBool);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_call_behind_one_that_is_given_up_is_woken_whatever_that_one_s_waker_does() {
    let (world, clock) = (World::new(), clock());
    world.create("a", SequenceSettings::default());
    let (sequences, _hub, mut teller, mut keeper) =
        world.builder().clock(clock.clone()).parts_for_test(7).unwrap();
    let a = sequence(&sequences, "a");
    next(&a, || teller.turn_now());
    world.database.set_away(0, true);
    let mut large = Box::pin(a.request(Demand::ordered(5_000), LONG));
    let mut small = Box::pin(a.request(Demand::ordered(10), Duration::from_secs(1)));
    let fails = Waker::from(Arc::new(Fails));
    assert!(large.as_mut().poll(&mut Context::from_waker(&fails)).is_pending());
    // The line has the last of it.
    drop(fails);
    let tells = Arc::new(Tells(AtomicBool::new(false)));
    let waker = Waker::from(tells.clone());
    assert!(small.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(large))).is_err());
    for _ in 0..10 {
        clock.pass(Duration::from_secs(1));
        keeper.turn();
        teller.turn();
    }
    assert!(tells.0.load(Ordering::Relaxed), "it was served, and waits for ever");
    assert!(small.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}
