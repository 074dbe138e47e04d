//! A forked child has nothing of its parent's.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use tracing::Level;

use super::leaps::TrapClock;
use super::meddled::{Asked, MeddledStore};
use super::{AtEach, World, plain, sequence, stop_after};
use crate::sequence::api::pending::PendingNumbers;
use crate::sequence::background::teller::Teller;
use crate::sequence::store::{NewSequence, SequenceSettings, Store};
use crate::sequence::{
    ControlError, Demand, NameFigures, NamePattern, Reply, Sequence, SequenceError, SequenceErrorKind,
    SequenceName, Sequences, SequencesStats, StoreStatus,
};
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;

/// Whether every call is refused in a forked child, in which the parent's threads and ids are not.
#[expect(unsafe_code, reason = "there is no fork without it")]
fn is_refused_in_a_child() -> bool {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    // Not for long: without a guard the child waits for threads that it does not have.
    let sequences = world.builder().wait(Duration::from_millis(100)).build().unwrap();
    let a = sequence(&sequences, "a");
    let mut handle = a.handle();
    let mut issued = 0;
    for _ in 0..100 {
        let _ = (a.next_id().unwrap(), a.next_ordered().unwrap(), handle.next_id().unwrap());
        issued += 3;
    }
    // SAFETY: the child calls what takes no lock that another thread may have held, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Without a guard it may wait for a lock that a thread held which it does not have.
        // SAFETY: ends the child, and nothing else, if it is not over by then.
        unsafe { libc::alarm(5) };
        let forked = |result: Result<u64, SequenceError>| {
            result.is_err_and(|error| error.kind() == SequenceErrorKind::Forked)
        };
        let mut refused = (0..3).all(|_| {
            forked(a.next_id())
                && forked(a.next_ordered())
                && forked(a.try_next_ordered())
                && forked(handle.next_id())
        });
        refused = refused && a.runs(Demand::any(1)).is_err() && a.take(2).is_err();
        refused = refused && a.try_runs(Demand::any(1), &mut Vec::new()).is_err();
        refused = refused && sequences.sequence(a.name()).is_err();
        // Without a guard nothing would answer.
        refused = refused && matches!(sequences.info(a.name()).wait(), Err(ControlError::Forked));
        refused = refused && sequences.stats() == SequencesStats::default();
        refused = refused && a.places() == 0;
        refused = refused && a.figures() == NameFigures::default() && sequences.figures(a.name()).is_none();
        refused = refused && sequences.busiest(9).is_empty() && sequences.status() == StoreStatus::default();
        sequences.publish();
        handle.publish();
        // Not where a call was not refused: it would wait for threads that the child does not have.
        refused = refused && sequences.shutdown() == SequencesStats::default();
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above, and writes into a variable of this frame.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    let stuck = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
    assert!(waited == child && (libc::WIFEXITED(status) || stuck), "the child ended with {status}");
    assert!(a.next_ordered().is_ok() && a.next_id().is_ok(), "the parent goes on");
    drop(handle);
    if Guard::SequenceForked.holds() {
        stop_after(&sequences, issued + 2);
    }
    !stuck && libc::WEXITSTATUS(status) == 0
}

/// Keeps the thread that wakes it for as long as this is locked.
#[derive(Default)]
struct Held(Mutex<()>);

impl Wake for Held {
    fn wake(self: Arc<Self>) {
        drop(lock(&self.0));
    }
}

/// Whether a child that is made now waits for an answer of its parent's threads in vain, and is told so at once.
#[expect(unsafe_code, reason = "there is no fork without it")]
fn is_refused_the_answer<T>(reply: Reply<T>) -> (bool, Reply<T>) {
    // SAFETY: the child calls what takes no lock that another thread may have held, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child, and nothing else, if it is not over by then.
        unsafe { libc::alarm(5) };
        let refused = matches!(reply.wait(), Err(ControlError::Forked));
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above, and writes into a variable of this frame.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    (libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, reply)
}

#[test]
fn a_question_that_was_asked_before_a_fork_is_answered_in_the_parent_only() {
    let (_world, sequences, a) = plain();
    // The thread that answers is kept by a stranger's waker.
    let held = Arc::new(Held::default());
    let gate = lock(&held.0);
    let waker = Waker::from(held.clone());
    let is_ready =
        |reply: &mut Reply<_>| std::pin::Pin::new(reply).poll(&mut Context::from_waker(&waker)).is_ready();
    let mut first = sequences.info(a.name());
    while is_ready(&mut first) {
        first = sequences.info(a.name());
    }
    let (refused, second) = is_refused_the_answer(sequences.info(a.name()));
    assert!(refused, "the child waits for a thread that it does not have");
    drop(gate);
    assert_eq!(second.wait().unwrap().row.name, *a.name());
    // One that is answered, and was not looked at.
    let answered = sequences.info(a.name());
    sequences.info(a.name()).wait().unwrap();
    let (refused, answered) = is_refused_the_answer(answered);
    assert!(refused, "the child gets what its parent was answered");
    answered.wait().unwrap();
}

