//! A thread's or task's own ids.

use std::pin::pin;
use std::sync::{Arc, PoisonError};

use tokio::runtime::Handle;
use tokio::task::consume_budget;
use tokio::time::{Instant, timeout_at};

use super::held::Held;
use super::piece::Piece;
use super::state::PrefetchState;
use crate::error::ClientError;
use crate::moment::Moment;
use crate::process::Own;

/// Prefetched ids, for one thread or task at a time: a handle made by [`Prefetch::ids`](crate::Prefetch::ids).
///
/// In a hot loop an id costs two comparisons and one load of a word that is rarely written: no lock, no
/// read-modify-write, no clock. Clock and process are looked at each 1,024 ids, and at each id if a caller takes its
/// time. The next run costs a lock.
///
/// While the servers are away it goes on with what is held, as long as that is not older than
/// [`max_age`](crate::PrefetchOptions::max_age). Dropping it gives the rest of its run back.
#[derive(Debug)]
pub struct Ids {
    hand: Held,
    /// How many ids the hand was given.
    had: u64,
    piece: Piece,
    state: Arc<PrefetchState>,
}

impl Ids {
    pub(super) fn new(state: Arc<PrefetchState>) -> Self {
        if state.process.check().is_ok() {
            state.lock().join();
        }
        let now = Moment::now();
        Self { hand: Held::nothing(now), had: 0, piece: Piece::new(now), state }
    }

    /// An id if one is held, without waiting. `None` asks for more in the background; why there is none,
    /// [`Prefetch::failure`](crate::Prefetch::failure) may know. After a failure that will not pass by itself only
    /// [`Ids::next`] tries again.
    #[inline]
    pub fn try_next(&mut self) -> Option<u64> {
        match self.hit() {
            Some(id) => Some(id),
            None => self.open_or_miss().ok().flatten(),
        }
    }

    /// An id. If none is held, it waits for one, up to [`PrefetchOptions::wait`](crate::PrefetchOptions::wait).
    ///
    /// It can be dropped at any time: no id is lost by that.
    ///
    /// # Errors
    /// What the last refill failed with: at once if it is not retryable (the next call tries again), else after the
    /// wait; refilling goes on in the background. [`ClientError::NotYet`]: no failure, and no id.
    /// [`ClientError::Closed`] after the source was dropped, or its client closed; [`ClientError::Forked`] in another
    /// process.
    #[inline]
    pub async fn next(&mut self) -> Result<u64, ClientError> {
        if let Some(id) = self.hit() {
            return Ok(id);
        }
        self.wait_for_next().await
    }

    /// As [`Ids::next`], for threads outside of the runtime; the runtime goes on in threads of its own.
    ///
    /// # Errors
    /// As [`Ids::next`].
    ///
    /// # Panics
    /// In a task, where it would block the thread that the refill needs: use [`Ids::next`] there.
    #[inline]
    pub fn blocking_next(&mut self) -> Result<u64, ClientError> {
        match self.hit() {
            Some(id) => Ok(id),
            None => self.block_for_next(),
        }
    }

    #[inline]
    fn hit(&mut self) -> Option<u64> {
        self.hand.take_one(self.state.oldest.group())
    }

    /// An id from the next piece of the run in hand, if that is good still.
    fn open(&mut self) -> Option<u64> {
        let now = Moment::now();
        if self.state.process.check().is_err() {
            return None;
        }
        if !self.hand.is_good(now, self.state.options.max_age, self.state.oldest.group()) {
            return None;
        }
        self.hand.open(self.piece.next(now));
        self.hit()
    }

    #[cold]
    #[inline(never)]
    fn open_or_miss(&mut self) -> Result<Option<u64>, ClientError> {
        match self.open() {
            None => self.miss(),
            id => Ok(id),
        }
    }

    /// Settles the run in hand and takes another one, if there is one.
    #[inline(never)]
    fn miss(&mut self) -> Result<Option<u64>, ClientError> {
        self.state.process.check()?;
        let rest = self.hand.take_front(u64::MAX);
        let had = std::mem::take(&mut self.had);
        let state = Arc::clone(&self.state);
        let mut pool = state.lock();
        // After the lock: what is young enough is so now.
        let now = Moment::now();
        pool.settle(had, &rest);
        if pool.is_closed() {
            return Err(ClientError::Closed);
        }
        // A run that is called off between here and the hit is settled like any other, and another one taken: each time
        // there is less in the pool, and without an end to it a caller would wait beside a full pool.
        loop {
            let run = pool.take(now, state.oldest.group());
            let wake = pool.raise_demand();
            if wake {
                state.wanted.notify_one();
            }
            let Some(run) = run else { return Ok(None) };
            self.had = run.left();
            self.hand = run;
            self.hand.open(self.piece.next(now));
            if let Some(id) = self.hit() {
                return Ok(Some(id));
            }
            let rest = self.hand.take_front(u64::MAX);
            pool.settle(std::mem::take(&mut self.had), &rest);
        }
    }

