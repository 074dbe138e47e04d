//! Marks: the way to extents of a spill.
//!
//! # Invariants
//! - G1 a mark only rises, and a grant is reported only after its mark was stored (U4);
//! - G2 a grant that was in doubt is reported once, when the mark shows that very write of ours. All others of the spill
//!   were of a version that is gone then.

use xuid_spill::SpillId;

use super::Ownership;
use super::doubt::MOST_IN_DOUBT;
use super::error::GrantError;
use super::grant::Grant;
use crate::registry::{MarkRecord, ReadError, SwapError, Versioned};
use crate::sys::guards::Guard;

impl Ownership {
    /// The mark of a spill, made if the spill is `new`: one that this process created a moment ago.
    pub(crate) fn mark(&mut self, spill: SpillId, new: bool) -> Result<u64, GrantError> {
        if new { self.make_mark(spill) } else { Ok(self.read_mark(spill)?.record.granted_upto) }
    }

    /// Makes a mark that is asked for again with the same record, as long as it is not known whether it was stored. Only that
    /// very record is ours: one that was stored unseen, and is not found, belongs to a spill that is then not used.
    fn make_mark(&mut self, spill: SpillId) -> Result<u64, GrantError> {
        let before = self.new_mark.take().filter(|(of, _)| *of == spill);
        let record = if let Some((_, record)) = &before {
            record.clone()
        } else {
            self.operation += 1;
            MarkRecord { granted_upto: 0, token: self.identity.token, operation: self.operation }
        };
        match self.registry.create_mark(spill, &record) {
            // Read again it could fail, and then not be made a second time.
            Ok(()) => {}
            Err(SwapError::Unavailable { why } | SwapError::Full { why }) => {
                self.new_mark = before;
                return Err(GrantError::Later { why });
            }
            Err(error @ (SwapError::Unknown { .. } | SwapError::Conflict)) => {
                self.unknown += u64::from(before.is_none() && matches!(error, SwapError::Unknown { .. }));
                match self.registry.mark(spill) {
                    Ok(found) if found.record == record => self.unknown_ours += 1,
                    // Not yet, maybe.
                    Err(ReadError::Absent { .. } | ReadError::Unavailable { .. }) => {
                        self.new_mark = Some((spill, record));
                        return Err(GrantError::Later { why: error.to_string() });
                    }
                    _ => return Err(GrantError::Refused { why: error.to_string() }),
                }
            }
            Err(error) => return Err(GrantError::Refused { why: error.to_string() }),
        }
        self.marks.insert(spill, 0);
        Ok(0)
    }

    fn read_mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, GrantError> {
        let found = self.registry.mark(spill).map_err(|error| match error {
            // A registry that is not the one that was opened says nothing of the mark, and may be put back.
            ReadError::Unavailable { why } | ReadError::Foreign { why } => GrantError::Later { why },
            other => GrantError::Refused { why: other.to_string() },
        })?;
        let known = self.marks.entry(spill).or_default();
        if found.record.granted_upto < *known && Guard::MarkWentBack.holds() {
            let why = format!(
                "it went back from {known} to {}: the registry was restored and needs a fence",
                found.record.granted_upto
            );
            return Err(GrantError::Refused { why });
        }
        *known = found.record.granted_upto;
        Ok(found)
    }

    /// Moves the mark from `from` to `upto`: from then on the extents `from .. upto` are ours to issue. Returns up to
    /// which they are: less or more than wanted where an earlier grant that was in doubt is found to have been stored.
    pub(crate) fn grant(&mut self, spill: SpillId, from: u64, upto: u64) -> Result<u64, GrantError> {
        assert!(from < upto, "a grant of nothing");
        let known = self.marks.get(&spill).copied().unwrap_or(0);
        let found = self.read_mark(spill)?;
        if self.is_mark_of_copy(spill, known, &found.record) {
            let why = self.meet_copy();
            // What was granted to the copy is skipped at the next try.
            return Err(GrantError::Later { why });
        }
        if let Some(granted) = self.settle_grant(spill, from, &found.record) {
            return Ok(granted);
        }
        if found.record.granted_upto == u64::MAX {
            return Err(GrantError::Refused { why: "its mark was raised to the end by a fence".into() });
        }
        if found.record.granted_upto > from && Guard::GrantAtMark.holds() {
            return Err(GrantError::Moved { granted_upto: found.record.granted_upto });
        }
        if !Guard::MarkFirst.holds() {
            return Ok(upto);
        }
        self.operation += 1;
        let record = MarkRecord { granted_upto: upto, token: self.identity.token, operation: self.operation };
        // A panic leaves it so: what it broke off may be stored yet.
        let has_forgotten = std::mem::replace(&mut self.has_forgotten_grants, true);
        let outcome = self.registry.swap_mark(spill, found.version, &record);
        self.has_forgotten_grants = has_forgotten;
        match outcome {
            Ok(()) => {
                crash_point!(MarkMoved);
                self.marks.insert(spill, upto);
                self.unknown_theirs += self.drop_grants(spill);
                Ok(upto)
            }
            Err(SwapError::Conflict) => Err(GrantError::Later { why: "somebody else moved the mark".into() }),
            Err(SwapError::Unknown { why }) => {
                self.unknown += 1;
                let forgotten = self.grants.len().saturating_sub(MOST_IN_DOUBT - 1);
                self.unknown_theirs += forgotten as u64;
                self.has_forgotten_grants |= forgotten > 0;
                self.grants.truncate(MOST_IN_DOUBT - 1);
                self.grants.push(Grant { spill, extents: from..upto, record });
                let found = self.read_mark(spill)?.record;
                if self.is_mark_of_copy(spill, known, &found) {
                    return Err(GrantError::Later { why: self.meet_copy() });
                }
                self.settle_grant(spill, from, &found).ok_or(GrantError::Later { why })
            }
            Err(
                SwapError::Unavailable { why }
                | SwapError::Full { why }
                | SwapError::Read(ReadError::Foreign { why }),
            ) => Err(GrantError::Later { why }),
            Err(error @ (SwapError::TooLow { .. } | SwapError::Read(_))) => {
                Err(GrantError::Refused { why: error.to_string() })
            }
        }
    }

    /// Whether a grant in doubt was stored: the mark shows our token and operation. Then its extents from `from` on are
    /// ours, up to the end that is returned. It is told once.
    fn settle_grant(&mut self, spill: SpillId, from: u64, found: &MarkRecord) -> Option<u64> {
        let is_ours = |grant: &Grant| {
            grant.record == *found
                || (!Guard::GrantCompared.holds() && grant.record.granted_upto == found.granted_upto)
        };
        let stored = self.grants.iter().position(|grant| grant.spill == spill && is_ours(grant))?;
        let extents = self.grants.swap_remove(stored).extents;
        self.unknown_ours += 1;
        self.unknown_theirs += self.drop_grants(spill);
        extents.contains(&from).then_some(extents.end)
    }

    /// What is in doubt of a spill cannot land any more. Returns how many those were.
    fn drop_grants(&mut self, spill: SpillId) -> u64 {
        let before = self.grants.len();
        self.grants.retain(|grant| grant.spill != spill);
        (before - self.grants.len()) as u64
    }
}
