//! The marks of spills: which slot belongs to which, and which slot a new one gets.

use xuid_spill::SpillId;

use super::Records;
use crate::registry::local::disk::Disk;
use crate::registry::local::format::{Kind, NO_SPILL, Pair, Place, Row};
use crate::registry::{MarkRecord, ReadError, SwapError};

impl<D: Disk> Records<D> {
    /// The mark of a spill.
    pub(in crate::registry::local) fn mark(&mut self, spill: SpillId) -> Result<Pair, ReadError> {
        if let Some(slot) = self.high_water.slots.get(&spill) {
            let pair = self.pair(Place::mark(*slot))?;
            if pair.row.spill == spill {
                return Ok(pair);
            }
        }
        self.high_water.slots.remove(&spill);
        let what = || format!("spill {spill}");
        if spill == NO_SPILL {
            return Err(ReadError::Absent { what: what() });
        }
        let (mut found, mut unreadable) = (None, None);
        for pair in self.believed(Kind::Mark) {
            match pair {
                Ok(pair) if pair.row.spill == spill => {
                    if found.replace(pair).is_some() {
                        return Err(ReadError::Damaged {
                            what: what(),
                            why: "two slots claim to be its mark".into(),
                        });
                    }
                }
                Ok(_) => {}
                Err(error) => unreadable = Some(error),
            }
        }
        match (found, unreadable) {
            (Some(pair), _) => {
                self.high_water.slots.insert(spill, pair.row.place.slot);
                Ok(pair)
            }
            (None, None) => Err(ReadError::Absent { what: what() }),
            (None, Some(ReadError::Damaged { what: slot, why })) => {
                let why = format!("no readable slot has it, and {slot} says nothing: {why}");
                Err(ReadError::Damaged { what: what(), why })
            }
            (None, Some(other)) => Err(other),
        }
    }

    /// Makes the mark of a spill: in an unused slot, else in place of the mark that was changed longest ago. The
    /// spill that loses its mark is refused from then on, which wastes ids and repeats none.
    pub(in crate::registry::local) fn create_mark(
        &mut self,
        spill: SpillId,
        record: &MarkRecord,
    ) -> Result<(), SwapError> {
        if spill == NO_SPILL {
            let what = "the spill of zeros".into();
            return Err(ReadError::Damaged { what, why: "it is no drawn id".into() }.into());
        }
        let pairs: Vec<Pair> = self.believed(Kind::Mark).into_iter().flatten().collect();
        if pairs.iter().any(|pair| pair.row.spill == spill) {
            return Err(SwapError::Conflict);
        }
        let unused_first =
            |pair: &&Pair| (pair.row.spill != NO_SPILL, pair.row.updated_ms, pair.row.place.slot);
        let Some(base) = pairs.iter().min_by_key(unused_first) else {
            let why =
                "none of the registry's mark slots can be read; run `xuid registry fence --restored`".into();
            return Err(ReadError::Damaged { what: format!("spill {spill}"), why }.into());
        };
        let row = self.mark_row(base, spill, record);
        self.store(base, &row)?;
        self.high_water.slots.insert(spill, base.row.place.slot);
        Ok(())
    }

    /// Moves the mark of a spill forward.
    pub(in crate::registry::local) fn swap_mark(
        &mut self,
        spill: SpillId,
        expected: u64,
        record: &MarkRecord,
    ) -> Result<(), SwapError> {
        let base = self.mark(spill)?;
        if base.row.version != expected {
            return Err(SwapError::Conflict);
        }
        assert!(record.granted_upto >= base.row.value, "a mark only rises");
        let row = self.mark_row(&base, spill, record);
        self.store(&base, &row)
    }

    fn mark_row(&self, base: &Pair, spill: SpillId, record: &MarkRecord) -> Row {
        Row {
            place: base.row.place,
            spill,
            version: base.row.version + 1,
            value: record.granted_upto,
            token: record.token,
            operation: record.operation,
            updated_ms: self.now_ms(),
            owner: String::new(),
            named: None,
        }
    }
}
