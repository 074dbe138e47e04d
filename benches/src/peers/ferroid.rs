//! ferroid 2: the strongest peer. One generator a thread, one in an atomic word, one behind a lock; ULIDs a thread.
//!
//! In its bursts a generator has its own millisecond clock, which a background thread keeps in a word, and a layout of
//! 26 bits of sequence, so that it hardly ever waits. A generator of one thread is measured with a clock made for it,
//! too, through the crate's `TimeSource`: it moves on when the sequence of its classic layout is spent, as an engine
//! spends land. Either may be the faster by a few tenths, from build to build: the faster one is the peer.
//!
//! The crate leaves it to its caller what to do when a try fails. Here it yields, as its documentation does first:
//! with two threads at the atomic generator that brings 38 M ids/s where the spinning of its own benchmark brings 15.
//! Its `cache-padded` and `parking-lot` are on, as in its own figures; they make the lock twice as fast at two threads.
//! Those own figures can't be compared with any here: their layout has no time bits, so every call finds the clock
//! ahead of its id, begins the sequence anew, and returns the id 0.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::LazyLock;
use std::thread::yield_now;
use std::time::Duration;

use ferroid::define_snowflake_id;
use ferroid::generator::thread_local::Ulid;
use ferroid::generator::{AtomicSnowflakeGenerator, BasicSnowflakeGenerator, LockSnowflakeGenerator};
use ferroid::id::{SnowflakeId, SnowflakeTwitterId};
use ferroid::time::{MonotonicClock, TWITTER_EPOCH, TimeSource};

use super::clock;
use super::peer::{peer, per_worker};
use super::wide::Wide;
use crate::subject::{Fixture, SharedGenerator, Subject, Supply};

define_snowflake_id!(
    /// 67 million ids a millisecond: enough for 60 ms in which the clock's thread does not get its turn. The
    /// milliseconds of six days, since the process began.
    Roomy, u64,
    reserved: 1,
    timestamp: 29,
    machine_id: 8,
    sequence: 26
);

pub(super) fn subjects() -> Vec<Subject> {
    use Supply::{Burst, Sustained};
    vec![
        peer(
            "ferroid/atomic",
            "AtomicSnowflakeGenerator shared by all threads, 26 bits of sequence",
            Burst,
            || atomic::<Roomy>(roomy_clock()),
        ),
        peer(
            "ferroid/lock",
            "LockSnowflakeGenerator shared by all threads, 26 bits of sequence",
            Burst,
            || lock::<Roomy>(roomy_clock()),
        ),
        peer("ferroid/per-thread", "a BasicSnowflakeGenerator a thread, 26 bits of sequence", Burst, || {
            per_thread::<Roomy>(roomy_clock())
        }),
        peer(
            "ferroid/per-thread-own-clock",
            "a BasicSnowflakeGenerator a thread, 12 bits of sequence, a clock that moves on when they are spent",
            Burst,
            per_thread_own_clock,
        ),
        peer("ferroid/ulid-thread-local", "Ulid::new_ulid_mono, 128 bits", Burst, || {
            Wide::new(|| || Ulid::new_ulid_mono(|_| yield_now()).to_raw())
        }),
        peer("ferroid/atomic-sustained", "AtomicSnowflakeGenerator, Twitter's layout", Sustained, || {
            atomic::<SnowflakeTwitterId>(MonotonicClock::with_epoch(TWITTER_EPOCH))
        }),
        peer("ferroid/lock-sustained", "LockSnowflakeGenerator, Twitter's layout", Sustained, || {
            lock::<SnowflakeTwitterId>(MonotonicClock::with_epoch(TWITTER_EPOCH))
        }),
        peer(
            "ferroid/per-thread-sustained",
            "a BasicSnowflakeGenerator a thread, Twitter's layout",
            Sustained,
            || per_thread::<SnowflakeTwitterId>(MonotonicClock::with_epoch(TWITTER_EPOCH)),
        ),
    ]
}

/// The crate's clock, since the process began.
fn roomy_clock() -> MonotonicClock {
    static BEGAN: LazyLock<Duration> = LazyLock::new(clock::wall);
    MonotonicClock::with_epoch(*BEGAN)
}

fn atomic<I>(clock: MonotonicClock) -> Box<dyn Fixture>
where
    I: SnowflakeId<Ty = u64> + Send + Sync + 'static,
{
    SharedGenerator::new(AtomicSnowflakeGenerator::<I, _>::new(1, clock), |generator| {
        generator.next_id(|_| yield_now()).to_raw()
    })
}

fn lock<I>(clock: MonotonicClock) -> Box<dyn Fixture>
where
    I: SnowflakeId<Ty = u64> + Send + Sync + 'static,
{
    SharedGenerator::new(LockSnowflakeGenerator::<I, _>::new(1, clock), |generator| {
        match generator.try_next_id(|_| yield_now()) {
            Ok(id) => id.to_raw(),
            Err(error) => panic!("a lock that nobody panicked under: {error}"),
        }
    })
}

fn per_thread<I>(clock: MonotonicClock) -> Box<dyn Fixture>
where
    I: SnowflakeId<Ty = u64> + 'static,
{
    per_worker(I::max_machine_id() + 1, move |worker| {
        let generator = BasicSnowflakeGenerator::<I, _>::new(worker, clock.clone());
        move || generator.next_id(|_| yield_now()).to_raw()
    })
}

fn per_thread_own_clock() -> Box<dyn Fixture> {
    per_worker(SnowflakeTwitterId::max_machine_id() + 1, |worker| {
        let tick = Rc::new(Cell::new(clock::millis() - TWITTER_EPOCH.as_millis() as u64));
        let generator = BasicSnowflakeGenerator::<SnowflakeTwitterId, _>::new(worker, OwnClock(tick.clone()));
        move || generator.next_id(|_| tick.set(tick.get() + 1)).to_raw()
    })
}

/// A clock that stands until it is moved on.
struct OwnClock(Rc<Cell<u64>>);

impl TimeSource<u64> for OwnClock {
    fn current_millis(&self) -> u64 {
        self.0.get()
    }
}
