//! Which servers were not there when they were dialed last.

use std::time::Duration;

use tokio::time::Instant;

/// So long behind a dial that failed a server counts as away: it may be back since, and nobody looked.
const AWAY: Duration = Duration::from_secs(30);

/// A server is dialed again before others, or for want of better, when so many times as long as the dial took have passed: what
/// callers wait for one that is silent is a small part of the time. Never later than it counts as away: the process itself may have
/// been stopped while it dialed.
const TIMES: u32 = 6;

/// By their indices.
#[derive(Debug)]
pub(super) struct Away(Vec<Option<Found>>);

/// A dial that failed.
#[derive(Debug, Clone, Copy)]
struct Found {
    at: Instant,
    took: Duration,
}

impl Away {
    /// None of so many.
    pub(super) fn of(servers: usize) -> Self {
        Self(vec![None; servers])
    }

    /// Notes how a dial has ended that began then.
    pub(super) fn note(&mut self, server: usize, begin: Instant, is_there: bool) {
        let at = Instant::now();
        let found = Found { at, took: at.saturating_duration_since(begin) };
        self.0[server] = (!is_there).then_some(found);
    }

    /// Whether it was not there a moment ago.
    pub(super) fn is_away(&self, server: usize, now: Instant) -> bool {
        self.0[server].is_some_and(|found| now.saturating_duration_since(found.at) < AWAY)
    }

    /// Whether it took long to find that out, and that was not long ago compared with it.
    pub(super) fn costs(&self, server: usize, now: Instant) -> bool {
        self.0[server]
            .is_some_and(|found| now.saturating_duration_since(found.at) < AWAY.min(TIMES * found.took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_away_until_it_is_there_or_nobody_looked_for_long() {
        let mut away = Away::of(2);
        let now = Instant::now();
        assert!(!away.is_away(1, now) && !away.costs(1, now));
        away.note(1, now, false);
        let (soon, late) = (now + Duration::from_secs(29), now + Duration::from_secs(31));
        assert!(away.is_away(1, soon) && !away.is_away(0, soon) && !away.is_away(1, late));
        away.note(1, now, true);
        assert!(!away.is_away(1, now));
    }

    #[test]
    fn one_that_is_silent_is_dialed_less_often_than_one_that_refuses_at_once() {
        let mut away = Away::of(2);
        let now = Instant::now();
        away.note(0, now, false);
        away.note(1, now.checked_sub(Duration::from_secs(5)).unwrap(), false);
        let in_time = |seconds| now + Duration::from_secs(seconds);
        assert!(!away.costs(0, in_time(1)));
        assert!(away.costs(1, in_time(29)) && !away.costs(1, in_time(31)));
        away.note(1, now.checked_sub(Duration::from_secs(100)).unwrap(), false);
        assert!(away.costs(1, in_time(29)) && !away.costs(1, in_time(31)));
    }
}
