//! A limit in ids a second, shared by all connections of one token, or of one address.
//!
//! A bucket that holds the ids of one second and fills up steadily, kept as one number: the time at which it is full
//! again. Whoever takes ids moves that time on. (Generic cell rate algorithm, ITU-T I.371.)
//!
//! # Invariants
//! - I1 over any time, no more ids are let through than its seconds and one more allow, and the largest request on top;
//! - I2 a request for more than a second's ids is let through when the bucket is full, and is paid off afterwards: else
//!   it would be refused for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds of a second, which is the burst.
const SECOND: u64 = 1_000_000_000;

/// What the limits go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitBy {
    Token,
    Address,
}

impl LimitBy {
    /// Both, in the order of their numbers.
    pub(crate) const ALL: [Self; 2] = [Self::Token, Self::Address];

    /// As a metric's label says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Address => "address",
        }
    }
}

/// What a connection may take: what its token and its address may, as far as these have limits.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    pub(crate) token: Option<Arc<IdLimit>>,
    pub(crate) address: Option<Arc<IdLimit>>,
}

/// A request that is above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AboveLimit {
    pub(crate) by: LimitBy,
    pub(crate) ids_per_second: u64,
    /// After that it is not above it, if nothing else is asked for meanwhile.
    pub(crate) pause: Duration,
}

impl Allowance {
    /// Whether there is a limit at all.
    pub(crate) fn is_limited(&self) -> bool {
        self.each().any(|(_, limit)| limit.ids_per_second() > 0)
    }

    /// Takes so many ids of each limit, or of none.
    pub(crate) fn take(&self, ids: u32) -> Result<(), AboveLimit> {
        for (number, (by, limit)) in self.each().enumerate() {
            if let Err(pause) = limit.take(ids) {
                for (_, before) in self.each().take(number) {
                    before.give_back(u64::from(ids));
                }
                return Err(AboveLimit { by, ids_per_second: limit.ids_per_second(), pause });
            }
        }
        Ok(())
    }

    /// Puts ids back that were taken and not issued.
    pub(crate) fn give_back(&self, ids: u64) {
        self.each().for_each(|(_, limit)| limit.give_back(ids));
    }

    fn each(&self) -> impl Iterator<Item = (LimitBy, &IdLimit)> {
        let both = [(LimitBy::Token, &self.token), (LimitBy::Address, &self.address)];
        both.into_iter().filter_map(|(by, limit)| Some((by, limit.as_deref()?)))
    }
}

/// The bucket of one token or address.
#[derive(Debug)]
pub(crate) struct IdLimit {
    /// 0: no limit.
    ids_per_second: AtomicU64,
    begun: Instant,
    /// Nanoseconds after `begun` at which the bucket is full.
    full: AtomicU64,
}

impl IdLimit {
    /// A full bucket.
    pub(crate) fn new(ids_per_second: u64) -> Self {
        Self {
            ids_per_second: AtomicU64::new(ids_per_second),
            begun: Instant::now(),
            full: AtomicU64::new(0),
        }
    }

    /// From now on it is this; 0 is none. A higher one counts at once, for what was taken too much before as well. Under a
    /// lower one that takes as long as a client was told. What is taken in that very moment may be counted as before.
    pub(crate) fn set(&self, ids_per_second: u64) {
        self.set_at(ids_per_second, self.begun.elapsed().as_nanos() as u64);
    }

    fn set_at(&self, ids_per_second: u64, now: u64) {
        let before = self.ids_per_second.swap(ids_per_second, Relaxed);
        let scaled = |lacks: u64| match ids_per_second {
            0 => 0,
            // Not above `lacks`, which fits.
            higher if higher > before => {
                (u128::from(lacks) * u128::from(before)).div_ceil(higher.into()) as u64
            }
            _ => lacks,
        };
        // Always some: the closure is total.
        let _ = self.full.fetch_update(Relaxed, Relaxed, |full| Some(now + scaled(full.saturating_sub(now))));
    }

    /// Ids a second; 0: no limit.
    pub(crate) fn ids_per_second(&self) -> u64 {
        self.ids_per_second.load(Relaxed)
    }

    /// Takes so many ids, or says when as many may be taken.
    pub(crate) fn take(&self, ids: u32) -> Result<(), Duration> {
        if self.ids_per_second() == 0 {
            Ok(())
        } else {
            self.take_at(ids, self.begun.elapsed().as_nanos() as u64)
        }
    }

    fn take_at(&self, ids: u32, now: u64) -> Result<(), Duration> {
        let cost = self.cost(ids);
        // What must be in the bucket, as the time at which it may be full at the latest.
        let latest = now + SECOND - cost.min(SECOND);
        let moved = self.full.fetch_update(Relaxed, Relaxed, |full| {
            let full = full.max(now);
            (full <= latest).then_some(full + cost)
        });
        moved.map(drop).map_err(|full| Duration::from_nanos(full.saturating_sub(latest)))
    }

    /// Puts ids back that were taken and not issued.
    pub(crate) fn give_back(&self, ids: u64) {
        let cost = self.cost(u32::try_from(ids).unwrap_or(u32::MAX));
        // Always some: the closure is total.
        let _ = self.full.fetch_update(Relaxed, Relaxed, |full| Some(full.saturating_sub(cost)));
    }

