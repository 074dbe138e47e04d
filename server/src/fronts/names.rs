//! What a connection knows of the names of sequences.

use std::time::Duration;

use tokio::time::Instant;
use xuid_engine::sequence::{Sequence, SequenceName};
use xuid_protocol::{Refusal, Status};

use crate::config::Right;
use crate::fronts::refusals;
use crate::state::access::{AccessRules, ClientRights};
use crate::state::sequences::ServedSequences;

/// Sequences that a connection remembers: to find one it compares names, and most clients use few.
const REMEMBERED: usize = 8;

/// Names that the store did not have for which one connection may have it asked in a second.
const UNKNOWN_A_SECOND: u32 = 100;

/// What a connection knows of names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The last one first.
    remembered: Vec<Sequence>,
    unknown: UnknownNames,
}

impl Names {
    pub(crate) fn find(&mut self, name: &[u8]) -> Option<&Sequence> {
        let place = self.remembered.iter().position(|known| known.name().as_str().as_bytes() == name)?;
        if place > 0 {
            self.remembered[..=place].rotate_right(1);
        }
        self.remembered.first()
    }

    fn remember(&mut self, sequence: Sequence) {
        self.remembered.truncate(REMEMBERED - 1);
        self.remembered.insert(0, sequence);
    }

    /// The sequence of that name, unless it would have to be looked up and this connection looked up too many in vain.
    pub(crate) fn sequence(
        &mut self,
        sequences: &ServedSequences,
        name: &SequenceName,
    ) -> Result<Sequence, Refusal> {
        if let Some(known) = self.find(name.as_str().as_bytes()) {
            return Ok(known.clone());
        }
        if let Some(pause) = self.unknown.pause(Instant::now())
            && !sequences.knows(name)
        {
            let text = format!(
                "this connection asked for more than {UNKNOWN_A_SECOND} names a second that no sequence has: create them \
                 first, or ask later"
            );
            return Err(Refusal::new(Status::OVERLOADED, text).retry_after(pause));
        }
        let sequence = sequences.all.sequence(name).map_err(|error| refusals::of_numbers(error, name))?;
        if sequences.knows(name) {
            self.remember(sequence.clone());
        }
        Ok(sequence)
    }

    /// The store was asked for a name that it does not have.
    pub(crate) fn was_unknown(&mut self) {
        self.unknown.count(Instant::now());
    }
}

/// Whether a client with these rights may do that with the sequence of that name.
pub(crate) fn may(rights: &mut ClientRights, access: &AccessRules, right: Right, name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| rights.now(access).may(right, name))
}

/// A bucket of a second's look-ups that found nothing, kept as the time at which it is empty again.
#[derive(Debug, Default)]
struct UnknownNames {
    empty_at: Option<Instant>,
}

impl UnknownNames {
    const EACH: Duration = Duration::from_nanos(1_000_000_000 / UNKNOWN_A_SECOND as u64);

    fn count(&mut self, now: Instant) {
        let from = self.empty_at.map_or(now, |empty_at| empty_at.max(now));
        self.empty_at = Some(from + Self::EACH);
    }

    /// How long no further name may be looked up; `None`: one may.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let above = self.empty_at?.checked_duration_since(now)?.checked_sub(Duration::from_secs(1))?;
        (!above.is_zero()).then_some(above)
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