#[test]
fn a_forked_child_is_refused_whatever_it_calls() {
    assert!(is_refused_in_a_child());
}

#[test]
fn a_page_that_is_not_wiped_and_a_refusal_that_is_left_out_are_found_out() {
    assert!(!Guard::without(&[Guard::ForkPage], is_refused_in_a_child));
    assert!(!Guard::without(&[Guard::SequenceForked], is_refused_in_a_child));
}

/// Forks when it is woken, once; the parent waits for the end of the child and looks whether that changed a file.
struct Forks {
    child: AtomicI32,
    folder: PathBuf,
    is_changed: AtomicBool,
}

impl Forks {
    fn new(folder: &Path) -> Arc<Self> {
        let (child, is_changed) = (AtomicI32::new(-1), AtomicBool::new(false));
        Arc::new(Self { child, folder: folder.to_owned(), is_changed })
    }

    /// What the fork made: the number of the child, 0 in the child, -1 where nobody was woken.
    fn child(&self) -> i32 {
        self.child.load(Ordering::Relaxed)
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(&self.folder).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect()
    }

    fn end(status: bool) -> ! {
        // SAFETY: ends the child without running what belongs to the parent.
        #[expect(unsafe_code, reason = "there is no fork without it")]
        unsafe {
            libc::_exit(i32::from(status))
        }
    }
}

impl Wake for Forks {
    #[expect(unsafe_code, reason = "there is no fork without it")]
    fn wake(self: Arc<Self>) {
        if self.child() != -1 {
            return;
        }
        let before = self.files();
        // SAFETY: the child goes on as a copy of this thread alone, and ends by `end`.
        let child = unsafe { libc::fork() };
        self.child.store(child, Ordering::Relaxed);
        if child == 0 {
            // SAFETY: ends the child, and nothing else, if it is not over by then.
            unsafe { libc::alarm(5) };
            // SAFETY: closes the child's copies of the locked files of other tests, whose locks would outlive them.
            unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
            return;
        }
        let mut status = -1;
        // SAFETY: waits for the child made above, and writes into a variable of this frame.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        let is_sound = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        self.is_changed.store(!is_sound || self.files() != before, Ordering::Relaxed);
    }
}

/// Polls a future once, with that waker.
fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> bool {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker)).is_ready()
}

/// Whether a child that is forked in a stop writes what its parent held into the parent's file.
fn is_saved_by_a_child() -> bool {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    world.create("w", SequenceSettings::default());
    let (sequences, mut teller) = world.in_folder(folder.path()).assemble_for_test();
    let (a, w) = (sequence(&sequences, "a"), sequence(&sequences, "w"));
    let _ = a.try_next_ordered();
    teller.turn_now();
    assert_eq!(a.try_next_ordered().unwrap(), 1);
    let forks = Forks::new(folder.path());
    let waker = Waker::from(forks.clone());
    let mut waiting = w.request(Demand::ordered(7), Duration::from_mins(1));
    assert!(!poll_once(&mut waiting, &waker));
    teller.stop();
    if forks.child() == 0 {
        Forks::end(false);
    }
    assert!(forks.child() > 0, "nobody was woken");
    assert!(sequences.stats().figures.saved > 0, "the parent saves what it has");
    forks.is_changed.load(Ordering::Relaxed)
}

#[test]
fn a_stop_whose_callers_fork_a_child_saves_nothing_there() {
    assert!(!is_saved_by_a_child());
    assert!(Guard::without(&[Guard::SequencesForkedAtStop], is_saved_by_a_child));
}

