//! A forked child has nothing of its parent's.

use std::time::Duration;

use super::{World, sequence, stop_after};
use crate::sequence::store::SequenceSettings;
use crate::sequence::{ControlError, Demand, SequenceErrorKind};
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
        // Without a guard nothing would answer.
        refused = refused && matches!(sequences.info(a.name()).wait(), Err(ControlError::Forked));
        refused &= sequences.stats() == crate::sequence::SequencesStats::default();
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

#[test]
fn a_forked_child_is_refused_whatever_it_calls() {
    assert!(is_refused_in_a_child());
}

#[test]
fn a_page_that_is_not_wiped_and_a_refusal_that_is_left_out_are_found_out() {
    assert!(!Guard::without(&[Guard::ForkPage], is_refused_in_a_child));
    assert!(!Guard::without(&[Guard::SequenceForked], is_refused_in_a_child));
}
