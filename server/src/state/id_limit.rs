//! A limit in ids a second, shared by all connections of one token, or of one address.
//!
//! A bucket that holds the ids of one second and fills up steadily, kept as one number: the time at which it is full
//! again. A request that takes ids moves that time on. (Generic cell rate algorithm, ITU-T I.371.)
//!
//! # Invariants
//! - I1 over any time, no more ids are let through than its seconds and one more allow, and the largest request on top.
//!   Ids that were given back count as never let through;
//! - I2 a request for more than a second's ids is let through when the bucket is full, and is paid off afterwards: else
//!   it would be refused for ever;
//! - I3 of a charge that is given back, what time has paid off since is not: the bucket would have been full sooner without
//!   the charge, and full is all that it gets. So a bucket lacks at least what the ids lack that were let through, which
//!   keeps I1.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
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

/// What a request was charged by each limit of its connection: it has that back if it gets no ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Charged([Charge; LimitBy::ALL.len()]);

/// What a request was charged by one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Nanoseconds by which the bucket is full later; 0: there was no limit.
    cost: u64,
    /// Nanoseconds after the bucket's begin.
    at: u64,
    /// How many changes the limit had seen.
    changes: u32,
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
    pub(crate) fn take(&self, ids: u32) -> Result<Charged, AboveLimit> {
        let mut charged = Charged::default();
        for (by, limit) in self.each() {
            match limit.take(ids) {
                Ok(charge) => charged.0[by as usize] = charge,
                Err(pause) => {
                    self.give_back(charged);
                    return Err(AboveLimit { by, ids_per_second: limit.ids_per_second(), pause });
                }
            }
        }
        Ok(charged)
    }

    /// Puts ids back that were taken and not issued.
    pub(crate) fn give_back(&self, charged: Charged) {
        self.each().for_each(|(by, limit)| limit.give_back(charged.0[by as usize]));
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
    /// How often the limit was changed.
    changes: AtomicU32,
}

impl IdLimit {
    /// A full bucket.
    pub(crate) fn new(ids_per_second: u64) -> Self {
        Self {
            ids_per_second: AtomicU64::new(ids_per_second),
            begun: Instant::now(),
            full: AtomicU64::new(0),
            changes: AtomicU32::new(0),
        }
    }

    /// From now on it is this; 0 is none. A higher one counts at once, for what was taken too much before as well. Under a
    /// lower one that takes as long as a client was told. What is taken in that very moment may be counted as before.
    pub(crate) fn set(&self, ids_per_second: u64) {
        self.set_at(ids_per_second, self.now());
    }

    fn set_at(&self, ids_per_second: u64, now: u64) {
        let before = self.ids_per_second.swap(ids_per_second, Relaxed);
        if before == ids_per_second {
            return;
        }
        self.changes.fetch_add(1, Relaxed);
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
    pub(crate) fn take(&self, ids: u32) -> Result<Charge, Duration> {
        if self.ids_per_second() == 0 { Ok(Charge::default()) } else { self.take_at(ids, self.now()) }
    }

    fn take_at(&self, ids: u32, now: u64) -> Result<Charge, Duration> {
        let charge = Charge { cost: self.cost(ids), at: now, changes: self.changes.load(Relaxed) };
        // What must be in the bucket, as the time at which it may be full at the latest.
        let latest = now + SECOND - charge.cost.min(SECOND);
        let moved = self.full.fetch_update(Relaxed, Relaxed, |full| {
            let full = full.max(now);
            (full <= latest).then_some(full + charge.cost)
        });
        match moved {
            Ok(_) => Ok(charge),
            Err(full) => Err(Duration::from_nanos(full.saturating_sub(latest))),
        }
    }

    /// Puts back what a request was charged that got no ids. What was charged before the limit changed stays charged: what
    /// is left of that is not known.
    fn give_back(&self, charge: Charge) {
        if charge.cost > 0 {
            self.give_back_at(charge, self.now());
        }
    }

    fn give_back_at(&self, charge: Charge, now: u64) {
        if charge.changes != self.changes.load(Relaxed) {
            return;
        }
        // I3
        let unpaid = charge.cost.saturating_sub(now.saturating_sub(charge.at));
        // Always some: the closure is total.
        let _ = self.full.fetch_update(Relaxed, Relaxed, |full| Some(full.saturating_sub(unpaid)));
    }

    /// Nanoseconds after `begun`.
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
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
        assert!(limit.take_at(600, 0).is_ok());
        assert!(limit.take_at(400, 0).is_ok());
        assert_eq!(limit.take_at(1, 0), Err(Duration::from_millis(1)));
        assert_eq!(limit.take_at(50, 10 * MS), Err(Duration::from_millis(40)));
        assert!(limit.take_at(50, 50 * MS).is_ok());
        assert!(limit.take_at(1_000, 10_000 * MS).is_ok(), "and never more than a second's");
        assert!(limit.take_at(1, 10_000 * MS).is_err());
    }

    #[test]
    fn more_than_a_second_s_ids_are_let_through_when_all_are_there_and_paid_off() {
        let limit = IdLimit::new(1_000);
        assert!(limit.take_at(1, 0).is_ok());
        assert_eq!(limit.take_at(3_000, 0), Err(Duration::from_millis(1)));
        assert!(limit.take_at(3_000, MS).is_ok());
        assert_eq!(limit.take_at(1, 1_999 * MS), Err(Duration::from_millis(3)));
        assert!(limit.take_at(1, 2_002 * MS).is_ok());
    }

