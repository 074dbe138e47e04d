//! Callers that wait for ids: a ticket is filled by the producer, all or nothing.
//!
//! # Invariants
//! - I1 ids gathered for a ticket belong to it alone; when it fails, is cancelled or dropped unread, they go
//!   back to the producer through [`Returns`] (U3);
//! - I2 a ticket ends once: done, failed or cancelled;
//! - I3 no id is too old when its ticket is done, however long the ticket waited for the others (U7);
//! - I4 a leap of the clock voids what is in memory, and no thread but a call's own finds what that call holds: what it
//!   gathers, a ticket that is done and not read, or ids on their way back. Each knows the number of voids from before it
//!   took its ids, and with another number they are wasted.

// What is read for figures only is no part of loom's models.
use std::sync::Mutex as PlainMutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use xuid_id::Order;

use crate::id::error::IdError;
use crate::id::run::Run;
use crate::stats::counters::{Sources, Tier};
use crate::sys::atomics::{Mutex, lock};
use crate::sys::guards::Guard;

/// How often a leap of the clock made void what was in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Voids(pub(crate) u64);

/// What a call took before it began to wait.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) runs: Vec<Run>,
    pub(crate) sources: Sources,
    /// From before it took them (I4).
    pub(crate) since: Voids,
}

/// One waiting call.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) order: Order,
    /// Exactly so many ids are needed.
    pub(crate) count: u32,
    /// So many are welcome, if there are enough for everybody: a thread takes the rest as its run.
    pub(crate) welcome: u32,
    /// `fresh`: no tick before this one.
    pub(crate) least_tick: u64,
    /// In nanoseconds of boot time.
    pub(crate) deadline: u64,
    pub(crate) wait: Duration,
    state: Mutex<State>,
    /// Where all that it has came from.
    sources: PlainMutex<Sources>,
    /// The number of [`Voids`] from before it got all that it has. Changed under the lock of `state`, and never once the
    /// ticket is over.
    since: AtomicU64,
}

#[derive(Debug)]
enum State {
    Waiting { runs: Vec<Run>, got: u32, waker: Option<Waker> },
    Done(Result<Vec<Run>, IdError>),
    Over,
}

impl Ticket {
    pub(crate) fn new(
        order: Order,
        count: u32,
        welcome: u32,
        least_tick: u64,
        deadline: u64,
        wait: Duration,
        gathered: Gathered,
    ) -> Self {
        let Gathered { runs, sources, since } = gathered;
        let got = runs.iter().map(Run::len).sum();
        let state = Mutex::new(State::Waiting { runs, got, waker: None });
        let (sources, since) = (PlainMutex::new(sources), AtomicU64::new(since.0));
        Self { order, count, welcome: welcome.max(count), least_tick, deadline, wait, state, sources, since }
    }

    /// The number of voids from before it got all that it has, or had when it ended (I4).
    pub(crate) fn since(&self) -> Voids {
        // Relaxed: the lock of `state` orders it, which whoever ended or read the ticket had.
        Voids(self.since.load(Ordering::Relaxed))
    }

    /// How many ids it still needs; `None` when it is over.
    pub(crate) fn missing(&self) -> Option<u32> {
        match &*lock(&self.state) {
            State::Waiting { got, .. } => Some(self.count.saturating_sub(*got)),
            _ => None,
        }
    }

    /// How many ids are welcome beyond what it has.
    pub(crate) fn wants(&self) -> u32 {
        match &*lock(&self.state) {
            State::Waiting { got, .. } => self.welcome.saturating_sub(*got),
            _ => 0,
        }
    }

    /// Where its ids came from: all of them, once it is done.
    pub(crate) fn sources(&self) -> Sources {
        *lock(&self.sources)
    }

    /// Adds a run of a tier. Gives it back if the ticket is over.
    pub(crate) fn give(&self, run: Run, tier: Tier) -> Result<(), Run> {
        match &mut *lock(&self.state) {
            State::Waiting { runs, got, .. } => {
                *got += run.len();
                lock(&self.sources).add(tier, u64::from(run.len()));
                runs.push(run);
                Ok(())
            }
            _ if !Guard::TicketReturns.holds() => Ok(()),
            _ => Err(run),
        }
    }

