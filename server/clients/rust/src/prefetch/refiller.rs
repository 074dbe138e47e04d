//! The task that keeps the pool filled.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::Level;
use xuid_protocol::Status;

use super::refill_size::RefillSize;
use super::state::PrefetchState;
use crate::client::{Ahead, Client};
use crate::error::ClientError;
use crate::fleet::Retries;
use crate::log::log;
use crate::moment::Moment;
use crate::options::later;

/// How long the server may wait for the ids of a refill: a server that lives on what its clock brings has the largest
/// refill together in 32 ms.
const WAIT: Duration = Duration::from_millis(50);

/// Refills in flight at once.
const IN_FLIGHT: usize = 8;

/// How one refill ended.
#[derive(Debug)]
struct Refill {
    count: u64,
    /// How many failures there had been when it was asked for.
    failures: u64,
    outcome: Ahead,
}

#[derive(Debug)]
pub(super) struct Refiller {
    state: Arc<PrefetchState>,
    client: Client,
    refill_size: RefillSize,
    refills: JoinSet<Refill>,
    retries: Retries,
    failures: u64,
    /// Nothing is asked for before.
    resume: Instant,
}

impl Refiller {
    pub(super) fn new(state: Arc<PrefetchState>, client: Client) -> Self {
        let now = Instant::now();
        let options = &state.options;
        Self {
            refill_size: RefillSize::new(options.least, options.most, options.max_age, now),
            refills: JoinSet::new(),
            retries: client.retries(),
            failures: 0,
            resume: now,
            state,
            client,
        }
    }

    /// Until it is dropped.
    pub(super) async fn run(mut self) {
        let state = Arc::clone(&self.state);
        loop {
            let now = Instant::now();
            let is_paused = now < self.resume;
            if !is_paused {
                self.ask(now);
            }
            // Each branch only says that something is to be done; what, the next turn finds out.
            tokio::select! {
                Some(ended) = self.refills.join_next() => self.take_in(ended),
                () = state.wanted.notified() => {}
                () = sleep_until(self.resume), if is_paused => {}
            }
        }
    }

    /// Asks for as much as is missing, if somebody takes.
    fn ask(&mut self, now: Instant) {
        let mut pool = self.state.lock();
        if pool.take_grown_old() > 0 {
            self.refill_size.wasted();
        }
        let Some((there, taken)) = pool.demanded() else { return };
        let level = self.refill_size.look(now, taken);
        let mut missing = level.saturating_sub(there);
        let max_count = u64::from(self.client.served().limits.max_count).max(1);
        pool.ask(0, level.div_ceil(2));
        while missing > 0 && self.refills.len() < IN_FLIGHT {
            let count = missing.min(self.refill_size.request()).min(max_count);
            missing -= count;
            pool.ask(count, level.div_ceil(2));
            let (client, failures, patience) =
                (self.client.clone(), self.failures, self.state.options.max_age);
            self.refills.spawn(async move {
                // What takes longer than an id may be old is of no use.
                let ahead = unless_it_panics(pin!(client.ahead(count as u32, WAIT, patience))).await;
                let outcome = ahead.unwrap_or_else(|| Err(panicked(&client)));
                Refill { count, failures, outcome }
            });
        }
    }

    fn take_in(&mut self, ended: Result<Refill, JoinError>) {
        // Else the runtime ends, and this task with it.
        let Ok(Refill { count, failures, outcome }) = ended else { return };
        match outcome {
            Ok((asked, runs)) => {
                let round_trip = Moment::now().saturating_duration_since(asked);
                self.refill_size.answered(round_trip);
                self.retries = self.client.retries();
                let group = self.state.date(asked);
                let mut pool = self.state.lock();
                pool.put(count, runs, group, asked, self.state.oldest.group());
            }
            Err(error) => {
                let is_first = failures == self.failures;
                self.fail(count, error, is_first);
            }
        }
        self.state.tell();
    }

    /// `is_first`: the others that were in flight with it failed alike, and are no reason to pause again.
    fn fail(&mut self, count: u64, error: ClientError, is_first: bool) {
        // Too many for the server that took the place of another: its limits are known by now.
        let is_count = matches!(error, ClientError::Refused { status: Status::COUNT, .. });
        let stop = !error.is_retryable() && !is_count;
        if is_first {
            self.failures += 1;
            let pause = self.client.pause(&mut self.retries, &error);
            let shown = error.clone();
            log(Level::DEBUG, move || tracing::debug!(error = %shown, ?pause, "a refill failed"));
            self.resume = later(Instant::now(), pause);
        }
        if matches!(error, ClientError::Refused { .. }) {
            self.refill_size.failed(count);
        }
        self.state.lock().fail(count, error, stop);
    }
}

/// What comes of a refill; `None` if it panics.
async fn unless_it_panics<T>(mut refill: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| refill.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await
}

fn panicked(client: &Client) -> ClientError {
    let why = "the refill panicked, and said why where this process tells of panics";
    ClientError::lost(&client.served().server, Some(io::Error::other(why)))
}

impl Drop for Refiller {
    /// Handles are told even when the runtime ends. A copy dropped in a forked child ends nothing.
    fn drop(&mut self) {
        if self.state.process.check().is_ok() {
            self.state.close();
        }
    }
}
