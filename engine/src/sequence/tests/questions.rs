//! What people ask of a store that hangs, or have left before it was asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{SteppedClock, World, clock, named, sequence};
use crate::sequence::background::teller::Teller;
use crate::sequence::names::reply::Reply;
use crate::sequence::store::memory::MemoryStore;
use crate::sequence::store::{
    Alteration, Ask, Identity, NewSequence, Outcome, Row, SequenceSettings, Store, StoreError,
};
use crate::sequence::{ControlError, Sequence, SequenceErrorKind, SequenceName, Sequences};

/// How long an adaptor waits for a store.
const IN_VAIN: Duration = Duration::from_secs(3);

/// A store that may hang.
#[derive(Clone)]
struct HangingStore {
    inner: MemoryStore,
    clock: Arc<SteppedClock>,
    hangs: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    /// It says at last why it failed.
    says_why: Arc<AtomicBool>,
    /// It does not say which store it is.
    is_nameless: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl HangingStore {
    fn waits(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.load(Ordering::Relaxed), "an adaptor's defect");
        let hangs = self.hangs.load(Ordering::Relaxed);
        if hangs {
            self.clock.pass(IN_VAIN);
        }
        hangs
    }

    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.waits() {
            Err(StoreError::Unknown { why: "no answer in time".into() })
        } else {
            ask(&mut self.inner)
        }
    }
}

impl Store for HangingStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn may_go_back(&self) -> bool {
        self.is_nameless.load(Ordering::Relaxed)
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        self.ask(MemoryStore::identity)
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        if !self.waits() {
            let identity = self.inner.grant(asks, out);
            return identity.filter(|_| !self.is_nameless.load(Ordering::Relaxed));
        }
        out.extend(asks.iter().map(|_| Outcome::Unknown { why: "no answer in time".into() }));
        None
    }

    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
        self.ask(|store| store.read(name))
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.ask(|store| store.list(prefix, after, limit))
    }

    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
        self.ask(|store| store.create(name, new))
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
        self.ask(|store| store.alter(name, alteration))
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.ask(|store| store.raise(name, least))
    }

    fn was_silent(&self) -> bool {
        !self.says_why.load(Ordering::Relaxed)
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        self.ask(MemoryStore::record_identity)
    }
}

/// Sequences on a store that may hang, with the sequence "a".
struct Hanging {
    store: HangingStore,
    sequences: Sequences,
    teller: Teller,
    a: Sequence,
}

impl Hanging {
    fn new() -> Self {
        let (world, clock) = (World::new(), clock());
        world.create("a", SequenceSettings::default());
        let store = HangingStore {
            inner: world.database.store(0),
            clock: clock.clone(),
            hangs: Arc::default(),
            panics: Arc::default(),
            says_why: Arc::default(),
            is_nameless: Arc::default(),
            asked: Arc::default(),
        };
        let builder = Sequences::builder(Box::new(store.clone())).clock(clock);
        let (sequences, teller) = builder.assemble_for_test();
        let a = sequence(&sequences, "a");
        Self { store, sequences, teller, a }
    }

    /// How often the store was asked, and how long it took, while all that was asked of the teller was answered.
    fn answer_all(&mut self) -> (usize, Duration) {
        let before =
            (self.store.asked.load(Ordering::Relaxed), self.store.clock.boot.load(Ordering::Relaxed));
        for _ in 0..100 {
            self.teller.turn();
        }
        let asked = self.store.asked.load(Ordering::Relaxed) - before.0;
        (asked, Duration::from_nanos(self.store.clock.boot.load(Ordering::Relaxed) - before.1))
    }
}

/// What is there of an answer.
fn now<T>(mut reply: Reply<T>) -> Result<T, ControlError> {
    match std::pin::Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("there is no answer yet"),
    }
}

