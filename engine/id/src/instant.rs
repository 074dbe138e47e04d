//! From a time to ids: the bounds of a query by time.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::id::Id;
use crate::layout::Layout;

/// No id of the layout is of that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstantError {
    /// Too early.
    #[error("the time is before the layout's epoch, {epoch_ms} ms after 1970: every id is later")]
    BeforeEpoch {
        /// The epoch, in Unix milliseconds.
        epoch_ms: u64,
    },
    /// Too late.
    #[error(
        "the time is after the layout's last tick, which begins {last_ms} ms after 1970: every id is earlier"
    )]
    AfterEnd {
        /// The beginning of the last tick, in Unix milliseconds.
        last_ms: u64,
    },
}

impl Layout {
    /// The lowest id of the tick that holds `time`, for `WHERE id >= ...`: ids of this tick and of later ones are not
    /// below it, and ids of earlier ticks are. Ids carry the time of their tick; with order `any` that may be up to
    /// `max_age` before the call that returned them.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// let layout = xuid_id::Layout::default();
    /// let first = layout.first_id_at(UNIX_EPOCH + Duration::from_millis(1_793_155_408_962))?;
    /// assert_eq!(first.raw(), 1_128_275_363_336_552_448);
    /// # Ok::<(), xuid_id::InstantError>(())
    /// ```
    ///
    /// # Errors
    /// The time is before the epoch or after the last tick.
    pub fn first_id_at(&self, time: SystemTime) -> Result<Id, InstantError> {
        let unix_ns = time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_nanos());
        let since = unix_ns.and_then(|ns| ns.checked_sub(u128::from(self.epoch_ms()) * 1_000_000));
        let since = since.ok_or(InstantError::BeforeEpoch { epoch_ms: self.epoch_ms() })?;
        let tick = since / (u128::from(self.tick_us()) * 1_000);
        if tick > u128::from(self.last_tick()) {
            return Err(InstantError::AfterEnd { last_ms: self.tick_to_ms(self.last_tick()) });
        }
        Ok(self.encode(tick as u64, 0, 0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_id_of_an_instant_is_the_first_of_its_tick_and_times_outside_the_layout_are_refused() {
        let layout = Layout::new(41, 10, 12, 10_000, 1_600_000_000_000).unwrap();
        let at = |ns: u64| layout.first_id_at(UNIX_EPOCH + Duration::from_nanos(ns));
        let epoch_ns = 1_600_000_000_000_000_000;
        assert_eq!(at(epoch_ns), Ok(layout.encode(0, 0, 0)));
        assert_eq!(at(epoch_ns + 9_999_999), Ok(layout.encode(0, 0, 0)));
        assert_eq!(at(epoch_ns + 10_000_000), Ok(layout.encode(1, 0, 0)));
        assert_eq!(at(epoch_ns - 1), Err(InstantError::BeforeEpoch { epoch_ms: 1_600_000_000_000 }));
        let before_1970 = layout.first_id_at(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(before_1970, Err(InstantError::BeforeEpoch { epoch_ms: 1_600_000_000_000 }));
        let last_ms = layout.tick_to_ms(layout.last_tick());
        let end = UNIX_EPOCH + Duration::from_millis(last_ms + 10);
        assert_eq!(layout.first_id_at(end), Err(InstantError::AfterEnd { last_ms }));
        let last = layout.first_id_at(end - Duration::from_nanos(1));
        assert_eq!(last, Ok(layout.encode(layout.last_tick(), 0, 0)));
    }
}