    /// Takes out the runs that begin before `oldest`, a raw id: it needs others for them.
    pub(crate) fn take_older(&self, oldest: u64) -> Vec<Run> {
        let mut state = lock(&self.state);
        let State::Waiting { runs, got, .. } = &mut *state else { return Vec::new() };
        let older: Vec<Run> = runs.extract_if(.., |run| run.raw() < oldest).collect();
        let len = older.iter().map(Run::len).sum::<u32>();
        *got -= len;
        lock(&self.sources).remove(u64::from(len));
        older
    }

    /// A leap made void all that it has: takes that out, and it needs others. The leap is number `voids`.
    pub(crate) fn void(&self, voids: Voids) -> Vec<Run> {
        let void = if Guard::LeapDropsGathered.holds() { self.take_older(u64::MAX) } else { Vec::new() };
        // One that is over keeps its number: its caller holds what it had (I4).
        if let State::Waiting { .. } = &*lock(&self.state) {
            self.since.store(voids.0, Ordering::Relaxed);
        }
        void
    }

    /// Ends it: with its ids if it has enough, else with `error`, and what was gathered is returned. The thread
    /// that waits is still to be woken.
    pub(crate) fn finish(&self, error: impl FnOnce() -> IdError) -> (Vec<Run>, Option<Waker>) {
        let mut state = lock(&self.state);
        let State::Waiting { runs, got, waker } = &mut *state else { return (Vec::new(), None) };
        let (runs, waker) = (std::mem::take(runs), waker.take());
        let (result, back) = if *got >= self.count { (Ok(runs), Vec::new()) } else { (Err(error()), runs) };
        *state = State::Done(result);
        (back, waker)
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<Vec<Run>, IdError>> {
        // A waker is a stranger's code, its clone and its drop as well: the old one goes after the lock.
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        if let State::Waiting { waker: kept, .. } = &mut *state {
            std::mem::swap(kept, &mut waker);
            drop(state);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Done(result) => Poll::Ready(result),
            _ => Poll::Ready(Err(IdError::SHUTTING_DOWN)),
        }
    }

    /// Ends it for a caller that went away; whatever it had is returned. Its waker is to be dropped when that is kept, since
    /// a stranger's code may panic.
    pub(crate) fn cancel(&self) -> (Vec<Run>, Option<Waker>) {
        match std::mem::replace(&mut *lock(&self.state), State::Over) {
            State::Waiting { runs, waker, .. } => (runs, waker),
            State::Done(Ok(runs)) => (runs, None),
            _ => (Vec::new(), None),
        }
    }
}

/// Ids on their way back to the producer.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    back: Mutex<Back>,
    wasted: AtomicU64,
    voided: AtomicU64,
}

#[derive(Debug, Default)]
struct Back {
    runs: Vec<Run>,
    voids: Voids,
    closed: bool,
}

impl Returns {
    /// Gives runs back that were taken `since` so many voids. What is void is wasted (I4), and so is everything after the
    /// close; both are counted.
    pub(crate) fn give(&self, runs: impl IntoIterator<Item = Run>, since: Voids) {
        let mut back = lock(&self.back);
        let is_void = since != back.voids && Guard::LeapWastesReturns.holds();
        for run in runs {
            let len = u64::from(run.len());
            if is_void {
                self.voided.fetch_add(len, Ordering::Relaxed);
            } else if back.closed {
                self.wasted.fetch_add(len, Ordering::Relaxed);
            } else {
                back.runs.push(run);
            }
        }
    }

    pub(crate) fn take(&self) -> Vec<Run> {
        std::mem::take(&mut lock(&self.back).runs)
    }

    /// From now on what was taken before this number of voids is wasted. What is there already is not: it is to be taken.
    pub(crate) fn void(&self, voids: Voids) {
        lock(&self.back).voids = voids;
    }

