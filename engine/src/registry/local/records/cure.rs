//! A disk that failed: nothing is changed until it holds what can be read.

use super::{Poison, Records};
use crate::registry::SwapError;
use crate::registry::local::disk::Disk;
use crate::registry::local::format::{Pair, Place};
use crate::registry::local::header::{Header, HeaderPair};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// Between two tries of a disk that failed: from a second, doubling, up to half a minute, in ns.
const DISK_PAUSES: (u64, u64) = (1_000_000_000, 30_000_000_000);

impl<D: Disk> Records<D> {
    /// After a failure of the disk, or a panic in the middle of a change: makes it hold what can be read, or tells that
    /// it does not. Called under the lock.
    pub(super) fn cure(&mut self) -> Result<(), SwapError> {
        // A disk fails in a change, which is in doubt from its begin on.
        let Some(place) = self.doubtful.iter().next().copied() else { return Ok(()) };
        if let Err(error) = self.write_again() {
            let boot = self.clock.read().boot;
            let Some(poison) = &mut self.poison else {
                return Err(SwapError::Unavailable { why: self.poison(place, &error) });
            };
            deferred_log::log(move || tracing::warn!(%error, "the registry's disk fails still"));
            poison.retry = boot.saturating_add(poison.pause);
            poison.pause = (2 * poison.pause).min(DISK_PAUSES.1);
            return Err(SwapError::Unavailable { why: poison.why.clone() });
        }
        self.doubtful.clear();
        if self.poison.take().is_some() {
            deferred_log::log(|| {
                tracing::info!(
                    "the registry's disk holds again what can be read of it: windows are reserved again"
                );
            });
        }
        Ok(())
    }

    /// Writes all records once more, each copy as it is relied upon first, and then the other: a kernel that failed to
    /// write a page takes it for written, and a sync alone would pass it over.
    fn write_again(&mut self) -> std::io::Result<()> {
        self.write_header_again()?;
        let pairs: Vec<Pair> = self.geometry().kinds().flat_map(|kind| self.pairs(kind)).flatten().collect();
        for is_first in [true, false] {
            for pair in pairs.iter().filter(|_| Guard::WrittenAgain.holds()) {
                let copy = if is_first { pair.spare().other() } else { pair.spare() };
                self.write(&pair.row, copy)?;
            }
            self.disk.sync()?;
        }
        for pair in &pairs {
            // What went back meanwhile stays remembered, and is told by the next read (I5).
            if self.high_water.see(&pair.row).is_ok() {
                self.high_water.settle(&pair.row);
                // Believed from now on, and perhaps issued from: what was in doubt is known now.
                if self.doubtful.contains(&pair.row.place) && Guard::DoubtNoted.holds() {
                    self.note(std::slice::from_ref(&pair.row));
                }
            }
        }
        Ok(())
    }

    /// That the file of sequences grew, the header says alone.
    fn write_header_again(&mut self) -> std::io::Result<()> {
        if self.header.sequences.is_none() {
            return Ok(());
        }
        let header = Header { generation: self.header.generation + 1, ..self.header };
        HeaderPair { header: self.header, sound: [true, true] }.replace(&mut self.disk, &header)?;
        self.header = header;
        Ok(())
    }

    /// The same where nothing was in doubt before.
    pub(super) fn doubt(&mut self, place: Place, error: &std::io::Error) -> String {
        self.doubtful.insert(place);
        self.poison(place, error)
    }

    /// After a failure while that record was changed: nothing is changed any more for some time.
    pub(super) fn poison(&mut self, place: Place, error: &std::io::Error) -> String {
        let why = format!(
            "the disk failed while {place} was changed ({error}); this process changes nothing until all records could be \
             written again, since it may read what the disk does not hold: check the disk"
        );
        let retry = self.clock.read().boot.saturating_add(DISK_PAUSES.0);
        let error = error.to_string();
        deferred_log::log(move || {
            tracing::error!(
                %place, %error,
                "the registry's disk failed: no window can be reserved until it is tried again"
            );
        });
        self.poison.get_or_insert(Poison { why, retry, pause: 2 * DISK_PAUSES.0 }).why.clone()
    }
}
