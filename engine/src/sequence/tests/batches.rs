//! Names that are asked for together: none waits for what the store or the witness is asked for another one.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::meddled::{Asked, MeddledStore};
use super::{LONG, SteppedClock, World, clock, named, next, sequence};
use crate::registry::sequences::memory::MemoryRecords;
use crate::registry::sequences::{SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords};
use crate::registry::{ClusterId, ReadError, SwapError, Versioned};
use crate::sequence::api::pending::PendingNumbers;
use crate::sequence::store::registry::RegistryStore;
use crate::sequence::store::{NewSequence, SequenceSettings, Store, StoreError};
use crate::sequence::{Demand, SequenceErrorKind, Sequences};
use crate::sys::atomics::lock;

/// Tells whether it was called.
#[derive(Default)]
struct Tells(AtomicBool);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What was seen where the teller waits for a store, or a witness.
#[derive(Clone, Default)]
struct Seen {
    /// Of the call that is done by then.
    woken: Arc<Tells>,
    waits: Arc<AtomicU32>,
    /// Waits that found the call woken.
    after: Arc<AtomicU32>,
    /// The store says why it raises none.
    says_why: bool,
    /// It takes two seconds for that.
    clock: Option<Arc<SteppedClock>>,
    /// The same of grants, of which there may be others before.
    granted: Arc<AtomicU32>,
}