    #[test]
    fn ids_that_were_not_issued_cost_nothing_and_a_limit_can_be_taken_away() {
        let limit = IdLimit::new(10);
        let charge = limit.take_at(10, 0).unwrap();
        limit.give_back_at(charge, 0);
        assert!(limit.take_at(10, 0).is_ok());
        limit.set(0);
        assert!((0..100).all(|_| limit.take(1_000_000).is_ok()));
    }

    #[test]
    fn a_raised_limit_counts_at_once_and_a_lowered_one_makes_no_pause_longer() {
        let limit = IdLimit::new(10);
        assert!(limit.take_at(100_000, 0).is_ok(), "ten thousand seconds are to be paid off");
        limit.set_at(100_000, 0);
        assert_eq!(limit.take_at(1, 0), Err(Duration::from_micros(10)), "it is one second now");
        assert!(limit.take_at(100_000, 1_000 * MS).is_ok());
        limit.set_at(1_000, 1_000 * MS);
        assert_eq!(limit.take_at(1_000, 1_500 * MS), Err(Duration::from_millis(500)));
        assert!(limit.take_at(1_000, 2_000 * MS).is_ok());
        limit.set_at(0, 2_000 * MS);
        limit.set_at(1, 2_000 * MS);
        assert!(limit.take_at(1, 2_000 * MS).is_ok(), "without a limit nothing is to be paid off");
    }

    #[test]
    fn what_one_limit_refuses_costs_the_other_nothing() {
        let [token, address] = [100, 10].map(|most| Some(Arc::new(IdLimit::new(most))));
        let both = Allowance { token: token.clone(), address };
        assert!(both.take(20).is_ok(), "a full bucket lets one large request through");
        let above = both.take(50).unwrap_err();
        assert_eq!((above.by, above.ids_per_second), (LimitBy::Address, 10));
        assert!(above.pause > Duration::from_millis(500), "{above:?}");
        let token_alone = Allowance { token, address: None };
        assert!(token_alone.take(80).is_ok(), "only 20 were taken of it");
        assert_eq!(token_alone.take(80).map_err(|above| above.by), Err(LimitBy::Token));
        assert!(token_alone.is_limited() && !Allowance::default().is_limited());
        assert!(Allowance::default().take(u32::MAX).is_ok());
    }

    #[test]
    fn what_time_has_paid_off_is_not_given_back() {
        let limit = IdLimit::new(1_000);
        let charge = limit.take_at(1_000, 0).unwrap();
        assert!(limit.take_at(1_000, 1_000 * MS).is_ok(), "a second's ids came meanwhile");
        limit.give_back_at(charge, 1_000 * MS);
        assert_eq!(limit.take_at(1, 1_000 * MS), Err(Duration::from_millis(1)));
        let charge = limit.take_at(500, 1_500 * MS).unwrap();
        limit.give_back_at(charge, 1_700 * MS);
        assert!(limit.take_at(500, 1_700 * MS).is_ok(), "300 were left of the charge, and 200 came");
        assert_eq!(limit.take_at(1, 1_700 * MS), Err(Duration::from_millis(1)));
    }

    #[test]
    fn what_was_charged_before_the_limit_changed_takes_nothing_off_what_is_charged_afterwards() {
        let limit = IdLimit::new(1_000);
        let charge = limit.take_at(1_000, 0).unwrap();
        limit.set_at(0, 0);
        limit.set_at(1_000, 0);
        assert!(limit.take_at(1_000, 0).is_ok(), "without a limit all was forgiven");
        limit.give_back_at(charge, 0);
        assert!(limit.take_at(1, 0).is_err());
        let charge = limit.take_at(1_000, 1_000 * MS).unwrap();
        limit.set_at(1_000, 1_000 * MS);
        limit.give_back_at(charge, 1_000 * MS);
        assert!(limit.take_at(1_000, 1_000 * MS).is_ok(), "the same limit again is no change");
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
                    Ok(_) => let_through += u64::from(ids),
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

        /// I1, of each time between two requests.
        #[test]
        fn over_no_time_more_is_let_through_than_it_allows_whatever_is_given_back(
            rate in 1u64..10_000,
            largest in prop::sample::select(vec![1u32, 10, 5_000]),
            steps in prop::collection::vec((0u32..5_000, 0u64..300 * MS, any::<Option<prop::sample::Index>>()), 1..60),
        ) {
            let limit = IdLimit::new(rate);
            let mut now = 0;
            let mut let_through = Vec::new();
            for (ids, pause, given_back) in steps {
                now += pause;
                let ids = ids % largest + 1;
                // As many small requests as a few large ones.
                for _ in 0..5_000_u32.div_ceil(largest).min(20) {
                    if let Ok(charge) = limit.take_at(ids, now) {
                        let_through.push((now, ids, charge));
                    }
                }
                for _ in 0..10 {
                    if let Some(index) = given_back && !let_through.is_empty() {
                        let (_, _, charge) = let_through.remove(index.index(let_through.len()));
                        limit.give_back_at(charge, now);
                    }
                }
            }
            for (at, (begin, _, _)) in let_through.iter().enumerate() {
                let mut ids = 0;
                for (end, more, _) in &let_through[at..] {
                    ids += u128::from(*more);
                    let allowed = u128::from(rate) * u128::from(end - begin + SECOND) / u128::from(SECOND);
                    prop_assert!(ids <= allowed + u128::from(largest), "{ids} ids from {begin} to {end}");
                }
            }
        }
    }
}
