//! How much is asked for, and when: a pure function of what was taken and when.
//!
//! # Invariants
//! - I1 what a name holds never exceeds the greater of two steps and four times what was taken of it in the `hold` before
//!   its last grant, but for what callers were waiting for at that grant, what an earlier life left, and what it held
//!   before a grant that came for waiting callers alone. The first grant after the row's step was raised may add that
//!   step, which is learnt by it. That bounds what a crash loses;
//! - I2 after an outcome that is not known the least is asked for (Q2).

use std::num::NonZeroU64;
use std::time::Duration;

use crate::clock::{SECOND, nanos};
use crate::sequence::settings::SequenceConfig;
use crate::sys::guards::Guard;

/// Seconds over which the rate is measured.
const RATE_SECONDS: u64 = 10;

/// Parts in which what was taken in a `hold` is remembered. The oldest goes as a whole, so what is known is at least
/// nine tenths of it, and never too much.
const PARTS: u64 = 10;

/// What was taken, by time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// By seconds.
    seconds: Slots<{ RATE_SECONDS as usize }>,
    /// By parts of the `hold`.
    parts: Slots<{ PARTS as usize }>,
    /// What was taken in all, as it was noted last.
    total: u64,
    /// Boot time of the first note.
    since: Option<NonZeroU64>,
    /// Boot time of the last note.
    noted: u64,
    /// Boot time of the last note of something that was taken, or of the first note.
    taken_at: u64,
}

/// Counts of the last `N` periods.
#[derive(Debug, Clone)]
struct Slots<const N: usize> {
    counts: [u64; N],
    /// The period of the last count.
    period: u64,
}

impl<const N: usize> Default for Slots<N> {
    fn default() -> Self {
        Self { counts: [0; N], period: 0 }
    }
}

impl<const N: usize> Slots<N> {
    /// Forgets the periods that are over for too long.
    fn advance(&mut self, period: u64) {
        let ahead = period.saturating_sub(self.period);
        for over in 1..=ahead.min(N as u64) {
            self.counts[((self.period + over) % N as u64) as usize] = 0;
        }
        self.period = self.period.max(period);
    }

    fn add(&mut self, period: u64, count: u64) {
        self.advance(period);
        self.counts[(self.period % N as u64) as usize] += count;
    }

    /// The sum over the last `N` periods, `period` being the present one.
    fn sum(&self, period: u64) -> u64 {
        let ahead = period.saturating_sub(self.period).min(N as u64);
        let live = (0..N as u64 - ahead).map(|ago| (self.period % N as u64 + N as u64 - ago) % N as u64);
        live.map(|slot| self.counts[slot as usize]).sum()
    }
}

/// What is known of a name when it is decided whether to ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    /// Ids that can still be taken.
    pub(crate) held: u64,
    /// There is a segment behind the first one.
    pub(crate) is_followed: bool,
    /// A tenth of the first segment was taken, or there is none.
    pub(crate) is_begun: bool,
    /// Ids that calls wait for. What is held is not enough for the first of them, or is none of their concern.
    pub(crate) missing: u64,
    /// Ids that the first of them wants in one piece: they are of one grant, or never come.
    pub(crate) whole: u64,
    /// The row's step, as of the last grant.
    pub(crate) step: Option<u64>,
    /// The outcome of the last ask is not known.
    pub(crate) in_doubt: bool,
}

/// What is to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) count: u64,
    pub(crate) least: u64,
}

impl Pace {
    /// Notes how many ids were taken in all.
    pub(crate) fn note(&mut self, boot: u64, total: u64, hold: Duration) {
        let taken = total.saturating_sub(self.total);
        self.total = self.total.max(total);
        if self.since.is_none() || taken > 0 {
            self.taken_at = boot;
        }
        let since = self.since.get_or_insert(NonZeroU64::new(boot).unwrap_or(NonZeroU64::MIN)).get();
        self.seconds.add(boot / SECOND, taken);
        // They were taken at some time since the last note. As of the earliest, or it would count for too long (I1).
        let earliest = if Guard::TakenAsOfEarliest.holds() { self.noted.max(since) } else { boot };
        self.parts.add(earliest / part(hold), taken);
        self.noted = self.noted.max(boot);
    }

    /// The time since the first note.
    fn age(&self, boot: u64) -> u64 {
        boot.saturating_sub(self.since.map_or(boot, NonZeroU64::get))
    }

