//! What a connection knows of the names of sequences.

use std::time::Duration;

use tokio::time::Instant;
use xuid_engine::sequence::{Sequence, SequenceError, SequenceErrorKind, SequenceName};
use xuid_protocol::{Refusal, Status};

use crate::fronts::xuid::answer::SOON;

/// Sequences that a connection remembers: to find one it compares names, and most clients use few.
const REMEMBERED: usize = 8;

/// Names that the store did not have for which one connection may have it asked in a second.
pub(super) const UNKNOWN_A_SECOND: u32 = 100;

/// What a connection knows of names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The last one first.
    remembered: Vec<Sequence>,
    pub(super) unknown: UnknownNames,
}

impl Names {
    pub(super) fn find(&mut self, name: &[u8]) -> Option<&Sequence> {
        let place = self.remembered.iter().position(|known| known.name().as_str().as_bytes() == name)?;
        if place > 0 {
            self.remembered[..=place].rotate_right(1);
        }
        self.remembered.first()
    }

    pub(super) fn remember(&mut self, sequence: Sequence) {
        self.remembered.truncate(REMEMBERED - 1);
        self.remembered.insert(0, sequence);
    }

    /// The store was asked for a name that it does not have.
    pub(super) fn was_unknown(&mut self) {
        self.unknown.count(Instant::now());
    }
}

/// A bucket of a second's look-ups that found nothing, kept as the time at which it is empty again.
#[derive(Debug, Default)]
pub(super) struct UnknownNames {
    empty_at: Option<Instant>,
}

impl UnknownNames {
    const EACH: Duration = Duration::from_nanos(1_000_000_000 / UNKNOWN_A_SECOND as u64);

    fn count(&mut self, now: Instant) {
        let from = self.empty_at.map_or(now, |empty_at| empty_at.max(now));
        self.empty_at = Some(from + Self::EACH);
    }

    /// How long no further name may be looked up; `None`: one may.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        let above = self.empty_at?.checked_duration_since(now)?.checked_sub(Duration::from_secs(1))?;
        (!above.is_zero()).then_some(above)
    }
}

/// The protocol's word for why there are no numbers.
#[cold]
pub(super) fn refusal(error: SequenceError, name: &SequenceName) -> Refusal {
    let status = match error.kind() {
        SequenceErrorKind::NoSequence => Status::NO_SEQUENCE,
        SequenceErrorKind::StoreAway => Status::STORE_AWAY,
        SequenceErrorKind::StoreBehind => Status::STORE_BEHIND,
        SequenceErrorKind::Overloaded => Status::OVERLOADED,
        SequenceErrorKind::Exhausted => Status::EXHAUSTED,
        SequenceErrorKind::Count => Status::COUNT,
        SequenceErrorKind::ShuttingDown => Status::SHUTTING_DOWN,
        _ => Status::INTERNAL,
    };
    let refusal = Refusal::new(status, format!("sequence {name:?}: {error}"));
    match error.retry_after() {
        Some(pause) => refusal.retry_after(pause),
        None if status.is_retryable() => refusal.retry_after(SOON),
        None => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_names_in_vain_are_looked_up_at_once_and_then_a_hundred_a_second() {
        let (mut unknown, now) = (UnknownNames::default(), Instant::now());
        for _ in 0..UNKNOWN_A_SECOND {
            assert_eq!(unknown.pause(now), None);
            unknown.count(now);
        }
        assert_eq!(unknown.pause(now), None, "the bucket is full, and not above");
        unknown.count(now);
        let pause = unknown.pause(now).unwrap();
        assert!(pause <= Duration::from_millis(10), "{pause:?}");
        assert_eq!(unknown.pause(now + pause), None);
        assert_eq!(unknown.pause(now + Duration::from_mins(1)), None);
    }
}