/// The turn of a child goes on nowhere: a store's connection, and locks of other threads, are its parent's.
#[test]
fn a_turn_whose_callers_fork_a_child_asks_the_store_for_nothing_there() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    let (sequences, mut teller) = world.builder().assemble_for_test();
    let forks = Forks::new(folder.path());
    let waker = Waker::from(forks.clone());
    let made = |text: &str| sequences.create(&SequenceName::new(text).unwrap(), NewSequence::default());
    let mut first = made("a");
    assert!(!poll_once(&mut first, &waker));
    // Another kind of question, so that it is no part of the first change.
    let second = sequences.info(&SequenceName::new("a").unwrap());
    let third = made("b");
    teller.turn();
    if forks.child() == 0 {
        Forks::end(world.database.store(0).read(&SequenceName::new("b").unwrap()).is_ok());
    }
    assert!(forks.child() > 0, "nobody was woken");
    assert!(!forks.is_changed.load(Ordering::Relaxed), "the child made a sequence");
    assert!(first.wait().is_ok() && second.wait().is_ok() && third.wait().is_ok());
}

#[test]
fn a_turn_in_which_the_line_of_a_panic_forks_asks_the_store_for_nothing_there() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let meddle = move |what| {
        count.fetch_add(1, Ordering::Relaxed);
        assert_ne!(what, Asked::List, "an adaptor's defect");
        Ok(())
    };
    let store = MeddledStore { inner: world.database.store(0), meddle, says_why: false };
    let (sequences, mut teller) = Sequences::builder(Box::new(store)).assemble_for_test();
    let list = sequences.list("", "", 10);
    assert!(sequence(&sequences, "a").try_next_ordered().is_err());
    let forks = Forks::new(folder.path());
    let forking = forks.clone();
    let forks_at_a_panic = AtEach(Level::ERROR, move || forking.clone().wake());
    tracing::subscriber::with_default(forks_at_a_panic, || teller.turn_whatever_happens());
    if forks.child() == 0 {
        Forks::end(asked.load(Ordering::Relaxed) > 1);
    }
    assert!(forks.child() > 0, "there was no line");
    assert!(!forks.is_changed.load(Ordering::Relaxed), "the child asked its parent's store");
    assert!(asked.load(Ordering::Relaxed) > 1, "the parent goes on");
    assert!(list.wait().is_err());
}

/// The caller of a name that there is not is told so before others are made, and the store is written down.
#[test]
fn a_turn_in_which_a_refused_caller_forks_makes_and_writes_nothing_there() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let builder = world.in_folder(folder.path()).witness(false).create([NamePattern::new("new:*")]);
    let (sequences, mut teller) = builder.assemble_for_test();
    let forks = Forks::new(folder.path());
    let waker = Waker::from(forks.clone());
    let mut refused = sequence(&sequences, "none").request(Demand::ordered(1), Duration::from_mins(1));
    assert!(!poll_once(&mut refused, &waker));
    let new = SequenceName::new("new:1").unwrap();
    for name in ["new:1", "a"] {
        assert!(sequence(&sequences, name).try_next_ordered().is_err());
    }
    teller.turn();
    if forks.child() == 0 {
        Forks::end(world.database.store(0).read(&new).is_ok());
    }
    assert!(forks.child() > 0, "nobody was woken");
    assert!(!forks.is_changed.load(Ordering::Relaxed), "the child went on");
    assert!(world.database.store(0).read(&new).is_ok());
}

/// A waker that forks, and gives up another call, for which one behind that is served.
struct ForksAndGivesUp(Arc<Forks>, Mutex<Option<PendingNumbers>>);

impl Wake for ForksAndGivesUp {
    fn wake(self: Arc<Self>) {
        let given_up = lock(&self.1).take();
        drop(given_up);
        self.0.clone().wake();
    }
}

/// Writes into a folder where it is called.
struct Writes(PathBuf);

impl Wake for Writes {
    fn wake(self: Arc<Self>) {
        std::fs::write(self.0.join(std::process::id().to_string()), "").unwrap();
    }
}

#[test]
fn who_is_served_by_what_a_waker_does_that_forks_is_woken_in_the_parent_only() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    for name in ["a", "e"] {
        world.create(name, SequenceSettings::default());
    }
    let builder = world.builder().create([NamePattern::new("new:*")]);
    let (sequences, mut teller) = builder.assemble_for_test();
    let e = sequence(&sequences, "e");
    super::next(&e, || teller.turn_now());
    let forks = Forks::new(folder.path());
    let mut large = e.request(Demand::ordered(5_000), Duration::from_mins(1));
    assert!(!poll_once(&mut large, Waker::noop()));
    let mut small = e.request(Demand::ordered(10), Duration::from_mins(1));
    assert!(!poll_once(&mut small, &Waker::from(Arc::new(Writes(folder.path().to_owned())))));
    let waker = Waker::from(Arc::new(ForksAndGivesUp(forks.clone(), Mutex::new(Some(large)))));
    // One that there is not is told so before another one is made.
    let mut refused = sequence(&sequences, "none").request(Demand::ordered(1), Duration::from_mins(1));
    assert!(!poll_once(&mut refused, &waker));
    assert!(sequence(&sequences, "new:1").try_next_ordered().is_err());
    teller.turn();
    if forks.child() == 0 {
        Forks::end(false);
    }
    assert!(forks.child() > 0, "nobody was woken");
    assert!(!forks.is_changed.load(Ordering::Relaxed), "it was woken in the child, too");
    assert_eq!(forks.files().len(), 1);
}