    /// Ids a second over the last ten seconds, or since the first note.
    pub(crate) fn rate(&self, boot: u64) -> f64 {
        let age = self.age(boot);
        let seconds = (age as f64 / SECOND as f64).clamp(1.0, RATE_SECONDS as f64);
        self.seconds.sum(boot / SECOND) as f64 / seconds
    }

    /// Ids taken in the last `hold`; a tenth of the time may be missing.
    pub(crate) fn taken(&self, boot: u64, hold: Duration) -> u64 {
        self.parts.sum(boot / part(hold))
    }

    /// For how long nothing was taken.
    pub(crate) fn lay_idle(&self, boot: u64) -> Duration {
        Duration::from_nanos(boot.saturating_sub(self.taken_at))
    }

    /// How long what is held lasts; `None` if nothing is taken.
    pub(crate) fn lasts(&self, boot: u64, held: u64) -> Option<Duration> {
        let rate = self.rate(boot);
        // A year is as good as for ever.
        (rate > 0.0).then(|| Duration::from_secs_f64((held as f64 / rate).min(366.0 * 86_400.0)))
    }

    /// How many ids last for the `hold` at the present rate.
    fn lasting(&self, boot: u64, hold: Duration) -> u64 {
        let age = self.age(boot).clamp(SECOND, RATE_SECONDS * SECOND);
        let ids = u128::from(self.seconds.sum(boot / SECOND)) * hold.as_nanos() / u128::from(age);
        u64::try_from(ids).unwrap_or(u64::MAX)
    }

    /// What to ask for now; `None` if there is enough.
    pub(crate) fn want(&self, boot: u64, holding: &Holding, config: &SequenceConfig) -> Option<Want> {
        let Holding { held, missing, .. } = *holding;
        let least = missing.clamp(1, config.step_max).max(holding.whole);
        // Before the first grant the row's step is not known, and counts all the same: the store knows it.
        let Some(step) = holding.step else {
            let due = missing > 0 || (!holding.is_followed && holding.is_begun);
            return due.then_some(Want { count: least, least });
        };
        let step = step.min(config.step_max);
        let hold_ns = nanos(config.hold) as f64;
        let soon = self.lasts(boot, held).is_some_and(|lasts| nanos(lasts) as f64 * 2.0 < hold_ns);
        let due = !holding.is_followed && (holding.is_begun || soon);
        if missing == 0 && !due {
            return None;
        }
        let taken = self.taken(boot, config.hold);
        let lasting = self.lasting(boot, config.hold);
        let wish = lasting.max(step).min(step.max(taken.saturating_mul(2))).min(config.step_max);
        let wish = if holding.in_doubt { step } else { wish };
        let room = taken.saturating_mul(4).max(step.saturating_mul(2)).saturating_sub(held);
        // I1. Less than a step is not granted.
        let count = wish.min(room);
        if missing == 0 && count < step {
            return None;
        }
        Some(Want { count: count.max(least), least })
    }
}

