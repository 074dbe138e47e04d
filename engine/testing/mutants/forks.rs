//! Children that a stranger's code forks on a thread of the engine, and that go on there: all that they have is their
//! parent's.

#![expect(unsafe_code, reason = "forks")]

mod registry;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use xuid_spill::{MemoryStorage, SpillId, Storage};

use crate::api::builder::Assembly;
use crate::background::registry_thread::Job;
use crate::shared::EngineState;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
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

/// Whether the child found that it changed something. One that does not end is killed, and fails the test.
fn has_changed(child: i32) -> bool {
    let (mut status, mut waited) = (-1, 0);
    for _ in 0..1_000 {
        // SAFETY: asks after a child of this process, and writes into a variable of this frame.
        waited = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if waited != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if waited == 0 {
        // SAFETY: a signal to a child of this process.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    assert!(waited == child && libc::WIFEXITED(status), "the child ended with {status}, or did not");
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

/// Forks when it is woken. Another thread holds a lock then, which in the child is never given back.
struct Forks {
    child: AtomicI32,
    meeting: Arc<Barrier>,
}

impl Forks {
    /// One, and the thread that takes the lock, calls what it is given, and lets the lock go.
    fn while_another_thread(holds: impl FnOnce(&dyn Fn()) + Send + 'static) -> (Arc<Self>, JoinHandle<()>) {
        let meeting = Arc::new(Barrier::new(2));
        let meets = meeting.clone();
        let holder = std::thread::spawn(move || {
            meets.wait();
            holds(&|| {
                meets.wait();
                meets.wait();
            });
        });
        (Arc::new(Self { child: AtomicI32::new(-1), meeting }), holder)
    }

    /// What the fork made: the number of the child, 0 in the child, -1 where nobody was woken.
    fn child(&self) -> i32 {
        self.child.load(Ordering::Relaxed)
    }
}

impl Wake for Forks {
    fn wake(self: Arc<Self>) {
        self.meeting.wait();
        self.meeting.wait();
        let child = fork();
        self.child.store(child, Ordering::Relaxed);
        if child != 0 {
            self.meeting.wait();
        }
    }
}

/// A thread holds a lock that the rest of the turn takes.
#[test]
fn a_turn_that_a_forked_child_goes_on_with_spills_nothing_and_waits_for_no_lock() {
    let (mut assembly, spill, time) = engine();
    let shared = assembly.shared.clone();
    let engine = Engine::new(shared.clone(), Vec::new());
    time.pass(300 * MS);
    assembly.producer.turn();
    let mut call = pin!(engine.request(5_000_000, Order::Any, Duration::from_mins(1)));
    let (forks, holder) = Forks::while_another_thread(move |forks| {
        let _gauges = shared.gauges.lock();
        forks();
    });
    assert!(call.as_mut().poll(&mut Context::from_waker(&Waker::from(forks.clone()))).is_pending());
    time.pass(1_500 * MS);
    let before = spill.bytes();
    assembly.producer.turn();
    let is_changed = spill.bytes() != before;
    let child = forks.child();
    if child == 0 {
        end(is_changed || !assembly.shared.generation.forked());
    }
    assert!(child > 0, "nobody was woken");
    holder.join().unwrap();
    assert!(!has_changed(child), "the child appended to its parent's spill, or takes itself for its parent");
}

/// The registry's answer to a grant lies there, for which the stop wakes callers, and a thread holds the lock that the
/// answer is taken in under.
#[test]
fn a_stop_that_a_forked_child_goes_on_with_takes_no_answer_in_and_waits_for_no_lock() {
    let (mut assembly, spill, time) = engine();
    let shared = assembly.shared.clone();
    let engine = Engine::new(shared.clone(), Vec::new());
    let mut call = pin!(engine.request(500_000_000, Order::Any, Duration::from_mins(1)));
    let (forks, holder) = Forks::while_another_thread(move |forks| {
        let _gate = lock(&shared.gate);
        forks();
    });
    let mut answer = None;
    for quarter in 0..60 {
        time.pass(250 * MS);
        assembly.producer.turn();
        let jobs: Vec<_> = assembly.jobs.try_iter().collect();
        for job in jobs {
            let is_grant = matches!(job, Job::Grant(_));
            let done = assembly.registry_thread.run(job);
            if is_grant {
                answer = Some(done);
            } else {
                assembly.done.send(done).unwrap();
            }
        }
        if answer.is_some() {
            break;
        }
        // Some seconds for the spill, and then a burst that wants them back.
        if quarter == 20 {
            let waker = Waker::from(forks.clone());
            assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    assembly.done.send(answer.expect("nothing was granted")).unwrap();
    let before = spill.bytes();
    assembly.shared.close();
    assembly.producer.run();
    let is_changed = spill.bytes() != before;
    let child = forks.child();
    if child == 0 {
        end(is_changed || !assembly.shared.generation.forked());
    }
    assert!(child > 0, "nobody was woken");
    holder.join().unwrap();
    assert!(is_changed, "the parent spills what it has");
    assert!(!has_changed(child), "the child appended to its parent's spill, or takes itself for its parent");
}

/// Forks when it is woken, in a turn that has a line to say. The parent closes the engine.
struct Tells {
    child: AtomicI32,
    said: Arc<AtomicU32>,
    shared: Arc<EngineState>,
}

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        let said = self.said.clone();
        deferred_log::log(move || {
            said.fetch_add(1, Ordering::Relaxed);
        });
        let child = fork();
        self.child.store(child, Ordering::Relaxed);
        if child != 0 {
            self.shared.close();
        }
    }
}

#[test]
fn what_a_turn_has_to_say_is_said_in_the_parent_and_in_no_child_that_the_turn_forked() {
    // A turn serves the call; a stop refuses it.
    for is_stop in [false, true] {
        let (mut assembly, _, time) = engine();
        let (shared, said) = (assembly.shared.clone(), Arc::new(AtomicU32::new(0)));
        let engine = Engine::new(shared.clone(), Vec::new());
        let tells = Tells { child: AtomicI32::new(-1), said: said.clone(), shared: shared.clone() };
        let tells = Arc::new(tells);
        let mut call = pin!(engine.request(5_000_000, Order::Any, Duration::from_mins(1)));
        let waker = Waker::from(tells.clone());
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if is_stop {
            shared.close();
        } else {
            time.pass(1_500 * MS);
        }
        assembly.producer.run();
        let (said, child) = (said.load(Ordering::Relaxed), tells.child.load(Ordering::Relaxed));
        if child == 0 {
            end(said > 0);
        }
        assert!(child > 0, "nobody was woken");
        assert_eq!(said, 1, "a stop: {is_stop}");
        assert!(!has_changed(child), "a line was said twice; a stop: {is_stop}");
    }
}

#[test]
fn a_stop_whose_callers_fork_a_child_spills_nothing_there() {
    only_without(&[Guard::ForkedAtStop], || {
        let (mut assembly, spill, time) = engine();
        let shared = assembly.shared.clone();
        let engine = Engine::new(shared.clone(), Vec::new());
        let mut call = pin!(engine.request(5_000_000, Order::Any, Duration::from_mins(1)));
        let (forks, holder) = Forks::while_another_thread(|forks| forks());
        let waker = Waker::from(forks.clone());
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        time.pass(500 * MS);
        let before = spill.bytes();
        shared.close();
        assembly.producer.finish();
        let (is_changed, child) = (spill.bytes() != before, forks.child());
        if child == 0 {
            end(is_changed);
        }
        assert!(child > 0, "nobody was woken");
        holder.join().unwrap();
        assert!(is_changed, "the parent spills what it has");
        has_changed(child).then(|| "the child appended to its parent's spill".into())
    });
}
