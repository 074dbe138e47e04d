//! Claiming a batch of leftovers, and preparing the next one's record.

use super::format::Batch;
use crate::registry::sequences::{SequenceChange, SequenceRecord, SequenceRecords};
use crate::registry::{ReadError, SwapError};
use crate::sys::guards::Guard;

/// How often a claim is tried again because another process moved the record: that happens once a life of it.
const TRIES: u32 = 4;

/// The file's own story: which uuid and serial the next batch gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lineage {
    pub(crate) uuid: [u8; 16],
    pub(crate) serial: u64,
}

/// What came of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The batch is ours, and the next one of this file is to have this lineage.
    Ours(Lineage),
    /// It was claimed before. The next one of this file may have this lineage.
    Before(Lineage),
    /// It is not used, and neither is its uuid again.
    Refused(String),
    /// The same, since the registry knows nothing of the file: it is another one than that of the life before.
    Elsewhere(String),
    /// The registry cannot be reached, and nothing was changed: it may be claimed yet.
    Later(String),
}

/// The name of a file's record.
fn record_name(uuid: [u8; 16]) -> String {
    format!("@rest:{:032x}", u128::from_be_bytes(uuid))
}

/// Raises the record of a batch above its serial, if it is not above it (Q6).
pub(crate) fn claim(records: &mut dyn SequenceRecords, batch: &Batch) -> Claim {
    let name = record_name(batch.uuid);
    for _ in 0..TRIES {
        let (mut found, mut done) = (Vec::new(), Vec::new());
        records.read(&[&name], &mut found);
        let found = match found.pop() {
            Some(Ok(found)) => found,
            Some(Err(ReadError::Absent { .. })) if !Guard::LeftoversAbsentRefused.holds() => {
                return Claim::Ours(Lineage { uuid: batch.uuid, serial: batch.serial + 1 });
            }
            Some(Err(ReadError::Unavailable { why })) => return Claim::Later(why),
            Some(Err(error @ ReadError::Absent { .. })) => return Claim::Elsewhere(error.to_string()),
            Some(Err(error)) => return Claim::Refused(error.to_string()),
            None => return Claim::Refused("the registry gave no answer".into()),
        };
        let value = found.record.value;
        if value > batch.serial && Guard::LeftoversClaimed.holds() {
            return Claim::Before(Lineage { uuid: batch.uuid, serial: value });
        }
        let raised = if Guard::SerialRaised.holds() { batch.serial + 1 } else { batch.serial };
        let record = SequenceRecord { value: raised, ..found.record };
        let change = SequenceChange { name: &name, expected: Some(found.version), record };
        records.swap(&[change], &mut done);
        match done.pop() {
            Some(Ok(())) => return Claim::Ours(Lineage { uuid: batch.uuid, serial: raised }),
            Some(Err(SwapError::Conflict)) => {}
            Some(Err(SwapError::Unavailable { why })) => return Claim::Later(why),
            Some(Err(error)) => return Claim::Refused(error.to_string()),
            None => return Claim::Refused("the registry gave no answer".into()),
        }
    }
    Claim::Refused("other processes move its record again and again".into())
}

/// Makes the record of a file that has none yet; its lineage begins.
pub(crate) fn begin(records: &mut dyn SequenceRecords) -> Result<Lineage, String> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|error| error.to_string())?;
    let name = record_name(uuid);
    let change = SequenceChange { name: &name, expected: None, record: SequenceRecord::default() };
    let mut done = Vec::new();
    records.swap(&[change], &mut done);
    match done.pop() {
        Some(Ok(())) => Ok(Lineage { uuid, serial: 0 }),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the registry gave no answer".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ClusterId;
    use crate::registry::sequences::memory::{MemoryRecords, RecordFault};

    fn batch(lineage: Lineage) -> Batch {
        let Lineage { uuid, serial } = lineage;
        Batch { uuid, serial, cluster: ClusterId::from_bytes([2; 16]), names: Vec::new() }
    }

    /// Whether a batch is claimed twice: itself again, or an older one that is put back.
    fn is_claimed_twice() -> bool {
        let mut records = MemoryRecords::new(ClusterId::from_bytes([2; 16]));
        let first = batch(begin(&mut records).unwrap());
        let Claim::Ours(next) = claim(&mut records, &first) else { panic!("it is the first one") };
        let again = matches!(claim(&mut records, &first), Claim::Ours(_));
        let second = batch(next);
        let claimed = matches!(claim(&mut records, &second), Claim::Ours(_));
        again || !claimed || matches!(claim(&mut records, &first), Claim::Ours(_))
    }

    #[test]
    fn a_batch_is_claimed_once_whatever_copies_are_put_back() {
        assert!(!is_claimed_twice());
    }

    #[test]
    fn a_claim_that_is_not_compared_or_not_raised_is_found_out() {
        for guard in [Guard::LeftoversClaimed, Guard::SerialRaised] {
            assert!(Guard::without(&[guard], is_claimed_twice), "without {guard:?}");
        }
    }

    /// Whether a batch is refused whose record another registry does not have.
    fn is_refused_elsewhere() -> bool {
        let mut records = MemoryRecords::new(ClusterId::from_bytes([2; 16]));
        let batch = batch(begin(&mut records).unwrap());
        let mut others = MemoryRecords::new(ClusterId::from_bytes([2; 16]));
        matches!(claim(&mut others, &batch), Claim::Elsewhere(_))
    }

    #[test]
    fn a_batch_without_a_record_is_refused_and_a_claim_that_does_not_say_so_is_found_out() {
        assert!(is_refused_elsewhere());
        assert!(!Guard::without(&[Guard::LeftoversAbsentRefused], is_refused_elsewhere));
    }

    #[test]
    fn a_claim_of_unknown_outcome_is_not_ours_nor_is_the_batch_ever() {
        for (fault, later) in [(RecordFault::LandsUnseen, false), (RecordFault::LostUnseen, true)] {
            let mut records = MemoryRecords::new(ClusterId::from_bytes([2; 16]));
            let batch = batch(begin(&mut records).unwrap());
            // Away, nothing was asked of it yet, or nothing changed.
            records.fail([RecordFault::Away]);
            assert!(matches!(claim(&mut records, &batch), Claim::Later(_)));
            records.fail_after(1, RecordFault::Away);
            assert!(matches!(claim(&mut records, &batch), Claim::Later(_)));
            // The read goes well, and the change does not.
            records.fail_after(1, fault);
            assert!(matches!(claim(&mut records, &batch), Claim::Refused(_)), "{fault:?}");
            assert_eq!(matches!(claim(&mut records, &batch), Claim::Ours(_)), later, "{fault:?}");
        }
    }
}