fn part(hold: Duration) -> u64 {
    (nanos(hold) / PARTS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config() -> SequenceConfig {
        SequenceConfig::default()
    }

    /// A name with one segment in use, of which `held` ids are left.
    fn holding(held: u64) -> Holding {
        let (is_followed, is_begun, missing, whole, in_doubt) = (false, true, 0, 0, false);
        Holding { held, is_followed, is_begun, missing, whole, step: Some(1_000), in_doubt }
    }

    #[test]
    fn a_burst_from_cold_is_granted_three_times_as_much_each_time() {
        let (config, mut pace) = (config(), Pace::default());
        let (mut total, mut grants) = (1_000, Vec::new());
        for round in 0..9 {
            pace.note(1_000_000 * round, total, config.hold);
            let want = pace.want(1_000_000 * round, &Holding { missing: 1, ..holding(0) }, &config).unwrap();
            total += want.count;
            grants.push(want.count);
        }
        assert_eq!(grants[..4], [2_000, 6_000, 18_000, 54_000]);
        assert!(total > 4_000_000, "{total}");
    }

    #[test]
    fn at_a_steady_rate_a_grant_lasts_for_the_hold() {
        let (config, mut pace) = (config(), Pace::default());
        for second in 0..1_200 {
            pace.note(second * SECOND, second * 100, config.hold);
        }
        let now = 1_199 * SECOND;
        assert!((pace.rate(now) - 100.0).abs() < 1.0);
        let want = pace.want(now, &holding(54_000), &config).unwrap();
        assert_eq!(want, Want { count: 60_000, least: 1 });
        let followed = Holding { is_followed: true, ..holding(54_000) };
        let fresh = Holding { is_begun: false, ..holding(54_000) };
        assert_eq!((pace.want(now, &followed, &config), pace.want(now, &fresh, &config)), (None, None));
        let short = Holding { is_begun: false, ..holding(20_000) };
        assert!(pace.want(now, &short, &config).is_some(), "it lasts for less than half of the hold");
        let doubt = Holding { in_doubt: true, ..holding(54_000) };
        assert_eq!(pace.want(now, &doubt, &config).unwrap().count, 1_000);
    }

    #[test]
    fn the_first_ask_is_for_what_callers_wait_for_and_the_store_adds_the_step() {
        let first = Holding { missing: 7, step: None, ..holding(0) };
        assert_eq!(Pace::default().want(0, &first, &config()), Some(Want { count: 7, least: 7 }));
        let left = Holding { step: None, is_begun: false, ..holding(500) };
        assert_eq!(Pace::default().want(0, &left, &config()), None, "an earlier life left enough");
    }

    #[test]
    fn what_was_taken_long_ago_is_forgotten() {
        let (config, mut pace) = (config(), Pace::default());
        pace.note(SECOND, 50_000, config.hold);
        for (second, taken) in [(2, 50_000), (60, 50_000), (539, 50_000), (661, 0), (100_000, 0)] {
            assert_eq!(pace.taken(second * SECOND, config.hold), taken, "after {second} s");
        }
        pace.note(99_999 * SECOND, 50_000, config.hold);
        pace.note(100_000 * SECOND, 50_007, config.hold);
        assert_eq!(pace.taken(100_000 * SECOND, config.hold), 7);
        assert_eq!(pace.lay_idle(100_005 * SECOND), Duration::from_secs(5));
        assert!(pace.rate(100_011 * SECOND) < 0.1);
    }

    /// Whether more is asked for beyond two steps, long after what was taken long before the last note.
    fn is_taken_for_late() -> bool {
        let (config, mut pace) = (config(), Pace::default());
        let minutes = |minutes: u64| minutes * 60 * SECOND;
        pace.note(0, 0, config.hold);
        pace.note(minutes(9), 5_000, config.hold);
        pace.want(minutes(11), &holding(1_500), &config).is_some()
    }

    #[test]
    fn what_was_taken_at_some_time_before_a_note_counts_as_of_the_earliest() {
        assert!(!is_taken_for_late());
        assert!(Guard::without(&[Guard::TakenAsOfEarliest], is_taken_for_late));
    }

    proptest! {
        /// A name that takes what it likes when it likes, from a store that grants what is asked for or the step.
        #[test]
        fn what_is_held_keeps_to_the_bound_of_a_crash(
            step in 1_u64..3_000,
            moves in prop::collection::vec(
                (0_u64..200 * SECOND, 0_u64..5_000, prop::bool::ANY, prop::bool::weighted(0.7)), 1..120,
            ),
        ) {
            let (config, mut pace) = (config(), Pace::default());
            let (mut boot, mut segments, mut total) = (0, Vec::<(u64, u64)>::new(), 0);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (pass, take, in_doubt, is_noted) in moves {
                boot += pass;
                let mut left = take;
                for (_, held) in &mut segments {
                    let now = left.min(*held);
                    (*held, left, total) = (*held - now, left - now, total + now);
                    taken.push((boot, now));
                }
                segments.retain(|(_, held)| *held > 0);
                // Threads take without a word.
                if !is_noted {
                    continue;
                }
                pace.note(boot, total, config.hold);
                let held: u64 = segments.iter().map(|(_, held)| *held).sum();
                let is_begun = segments.first().is_none_or(|(count, held)| (count - held) * 10 >= *count);
                let holding = Holding {
                    held, is_followed: segments.len() > 1, is_begun, missing: 0, whole: 0, step: Some(step), in_doubt,
                };
                if let Some(want) = pace.want(boot, &holding, &config) {
                    let count = want.count.max(step);
                    segments.push((count, count));
                    let since = boot.saturating_sub(nanos(config.hold));
                    let recent: u64 = taken.iter().filter(|(at, _)| *at >= since).map(|(_, taken)| taken).sum();
                    let bound = (2 * step).max(4 * recent);
                    prop_assert!(held + count <= bound, "{held} + {count} after {recent}, step {step}");
                }
            }
        }
    }
}
