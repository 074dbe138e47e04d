//! Children that a stranger's code forks on a thread of the engine, and that go on there: all that they have is their
//! parent's.

#![expect(unsafe_code, reason = "forks")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use xuid_spill::{MemoryStorage, SpillId, Storage};

use crate::api::builder::Assembly;
use crate::sys::guards::Guard;
use crate::testing::mutants::only_without;
use crate::testing::mutants::threads::assembled;
use crate::testing::simulation::history::MS;
use crate::testing::simulation::process::open_spill;
use crate::testing::support::clock::Time;
use crate::{Engine, Order};

/// An engine whose threads do not run, and its spill.
fn engine() -> (Assembly, MemoryStorage, Arc<Time>) {
    let spill = MemoryStorage::new();
    let (assembly, _, time) = assembled(|_, genesis, ownership| {
        let wire = |storage: &MemoryStorage| -> Box<dyn Storage> { Box::new(storage.clone()) };
        open_spill(&mut Some(spill.clone()), wire, SpillId::from_bytes([2; 16]), genesis, ownership)
    });
    (assembly, spill, time)
}

/// Forks. 0 in the child.
fn fork() -> i32 {
    // SAFETY: the child goes on as a copy of this thread alone. It allocates, which glibc allows there, takes no lock
    // that another thread may hold, and ends by `end`.
    unsafe { libc::fork() }
}

/// Ends a child with what it found.
fn end(is_changed: bool) -> ! {
    // SAFETY: ends the child without running what belongs to the parent.
    unsafe { libc::_exit(i32::from(is_changed)) }
}

/// Whether the child found that it changed something.
fn has_changed(child: i32) -> bool {
    let mut status = -1;
    // SAFETY: waits for a child of this process, and writes into a variable of this frame.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(waited == child && libc::WIFEXITED(status), "the child ended with {status}");
    libc::WEXITSTATUS(status) != 0
}

#[test]
fn a_stop_that_goes_on_in_a_forked_child_spills_nothing() {
    only_without(&[Guard::ForkedAtStop], || {
        let (mut assembly, spill, time) = engine();
        time.pass(500 * MS);
        let before = spill.bytes();
        assembly.shared.close();
        let child = fork();
        assembly.producer.finish();
        let is_changed = spill.bytes() != before;
        if child == 0 {
            end(is_changed);
        }
        assert!(is_changed, "the parent spills what it has");
        has_changed(child).then(|| "the child appended to its parent's spill".into())
    });
}

struct Forks(AtomicI32);

impl Wake for Forks {
    fn wake(self: Arc<Self>) {
        self.0.store(fork(), Ordering::Relaxed);
    }
}

/// The turn is over before the producer looks whether it is in a child.
#[test]
fn a_turn_over_that_goes_on_in_a_forked_child_spills_nothing() {
    let (mut assembly, spill, time) = engine();
    let engine = Engine::new(assembly.shared.clone(), Vec::new());
    time.pass(300 * MS);
    assembly.producer.turn();
    let mut call = pin!(engine.request(5_000_000, Order::Any, Duration::from_mins(1)));
    let forks = Arc::new(Forks(AtomicI32::new(-1)));
    assert!(call.as_mut().poll(&mut Context::from_waker(&Waker::from(forks.clone()))).is_pending());
    time.pass(1_500 * MS);
    let before = spill.bytes();
    assembly.producer.turn();
    let is_changed = spill.bytes() != before;
    let child = forks.0.load(Ordering::Relaxed);
    if child == 0 {
        end(is_changed || !assembly.shared.generation.forked());
    }
    assert!(child > 0, "nobody was woken");
    assert!(!has_changed(child), "the child appended to its parent's spill, or takes itself for its parent");
}
