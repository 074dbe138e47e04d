//! Storing records: one copy after the other, and several records together.

use super::{CHANGED, Records};
use crate::registry::SwapError;
use crate::registry::local::disk::Disk;
use crate::registry::local::format::{Kind, Pair, Row, Side};
use crate::sys::guards::Guard;

/// What is relied upon, and what takes its place.
pub(in crate::registry::local) type Change = (Pair, Row);

impl<D: Disk> Records<D> {
    /// Stores `row` over `base`, under the lock.
    pub(in crate::registry::local) fn store(&mut self, base: &Pair, row: &Row) -> Result<(), SwapError> {
        self.store_all(&[(base.clone(), row.clone())])
    }

    /// Stores each row over what it was made from, under the lock, all with the same syncs. They have the copy in common
    /// that is written first, so that a page in the air is never beside one that is relied upon.
    pub(super) fn store_all(&mut self, changes: &[Change]) -> Result<(), SwapError> {
        let Some((_, first)) = changes.first() else { return Ok(()) };
        let place = first.place;
        for (base, row) in changes {
            assert_eq!(row.place, base.row.place, "a record is stored where it was read");
            assert!(row.version > base.row.version, "each change raises the version");
            self.doubtful.insert(row.place);
        }
        let durable = changes.iter().all(|(base, _)| base.is_whole() && self.is_settled(&base.row));
        if !durable && Guard::SyncBefore.holds() {
            // Another process may have been killed between a write and its sync (I2).
            if let Err(error) = self.disk.sync() {
                return Err(SwapError::Unavailable { why: self.poison(place, &error) });
            }
        }
        let rows: Vec<Row> = changes.iter().map(|(_, row)| row.clone()).collect();
        if !Guard::HintLast.holds() {
            self.note(&rows);
        }
        if let Err(error) = self.write_both(changes) {
            return Err(SwapError::Unknown { why: self.poison(place, &error) });
        }
        for row in &rows {
            self.doubtful.remove(&row.place);
            self.high_water.settle(row);
        }
        self.note(&rows);
        for row in &rows {
            self.changed.retain(|changed| *changed != row.place);
            self.changed.insert(0, row.place);
            self.changed.truncate(CHANGED);
        }
        Ok(())
    }

    /// An unused slot was laid out and synced before it could be found.
    fn is_settled(&self, row: &Row) -> bool {
        let is_unused = row.place.kind == Kind::Sequence && row.named.is_none();
        is_unused || self.high_water.is_settled(row)
    }

    fn write_both(&mut self, changes: &[Change]) -> std::io::Result<()> {
        let second_copy = Guard::SecondCopy.holds();
        let first = |base: &Pair| if second_copy { base.spare() } else { Side::A };
        for (base, row) in changes {
            self.write(row, first(base))?;
        }
        crash_point!(CopyOneWritten);
        if Guard::SyncBetween.holds() {
            self.disk.sync()?;
        }
        crash_point!(CopyOneSynced);
        if !second_copy {
            return Ok(());
        }
        for (base, row) in changes {
            self.write(row, first(base).other())?;
        }
        crash_point!(CopyTwoWritten);
        self.disk.sync()?;
        crash_point!(CopyTwoSynced);
        Ok(())
    }
}