    /// One look of a caller who waits; `first`: it has only begun to.
    fn look(&mut self, first: bool) -> Result<Option<u64>, ClientError> {
        if let Some(id) = self.miss()? {
            return Ok(Some(id));
        }
        let mut pool = self.state.lock();
        if !first {
            return pool.final_word().map_or(Ok(None), Err);
        }
        pool.begin_wait();
        drop(pool);
        self.state.wanted.notify_one();
        Ok(None)
    }

    #[cold]
    async fn wait_for_next(&mut self) -> Result<u64, ClientError> {
        if let Some(id) = self.open() {
            return Ok(id);
        }
        let state = Arc::clone(&self.state);
        Own::new(&state.process, self.arrival(&state)).await
    }

    /// Waits for an id.
    async fn arrival(&mut self, state: &PrefetchState) -> Result<u64, ClientError> {
        // A loop that always finds something must let the refiller run now and then, on a runtime of one thread.
        consume_budget().await;
        let mut deadline = None;
        loop {
            let mut arrived = pin!(state.arrived.notified());
            // Before the look, so that what comes between the two is not missed.
            arrived.as_mut().enable();
            if let Some(id) = self.look(deadline.is_none())? {
                return Ok(id);
            }
            let end = *deadline.get_or_insert_with(|| Instant::now() + state.options.wait);
            if timeout_at(end, arrived).await.is_err() {
                return Err(self.in_vain());
            }
        }
    }

    #[cold]
    fn block_for_next(&mut self) -> Result<u64, ClientError> {
        if let Some(id) = self.open() {
            return Ok(id);
        }
        // Before any lock, those of the runtime included.
        self.state.process.check()?;
        // Panics in a task, with a text that says so.
        if let Ok(runtime) = Handle::try_current() {
            runtime.block_on(async {});
        }
        let state = Arc::clone(&self.state);
        let mut deadline = None;
        loop {
            let seen = state.lock().news;
            if let Some(id) = self.look(deadline.is_none())? {
                return Ok(id);
            }
            let now = Instant::now();
            let end = *deadline.get_or_insert_with(|| now + state.options.wait);
            let left = end.saturating_duration_since(now);
            let (pool, waited) = state
                .arrived_for_threads
                .wait_timeout_while(state.lock(), left, |pool| pool.news == seen)
                .unwrap_or_else(PoisonError::into_inner);
            drop(pool);
            if waited.timed_out() {
                return Err(self.in_vain());
            }
        }
    }

