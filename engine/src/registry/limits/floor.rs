//! From when on a namespace may be used.

use std::time::Duration;

use xuid_id::{Id, Layout};

use crate::clock::nanos;
use crate::registry::limits::{CLEAR_OF_WINDOWS, is_near};

/// From when on a namespace may be used, where this engine creates its local registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Floor {
    /// From now on: nothing has to be known of the past.
    #[default]
    Now,
    /// From so long ago: asserts that nobody issued an id of this layout and epoch since.
    Before(Duration),
    /// From the layout's epoch: asserts that nobody ever did. Benchmarks do.
    Epoch,
    /// From this tick on: asserts that nobody issued an id of it or of a later one. [`Floor::above`] gives the one above an
    /// id.
    Tick(u64),
}

/// No floor keeps all ids above that id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FloorError {
    /// The layout has no id above it.
    #[error(
        "{id} leaves no id above it: the last tick of this layout begins with {last}; take a layout with more bits of time, \
         or of all fields together"
    )]
    None {
        /// The id.
        id: Id,
        /// The first id of the layout's last tick.
        last: Id,
    },
    /// Ids above it are of a time that is too far ahead, and of an earlier epoch they are not.
    #[error(
        "ids above {id} begin {ahead} s from now with the epoch {epoch_ms}, and at most 125 s are allowed: the latest epoch \
         that works is {latest_ms} (an earlier one makes ids larger, a later one would meet ids up to {id})"
    )]
    Ahead {
        /// The id.
        id: Id,
        /// Seconds until the first tick above it.
        ahead: u64,
        /// The layout's epoch, in Unix milliseconds.
        epoch_ms: u64,
        /// The latest epoch with which that tick is near enough.
        latest_ms: u64,
    },
    /// The same, and no epoch after 1970 is early enough.
    #[error(
        "ids above {id} begin {ahead} s from now, at most 125 s are allowed, and no epoch after 1970 is early enough: take a \
         layout with more bits of worker and sequence, or a shorter tick"
    )]
    FarAhead {
        /// The id.
        id: Id,
        /// Seconds until the first tick above it.
        ahead: u64,
    },
}

impl Floor {
    /// The first tick that may be granted, where it is `now_ns` (Unix nanoseconds) now: 0 where that is before the
    /// epoch, and at most the last one.
    #[must_use]
    pub fn tick(self, layout: &Layout, now_ns: u64) -> u64 {
        let at = match self {
            Self::Now => now_ns,
            Self::Before(ago) => now_ns.saturating_sub(nanos(ago)),
            Self::Epoch => 0,
            Self::Tick(tick) => return tick.min(layout.last_tick()),
        };
        layout.tick_at_ns(at).unwrap_or(0).min(layout.last_tick())
    }

    /// The floor with which every id is above `id`, as callers see ids of this layout: the tick after that of `id`. For a
    /// namespace in which another generator, or a counter, issued ids up to `id`.
    ///
    /// # Errors
    /// That tick is not there, or more than 125 s ahead of `now_ns` (Unix nanoseconds), and later than the next one.
    pub fn above(layout: &Layout, id: Id, now_ns: u64) -> Result<Self, FloorError> {
        let last_tick = layout.last_tick();
        let none = || FloorError::None { id, last: layout.encode(last_tick, 0, 0) };
        if id > layout.last_id() {
            return Err(none());
        }
        let tick = layout.decode(id).tick + 1;
        if tick > last_tick {
            return Err(none());
        }
        if is_near(layout, tick, now_ns) {
            return Ok(Self::Tick(tick));
        }
        let most_ms = now_ns.saturating_add(nanos(CLEAR_OF_WINDOWS)) / 1_000_000;
        let begins_ms = layout.tick_to_ms(tick);
        let (ahead, epoch_ms) = ((begins_ms - now_ns / 1_000_000) / 1_000, layout.epoch_ms());
        let since_epoch = layout.with_epoch_ms(0).tick_to_ms(tick);
        Err(most_ms.checked_sub(since_epoch).map_or(FloorError::FarAhead { id, ahead }, |latest_ms| {
            FloorError::Ahead { id, ahead, epoch_ms, latest_ms }
        }))
    }
}

#[cfg(test)]
mod tests {
    use xuid_id::LAST_ID;

    use super::*;

    /// 2026-11-21, and 77 ns.
    const NOW: u64 = 1_795_219_200_000_000_077;

    #[test]
    fn a_floor_above_an_id_keeps_the_lowest_id_of_its_tick_above_it_in_every_face() {
        for text in ["xuid", "twitter", "instagram", "sonyflake", "sonyflake2", "js", "42/5/16,tick=250us"] {
            let layout: Layout = text.parse().unwrap();
            let now = layout.tick_at_ns(NOW).unwrap();
            let most = layout.tick_at_ns(NOW + 125_000_000_000).unwrap();
            for tick in [0, 1, now / 2, now, most - 1] {
                let last = layout.encode(tick, layout.workers() - 1, layout.sequences() - 1);
                let lowest = layout.encode(tick, 0, 0);
                for id in [lowest, last] {
                    let floor = Floor::above(&layout, id, NOW).unwrap();
                    assert_eq!(floor, Floor::Tick(tick + 1), "{text}");
                    assert!(layout.encode(floor.tick(&layout, NOW), 0, 0) > id, "{text}");
                }
            }
        }
    }

    #[test]
    fn the_latest_epoch_that_is_named_works_and_the_next_one_does_not() {
        for text in ["xuid", "twitter", "sonyflake", "41/10/12,tick=100us,epoch=1700000000000"] {
            let layout: Layout = text.parse().unwrap();
            let most = layout.tick_at_ns(NOW + 125_000_000_000).unwrap();
            for ahead in [11, 1_000, 60_000_000] {
                let id = layout.encode(most + ahead, 7, 3);
                let Err(FloorError::Ahead { latest_ms, epoch_ms, .. }) = Floor::above(&layout, id, NOW)
                else {
                    panic!("{text}: {id} is {ahead} ticks too far ahead");
                };
                assert!(latest_ms < epoch_ms, "{text}");
                let with = |epoch_ms| Floor::above(&layout.with_epoch_ms(epoch_ms), id, NOW);
                assert_eq!(with(latest_ms), Ok(Floor::Tick(most + ahead + 1)), "{text}");
                assert!(with(latest_ms + 1).is_err(), "{text}");
            }
        }
    }

    #[test]
    fn an_id_that_leaves_none_above_it_is_refused() {
        let layout: Layout = "js".parse().unwrap();
        for id in [LAST_ID, 1 << 53, (1 << 53) - 1].map(|raw| Id::from_raw(raw).unwrap()) {
            assert!(matches!(Floor::above(&layout, id, NOW), Err(FloorError::None { .. })), "{id}");
        }
        // A counter's numbers need ticks of 1970 in so small a layout.
        let wide: Layout = "60/0/3,epoch=0".parse().unwrap();
        let id = Id::from_raw(LAST_ID / 2).unwrap();
        assert!(matches!(Floor::above(&wide, id, NOW), Err(FloorError::FarAhead { .. })));
    }

    #[test]
    fn of_ticks_of_hours_the_next_one_is_near_enough() {
        let layout = Layout::new(30, 10, 20, 3_600_000_000, 0).unwrap();
        let now = layout.tick_at_ns(NOW).unwrap();
        assert_eq!(Floor::above(&layout, layout.encode(now, 1, 1), NOW), Ok(Floor::Tick(now + 1)));
        assert!(Floor::above(&layout, layout.encode(now + 1, 1, 1), NOW).is_err());
    }
}