impl Seen {
    fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.after.fetch_add(u32::from(self.woken.0.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    fn grant(&self) {
        self.granted.fetch_add(u32::from(self.woken.0.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    fn waits(&self) -> (u32, u32) {
        (self.waits.load(Ordering::Relaxed), self.after.load(Ordering::Relaxed))
    }
}

/// A store that grants, and has no answer for who raises a mark.
fn never_raises(world: &World, seen: &Seen) -> impl Store + use<> {
    let (inner, seen, says_why) = (world.database.store(0), seen.clone(), seen.says_why);
    let meddle = move |asked| {
        match asked {
            Asked::Create | Asked::Identity | Asked::List | Asked::Read | Asked::Record => {}
            Asked::Grant => seen.grant(),
            Asked::Raise => {
                seen.wait();
                seen.clock.iter().for_each(|clock| clock.pass(Duration::from_secs(2)));
                return Err(StoreError::Unknown { why: "no answer in time".into() });
            }
        }
        Ok(())
    };
    MeddledStore { inner, meddle, says_why }
}

fn call(sequences: &Sequences, name: &str, waker: &Waker) -> Pin<Box<PendingNumbers>> {
    let mut call = Box::pin(sequence(sequences, name).request(Demand::ordered(1), LONG));
    assert!(call.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    call
}

/// A world whose database went back behind what it had granted of b, c and d.
fn world() -> World {
    let world = World::new();
    for name in ["a", "b", "c", "d", "e"] {
        world.create(name, SequenceSettings::default());
    }
    let dump = world.database.dump(0);
    let (others, mut theirs) = world.builder().assemble_for_test();
    for name in ["b", "c", "d"] {
        next(&sequence(&others, name), || theirs.turn_now());
    }
    world.database.restore(0, &dump);
    world
}

#[test]
fn a_call_that_is_served_is_woken_before_the_store_is_asked_for_others() {
    let (world, seen) = (world(), Seen::default());
    let store = never_raises(&world, &seen);
    let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
    let (sequences, mut teller) = builder.assemble_for_test();
    let _calls = ["b", "c", "d"].map(|name| call(&sequences, name, Waker::noop()));
    let mut a = call(&sequences, "a", &Waker::from(seen.woken.clone()));
    teller.turn();
    assert!(a.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(seen.waits(), (1, 1), "and no other one is raised where the first one had no answer");
}

/// Rows that another program has locked: the store is there for the other names.
#[test]
fn a_mark_that_cannot_be_raised_for_a_reason_keeps_no_other_one_from_that() {
    let (world, seen) = (world(), Seen { says_why: true, ..Seen::default() });
    let store = never_raises(&world, &seen);
    let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
    let (sequences, mut teller) = builder.assemble_for_test();
    let _calls = ["b", "c", "d"].map(|name| call(&sequences, name, Waker::noop()));
    teller.turn();
    assert_eq!(seen.waits().0, 3);
    assert!(sequences.status().store_trouble.is_none());
}

#[test]
fn marks_that_take_long_to_be_raised_keep_others_waiting_for_some_seconds() {
    let (world, clock) = (world(), clock());
    let seen = Seen { says_why: true, clock: Some(clock.clone()), ..Seen::default() };
    let store = never_raises(&world, &seen);
    let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
    let (sequences, mut teller) = builder.clock(clock).assemble_for_test();
    let _calls = ["b", "c", "d"].map(|name| call(&sequences, name, Waker::noop()));
    teller.turn();
    assert_eq!(seen.waits().0, 2);
}

/// An index that another program has locked.
#[test]
fn rows_that_take_long_to_be_made_keep_others_waiting_for_some_seconds() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let meddle = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1_100));
        Err(StoreError::Away { why: "the row is locked".into() })
    };
    let mut store = MeddledStore { inner: World::new().database.store(0), meddle, says_why: true };
    let rows: Vec<_> = (0..8).map(|n| (named(&format!("n{n}")), NewSequence::default())).collect();
    let made = store.create_all(&rows);
    assert!(made.len() == 8 && made.iter().all(|made| matches!(made, Err(StoreError::Away { .. }))));
    assert_eq!(tries.load(Ordering::Relaxed), 3);
}

#[test]
fn a_row_that_is_locked_keeps_names_that_are_asked_for_later_from_nothing() {
    let (world, is_locked) = (world(), Arc::new(AtomicBool::new(true)));
    let locked = is_locked.clone();
    let meddle = move |asked| match asked {
        Asked::Grant if locked.load(Ordering::Relaxed) => {
            Err(StoreError::Away { why: "the row is locked".into() })
        }
        _ => Ok(()),
    };
    let store = MeddledStore { inner: world.database.store(0), meddle, says_why: true };
    let (sequences, mut teller) = Sequences::builder(Box::new(store)).assemble_for_test();
    let _a = call(&sequences, "a", Waker::noop());
    teller.turn();
    assert!(sequences.status().store_trouble.is_some(), "it is told");
    is_locked.store(false, Ordering::Relaxed);
    let mut e = call(&sequences, "e", Waker::noop());
    teller.turn();
    assert!(e.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

/// A waker that gives up a call, as one does that polls where it is woken.
struct GivesUp(Mutex<Option<Pin<Box<PendingNumbers>>>>);

impl Wake for GivesUp {
    fn wake(self: Arc<Self>) {
        drop(lock(&self.0).take());
    }
}

#[test]
fn a_call_that_is_served_by_what_a_waker_does_is_woken_before_the_store_is_asked_for_others() {
    let (world, seen) = (world(), Seen::default());
    let store = never_raises(&world, &seen);
    let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
    let (sequences, mut teller) = builder.assemble_for_test();
    let (e, dump) = (sequence(&sequences, "e"), world.database.dump(0));
    next(&e, || teller.turn_now());
    world.database.restore(0, &dump);
    let mut large = Box::pin(e.request(Demand::ordered(5_000), LONG));
    assert!(large.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut small = call(&sequences, "e", &Waker::from(seen.woken.clone()));
    let _a = call(&sequences, "a", &Waker::from(Arc::new(GivesUp(Mutex::new(Some(large))))));
    teller.turn();
    assert!(small.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(seen.waits(), (1, 1));
}

/// Records that are slow behind a claim of leftovers.
struct SlowRecords {
    inner: MemoryRecords,
    seen: Seen,
    is_claimed: bool,
}

impl SequenceRecords for SlowRecords {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn cluster(&self) -> ClusterId {
        self.inner.cluster()
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        if self.is_claimed {
            self.seen.wait();
        }
        self.inner.read(names, out);
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        self.is_claimed |= changes.iter().any(|change| change.name.starts_with('@'));
        self.inner.swap(changes, out);
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        self.inner.list(prefix, after, limit)
    }
}

/// The registry was away when the leftovers were to be claimed, so it is tried with a read before the next grant.
#[test]
fn a_call_that_is_served_with_leftovers_is_woken_before_the_witness_is_asked_for_others() {
    let (world, folder, seen) = (world(), tempfile::tempdir().unwrap(), Seen::default());
    let (sequences, mut teller) = world.in_folder(folder.path()).assemble_for_test();
    next(&sequence(&sequences, "a"), || teller.turn_now());
    teller.stop();
    drop((sequences, teller));
    let records = SlowRecords { inner: world.records.clone(), seen: seen.clone(), is_claimed: false };
    let builder = world.without_records().records(Box::new(records)).data_dir(folder.path());
    let (sequences, mut teller) = builder.assemble_for_test();
    let mut a = call(&sequences, "a", &Waker::from(seen.woken.clone()));
    let _b = call(&sequences, "b", Waker::noop());
    world.records.set_away(true);
    teller.turn_now();
    world.records.set_away(false);
    teller.turn_now();
    assert!(a.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let (waits, after) = seen.waits();
    assert!(waits > 0 && waits == after, "{waits} waits, {after} of them behind its waker");
}

/// Its record of the witness waits for a person, as another look shows.
#[test]
fn a_call_that_is_refused_is_woken_before_the_store_is_asked_for_others() {
    let (world, seen, clock) = (World::new(), Seen::default(), clock());
    for name in ["r", "x"] {
        world.create(name, SequenceSettings::default());
    }
    let store = never_raises(&world, &seen);
    let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
    let (sequences, mut teller) = builder.clock(clock.clone()).assemble_for_test();
    let r = sequence(&sequences, "r");
    next(&r, || teller.turn_now());
    world.records.set_closed("r", true);
    let more = |waker: &Waker| {
        let mut call = Box::pin(r.request(Demand::ordered(5_000), LONG));
        assert!(call.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        call
    };
    let mut first = more(Waker::noop());
    teller.turn_now();
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    clock.pass(Duration::from_secs(2));
    let mut again = more(&Waker::from(seen.woken.clone()));
    let _x = call(&sequences, "x", Waker::noop());
    teller.turn_now();
    assert!(again.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(seen.granted.load(Ordering::Relaxed), 1);
}

#[test]
fn a_stop_raises_no_marks() {
    let (world, seen) = (world(), Seen::default());
    let store = never_raises(&world, &seen);
    let builder = Sequences::builder(Box::new(store)).records(Box::new(world.records.clone()));
    let (sequences, hub, mut teller, _keeper) = builder.parts_for_test(7).unwrap();
    let _calls = ["a", "b", "c", "d"].map(|name| call(&sequences, name, Waker::noop()));
    let closes = hub.clone();
    world.records.before_swap(move || closes.close());
    teller.turn();
    assert!(hub.is_closed());
    assert_eq!(seen.waits(), (0, 0));
}

#[test]
fn a_call_that_is_refused_is_woken_before_the_witness_is_asked_for_others() {
    let (world, seen) = (world(), Seen::default());
    let (sequences, mut teller) = world.builder().assemble_for_test();
    let waits = seen.clone();
    world.records.before_swap(move || waits.wait());
    let _a = call(&sequences, "a", Waker::noop());
    let mut none = call(&sequences, "none", &Waker::from(seen.woken.clone()));
    teller.turn();
    assert!(none.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(seen.waits(), (1, 1));
}

/// Records that change any but "x": there is no room for it, or other processes move it again and again.
struct AllButX {
    inner: MemoryRecords,
    error: SwapError,
}

impl SequenceRecords for AllButX {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn cluster(&self) -> ClusterId {
        self.inner.cluster()
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        self.inner.read(names, out);
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        for change in changes {
            if change.name == "x" {
                out.push(Err(self.error.clone()));
            } else {
                self.inner.swap(std::slice::from_ref(change), out);
            }
        }
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        self.inner.list(prefix, after, limit)
    }
}

fn strict() -> SequenceSettings {
    SequenceSettings { strict: true, ..SequenceSettings::default() }
}

/// Asks for "x", and, together with it or not, for "a". Whether a call for "a" behind that is done in a turn.
fn others_go_on(sequences: &Sequences, mut turn: impl FnMut(), together: bool) -> bool {
    let mut is_ready = |call: &mut Pin<Box<PendingNumbers>>| {
        turn();
        call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    let mut x = call(sequences, "x", Waker::noop());
    if together {
        assert!(is_ready(&mut call(sequences, "a", Waker::noop())));
    } else {
        // Where there is no room for it, it is told.
        is_ready(&mut x);
    }
    is_ready(&mut call(sequences, "a", Waker::noop()))
}

#[test]
fn a_name_that_the_witness_alone_cannot_take_keeps_no_other_one_waiting() {
    let full = SwapError::Full { why: "its file has 262144 names, and room for no more".into() };
    for error in [full, SwapError::Conflict] {
        for together in [true, false] {
            let world = World::new();
            for name in ["a", "x"] {
                world.create(name, strict());
            }
            let records = AllButX { inner: world.records.clone(), error: error.clone() };
            let builder = world.without_records().records(Box::new(records));
            let (sequences, mut teller) = builder.assemble_for_test();
            let go_on = others_go_on(&sequences, || _ = teller.turn(), together);
            assert!(go_on, "{error}, together: {together}");
            assert!(sequences.status().witness_trouble.is_none(), "{error}, together: {together}");
        }
    }
}

#[test]
fn a_name_for_which_the_witness_has_no_room_is_told_to_be_away_and_asked_for_once_a_second() {
    let world = World::new();
    world.create("x", strict());
    let error = SwapError::Full { why: "its file cannot grow".into() };
    let records = AllButX { inner: world.records.clone(), error };
    let builder = world.without_records().records(Box::new(records));
    let (sequences, mut teller) = builder.assemble_for_test();
    let mut first = call(&sequences, "x", Waker::noop());
    teller.turn();
    let mut context = Context::from_waker(Waker::noop());
    let mut second = Box::pin(sequence(&sequences, "x").request(Demand::ordered(1), LONG));
    for call in [&mut first, &mut second] {
        let Poll::Ready(Err(error)) = call.as_mut().poll(&mut context) else { panic!("it waits") };
        assert_eq!(error.kind(), SequenceErrorKind::StoreAway);
    }
    assert_eq!(sequences.stats().grants.unwitnessed, 1);
}

#[test]
fn a_record_that_others_move_again_and_again_keeps_no_other_name_of_a_registry_waiting() {
    let records = MemoryRecords::new(ClusterId::from_bytes([9; 16]));
    for name in ["a", "x"] {
        let new = NewSequence { settings: strict(), ..NewSequence::default() };
        RegistryStore::new(Box::new(records.clone())).create(&named(name), &new).unwrap();
    }
    let store = RegistryStore::new(Box::new(AllButX { inner: records, error: SwapError::Conflict }));
    let (sequences, mut teller) = Sequences::builder(Box::new(store)).assemble_for_test();
    assert!(others_go_on(&sequences, || _ = teller.turn(), false));
}

/// An ensemble's quota, say, or a node that this process has no right to: the others of the same call were stored.
#[test]
fn a_change_that_is_refused_beside_one_that_is_stored_is_no_outage_of_the_witness() {
    let world = World::new();
    for name in ["a", "x"] {
        world.create(name, strict());
    }
    let error = SwapError::Unavailable { why: "QuotaExceeded".into() };
    let records = AllButX { inner: world.records.clone(), error };
    let builder = world.without_records().records(Box::new(records));
    let (sequences, mut teller) = builder.assemble_for_test();
    assert!(others_go_on(&sequences, || _ = teller.turn(), true));
    assert!(sequences.status().witness_trouble.is_none());
}

/// The registry answered sixteen times.
#[test]
fn a_record_that_others_move_again_and_again_is_no_outage_of_the_registry() {
    let records = MemoryRecords::new(ClusterId::from_bytes([9; 16]));
    let new = NewSequence { settings: strict(), ..NewSequence::default() };
    RegistryStore::new(Box::new(records.clone())).create(&named("x"), &new).unwrap();
    let store = RegistryStore::new(Box::new(AllButX { inner: records, error: SwapError::Conflict }));
    let (sequences, mut teller) = Sequences::builder(Box::new(store)).assemble_for_test();
    let _x = call(&sequences, "x", Waker::noop());
    teller.turn();
    assert!(sequences.status().store_trouble.is_none());
}

/// Whoever calls again in a second, as he is told to, uses up what nobody gets.
#[test]
fn a_name_for_which_the_witness_has_no_room_is_not_used_up() {
    let (world, clock) = (World::new(), clock());
    world.create("x", SequenceSettings { last: 10_000, ..SequenceSettings::default() });
    let error = SwapError::Full { why: "its file cannot grow".into() };
    let records = AllButX { inner: world.records.clone(), error };
    let builder = world.without_records().records(Box::new(records)).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..12 {
        let mut x = Box::pin(sequence(&sequences, "x").request(Demand::ordered(1), LONG));
        let mut answer = x.as_mut().poll(&mut context);
        if answer.is_pending() {
            teller.turn();
            answer = x.as_mut().poll(&mut context);
        }
        let Poll::Ready(Err(error)) = answer else { panic!("it waits") };
        assert_eq!(error.kind(), SequenceErrorKind::StoreAway);
        clock.pass(Duration::from_millis(1_100));
    }
    // At 0, 1, 3 and 7 s.
    assert_eq!(sequences.stats().grants.unwitnessed, 4);
}
