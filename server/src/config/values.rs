//! Parsers of single values. Each says only whether the text is one; what is allowed stands in the table of keys.

use std::num::NonZero;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use xuid_engine::{Floor, Layout};

/// `50ms`, `1h`, `6s`, `2m 30s`, `400d`, and `0`; not negative.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    signed(text).and_then(|duration| duration.try_into().ok())
}

/// A day is 24 hours. Months and years are no times: they have no length of their own.
fn signed(text: &str) -> Option<SignedDuration> {
    match text.trim() {
        "0" => Some(SignedDuration::ZERO),
        text => text.parse::<Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok(),
    }
}

/// A duration within bounds.
pub(super) fn between(least: Duration, most: Duration) -> impl Fn(&str) -> Option<Duration> {
    move |text| duration(text).filter(|time| (least..=most).contains(time))
}

/// `now`, `epoch`, or `-3h`.
pub(crate) fn floor(text: &str) -> Option<Floor> {
    match text.trim() {
        "now" => Some(Floor::Now),
        "epoch" => Some(Floor::Epoch),
        text => {
            let ago = text.strip_prefix('-').and_then(duration)?;
            Some(Floor::Before(ago))
        }
    }
}

/// A layout from its widths and its epoch, either of which may be left out; `None` if both are.
pub(crate) fn layout(widths: Option<Layout>, epoch_ms: Option<u64>) -> Option<Layout> {
    match (widths, epoch_ms) {
        (None, None) => None,
        (widths, None) => widths,
        (widths, Some(epoch_ms)) => Some(widths.unwrap_or_default().with_epoch_ms(epoch_ms)),
    }
}

/// An address with its port. Names are left to the resolver.
pub(super) fn address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let named = !host.is_empty() && port.parse::<u16>().is_ok();
    named.then(|| text.to_owned())
}

/// What this process may run on.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// A whole number within bounds.
pub(super) fn number(text: &str, least: u64, most: u64) -> Option<u64> {
    text.trim().parse().ok().filter(|number| (least..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_write_them() {
        let ms = Duration::from_millis;
        let hours = Duration::from_hours;
        for (text, wanted) in [
            ("50ms", ms(50)),
            ("1h", hours(1)),
            ("0", ms(0)),
            ("1m 30s", ms(90_000)),
            ("400d", hours(9_600)),
            ("1 day 2h", hours(26)),
            ("2w", hours(336)),
            ("36600d", hours(878_400)),
        ] {
            assert_eq!(duration(text), Some(wanted), "{text}");
        }
        for text in ["-3s", "-400d", "yesterday", "", "5", "5 parsecs", "3 months", "1y"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_floor_is_now_or_the_epoch_or_some_time_ago() {
        assert_eq!(floor("now"), Some(Floor::Now));
        assert_eq!(floor("epoch"), Some(Floor::Epoch));
        assert_eq!(floor("-3h"), Some(Floor::Before(Duration::from_hours(3))));
        assert_eq!(floor("-400d"), Some(Floor::Before(Duration::from_hours(9_600))));
        assert_eq!(floor("3h"), None, "a floor in the future would forbid every id until then");
        assert_eq!(floor("--3h"), None);
    }

    #[test]
    fn an_address_needs_a_host_and_a_port() {
        for good in ["127.0.0.1:7654", "[::1]:0", "localhost:80"] {
            assert!(address(good).is_some(), "{good}");
        }
        for bad in ["7654", ":7654", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:"] {
            assert!(address(bad).is_none(), "{bad}");
        }
    }
}
