//! Connections before HELLO: strangers, until they have said what they want and shown that they may.
//!
//! Sockets that say nothing cost their owner nothing, and each takes a connection that a client could have. They have a
//! quarter of all connections together, and one address a quarter of that. One that comes beyond these ends the oldest.
//! After HELLO no address has a bound: all clients behind a proxy have one.
//!
//! The listener's thread calls this; a connection's thread reads and sets what is shared in [`Newcomer`].
//!
//! # Invariants
//! - I1 a connection that said HELLO is never ended here;
//! - I2 a connection that is younger than [`PATIENCE`] is not ended: a client that is far away is no stranger;
//! - I3 the list is at most twice as long as there were strangers when it was looked through last, and some.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::state::address_limits::customer;

/// Within this time a client on the other side of the world has said HELLO.
const PATIENCE: Duration = Duration::from_secs(1);

/// Below so many the list is not looked through for those that are strangers no more.
const SOME: usize = 64;

/// A connection, as far as both its own thread and the listener's know it.
#[derive(Debug)]
pub(crate) struct Newcomer {
    address: IpAddr,
    opened: Instant,
    greeted: AtomicBool,
    /// Told to make room for another one.
    ended: Notify,
}

impl Newcomer {
    fn new(address: IpAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            opened: Instant::now(),
            greeted: AtomicBool::new(false),
            ended: Notify::new(),
        })
    }

    /// Where it comes from.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// It said HELLO, and may stay.
    pub(crate) fn greeted(&self) {
        self.greeted.store(true, Relaxed);
    }

    /// It is to make room for another one.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }
}

/// All of them, the oldest first.
#[derive(Debug)]
pub(crate) struct Newcomers {
    list: VecDeque<Arc<Newcomer>>,
    /// So many were strangers when they were counted last.
    counted: usize,
    most: usize,
    most_of_address: usize,
}

impl Newcomers {
    /// None yet, where there are so many connections in all.
    pub(crate) fn new(connections: usize) -> Self {
        let most = (connections / 4).max(1);
        Self { list: VecDeque::new(), counted: 0, most, most_of_address: (most / 4).max(1) }
    }

    /// One more. Another one may have to go for it.
    pub(crate) fn welcome(&mut self, address: IpAddr) -> Arc<Newcomer> {
        if self.list.len() >= 2 * self.counted + SOME || self.list.len() >= self.most_of_address {
            self.count();
        }
        let whose = customer(address);
        let is_neighbour = |other: &Newcomer| customer(other.address) == whose;
        if self.list.len() >= self.most_of_address
            && self.list.iter().filter(|other| is_neighbour(other)).count() >= self.most_of_address
        {
            self.end_oldest(is_neighbour);
        }
        if self.list.len() >= self.most {
            self.end_oldest(|_| true);
        }
        let newcomer = Newcomer::new(address);
        self.list.push_back(newcomer.clone());
        newcomer
    }

    /// Ends the oldest one, since there is no room for a new connection at all. False if there is none.
    pub(crate) fn make_room(&mut self) -> bool {
        self.count();
        self.end_oldest(|_| true)
    }

    /// Forgets those that are strangers no more, be it that they said HELLO or that they are gone.
    fn count(&mut self) {
        self.list.retain(|other| !other.greeted.load(Relaxed) && Arc::strong_count(other) > 1);
        self.counted = self.list.len();
    }

    fn end_oldest(&mut self, is_one: impl Fn(&Newcomer) -> bool) -> bool {
        let is_old = |other: &Newcomer| other.opened.elapsed() >= PATIENCE;
        let found = self.list.iter().position(|other| is_old(other) && is_one(other));
        let Some(other) = found.and_then(|at| self.list.remove(at)) else { return false };
        // If its own thread does not wait for this now, it finds it at its next wait.
        other.ended.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    fn is_ended(newcomer: &Newcomer) -> bool {
        newcomer.ended().now_or_never().is_some()
    }

    /// How many of them were told to go.
    fn ended(newcomers: &[Arc<Newcomer>]) -> usize {
        newcomers.iter().filter(|newcomer| is_ended(newcomer)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_silent_one_goes_first_and_its_own_addresses_first() {
        // Sixteen in all, and four of an address.
        let mut newcomers = Newcomers::new(64);
        let other = newcomers.welcome(THERE);
        let mut silent: Vec<_> = (0..4).map(|_| newcomers.welcome(HERE)).collect();
        tokio::time::advance(PATIENCE).await;
        silent.push(newcomers.welcome(HERE));
        assert!(is_ended(&silent[0]) && ended(&silent[1..]) == 0 && !is_ended(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn those_of_many_addresses_are_bound_together() {
        let mut newcomers = Newcomers::new(64);
        let address = |n: u8| IpAddr::from([127, 0, 1, n]);
        let silent: Vec<_> = (0..16).map(|n| newcomers.welcome(address(n))).collect();
        tokio::time::advance(PATIENCE).await;
        newcomers.welcome(HERE);
        assert!(is_ended(&silent[0]) && ended(&silent[1..]) == 0);
    }

    /// Of IPv6 a customer has as many addresses as it likes.
    #[tokio::test(start_paused = true)]
    async fn those_of_one_customer_s_addresses_are_bound_together() {
        let mut newcomers = Newcomers::new(64);
        let address = |net: u16, n: u16| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, n]);
        let other = newcomers.welcome(address(2, 1));
        let silent: Vec<_> = (0..4).map(|n| newcomers.welcome(address(1, n))).collect();
        tokio::time::advance(PATIENCE).await;
        newcomers.welcome(address(1, 9));
        assert!(is_ended(&silent[0]) && ended(&silent[1..]) == 0 && !is_ended(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_said_hello_or_came_just_now_stays() {
        let mut newcomers = Newcomers::new(64);
        let working: Vec<_> = (0..1_000).map(|_| newcomers.welcome(HERE)).collect();
        assert_eq!(ended(&working), 0, "they have just come");
        for newcomer in &working {
            newcomer.greeted();
        }
        tokio::time::advance(10 * PATIENCE).await;
        let more: Vec<_> = (0..1_000).map(|_| newcomers.welcome(HERE)).collect();
        assert_eq!((ended(&working), ended(&more)), (0, 0));
        assert!(newcomers.list.len() <= 1_000, "{}", newcomers.list.len());
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_made_by_a_stranger_if_there_is_one() {
        let mut newcomers = Newcomers::new(4_096);
        let (gone, silent) = (newcomers.welcome(HERE), newcomers.welcome(HERE));
        let working = newcomers.welcome(HERE);
        working.greeted();
        drop(gone);
        assert!(!newcomers.make_room(), "it has just come");
        tokio::time::advance(PATIENCE).await;
        assert!(newcomers.make_room() && is_ended(&silent));
        assert!(!newcomers.make_room() && !is_ended(&working));
    }
}
