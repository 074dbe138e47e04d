//! A run on its way from a reply to a caller.

use tokio::time::Instant;
use xuid_protocol::Run;

use super::vintage::Vintage;

/// Consecutive ids, or ids at equal distances, that nobody else has. Neither `Clone` nor `Copy`: what leaves it has
/// left it (P1).
#[derive(Debug)]
pub(super) struct Held {
    next: u64,
    left: u32,
    stride: u32,
    vintage: Vintage,
    asked: Instant,
}

impl Held {
    /// Takes over a run of a reply, which is not looked at again.
    pub(super) fn new(run: Run, vintage: Vintage, asked: Instant) -> Self {
        let Run { first, count, stride } = run;
        Self { next: first, left: count, stride, vintage, asked }
    }

    /// Nothing.
    pub(super) fn nothing(now: Instant) -> Self {
        Self { next: 0, left: 0, stride: 0, vintage: Vintage::default(), asked: now }
    }

    /// The next id, if there is one and nobody called this vintage off.
    #[inline]
    pub(super) fn take_one(&mut self, oldest: Vintage) -> Option<u64> {
        if self.left == 0 || self.vintage < oldest {
            return None;
        }
        let id = self.next;
        self.next = id.wrapping_add(u64::from(self.stride));
        self.left -= 1;
        Some(id)
    }

    /// Moves the first `count` ids out, or all if there are fewer.
    pub(super) fn take_front(&mut self, count: u64) -> Self {
        let count = count.min(u64::from(self.left)) as u32;
        let front = Self { left: count, ..*self };
        self.next = self.next.wrapping_add(u64::from(count) * u64::from(self.stride));
        self.left -= count;
        front
    }

    pub(super) fn left(&self) -> u64 {
        u64::from(self.left)
    }

    pub(super) fn vintage(&self) -> Vintage {
        self.vintage
    }

    /// When it was asked for: its ids may be that old, and not older by the server's own account of now.
    pub(super) fn asked(&self) -> Instant {
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_way_a_run_is_parted_each_id_comes_out_once() {
        let now = Instant::now();
        let run = Run { first: 100, count: 50, stride: 4_096 };
        for part in 0..60 {
            let mut rest = Held::new(run, Vintage::default(), now);
            let mut ids = Vec::new();
            ids.extend(rest.take_one(Vintage::default()));
            let mut front = rest.take_front(part);
            assert_eq!(front.left(), part.min(49));
            for held in [&mut front, &mut rest] {
                while let Some(id) = held.take_one(Vintage::default()) {
                    ids.push(id);
                }
            }
            assert_eq!(ids, run.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_vintage_that_was_called_off_gives_no_id() {
        let now = Instant::now();
        let mut held = Held::new(Run { first: 1, count: 2, stride: 1 }, Vintage::default(), now);
        assert_eq!(held.take_one(Vintage::default()), Some(1));
        assert_eq!(held.take_one(Vintage::default().next()), None);
        assert_eq!((held.left(), Held::nothing(now).take_one(Vintage::default())), (1, None));
    }
}