#[test]
fn a_call_in_which_the_waker_of_another_call_forks_has_its_number_in_the_parent_only() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    let names: Vec<String> = (0..17).map(|n| format!("b{n}")).collect();
    for name in &names {
        world.create(name, SequenceSettings::default());
    }
    let (sequences, mut teller) = world.builder().assemble_for_test();
    let all: Vec<_> = names.iter().map(|name| sequence(&sequences, name)).collect();
    for one in &all {
        let _ = one.try_next_ordered();
        teller.turn_now();
    }
    // Runs grow while they are used up fast, and one of several numbers is left in this thread's hand.
    let x = &all[0];
    for _ in 0..41 {
        x.next_id().unwrap();
    }
    while x.try_next_ordered().is_ok() {}
    let forks = Forks::new(folder.path());
    let waker = Waker::from(forks.clone());
    let mut waiting = x.request(Demand::any(1), Duration::from_mins(1));
    assert!(!poll_once(&mut waiting, &waker));
    for one in &all[1..16] {
        one.next_id().unwrap();
    }
    assert_eq!(forks.child(), -1, "the thread remembers sixteen names");
    let got = all[16].next_id();
    if forks.child() == 0 {
        Forks::end(!got.is_err_and(|error| error.kind() == SequenceErrorKind::Forked));
    }
    assert!(forks.child() > 0, "nobody was woken");
    assert!(got.is_ok() && !forks.is_changed.load(Ordering::Relaxed), "the child has its parent's number");
}

/// Makes a call that meets a leap at its reading of the clock of that number, in whose line the subscriber forks: the child is
/// refused.
fn assert_child_is_refused<T>(
    nth: u64,
    call: impl FnOnce(&Sequence, &mut Teller) -> Result<T, SequenceError>,
) {
    let (world, clock) = (World::new(), Arc::new(TrapClock::default()));
    let folder = tempfile::tempdir().unwrap();
    world.create("a", SequenceSettings::default());
    let builder = world.builder().wait(Duration::from_millis(300)).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let a = sequence(&sequences, "a");
    let forks = Forks::new(folder.path());
    clock.readings.store(nth, Ordering::Relaxed);
    let forking = forks.clone();
    let forks_at_a_leap = AtEach(Level::WARN, move || forking.clone().wake());
    let got = tracing::subscriber::with_default(forks_at_a_leap, || call(&a, &mut teller));
    if forks.child() == 0 {
        Forks::end(!got.is_err_and(|error| error.kind() == SequenceErrorKind::Forked));
    }
    assert!(forks.child() > 0, "there was no line");
    assert!(!forks.is_changed.load(Ordering::Relaxed), "the child went on, at reading {nth}");
}

#[test]
fn a_call_in_which_the_line_of_a_leap_forks_is_refused_in_the_child() {
    assert_child_is_refused(1, |a, _| a.try_next_ordered());
    // It waits in line when it reads for the second time.
    assert_child_is_refused(2, |a, _| a.next_ordered());
    assert_child_is_refused(1, |a, _| a.next_ordered());
    assert_child_is_refused(2, |a, _| {
        let mut call = a.request(Demand::ordered(1), Duration::from_mins(1));
        match std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(got) => got,
            Poll::Pending => Err(SequenceError::COUNT),
        }
    });
}