    /// After the whole wait.
    fn in_vain(&self) -> ClientError {
        let limit = self.state.options.wait;
        self.state.lock().failure().unwrap_or(ClientError::NotYet { limit })
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        if self.state.process.check().is_err() {
            return;
        }
        let rest = self.hand.take_front(u64::MAX);
        let mut pool = self.state.lock();
        pool.give_back(self.had, rest, self.state.oldest.group());
        pool.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xuid_protocol::Run;

    use super::*;
    use crate::prefetch::age::AgeGroups;
    use crate::prefetch::options::PrefetchOptions;
    use crate::process::Process;

    /// A pool of the process with that id, with `count` ids in it.
    fn filled_pool(process: u32, count: u32) -> PrefetchState {
        filled_pool_for(PrefetchOptions::new(), process, count)
    }

    fn filled_pool_for(options: PrefetchOptions, process: u32, count: u32) -> PrefetchState {
        let mut state = PrefetchState::new(options);
        state.process = Process::known_by_id(process);
        let now = Moment::now();
        let group = AgeGroups::new(state.options.max_age).date(now);
        let mut pool = state.lock();
        pool.ask(u64::from(count), 0);
        pool.put(u64::from(count), vec![Run { first: 0, count, stride: 1 }], group, now, group);
        drop(pool);
        state
    }

    #[tokio::test]
    async fn a_pool_of_another_process_gives_nothing_and_is_left_alone() {
        let own = std::process::id();
        let parents = Arc::new(filled_pool(own + 1, 100));
        // As in a child forked while another thread of the parent held the lock: whoever takes it waits forever.
        std::mem::forget(parents.lock());
        let mut ids = Ids::new(Arc::clone(&parents));
        assert_eq!(ids.try_next(), None);
        for refused in [ids.next().await, ids.blocking_next_in_a_thread()] {
            let Err(ClientError::Forked { owner, found }) = refused else { panic!("{refused:?}") };
            assert_eq!((owner, found), (own + 1, own));
        }
        drop(ids);
        let mut ids = Ids::new(Arc::new(filled_pool(own, 100)));
        assert_eq!(ids.try_next(), Some(0), "and the own one gives");
    }

    impl Ids {
        fn blocking_next_in_a_thread(&mut self) -> Result<u64, ClientError> {
            std::thread::scope(|scope| scope.spawn(|| self.blocking_next()).join().unwrap())
        }
    }

    #[test]
    fn a_handle_that_is_called_off_goes_on_with_a_younger_run_and_counts_the_rest_as_waste() {
        let state = Arc::new(filled_pool(std::process::id(), 100));
        let mut ids = Ids::new(Arc::clone(&state));
        assert_eq!(ids.try_next(), Some(0));
        let now = Moment::now();
        let mut groups = AgeGroups::new(state.options.max_age);
        let (first, later) = (groups.date(now), groups.date(now + state.options.max_age));
        assert!(first < later);
        let mut pool = state.lock();
        pool.ask(10, 0);
        pool.put(10, vec![Run { first: 500, count: 10, stride: 1 }], later, now, first);
        pool.call_off(later);
        assert_eq!((pool.take_grown_old(), pool.take_grown_old()), (50, 0));
        drop(pool);
        state.oldest.raise(later);
        assert_eq!(ids.try_next(), Some(500));
        drop(ids);
        let counted = state.lock().stats();
        assert_eq!((counted.issued, counted.wasted_by_age, counted.held), (2, 99, 9), "{counted:?}");
    }

    #[test]
    fn a_run_that_is_called_off_before_the_pool_is_told_is_passed_over_at_once() {
        let state = Arc::new(filled_pool(std::process::id(), 100));
        let now = Moment::now();
        let mut groups = AgeGroups::new(state.options.max_age);
        let (first, later) = (groups.date(now), groups.date(now + state.options.max_age));
        let mut pool = state.lock();
        pool.ask(10, 0);
        pool.put(10, vec![Run { first: 500, count: 10, stride: 1 }], later, now, first);
        drop(pool);
        // The refiller stands between the word and the lock.
        state.oldest.raise(later);
        assert_eq!(Ids::new(Arc::clone(&state)).try_next(), Some(500));
        let counted = state.lock().stats();
        assert_eq!((counted.issued, counted.wasted_by_age), (1, 100), "{counted:?}");
    }

    #[test]
    fn a_caller_that_takes_its_time_gets_nothing_too_old_though_the_ager_sleeps_on() {
        // As in a process that was stopped, and whose caller wakes first. This pool has no ager at all.
        let age = Duration::from_millis(40);
        let state = Arc::new(filled_pool_for(PrefetchOptions::new().max_age(age), std::process::id(), 100));
        let mut ids = Ids::new(Arc::clone(&state));
        assert!(ids.try_next().is_some());
        let begin = Instant::now();
        while begin.elapsed() < age {
            std::thread::sleep(age / 10);
        }
        assert_eq!(ids.try_next(), None);
        let counted = state.lock().stats();
        assert_eq!((counted.issued, counted.wasted_by_age), (1, 99), "{counted:?}");
    }

    #[test]
    fn a_caller_that_waited_for_the_pool_gets_nothing_that_grew_too_old_meanwhile() {
        let age = Duration::from_millis(200);
        let state = Arc::new(filled_pool_for(PrefetchOptions::new().max_age(age), std::process::id(), 100));
        let mut ids = Ids::new(Arc::clone(&state));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let pool = state.lock();
            let caller = scope.spawn(|| ids.try_next());
            while begin.elapsed() < age {
                std::thread::sleep(age / 10);
            }
            drop(pool);
            assert_eq!(caller.join().unwrap(), None);
        });
    }
}
