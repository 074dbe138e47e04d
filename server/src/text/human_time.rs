//! Times as people read them.

use std::time::SystemTime;

use jiff::Timestamp;
use xuid_engine::clock::{Clock, SystemClock};

/// `2026-11-21T10:00:00.000Z`. A layout can say instants that no calendar has; those are told as they are.
pub(crate) fn rfc3339_ms(unix_ms: u64) -> String {
    let timestamp = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    timestamp
        .map_or_else(|| format!("{unix_ms} ms after 1970, past the year 9999"), |time| format!("{time:.3}"))
}

/// The instant of a text: RFC 3339, or milliseconds since the Unix epoch.
pub(crate) fn instant(text: &str) -> Result<SystemTime, String> {
    let parsed = match text.parse() {
        Ok(unix_ms) => Timestamp::from_millisecond(unix_ms),
        Err(_) => text.parse(),
    };
    parsed.map(SystemTime::from).map_err(|_| {
        "allowed is a time with its offset, as in 2026-11-21T10:00:00Z, or Unix milliseconds, as in 1795255200000"
            .to_owned()
    })
}

/// Nanoseconds since the Unix epoch, now.
pub(crate) fn now_ns() -> u64 {
    SystemClock.read().wall
}

/// `3 s ago`, `in 2 min`: the distance of an instant from now, in its largest unit.
pub(crate) fn distance(unix_ms: u64, now_ms: u64) -> String {
    let apart = unix_ms.abs_diff(now_ms);
    let (count, unit) = match apart {
        0..1_000 => (apart, "ms"),
        1_000..120_000 => (apart / 1_000, "s"),
        120_000..7_200_000 => (apart / 60_000, "min"),
        7_200_000..172_800_000 => (apart / 3_600_000, "h"),
        _ => (apart / 86_400_000, "days"),
    };
    if unix_ms > now_ms { format!("in {count} {unit}") } else { format!("{count} {unit} ago") }
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_told_to_the_millisecond_in_utc() {
        assert_eq!(rfc3339_ms(951_782_400_007), "2000-02-29T00:00:00.007Z");
        assert_eq!(rfc3339_ms(1_524_153_600_000), "2018-04-19T16:00:00.000Z");
        assert!(rfc3339_ms(u64::MAX).contains("past the year 9999"));
    }

    #[test]
    fn an_instant_is_read_as_rfc_3339_or_as_milliseconds() {
        let time = |ms| std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
        for text in ["1795255200007", "2026-11-21T10:00:00.007Z", "2026-11-21T12:00:00.007+02:00"] {
            assert_eq!(instant(text), Ok(time(1_795_255_200_007)), "{text}");
        }
        for text in ["", "yesterday", "2026-11-21", "2026-11-21T10:00:00", "1e12", "99999999999999999999"] {
            assert!(instant(text).is_err_and(|why| why.contains("Unix milliseconds")), "{text}");
        }
    }

    #[test]
    fn distances_are_told_in_their_largest_unit() {
        assert_eq!(distance(1_000, 4_500), "3 s ago");
        assert_eq!(distance(400_000, 100_000), "in 5 min");
        assert_eq!(distance(5, 5), "0 ms ago");
    }

    #[test]
    fn numbers_are_grouped_by_threes() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