#[test]
fn a_store_that_hangs_is_asked_one_question_and_the_others_are_answered_without_it() {
    let mut world = Hanging::new();
    world.store.hangs.store(true, Ordering::Relaxed);
    let a = named("a");
    let infos: Vec<_> = (0..100).map(|_| world.sequences.info(&a)).collect();
    let lists: Vec<_> = (0..100).map(|_| world.sequences.list("", "", 10)).collect();
    let made = world.sequences.create(&named("b"), NewSequence::default());
    assert_eq!(world.answer_all(), (1, IN_VAIN));
    for answer in infos.into_iter().map(now) {
        assert!(matches!(answer, Err(ControlError::StoreAway { .. })), "a reading has no doubts: {answer:?}");
    }
    for answer in lists.into_iter().map(now) {
        assert!(matches!(answer, Err(ControlError::StoreAway { .. })), "{answer:?}");
    }
    assert!(matches!(now(made), Err(ControlError::StoreAway { .. })), "it was not asked for");
    // A second later it is asked once more.
    world.store.clock.pass(Duration::from_secs(1));
    world.store.hangs.store(false, Ordering::Relaxed);
    let (info, made) =
        (world.sequences.info(&a), world.sequences.create(&named("b"), NewSequence::default()));
    assert_eq!(world.answer_all().0, 2);
    assert_eq!((now(info).unwrap().row.next, now(made).unwrap().row.next), (1, 1));
}

#[test]
fn a_store_that_hangs_when_numbers_are_asked_for_is_asked_no_questions() {
    let mut world = Hanging::new();
    world.store.hangs.store(true, Ordering::Relaxed);
    assert_eq!(world.a.try_next_ordered().unwrap_err().kind(), SequenceErrorKind::Overloaded);
    assert_eq!(world.answer_all(), (1, IN_VAIN));
    let infos: Vec<_> = (0..100).map(|_| world.sequences.info(&named("a"))).collect();
    assert_eq!(world.answer_all(), (0, Duration::ZERO));
    assert!(infos.into_iter().all(|info| matches!(now(info), Err(ControlError::StoreAway { .. }))));
}

#[test]
fn sequences_that_are_made_together_do_not_each_wait_for_a_store_that_hangs() {
    let mut world = Hanging::new();
    world.store.hangs.store(true, Ordering::Relaxed);
    let new = |n: u64| world.sequences.create(&named(&format!("new:{n}")), NewSequence::default());
    let made: Vec<_> = (0..64).map(new).collect();
    assert_eq!(world.answer_all(), (1, IN_VAIN));
    for (n, made) in made.into_iter().map(now).enumerate() {
        let is_unknown = matches!(made, Err(ControlError::Unknown { .. }));
        let is_away = matches!(made, Err(ControlError::StoreAway { .. }));
        assert!(if n == 0 { is_unknown } else { is_away }, "{n}: {made:?}");
    }
}

#[test]
fn changes_of_a_row_that_is_locked_hold_up_others_for_one_of_them() {
    let mut world = Hanging::new();
    let _made = world.sequences.create(&named("b"), NewSequence::default());
    assert_eq!(world.answer_all().0, 1);
    world.store.hangs.store(true, Ordering::Relaxed);
    world.store.says_why.store(true, Ordering::Relaxed);
    let changes: Vec<_> =
        (0..10).map(|_| world.sequences.alter(&named("a"), Alteration::default())).collect();
    assert_eq!(world.answer_all(), (1, IN_VAIN));
    for change in changes.into_iter().map(now) {
        assert!(matches!(change, Err(ControlError::StoreAway { .. } | ControlError::Unknown { .. })));
    }
    // Others are asked, and the same again in a second.
    world.store.hangs.store(false, Ordering::Relaxed);
    let (again, other) = (
        world.sequences.alter(&named("a"), Alteration::default()),
        world.sequences.alter(&named("b"), Alteration::default()),
    );
    assert_eq!(world.answer_all().0, 1);
    assert!(now(again).is_err() && now(other).is_ok());
    world.store.clock.pass(Duration::from_secs(1));
    let again = world.sequences.alter(&named("a"), Alteration::default());
    assert_eq!(world.answer_all().0, 1);
    assert!(now(again).is_ok());
}

#[test]
fn numbers_are_asked_for_between_questions_that_take_long() {
    let mut world = Hanging::new();
    let names: Vec<_> = (0..10).map(|n| named(&format!("b{n}"))).collect();
    world.store.hangs.store(true, Ordering::Relaxed);
    world.store.says_why.store(true, Ordering::Relaxed);
    assert!(world.a.try_next_ordered().is_err());
    let _changes: Vec<_> =
        names.iter().map(|name| world.sequences.alter(name, Alteration::default())).collect();
    let before = world.store.asked.load(Ordering::Relaxed);
    world.teller.turn();
    assert_eq!(world.store.asked.load(Ordering::Relaxed) - before, 2, "one question, and the grant");
}

