//! Names that were asked for and are granted nothing: what their callers are told, and when they are asked for again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use super::asking::{Asked, Grant};
use super::controls::MOST_AT_DATABASE;
use super::teller::Teller;
use crate::clock::SECOND;
use crate::sequence::error::SequenceError;
use crate::sequence::figures::GrantCounts;
use crate::sequence::names::named::{Named, Queued, Standing};
use crate::sequence::store::{NewSequence, Outcome, SequenceSettings, StoreError};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// How long a refusal of the store is remembered: a name that it does not have is looked up once a second at most.
const REMEMBERED: u64 = SECOND;

/// How long it is remembered at most that there is no room for a name.
const LONGEST_PAUSE_S: u32 = 60;

impl Teller {
    pub(super) fn without_grant(
        &mut self,
        asked: &Asked,
        outcome: Outcome,
        counts: &mut GrantCounts,
        boot: u64,
    ) {
        let named = &asked.named;
        match outcome {
            Outcome::Unknown { .. } if !Guard::UnknownIsNoGrant.holds() => {
                let settings = named.lock().settings.unwrap_or_default();
                let first = named.lock().mark.max(1);
                let grant = Grant { first, end: first + asked.ask.count.max(settings.step), settings };
                self.apply(asked, grant, self.hub.leaps(), counts);
            }
            // Q2.
            Outcome::Unknown { .. } => {
                counts.unknown += 1;
                self.later(named, boot, true);
            }
            Outcome::Away { .. } => {
                counts.away += 1;
                self.later(named, boot, false);
            }
            Outcome::Exhausted { settings } => {
                counts.exhausted += 1;
                let mut state = named.lock();
                self.learn(named, &mut state, settings);
                drop(state);
                Self::refuse(
                    named,
                    Standing::Exhausted { until: boot + REMEMBERED },
                    SequenceError::EXHAUSTED,
                );
            }
            Outcome::Refused { why } => {
                counts.refused += 1;
                Self::refuse_name(named, &why, boot);
            }
            Outcome::Granted { .. } | Outcome::Absent | Outcome::Behind { .. } => {}
        }
    }

    /// The store has no such names: those that may be are created, and the callers of the others are told so. How many that were;
    /// some are asked for once more.
    pub(super) fn absent(&mut self, absent: Vec<Arc<Named>>, boot: u64) -> u64 {
        let mut count = absent.len() as u64;
        // A row that vanished is never made again: it would begin at 1. Of a name that an earlier life left numbers of, there was
        // one; a witness of all knows how far it came, wherever that was.
        let (is_seen_by_all, hub) = (self.is_witness_shared, self.hub.clone());
        let had_row = |named: &Named| {
            let state = named.lock();
            let was_seen = state.settings.is_some();
            was_seen || (!is_seen_by_all && (state.mark > 0 || hub.names.was_forgotten(&named.name)))
        };
        let creates =
            |named: &Named| self.hub.config.create.iter().any(|pattern| pattern.fits(named.name.as_str()));
        let (mut new, absent): (Vec<_>, Vec<_>) =
            absent.into_iter().partition(|named| creates(named) && !had_row(named));
        for named in absent {
            // Not once more with each look while it is asked for.
            let was_told = matches!(named.lock().standing, Standing::Absent { .. });
            if !was_told && had_row(&named) {
                let name = named.name.clone();
                deferred_log::log(
                    move || tracing::error!(%name, "the row of this sequence is gone from the store"),
                );
            }
            self.refuse_absent(&named, boot);
        }
        if self.store.may_go_back() && new.len() > MOST_AT_DATABASE {
            // They are found absent once more.
            let rest = new.split_off(MOST_AT_DATABASE);
            count -= rest.len() as u64;
            for named in &rest {
                self.again(named);
            }
        }
        if new.is_empty() || self.is_child() {
            return count;
        }
        let settings = SequenceSettings { step: self.hub.config.step, ..SequenceSettings::default() };
        let row =
            |named: &Arc<Named>| (named.name.clone(), NewSequence { settings, ..NewSequence::default() });
        let made = self.store.create_all(&new.iter().map(row).collect::<Vec<_>>());
        // What an adaptor with a defect does not answer is asked for again.
        let made = made.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for (named, made) in new.into_iter().zip(made) {
            match made {
                Some(Ok(_) | Err(StoreError::Exists(_))) => self.again(&named),
                None | Some(Err(StoreError::Away { .. } | StoreError::Unknown { .. })) => {
                    self.later(&named, boot, false);
                }
                Some(Err(StoreError::Closed { .. })) => {
                    let error = SequenceError::store_behind(Duration::from_secs(1));
                    Self::refuse(&named, Standing::Refused { until: boot + REMEMBERED, why: 0 }, error);
                }
                Some(Err(error)) => {
                    let name = named.name.clone();
                    deferred_log::log(
                        move || tracing::error!(%name, %error, "the sequence could not be created"),
                    );
                    self.refuse_absent(&named, boot);
                }
            }
        }
        count
    }

    /// The callers of a name are told that there is none, and it is not looked up again at once.
    fn refuse_absent(&mut self, named: &Named, boot: u64) {
        if self.absents.0 != boot / SECOND {
            self.absents = (boot / SECOND, 0);
        }
        self.absents.1 += 1;
        if let Some((_, of_one)) = named.lock().untold.as_deref() {
            of_one.is_absent(self.absents.0);
        }
        Self::refuse(named, Standing::Absent { until: boot + REMEMBERED }, SequenceError::NO_SEQUENCE);
    }

    /// A name that waits for a person is asked for again in a second at the earliest.
    pub(super) fn refuse_name(named: &Named, why: &str, boot: u64) {
        let error = SequenceError::store_behind(Duration::from_secs(1));
        Self::refuse_as(named, why, Standing::Refused { until: boot + REMEMBERED, why: word_of(why) }, error);
    }

    /// The same of one for which there is no room: each try costs a grant, so it is tried seldom.
    pub(super) fn refuse_without_room(named: &Named, why: &str, boot: u64) {
        let pause_s = match named.lock().standing {
            Standing::NoRoom { pause_s, .. } => (2 * pause_s).min(LONGEST_PAUSE_S),
            _ => 1,
        };
        let error = SequenceError::store_away(Duration::from_secs(pause_s.into()));
        let until = boot + u64::from(pause_s) * SECOND;
        Self::refuse_as(named, why, Standing::NoRoom { until, pause_s }, error);
    }

    fn refuse_as(named: &Named, why: &str, standing: Standing, error: SequenceError) {
        // Not once more with each try.
        let was_told = match (named.lock().standing, standing) {
            (Standing::Refused { why: before, .. }, Standing::Refused { why: now, .. }) => before == now,
            (before, now) => discriminant(&before) == discriminant(&now),
        };
        if !was_told {
            let (name, why) = (named.name.clone(), why.to_owned());
            deferred_log::log(move || tracing::error!(%name, why, "this sequence is refused"));
        }
        Self::refuse(named, standing, error);
    }

    /// All who wait for a name are refused for whom too little is held, and those who come in the next second.
    fn refuse(named: &Named, standing: Standing, error: SequenceError) {
        let mut state = named.lock();
        (state.standing, state.queued) = (standing, Queued::No);
        state.retry.succeeded();
        let wakers = named.end_all(&mut state, error);
        drop(state);
        wakers.wake();
    }
}

/// Tells one reason from another.
fn word_of(why: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    why.hash(&mut hasher);
    hasher.finish() as u32
}
