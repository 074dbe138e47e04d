//! What a connection knows of the names of sequences, and what every front asks their store.

use std::time::Duration;

use tokio::time::Instant;
use xuid_engine::sequence::store::{Alteration, NewLast};
use xuid_engine::sequence::{
    Sequence, SequenceError, SequenceErrorKind, SequenceInfo, SequenceName, Sequences, UntoldNames,
};
use xuid_protocol::{LIST_MAX, Refusal, Status};

use crate::config::{Right, SequenceRights};
use crate::fronts::refusals;
use crate::state::access::{AccessRules, ClientRights};
use crate::state::sequences::ServedSequences;

/// Sequences that a connection remembers: to find one it compares names, and most clients use few.
const REMEMBERED: usize = 8;

/// Names that the store did not have for which one connection may have it asked in a second.
const UNKNOWN_A_SECOND: u32 = 100;

/// Names of one connection of which the store has told nothing yet, or that they are not there. The server remembers each for a
/// while.
const MOST_UNTOLD: usize = 4_096;

/// What a connection knows of names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The last one first.
    remembered: Vec<Sequence>,
    unknown: UnknownNames,
    untold: Option<UntoldNames>,
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
        self.check_look_up(sequences, name)?;
        let untold = self.untold.get_or_insert_with(|| UntoldNames::new(MOST_UNTOLD));
        let sequence = sequences.all.sequence_within(name, untold).map_err(|error| {
            let mut refusal = refusals::of_numbers(error, name);
            if error.kind() == SequenceErrorKind::Overloaded && untold.is_full() {
                refusal.text = format!(
                    "this connection asked for {MOST_UNTOLD} names of which the store has told nothing yet, or that it does not \
                     have: create them first, or ask for others when it has answered"
                )
                .into();
            }
            refusal
        })?;
        if sequences.knows(name) {
            self.remember(sequence.clone());
        }
        Ok(sequence)
    }

    /// Whether that name is known, or may be looked up: this connection did not look up too many in vain.
    pub(crate) fn check_look_up(
        &self,
        sequences: &ServedSequences,
        name: &SequenceName,
    ) -> Result<(), Refusal> {
        let Some(pause) = self.unknown.pause(Instant::now()) else { return Ok(()) };
        if sequences.knows(name) {
            return Ok(());
        }
        let text = format!(
            "this connection asked for more than {UNKNOWN_A_SECOND} names a second that no sequence has: create them first, or \
             ask later"
        );
        Err(Refusal::new(Status::OVERLOADED, text).retry_after(pause))
    }

    /// The store was asked for a name that it does not have, or in vain for another reason.
    pub(crate) fn was_unknown(&mut self) {
        self.unknown.count(Instant::now());
    }
}

/// Whether a client with these rights may do that with the sequence of that name.
pub(crate) fn may(rights: &mut ClientRights, access: &AccessRules, right: Right, name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| rights.now(access).may(right, name))
}

/// Whether what kept numbers from coming may pass within the wait of a request.
pub(crate) fn may_pass(error: SequenceError) -> bool {
    matches!(error.kind(), SequenceErrorKind::Overloaded | SequenceErrorKind::StoreAway)
}

/// Why a name has no numbers: the store says which name was meant, if it has one like it.
pub(crate) async fn similar(all: Sequences, name: SequenceName) -> Refusal {
    match all.info(&name).await {
        Err(error) => refusals::of_control(&error),
        // It was created meanwhile.
        Ok(_) => refusals::again(&name),
    }
}

/// Pages of the store until there are as many as were asked for, without those that the token may not see.
pub(crate) async fn list_all(
    all: Sequences,
    rights: SequenceRights,
    limit: u32,
    prefix: String,
    mut after: String,
) -> Result<Vec<SequenceInfo>, Refusal> {
    let limit = limit as usize;
    let mut found: Vec<SequenceInfo> = Vec::new();
    let page = if rights.may_see_all() { limit } else { LIST_MAX as usize };
    loop {
        let rows = all.list(&prefix, &after, page).await.map_err(|error| refusals::of_control(&error))?;
        let is_last = rows.len() < page;
        if let Some(last) = rows.last() {
            after = last.row.name.to_string();
        }
        found.extend(rows.into_iter().filter(|info| rights.may_see(info.row.name.as_str())));
        if is_last || found.len() >= limit {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// A `last` below the present one is the number before `next`, or not allowed.
pub(crate) async fn alter(
    all: Sequences,
    name: SequenceName,
    mut changes: Alteration,
) -> Result<SequenceInfo, Refusal> {
    if let Some(NewLast::At(last)) = changes.last {
        let row = all.info(&name).await.map_err(|error| refusals::of_control(&error))?.row;
        if last < row.settings.last {
            if last.checked_add(1) != Some(row.next) {
                let text = format!(
                    "last is {last}; allowed is a number from {}, or the one before next, {}, which ends the sequence",
                    row.settings.last, row.next
                );
                return Err(Refusal::new(Status::BAD_REQUEST, text));
            }
            changes.last = Some(NewLast::Retired);
        }
    }
    all.alter(&name, changes).await.map_err(|error| refusals::of_control(&error))
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