/// A row that somebody else has locked, say: the database waits for it, and says so.
#[test]
fn a_store_that_says_why_it_failed_is_asked_other_questions_at_once() {
    let mut world = Hanging::new();
    world.store.hangs.store(true, Ordering::Relaxed);
    world.store.says_why.store(true, Ordering::Relaxed);
    assert!(world.a.try_next_ordered().is_err());
    assert_eq!(world.answer_all(), (1, IN_VAIN));
    world.store.hangs.store(false, Ordering::Relaxed);
    let a = world.sequences.info(&named("a"));
    assert_eq!(world.answer_all().0, 1);
    assert!(now(a).is_ok());
}

#[test]
fn what_is_asked_for_somebody_who_has_left_is_not_asked_but_a_change_is_made() {
    let mut world = Hanging::new();
    for _ in 0..100 {
        drop((world.sequences.info(&named("a")), world.sequences.list("", "", 10)));
    }
    drop(world.sequences.create(&named("b"), NewSequence::default()));
    let b = world.sequences.info(&named("b"));
    assert_eq!(world.answer_all().0, 2);
    assert_eq!(now(b).unwrap().row.next, 1);
}

/// A client that asks for as many as it may, leaves, and comes again takes no memory, and keeps nobody waiting for long.
#[test]
fn of_creations_for_those_who_have_left_no_more_than_some_thousands_wait() {
    let mut world = Hanging::new();
    for number in 0..100_000 {
        drop(world.sequences.create(&named(&format!("n{}", number % 50_000)), NewSequence::default()));
    }
    let b = world.sequences.create(&named("b"), NewSequence::default());
    let mut turns = 0;
    while world.teller.turn().is_zero() && turns < 10_000 {
        turns += 1;
    }
    assert_eq!(now(b).unwrap().row.next, 1);
    let made = world.store.inner.list("n", "", 100_000).unwrap().len();
    assert!((1..=8_192).contains(&made), "{made}");
}

#[test]
fn of_changes_for_those_who_have_left_no_more_than_some_thousands_wait() {
    let mut world = Hanging::new();
    for step in 0..100_000 {
        drop(
            world
                .sequences
                .alter(&named("a"), Alteration { step: Some(1_000 + step), ..Alteration::default() }),
        );
    }
    let info = world.sequences.info(&named("a"));
    let mut turns = 0;
    while world.teller.turn().is_zero() && turns < 10_000 {
        turns += 1;
    }
    // Sixteen are made in a turn.
    assert!(now(info).is_ok() && turns < 600, "{turns} turns");
}

/// A row that is locked would be waited for once for each of them.
#[test]
fn the_same_creations_are_one_and_other_ones_are_told_what_is_there() {
    let mut world = Hanging::new();
    let create = |step| {
        let settings = SequenceSettings { step, ..SequenceSettings::default() };
        world.sequences.create(&named("b"), NewSequence { settings, ..NewSequence::default() })
    };
    let same: Vec<_> = (0..64).map(|_| create(1_000)).collect();
    let other = create(2_000);
    assert_eq!(world.answer_all().0, 2);
    assert!(same.into_iter().all(|reply| now(reply).is_ok_and(|info| info.row.settings.step == 1_000)));
    assert!(matches!(now(other), Err(ControlError::Exists { .. })));
}

#[test]
fn one_failure_that_comes_at_once_refuses_no_other_question() {
    let mut world = Hanging::new();
    let waits = world.sequences.info(&named("nothing"));
    let a = world.sequences.info(&named("a"));
    assert_eq!(world.answer_all().0, 2);
    assert!(matches!(now(waits), Err(ControlError::NoSequence { .. })));
    assert!(now(a).is_ok());
}

#[test]
fn a_question_whose_adaptor_panics_is_told_that_nobody_knows() {
    let mut world = Hanging::new();
    world.store.panics.store(true, Ordering::Relaxed);
    let altered = world.sequences.alter(&named("a"), Alteration { step: Some(7), ..Alteration::default() });
    let teller = &mut world.teller;
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| teller.turn())).is_err());
    assert!(matches!(now(altered), Err(ControlError::Unknown { .. })), "it is not a stop");
}

#[test]
fn what_a_store_grants_that_does_not_say_which_one_it_is_is_not_used() {
    let mut world = Hanging::new();
    world.store.is_nameless.store(true, Ordering::Relaxed);
    assert!(world.a.try_next_ordered().is_err());
    world.answer_all();
    assert_eq!(world.a.try_next_ordered().unwrap_err().kind(), SequenceErrorKind::StoreBehind);
    assert_eq!(world.sequences.stats().figures.granted, 0);
}
