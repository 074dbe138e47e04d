//! The timetable of an open loop: when each request is meant to start, whatever became of those before it.

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// One share of a timetable. The whole has `rate` requests a second at equal distances; of `shares`, the one numbered
/// `share` has request `share`, `share + shares`, and so on: request `i` of a share is due at
/// `begin + floor((i * shares + share) * 1 s / rate)`. No rounding adds up.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// When the next one is due, without its fraction.
    due: u64,
    /// That fraction: `part / rate` nanoseconds.
    part: u64,
    /// From one to the next: `step + step_part / rate` nanoseconds.
    step: u64,
    step_part: u64,
    rate: u64,
}

impl Schedule {
    /// Share number `share` of `shares` of `rate` requests a second, beginning at `begin`.
    #[must_use]
    pub fn new(begin: u64, rate: u64, share: u64, shares: u64) -> Self {
        debug_assert!(rate > 0 && share < shares);
        let (lead, step) = (share * SECOND, shares * SECOND);
        Self { due: begin + lead / rate, part: lead % rate, step: step / rate, step_part: step % rate, rate }
    }

    /// When the next request is meant to start.
    #[must_use]
    #[inline]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// The next one is on its way.
    #[inline]
    pub fn advance(&mut self) {
        self.due += self.step;
        self.part += self.step_part;
        if self.part >= self.rate {
            self.part -= self.rate;
            self.due += 1;
        }
    }

    /// How many, from the next one on, are due before `at`.
    pub(crate) fn left_before(&self, at: u64) -> u64 {
        let Some(time) = at.checked_sub(self.due) else { return 0 };
        // floor(x / rate) < time exactly if x < time * rate.
        let room = (u128::from(time) * u128::from(self.rate)).saturating_sub(u128::from(self.part));
        room.div_ceil(self.step_in_parts()) as u64
    }

    /// When the `index`-th from the next one on is due.
    pub(crate) fn nth(&self, index: u64) -> u64 {
        let parts = u128::from(self.part) + u128::from(index) * self.step_in_parts();
        self.due + (parts / u128::from(self.rate)) as u64
    }

    fn step_in_parts(&self) -> u128 {
        u128::from(self.step) * u128::from(self.rate) + u128::from(self.step_part)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the type promises, by arithmetic alone.
    fn promised(begin: u64, rate: u64, share: u64, shares: u64, index: u64) -> u64 {
        let number = u128::from(index) * u128::from(shares) + u128::from(share);
        begin + (number * u128::from(SECOND) / u128::from(rate)) as u64
    }

    #[test]
    fn shares_interleave_to_the_whole_and_a_second_has_exactly_its_rate() {
        let mut dues: Vec<u64> = Vec::new();
        for share in 0..3 {
            let mut schedule = Schedule::new(5, 1_000, share, 3);
            while schedule.due() < SECOND + 5 {
                dues.push(schedule.due());
                schedule.advance();
            }
        }
        dues.sort_unstable();
        let whole: Vec<u64> = (0..1_000).map(|number| 5 + number * 1_000_000).collect();
        assert_eq!(dues, whole);
    }

    #[test]
    fn a_rate_that_divides_nothing_does_not_drift() {
        let mut schedule = Schedule::new(0, 7, 0, 1);
        for _ in 0..7 * 1_000 {
            schedule.advance();
        }
        assert_eq!(schedule.due(), 1_000 * SECOND);
    }

    proptest! {
        #[test]
        fn each_request_is_due_when_it_was_promised(
            begin in 0..1u64 << 50, rate in 1..=SECOND, shares in 1..100_000u64, share in 0..u64::MAX, index in 0..3_000u64,
        ) {
            let share = share % shares;
            let mut schedule = Schedule::new(begin, rate, share, shares);
            prop_assert_eq!(schedule.nth(index), promised(begin, rate, share, shares, index));
            for _ in 0..index {
                schedule.advance();
            }
            prop_assert_eq!(schedule.due(), promised(begin, rate, share, shares, index));
        }

        #[test]
        fn what_is_left_is_what_advancing_would_count(
            rate in 1..5_000u64, shares in 1..5u64, passed in 0..50u64, time in 0..2 * SECOND,
        ) {
            let mut schedule = Schedule::new(7, rate, shares - 1, shares);
            for _ in 0..passed {
                schedule.advance();
            }
            let left = schedule.left_before(time);
            let mut counted = 0;
            while schedule.due() < time {
                schedule.advance();
                counted += 1;
            }
            prop_assert_eq!(left, counted);
        }
    }
}
