//! How far windows reach, for code that must stay clear of all of them.

pub(crate) mod floor;
pub(crate) mod range;

use std::time::Duration;

use xuid_id::Layout;

use crate::clock::nanos;

/// No window reaches further beyond the registry's time.
pub(crate) const FURTHEST_WINDOW: Duration = Duration::from_mins(2);

/// For clocks that differ from each other.
const MARGIN: Duration = Duration::from_secs(5);

/// What is so far ahead is clear of every window, whatever clock granted it.
pub(crate) const CLEAR_OF_WINDOWS: Duration = FURTHEST_WINDOW.saturating_add(MARGIN);

/// The first tick that no window reserved up to `now_ns` (Unix nanoseconds, of the registry's clock where it has one)
/// may include; of ticks longer than two minutes, the one that runs and the next. `None` before the epoch.
pub(crate) fn furthest(layout: &Layout, now_ns: u64) -> Option<u64> {
    let most = layout.tick_at_ns(now_ns.saturating_add(nanos(FURTHEST_WINDOW)))?;
    layout.tick_at_ns(now_ns).map(|tick| most.max(tick + 2))
}

/// Whether a tick is near enough to begin with: as far ahead as windows may reach, or the next one, which of hours begins
/// later than that by itself.
pub(crate) fn is_near(layout: &Layout, tick: u64, now_ns: u64) -> bool {
    let is_next = layout.tick_at_ns(now_ns).is_some_and(|now| tick <= now + 1);
    is_next || layout.tick_to_ms(tick) <= now_ns.saturating_add(nanos(CLEAR_OF_WINDOWS)) / 1_000_000
}

/// A tick that is clear of every window reserved up to `now_ns`. `None` before the epoch.
pub(crate) fn beyond(layout: &Layout, now_ns: u64) -> Option<u64> {
    let later = now_ns.saturating_add(nanos(MARGIN));
    furthest(layout, later).map(|tick| tick + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_is_beyond_is_clear_of_every_window_whatever_the_tick() {
        for tick_us in [1, 1_000, 1_000_000, 60_000_000, 200_000_000, 3_600_000_000] {
            let layout = Layout::new(41, 10, 12, tick_us, 0).unwrap();
            for at in (0..2_000).map(|step| step * 7 * SECOND) {
                let (window, clear) = (furthest(&layout, at).unwrap(), beyond(&layout, at).unwrap());
                assert!(clear > window, "{tick_us} us at {at}");
                assert!(layout.tick_to_ns(clear) >= at + 120 * SECOND);
            }
        }
    }
}
