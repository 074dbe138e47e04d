//! Whether to look for the next request without going to sleep first.
//!
//! Going to sleep and being woken by the other core is most of what a request costs where one client sends one at a
//! time. Looking on for a moment saves that, and costs a core while it lasts. It helps nobody where several connections
//! are busy: there, what arrives during a sleep is served in one go.
//!
//! # Invariants
//! - I1 it looks on only behind a reply, and for [`LOOK_ON`] at most: an idle server sleeps;
//! - I2 it does so only after [`QUICK_ONES`] requests in a row that came at once, on the only busy connection of the
//!   thread;
//! - I3 each time that it was in vain it keeps off twice as long, so that a client which shares our core, and can ask
//!   only while we sleep, loses next to nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// How long it looks on. Several times what a local client takes to ask again, and little beside what a sleep costs.
const LOOK_ON: Duration = Duration::from_micros(50);

/// A request that comes so soon after a reply, our own waking included, would have been worth looking on for.
const QUICK: Duration = Duration::from_micros(150);

/// So many quick requests in a row make a client that asks in a loop.
const QUICK_ONES: u32 = 8;

/// The most requests to keep off after looking on in vain.
const KEEP_OFF: u32 = 1_024;

thread_local! {
    /// The connection of this thread that was asked last.
    static ASKED_LAST: Cell<u64> = const { Cell::new(0) };
}

/// One connection's.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    number: u64,
    /// No other connection of the thread was asked between the last two times.
    is_alone: bool,
    /// When the last reply was written.
    answered: Option<Instant>,
    quick: u32,
    keep_off: u32,
    last_keep_off: u32,
    until: Option<Instant>,
}

impl BusyPoll {
    pub(crate) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self { number, is_alone: true, answered: None, quick: 0, keep_off: 0, last_keep_off: 0, until: None }
    }

    /// Bytes of a request came.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.is_alone = ASKED_LAST.replace(self.number) == self.number;
        let soon = self.answered.take().is_some_and(|answered| now - answered < QUICK);
        if self.until.take().is_some() {
            self.last_keep_off = 0;
        }
        self.quick = if self.is_alone && soon { self.quick.saturating_add(1) } else { 0 };
    }

    /// Whether no other connection of the thread asks for anything.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Everything that was asked is answered and written.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.answered = Some(now);
        if self.quick < QUICK_ONES {
            return;
        }
        match self.keep_off.checked_sub(1) {
            Some(left) => self.keep_off = left,
            None => self.until = Some(now + LOOK_ON),
        }
    }

    /// Whether to look on.
    pub(crate) fn looks_on(&self) -> bool {
        self.until.is_some()
    }

    /// It looked, and nothing was there.
    pub(crate) fn saw_nothing(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
            self.last_keep_off = (2 * self.last_keep_off).clamp(1, KEEP_OFF);
            self.keep_off = self.last_keep_off;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_micros(20);

    /// Requests that come `pause` after each reply; how many of the replies were followed by looking on.
    fn talk(busy_poll: &mut BusyPoll, now: &mut Instant, requests: u32, pause: Duration) -> u32 {
        let mut looked = 0;
        for _ in 0..requests {
            busy_poll.asked(*now);
            busy_poll.answered(*now);
            looked += u32::from(busy_poll.looks_on());
            *now += pause;
            busy_poll.saw_nothing(*now);
        }
        looked
    }

    fn begin() -> Instant {
        #[expect(
            clippy::disallowed_methods,
            reason = "any instant will do, and there is no other way to one"
        )]
        std::time::Instant::now().into()
    }

    #[test]
    fn it_looks_on_for_a_client_that_asks_in_a_loop_and_for_no_other() {
        let (mut busy_poll, mut now) = (BusyPoll::new(), begin());
        assert_eq!(talk(&mut busy_poll, &mut now, 1_000, Duration::from_millis(1)), 0);
        let looked = talk(&mut busy_poll, &mut now, 1_000, MOMENT);
        assert_eq!(looked, 1_000 - QUICK_ONES);
    }

    #[test]
    fn it_does_not_look_on_where_two_connections_are_busy() {
        let (mut one, mut other, mut now) = (BusyPoll::new(), BusyPoll::new(), begin());
        for _ in 0..1_000 {
            assert_eq!(talk(&mut one, &mut now, 1, MOMENT) + talk(&mut other, &mut now, 1, MOMENT), 0);
        }
    }

    #[test]
    fn looking_on_in_vain_becomes_ever_rarer() {
        let (mut busy_poll, mut now) = (BusyPoll::new(), begin());
        // Quick enough to be hoped for, and never within the time that it looks on.
        let looked = talk(&mut busy_poll, &mut now, 20_000, LOOK_ON + MOMENT);
        assert!((5..50).contains(&looked), "{looked} of 20,000");
    }

    #[test]
    fn it_ends_by_itself_when_nobody_asks() {
        let (mut busy_poll, mut now) = (BusyPoll::new(), begin());
        talk(&mut busy_poll, &mut now, 100, MOMENT);
        busy_poll.asked(now);
        busy_poll.answered(now);
        assert!(busy_poll.looks_on());
        busy_poll.saw_nothing(now + LOOK_ON / 2);
        assert!(busy_poll.looks_on());
        busy_poll.saw_nothing(now + LOOK_ON);
        assert!(!busy_poll.looks_on());
    }
}
