//! Where time comes from, and what is believed of it.
//!
//! [`Clock`] reads the wall and the boot clock of the machine; [`Supervisor`] turns readings into the engine's own
//! clock, whose time is engine time, and a [`Verdict`]. Uniqueness never rests on either: windows and marks carry that.
//! Time decides only how old an id looks.

pub(crate) mod engine_clock;
mod supervisor;
mod verdict;

use std::time::Duration;

pub use supervisor::{Observation, Supervisor, Thresholds};
pub use verdict::{Course, Verdict, Verdicts};

pub(crate) use crate::sys::boot::boot_ns;

/// In nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// One look at both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Nanoseconds since the Unix epoch, as the machine believes.
    pub wall: u64,
    /// Nanoseconds since the machine booted, suspended time included; it never steps.
    pub boot: u64,
}

/// A source of [`Reading`]s. The engine reads time through nothing else, so a simulation can stand in.
pub trait Clock: Send + Sync + 'static {
    /// Both clocks, read within a millisecond of each other.
    fn read(&self) -> Reading;
}

/// The machine's own clocks: `CLOCK_REALTIME` through the standard library, and `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// A bracket wider than this is read again: a reader descheduled between the two clocks would look like a step.
const BRACKET: u64 = 1_000_000;

/// On a machine so starved that no bracket is ever narrow, the last reading has to do.
const BRACKET_TRIES: u32 = 16;

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        let mut before = boot_ns();
        for _ in 0..BRACKET_TRIES {
            let wall = wall_ns();
            let after = boot_ns();
            if after.saturating_sub(before) <= BRACKET {
                return Reading { wall, boot: after };
            }
            before = after;
        }
        Reading { wall: wall_ns(), boot: boot_ns() }
    }
}

fn wall_ns() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where the wall clock enters")]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, nanos)
}

/// A duration in nanoseconds, at most `u64::MAX`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Unix milliseconds as `2026-11-20 23:15:04.123 UTC`, for messages. Days to a civil date by Howard Hinnant's
/// `civil_from_days`, for the years since 1970.
pub(crate) fn utc(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (s, ms) = (ms / 1_000, ms % 1_000);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02}.{ms:03} UTC", s / 3_600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(utc(951_782_399_999), "2000-02-28 23:59:59.999 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00.000 UTC");
        assert_eq!(utc(1_524_153_600_000), "2018-04-19 16:00:00.000 UTC");
        assert_eq!(utc(4_107_542_400_123), "2100-03-01 00:00:00.123 UTC");
    }

    #[test]
    fn boot_time_does_not_go_back_and_the_wall_is_past_2020() {
        let first = SystemClock.read();
        let second = SystemClock.read();
        assert!(second.boot >= first.boot);
        assert!(first.wall > 1_577_836_800_000_000_000);
    }
}