    /// How long until the bucket is full, if nothing is taken meanwhile.
    pub(crate) fn until_full(&self) -> Duration {
        Duration::from_nanos(self.full.load(Relaxed)).saturating_sub(self.begun.elapsed())
    }

    /// How long the bucket takes to get so many ids, rounded up.
    fn cost(&self, ids: u32) -> u64 {
        // Below 2^32 x 10^9, which fits.
        (u64::from(ids) * SECOND).div_ceil(self.ids_per_second().max(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_second_s_ids_are_there_at_once_and_then_as_many_as_time_brings() {
        let limit = IdLimit::new(1_000);
        assert_eq!(limit.take_at(600, 0), Ok(()));
        assert_eq!(limit.take_at(400, 0), Ok(()));
        assert_eq!(limit.take_at(1, 0), Err(Duration::from_millis(1)));
        assert_eq!(limit.take_at(50, 10 * MS), Err(Duration::from_millis(40)));
        assert_eq!(limit.take_at(50, 50 * MS), Ok(()));
        assert_eq!(limit.take_at(1_000, 10_000 * MS), Ok(()), "and never more than a second's");
        assert!(limit.take_at(1, 10_000 * MS).is_err());
    }

    #[test]
    fn more_than_a_second_s_ids_are_let_through_when_all_are_there_and_paid_off() {
        let limit = IdLimit::new(1_000);
        assert_eq!(limit.take_at(1, 0), Ok(()));
        assert_eq!(limit.take_at(3_000, 0), Err(Duration::from_millis(1)));
        assert_eq!(limit.take_at(3_000, MS), Ok(()));
        assert_eq!(limit.take_at(1, 1_999 * MS), Err(Duration::from_millis(3)));
        assert_eq!(limit.take_at(1, 2_002 * MS), Ok(()));
    }

    #[test]
    fn ids_that_were_not_issued_cost_nothing_and_a_limit_can_be_taken_away() {
        let limit = IdLimit::new(10);
        assert_eq!(limit.take_at(10, 0), Ok(()));
        limit.give_back(10);
        assert_eq!(limit.take_at(10, 0), Ok(()));
        limit.set(0);
        assert!((0..100).all(|_| limit.take(1_000_000).is_ok()));
    }

    #[test]
    fn a_raised_limit_counts_at_once_and_a_lowered_one_makes_no_pause_longer() {
        let limit = IdLimit::new(10);
        assert_eq!(limit.take_at(100_000, 0), Ok(()), "ten thousand seconds are to be paid off");
        limit.set_at(100_000, 0);
        assert_eq!(limit.take_at(1, 0), Err(Duration::from_micros(10)), "it is one second now");
        assert_eq!(limit.take_at(100_000, 1_000 * MS), Ok(()));
        limit.set_at(1_000, 1_000 * MS);
        assert_eq!(limit.take_at(1_000, 1_500 * MS), Err(Duration::from_millis(500)));
        assert_eq!(limit.take_at(1_000, 2_000 * MS), Ok(()));
        limit.set_at(0, 2_000 * MS);
        limit.set_at(1, 2_000 * MS);
        assert_eq!(limit.take_at(1, 2_000 * MS), Ok(()), "without a limit nothing is to be paid off");
    }

    #[test]
    fn what_one_limit_refuses_costs_the_other_nothing() {
        let [token, address] = [100, 10].map(|most| Some(Arc::new(IdLimit::new(most))));
        let both = Allowance { token: token.clone(), address };
        assert_eq!(both.take(20), Ok(()), "a full bucket lets one large request through");
        let above = both.take(50).unwrap_err();
        assert_eq!((above.by, above.ids_per_second), (LimitBy::Address, 10));
        assert!(above.pause > Duration::from_millis(500), "{above:?}");
        let token_alone = Allowance { token, address: None };
        assert_eq!(token_alone.take(80), Ok(()), "only 20 were taken of it");
        assert_eq!(token_alone.take(80).map_err(|above| above.by), Err(LimitBy::Token));
        assert!(token_alone.is_limited() && !Allowance::default().is_limited());
        assert_eq!(Allowance::default().take(u32::MAX), Ok(()));
    }

    proptest! {
        #[test]
        fn no_more_is_let_through_than_the_seconds_allow(
            rate in 1u64..1_000_000,
            asked in prop::collection::vec((1u32..5_000, 0u64..200 * MS), 1..100),
        ) {
            let limit = IdLimit::new(rate);
            let (mut now, mut let_through) = (0, 0);
            for (ids, pause) in asked {
                now += pause;
                match limit.take_at(ids, now) {
                    Ok(()) => let_through += u64::from(ids),
                    Err(pause) => {
                        // It is told the truth.
                        let then = now + pause.as_nanos() as u64;
                        prop_assert!(limit.take_at(ids, then - 1).is_err());
                    }
                }
                let allowed = u128::from(rate) * u128::from(now + SECOND) / u128::from(SECOND);
                prop_assert!(u128::from(let_through) <= allowed + 5_000);
            }
        }
    }
}
