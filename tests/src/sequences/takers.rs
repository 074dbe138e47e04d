//! Clients that take numbers of many names until they are stopped, over all lives of their servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::account::{Account, Call, Missed};
use super::{Name, Seats};
use crate::fronts::{Caller, Form, Front, Wanted};
use crate::{ClientError, Order, Rng, clock};

/// How hard they take.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Clients of each node.
    pub clients: usize,
    /// The most numbers of one call.
    pub most: u32,
    /// Between two calls of a client.
    pub pause: Duration,
    /// How long a call may wait.
    pub wait: Duration,
    /// Whether all numbers are ordered and may come in several runs, so that none is left out.
    pub is_dense: bool,
}

impl Pace {
    /// So many clients of each node, as fast as they can.
    pub fn hard(clients: usize) -> Self {
        Self { clients, most: 100, pause: Duration::ZERO, wait: Duration::from_secs(20), is_dense: false }
    }
}

/// What all threads share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    taken: AtomicU64,
}

/// The clients.
#[derive(Debug)]
#[must_use]
pub struct Takers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Account>>>,
}

impl Takers {
    /// Starts them on every node, at its fronts in turn.
    pub fn start(seats: &Arc<Seats>, names: &[Name], pace: Pace, seed: u64) -> Self {
        let (shared, mut rng) = (Arc::new(Shared::default()), Rng::new(seed));
        let start = |client: usize| {
            let node = client % seats.count();
            let front = Front::ALL[client / seats.count() % Front::ALL.len()];
            let is_mine = |name: &Name| name.node.is_none_or(|mine| mine == node);
            let mine: Vec<(usize, Name)> = names.iter().cloned().enumerate().collect();
            let mut taker = Taker {
                names: mine.into_iter().filter(|(_, name)| is_mine(name)).collect(),
                seats: Arc::clone(seats),
                shared: Arc::clone(&shared),
                account: Account::default(),
                rng: Rng::new(rng.word()),
                node,
                front,
                pace,
            };
            thread::spawn(move || taker.run().map(|()| taker.account))
        };
        let threads = (0..pace.clients * seats.count()).map(start).collect();
        Self { shared, threads }
    }

    /// How many numbers came so far.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Waits until so many more came.
    pub fn wait_more(&self, numbers: u64, limit: Duration) -> Result<Duration> {
        let before = self.taken();
        clock::wait_until("numbers come", limit, || {
            if self.threads.iter().any(JoinHandle::is_finished) {
                bail!("a client gave up");
            }
            Ok(self.taken() >= before + numbers)
        })
    }

    /// Ends them; what they got.
    pub fn stop(mut self) -> Result<Account> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut account = Account::default();
        for thread in self.threads.drain(..) {
            account.join(thread.join().ok().context("a client panicked")??);
        }
        Ok(account)
    }
}

impl Drop for Takers {
    fn drop(&mut self) {
        // Where a test fails they end, too.
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// One client.
struct Taker {
    names: Vec<(usize, Name)>,
    seats: Arc<Seats>,
    shared: Arc<Shared>,
    account: Account,
    rng: Rng,
    node: usize,
    front: Front,
    pace: Pace,
}

impl Taker {
    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn run(&mut self) -> Result<()> {
        while !self.is_over() {
            let seat = self.seats.of(self.node);
            let connected = seat.map(|(doors, life)| (Caller::connect(doors, self.front, CONNECT), life));
            let Some((Ok(mut client), life)) = connected else {
                // It is down, or just went.
                clock::idle(Duration::from_millis(1));
                continue;
            };
            while !self.is_over() && !client.is_going_away() {
                if !self.take(&mut client, life)? {
                    break;
                }
                clock::idle(self.pace.pause);
            }
        }
        Ok(())
    }

    /// One call; whether the connection is still there.
    fn take(&mut self, client: &mut Caller, life: usize) -> Result<bool> {
        let (name, at) = (self.rng.below(self.names.len() as u64) as usize, self.rng.below(8));
        let (name, asked_of) = (self.names[name].0, &self.names[name].1);
        let count = 1 + self.rng.below(u64::from(self.pace.most)) as u32;
        let (count, form) = match at {
            0 | 1 => (1, Form::One),
            2..=5 => (count, Form::List),
            7 if !self.pace.is_dense => (count, Form::Piece),
            _ => (count, Form::Runs),
        };
        let order = match at {
            _ if asked_of.is_of_ids => Order::Any,
            // The protocol of Redis has no word for it.
            2 if !self.pace.is_dense && self.front != Front::Resp => Order::Any,
            _ => Order::Ordered,
        };
        let sequence = (!asked_of.is_of_ids).then_some((&*asked_of.text, asked_of.increment));
        let asked = clock::now();
        let answer = client.take(&Wanted { sequence, count, order, wait: self.pace.wait, form });
        let got = clock::now();
        let mut miss = |refusal| {
            self.account.missed.push(Missed { name, life, count, refusal, asked, took: got - asked });
        };
        match answer {
            Ok(numbers) => {
                self.shared.taken.fetch_add(u64::from(count), Ordering::Relaxed);
                let is_ordered = order == Order::Ordered;
                let front = self.front;
                self.account.calls.push(Call { name, life, front, is_ordered, asked, got, numbers });
            }
            Err(ClientError::Refused(refusal)) => miss(Some((refusal.status, refusal.text))),
            Err(ClientError::Ended(_)) => {
                miss(None);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}

/// A server that was just killed says nothing more.
const CONNECT: Duration = Duration::from_secs(5);
