//! A forked child has nothing of its parent's.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use super::{World, plain, sequence, stop_after};
use crate::sequence::store::SequenceSettings;
use crate::sequence::{
    ControlError, Demand, NameFigures, Reply, SequenceErrorKind, SequencesStats, StoreStatus,
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
        let forked = |result: Result<u64, crate::sequence::SequenceError>| {
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