/// The same while another thread of the parent has the lock of that name.
fn assert_child_takes_no_lock(nth: u64, call: impl Fn(&Sequence) -> Result<u64, SequenceError>) {
    let (world, clock) = (World::new(), Arc::new(TrapClock::default()));
    let folder = tempfile::tempdir().unwrap();
    world.create("a", SequenceSettings::default());
    let builder = world.builder().wait(Duration::ZERO).clock(clock.clone());
    let (sequences, mut teller) = builder.assemble_for_test();
    let a = sequence(&sequences, "a");
    assert!(call(&a).is_err());
    teller.turn_now();
    let forks = Forks::new(folder.path());
    let (forking, name) = (forks.clone(), a.named_for_test().clone());
    let forks_at_a_leap = AtEach(Level::WARN, move || {
        let (is_locked, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (name, theirs) = (name.clone(), (is_locked.clone(), goes_on.clone()));
        let holder = std::thread::spawn(move || {
            let _held = name.lock();
            theirs.0.wait();
            theirs.1.wait();
        });
        is_locked.wait();
        forking.clone().wake();
        if forking.child() > 0 {
            goes_on.wait();
            holder.join().unwrap();
        }
    });
    let got = tracing::subscriber::with_default(forks_at_a_leap, || {
        (0..1_000).find_map(|taken| {
            // Before that the thread does not know the segment.
            clock.readings.store(if taken < 20 { 0 } else { nth }, Ordering::Relaxed);
            let got = call(&a);
            (forks.child() != -1).then_some(got)
        })
    });
    if forks.child() == 0 {
        let is_refused = |error: SequenceError| error.kind() == SequenceErrorKind::Forked;
        Forks::end(!got.is_some_and(|got| got.is_err_and(is_refused)));
    }
    assert!(forks.child() > 0, "there was no line");
    assert!(!forks.is_changed.load(Ordering::Relaxed), "the child went on, at reading {nth}");
}

#[test]
fn a_call_in_which_the_line_of_a_leap_forks_takes_no_lock_in_the_child() {
    assert_child_takes_no_lock(1, Sequence::next_id);
    assert_child_takes_no_lock(2, Sequence::next_id);
    assert_child_takes_no_lock(1, Sequence::try_next_ordered);
}

/// A waker that forks where it is cloned.
struct ForksInClone(Arc<Forks>);

#[expect(unsafe_code, reason = "a waker with a clone of its own needs it")]
impl ForksInClone {
    const TABLE: RawWakerVTable = RawWakerVTable::new(Self::clone, |_| (), |_| (), |_| ());

    fn clone(this: *const ()) -> RawWaker {
        // SAFETY: `waker` gave it, and it is never dropped.
        let this = unsafe { &*this.cast::<Self>() };
        this.0.clone().wake();
        RawWaker::new(std::ptr::from_ref(this).cast(), &Self::TABLE)
    }

    fn waker(forks: Arc<Forks>) -> Waker {
        let this: &'static Self = Box::leak(Box::new(Self(forks)));
        // SAFETY: the table's functions read what is never dropped, and may be shared.
        unsafe { Waker::new(std::ptr::from_ref(this).cast(), &Self::TABLE) }
    }
}

#[test]
fn a_question_whose_waker_forks_where_it_is_cloned_is_refused_in_the_child() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.builder().assemble_for_test();
    let forks = Forks::new(folder.path());
    let mut asked = sequences.info(&SequenceName::new("a").unwrap());
    let waker = ForksInClone::waker(forks.clone());
    let polled = std::pin::Pin::new(&mut asked).poll(&mut Context::from_waker(&waker));
    if forks.child() == 0 {
        Forks::end(!matches!(polled, Poll::Ready(Err(ControlError::Forked))));
    }
    assert!(forks.child() > 0 && polled.is_pending());
    assert!(!forks.is_changed.load(Ordering::Relaxed), "the child waits for an answer");
    teller.turn();
    assert!(asked.wait().is_ok());
}

/// A stranger's waker.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a stranger's waker");
    }
}

#[test]
fn a_waker_of_a_question_that_panics_ends_nothing() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.create("a", SequenceSettings::default());
    let (sequences, mut teller) = world.in_folder(folder.path()).assemble_for_test();
    let a = sequence(&sequences, "a");
    let _ = a.try_next_ordered();
    teller.turn_now();
    assert!(a.try_next_ordered().is_ok());
    let panics = Waker::from(Arc::new(Panics));
    // Of one change: two of them that panic, one while the other one is being unwound, would end the process.
    let made = |text: &str| sequences.create(&SequenceName::new(text).unwrap(), NewSequence::default());
    let mut replies = vec![made("b"), made("c"), made("d")];
    for reply in &mut replies {
        assert!(!poll_once(reply, &panics));
    }
    teller.turn();
    for reply in replies {
        assert!(reply.wait().is_ok());
    }
    let mut late = sequences.info(a.name());
    assert!(!poll_once(&mut late, &panics));
    teller.stop();
    assert!(matches!(late.wait(), Err(ControlError::ShuttingDown)));
    assert!(sequences.stats().figures.saved > 0, "what was held is saved");
}
