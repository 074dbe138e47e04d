//! How many ids to hold ahead: what was used lately, for as long as it takes to get more.

use std::time::Duration;

use tokio::time::Instant;

/// What is held shall last this long, though round trips be shorter: a task that is scheduled late must not be noticed.
const LEAD: Duration = Duration::from_millis(10);

/// Round trips that it shall last. Half of it is used up when more is asked for.
const ROUND_TRIPS: u32 = 4;

/// How much the level may grow from one look to the next. One greedy moment must not fetch ids for an hour.
const GROWTH: u64 = 4;

/// The level of the pool. It knows the clock only by what it is told.
#[derive(Debug)]
pub(super) struct RefillSize {
    least: u64,
    most: u64,
    max_age: Duration,
    level: u64,
    /// The shortest lately: what waits in line at a busy server is no reason to ask it for more.
    round_trip: Duration,
    looked: Instant,
    taken: u64,
    /// The most ids of one request, which a server that has not so many lowers.
    request: u64,
}

impl RefillSize {
    pub(super) fn new(least: u32, most: u32, max_age: Duration, now: Instant) -> Self {
        let (least, most) = (u64::from(least), u64::from(most));
        Self {
            least,
            most,
            max_age,
            level: least,
            round_trip: Duration::ZERO,
            looked: now,
            taken: 0,
            request: most,
        }
    }

    /// The level to refill to, where `taken` is the number of ids ever taken from the pool.
    pub(super) fn look(&mut self, now: Instant, taken: u64) -> u64 {
        let elapsed = now.saturating_duration_since(self.looked);
        let used = taken - self.taken;
        let lead = LEAD.max(self.round_trip * ROUND_TRIPS).min(self.max_age / 4);
        // A microsecond at least, so that two looks at once do not make an endless rate.
        let wanted = (u128::from(used) * lead.as_nanos()).div_ceil(elapsed.as_nanos().max(1_000));
        let wanted = wanted.min(u128::from(self.most)) as u64;
        // Who was away for long is a new user; who only pauses between bursts is not.
        let least = if elapsed >= self.max_age { 0 } else { self.level / 2 };
        self.level = wanted.clamp(least, self.level * GROWTH).clamp(self.least, self.most);
        (self.looked, self.taken) = (now, taken);
        self.level
    }

    /// The most to ask for at once.
    pub(super) fn request(&self) -> u64 {
        self.request
    }

    /// A refill came after that time.
    pub(super) fn answered(&mut self, round_trip: Duration) {
        // It may get longer, slowly: by an eighth a refill.
        let slower = self.round_trip + self.round_trip / 8 + Duration::from_micros(1);
        self.round_trip = if self.round_trip.is_zero() { round_trip } else { round_trip.min(slower) };
        self.request = (self.request * 2).min(self.most);
    }

    /// A refill of `count` ids failed: fewer may be had.
    pub(super) fn failed(&mut self, count: u64) {
        self.request = (count / 2).max(self.least);
    }

    /// Something grew old in the pool: it was too much.
    pub(super) fn wasted(&mut self) {
        self.level = (self.level / 2).max(self.least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(1);

    /// The levels of a user who uses up half of each at that rate a second.
    fn levels(
        refill_size: &mut RefillSize,
        now: &mut Instant,
        taken: &mut u64,
        rate: f64,
        looks: usize,
    ) -> Vec<u64> {
        (0..looks)
            .map(|_| {
                let used = refill_size.level.div_ceil(2);
                *taken += used;
                *now += Duration::from_secs_f64(used as f64 / rate);
                refill_size.look(*now, *taken)
            })
            .collect()
    }

    #[test]
    fn the_level_follows_the_use_up_within_a_dozen_refills_and_down_again() {
        let mut now = Instant::now();
        let mut taken = 0;
        let mut refill_size = RefillSize::new(16, 1 << 20, AGE, now);
        let hot = levels(&mut refill_size, &mut now, &mut taken, 50e6, 12);
        assert!(hot.windows(2).all(|pair| pair[1] <= pair[0] * GROWTH), "{hot:?}");
        assert!((450_000..550_000).contains(hot.last().unwrap()), "10 ms of it: {hot:?}");
        let quiet = levels(&mut refill_size, &mut now, &mut taken, 1e3, 3);
        assert_eq!(quiet.last(), Some(&16), "{quiet:?}");
    }

    #[test]
    fn a_far_server_is_asked_four_round_trips_ahead() {
        let mut now = Instant::now();
        let mut taken = 0;
        let mut refill_size = RefillSize::new(16, 1 << 20, AGE, now);
        refill_size.answered(Duration::from_millis(40));
        refill_size.answered(Duration::from_millis(400));
        let levels = levels(&mut refill_size, &mut now, &mut taken, 1e6, 12);
        assert!((160_000..190_000).contains(levels.last().unwrap()), "{levels:?}");
    }

    #[test]
    fn neither_bound_is_ever_left() {
        let mut now = Instant::now();
        let mut refill_size = RefillSize::new(10, 1_000, AGE, now);
        assert_eq!(refill_size.look(now, u64::MAX / 2), 40, "no time at all is not an endless rate");
        for _ in 0..10 {
            now += Duration::from_nanos(1);
            let level = refill_size.look(now, u64::MAX / 2);
            assert!((10..=1_000).contains(&level), "{level}");
            refill_size.wasted();
        }
        now += AGE;
        assert_eq!(refill_size.look(now, u64::MAX / 2), 10);
    }

    #[test]
    fn a_server_that_has_not_so_many_is_asked_for_fewer_until_it_answers() {
        let now = Instant::now();
        let mut refill_size = RefillSize::new(16, 1 << 20, AGE, now);
        refill_size.failed(131_072);
        assert_eq!(refill_size.request(), 65_536);
        refill_size.failed(1);
        assert_eq!(refill_size.request(), 16);
        refill_size.answered(Duration::from_millis(1));
        assert_eq!(refill_size.request(), 32);
    }
}
