//! A run on its way from a reply to a caller.

use std::time::Duration;

use xuid_protocol::Run;

use super::age::AgeGroup;
use crate::moment::Moment;

/// Consecutive ids, or ids at equal distances, that nobody else has. Neither `Clone` nor `Copy`: what leaves it has
/// left it (P1). Its front is open: ids come out of it one by one, without a look at the clock.
#[derive(Debug)]
pub(super) struct Held {
    next: u64,
    open: u32,
    /// Ids behind the open ones.
    closed: u32,
    stride: u32,
    group: AgeGroup,
    /// Its ids may be that old, and not older by the server's own account of now.
    asked: Moment,
}

impl Held {
    /// Takes over a run of a reply, which is not looked at again.
    pub(super) fn new(run: Run, group: AgeGroup, asked: Moment) -> Self {
        let Run { first, count, stride } = run;
        Self { next: first, open: 0, closed: count, stride, group, asked }
    }

    /// Nothing.
    pub(super) fn nothing(now: Moment) -> Self {
        Self { next: 0, open: 0, closed: 0, stride: 0, group: AgeGroup::default(), asked: now }
    }

    /// Opens so many more, or all if there are fewer.
    pub(super) fn open(&mut self, count: u32) {
        let count = count.min(self.closed);
        self.open += count;
        self.closed -= count;
    }

    /// The next id, if one is open and nobody called this age group off.
    #[inline]
    pub(super) fn take_one(&mut self, oldest: AgeGroup) -> Option<u64> {
        if self.open == 0 || self.group < oldest {
            return None;
        }
        let id = self.next;
        self.next = id.wrapping_add(u64::from(self.stride));
        self.open -= 1;
        Some(id)
    }

    /// Moves the first `count` ids out, or all if there are fewer. Neither part is open then.
    pub(super) fn take_front(&mut self, count: u64) -> Self {
        let left = self.open + self.closed;
        let count = count.min(u64::from(left)) as u32;
        let front = Self { open: 0, closed: count, ..*self };
        self.next = self.next.wrapping_add(u64::from(count) * u64::from(self.stride));
        (self.open, self.closed) = (0, left - count);
        front
    }

    /// All of them.
    pub(super) fn left(&self) -> u64 {
        u64::from(self.open) + u64::from(self.closed)
    }

    /// Whether there is something that may still be handed out: not called off, and asked for less than `max_age` ago.
    pub(super) fn is_good(&self, now: Moment, max_age: Duration, oldest: AgeGroup) -> bool {
        self.left() > 0 && self.group >= oldest && now.saturating_duration_since(self.asked) < max_age
    }

    pub(super) fn group(&self) -> AgeGroup {
        self.group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_way_a_run_is_parted_each_id_comes_out_once() {
        let now = Moment::now();
        let run = Run { first: 100, count: 50, stride: 4_096 };
        for part in 0..60 {
            let mut rest = Held::new(run, AgeGroup::default(), now);
            assert_eq!(rest.take_one(AgeGroup::default()), None, "nothing is open yet");
            rest.open(3);
            let mut ids = Vec::new();
            ids.extend(rest.take_one(AgeGroup::default()));
            let mut front = rest.take_front(part);
            assert_eq!(front.left(), part.min(49));
            for held in [&mut front, &mut rest] {
                held.open(1);
                held.open(u32::MAX);
                while let Some(id) = held.take_one(AgeGroup::default()) {
                    ids.push(id);
                }
            }
            assert_eq!(ids, run.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_age_group_that_was_called_off_gives_no_id() {
        let now = Moment::now();
        let mut held = Held::new(Run { first: 1, count: 2, stride: 1 }, AgeGroup::default(), now);
        held.open(2);
        assert_eq!(held.take_one(AgeGroup::default()), Some(1));
        assert_eq!(held.take_one(AgeGroup::default().next()), None);
        assert_eq!((held.left(), Held::nothing(now).take_one(AgeGroup::default())), (1, None));
    }
}