    /// Takes what is there, and nothing comes back from now on.
    pub(crate) fn close(&self) -> Vec<Run> {
        let mut back = lock(&self.back);
        back.closed = true;
        std::mem::take(&mut back.runs)
    }

    /// Ids on the way now.
    pub(crate) fn held(&self) -> u64 {
        lock(&self.back).runs.iter().map(|run| u64::from(run.len())).sum()
    }

    /// Ids that came back after the close.
    pub(crate) fn wasted(&self) -> u64 {
        self.wasted.load(Ordering::Relaxed)
    }

    /// Ids that came back void.
    pub(crate) fn voided(&self) -> u64 {
        self.voided.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::task::Wake;

    use super::*;
    use crate::testing::support::wakers::Fails;

    /// A waker whose end asks the ticket something, as one may that holds an engine's last clone.
    struct Asks(Arc<Ticket>);

    impl Wake for Asks {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Asks {
        fn drop(&mut self) {
            let _ = self.0.missing();
        }
    }

    #[test]
    fn a_waker_is_dropped_under_no_lock() {
        let (done, ended) = channel();
        std::thread::spawn(move || {
            let nothing = Gathered::default();
            let ticket =
                Arc::new(Ticket::new(Order::Any, 1, 1, 0, u64::MAX, Duration::from_secs(1), nothing));
            for _ in 0..2 {
                let waker = Waker::from(Arc::new(Asks(ticket.clone())));
                assert!(ticket.poll(&waker).is_pending());
            }
            assert!(ticket.cancel().0.is_empty());
            let waker = Waker::from(Arc::new(Asks(ticket.clone())));
            assert!(ticket.poll(&waker).is_ready());
            drop(waker);
            let _ = done.send(());
        });
        assert!(ended.recv_timeout(Duration::from_secs(30)).is_ok(), "it waits for its own lock");
    }

    #[test]
    fn what_a_call_had_comes_back_whatever_its_waker_does() {
        let gathered = Gathered { runs: vec![Run::new(8, 4)], ..Gathered::default() };
        let ticket = Ticket::new(Order::Any, 8, 8, 0, u64::MAX, Duration::from_secs(1), gathered);
        assert!(ticket.poll(&Waker::from(Arc::new(Fails))).is_pending());
        let (back, waker) = ticket.cancel();
        assert_eq!(back, [Run::new(8, 4)]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(waker))).is_err());
    }

    #[test]
    fn what_was_taken_before_a_leap_comes_back_as_waste() {
        let returns = Returns::default();
        let (before, after) = (Voids(0), Voids(1));
        returns.give([Run::new(8, 1)], before);
        returns.void(after);
        assert_eq!(returns.take(), [Run::new(8, 1)], "the leap takes what is there");
        // Of a call that was on its way over the leap, and of one that began after it.
        returns.give([Run::new(16, 2)], before);
        returns.give([Run::new(32, 4)], after);
        assert_eq!((returns.held(), returns.voided()), (4, 2));
        assert_eq!(returns.close(), [Run::new(32, 4)]);
        returns.give([Run::new(64, 8)], before);
        returns.give([Run::new(128, 16)], after);
        assert_eq!((returns.held(), returns.voided(), returns.wasted()), (0, 10, 16));
    }

    #[test]
    fn a_ticket_that_is_over_is_of_before_a_leap_and_one_that_waits_is_of_after_it() {
        let ticket = || {
            let gathered = Gathered { runs: vec![Run::new(8, 4)], ..Gathered::default() };
            Ticket::new(Order::Any, 4, 4, 0, u64::MAX, Duration::from_secs(1), gathered)
        };
        let (waits, done, left) = (ticket(), ticket(), ticket());
        assert!(done.finish(|| IdError::SHUTTING_DOWN).0.is_empty());
        assert_eq!(left.cancel().0, [Run::new(8, 4)]);
        let voided = [&waits, &done, &left].map(|ticket| ticket.void(Voids(1)));
        assert_eq!(voided, [vec![Run::new(8, 4)], vec![], vec![]]);
        assert_eq!([waits, done, left].map(|ticket| ticket.since()), [Voids(1), Voids(0), Voids(0)]);
    }
}
