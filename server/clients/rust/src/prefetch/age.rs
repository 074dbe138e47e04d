//! How old what is held may be, without a clock at each id.
//!
//! Runs asked for at about the same time are of one age group. One word, the oldest age group that is still good, is
//! all that a handle looks at. Of each age group only the earliest time counts, so that it is called off too early by
//! up to a sixteenth of the age allowed, and never too late.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::moment::Moment;

/// Age groups alive at once, about.
const GRAIN: u32 = 16;

/// The number of an age group: later ones are greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AgeGroup(u64);

impl AgeGroup {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The oldest age group that is good. On lines of its own: handles read it at every id, and what lies beside is written
/// often.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Oldest(AtomicU64);

impl Oldest {
    /// Relaxed, as all of it: no other memory is read by what the word says.
    #[inline]
    pub(super) fn group(&self) -> AgeGroup {
        AgeGroup(self.0.load(Ordering::Relaxed))
    }

    /// Calls off all before `group`. It never goes back.
    pub(super) fn raise(&self, group: AgeGroup) {
        self.0.fetch_max(group.0, Ordering::Relaxed);
    }

    /// Whether everything there will be is called off.
    pub(super) fn is_over(&self) -> bool {
        self.group() == AgeGroup(u64::MAX)
    }

    /// Calls off everything there is and will be.
    pub(super) fn end(&self) {
        self.raise(AgeGroup(u64::MAX));
    }
}

/// The age groups of which something may be held.
#[derive(Debug)]
pub(super) struct AgeGroups {
    max_age: Duration,
    newest: AgeGroup,
    /// By number; the earliest time that something of it was asked for.
    alive: VecDeque<(AgeGroup, Moment)>,
}

impl AgeGroups {
    pub(super) fn new(max_age: Duration) -> Self {
        Self { max_age, newest: AgeGroup::default(), alive: VecDeque::new() }
    }

    /// The age group of what was asked for at `asked`. Replies may come in another order than they were asked for in.
    pub(super) fn date(&mut self, asked: Moment) -> AgeGroup {
        let span = self.max_age / GRAIN;
        match self.alive.back_mut() {
            Some((group, since)) if asked.saturating_duration_since(*since) < span => {
                *since = asked.min(*since);
                *group
            }
            _ => {
                self.newest = self.newest.next();
                self.alive.push_back((self.newest, asked));
                self.newest
            }
        }
    }

    /// Ends all age groups there are; the first one that may be good from now on.
    pub(super) fn call_off_all(&mut self) -> AgeGroup {
        self.alive.clear();
        self.newest.next()
    }

    /// When the next age group grows too old.
    pub(super) fn next_end(&self) -> Option<Moment> {
        self.alive.iter().map(|(_, since)| *since + self.max_age).min()
    }

    /// The oldest age group that is good at `now`, if that has changed.
    pub(super) fn call_off(&mut self, now: Moment) -> Option<AgeGroup> {
        let is_over = |since: &Moment| now.saturating_duration_since(*since) >= self.max_age;
        let last = self.alive.iter().rposition(|(_, since)| is_over(since))?;
        let (group, _) = self.alive.drain(..=last).next_back()?;
        Some(group.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_millis(1_600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn nothing_is_good_at_its_age_and_nothing_is_called_off_long_before() {
        let start = Moment::now();
        let mut groups = AgeGroups::new(AGE);
        let mut oldest = AgeGroup::default();
        let mut dated = Vec::new();
        // Asked for every 7 ms, and answered in another order.
        for step in 0..1_000_u64 {
            let asked = start + ms((step ^ 5) * 7);
            dated.push((groups.date(asked), asked));
            let now = start + ms(step * 7);
            while groups.next_end().is_some_and(|end| end <= now) {
                oldest = groups.call_off(now).unwrap().max(oldest);
            }
            for (group, asked) in &dated {
                let age = now.saturating_duration_since(*asked);
                assert!(age < AGE || *group < oldest, "good at {age:?}");
                assert!(age + AGE / GRAIN + ms(70) > AGE || *group >= oldest, "called off at {age:?}");
            }
            assert!(groups.alive.len() < 2 * GRAIN as usize, "{}", groups.alive.len());
        }
    }

    #[test]
    fn an_early_time_that_comes_late_ages_its_whole_group() {
        let start = Moment::now();
        let mut groups = AgeGroups::new(AGE);
        let late = groups.date(start + ms(1_000));
        assert_eq!(groups.date(start), late);
        assert_eq!(groups.next_end(), Some(start + AGE));
        assert_eq!(groups.call_off(start + AGE.saturating_sub(ms(1))), None);
        assert_eq!(groups.call_off(start + AGE), Some(late.next()));
        assert_eq!((groups.next_end(), groups.call_off(start + AGE * 2)), (None, None));
    }

    #[test]
    fn what_is_dated_after_all_was_called_off_is_good_and_nothing_of_before_is() {
        let start = Moment::now();
        let mut groups = AgeGroups::new(AGE);
        let before = groups.date(start);
        let oldest = groups.call_off_all();
        let after = groups.date(start);
        assert!(before < oldest && after >= oldest, "{before:?}, {oldest:?}, {after:?}");
    }

    #[test]
    fn the_word_never_goes_back() {
        let oldest = Oldest::default();
        oldest.raise(AgeGroup(5));
        oldest.raise(AgeGroup(3));
        assert_eq!(oldest.group(), AgeGroup(5));
        assert!(!oldest.is_over());
        oldest.end();
        assert!(oldest.is_over());
        assert_eq!(oldest.group(), AgeGroup(u64::MAX));
    }
}
