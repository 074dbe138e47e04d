//! Reading and changing the records of one file, `registry` or `sequences`, by one opening of its storage.
//!
//! Called by one thread; other openings, in this process or another, work on the same storage at any moment.
//!
//! # Invariants
//! - I1 a change happens under the lock, to what was read under it, and is confirmed only after both copies were
//!   written and synced, one after the other;
//! - I2 the copy that is relied upon is durable before the other one is touched, and is written last: whatever a
//!   power cut leaves of the one, the other is intact;
//! - I3 hence any intact copy is at least as new as the last confirmed change;
//! - I4 after a failed write or sync, or a panic in the middle of a change, this opening changes nothing, and does not
//!   tell what the record is that was being changed, until all that can be read was written once more and synced, and
//!   hints note what was in doubt: a reader would see what the disk may not hold;
//! - I5 a version that was seen is never followed by a lower one;
//! - I6 when a record says less than what was durable, or than what another process of the folder knows, the file was
//!   written over: this opening believes and changes nothing of it any more.

mod access;
mod copies;
mod cure;
mod marks;
mod name_index;
mod names;
mod scan;
mod store;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use self::name_index::NameIndex;
pub(super) use self::names::what;
pub(super) use self::scan::{all_pairs, check_identity, pairs, read_header};
pub(super) use self::store::Change;
use super::disk::{Disk, FileIdentity, LOCK_WAIT, lock};
use super::error::LocalError;
use super::format::{Geometry, Kind, Pair, PairFlaw, Place, Row, Side, Table};
use super::header::{FileKind, Header, HeaderPair};
use super::high_water::{self, Back, HighWater};
use super::hints::{self, Hints};
use crate::clock::Clock;
use crate::registry::{Genesis, ReadError};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// The records, and what this opening knows of them.
pub(super) struct Records<D: Disk> {
    pub(super) disk: D,
    header: Header,
    clock: Arc<dyn Clock>,
    pub(super) high_water: HighWater,
    /// What the processes of the folder know, this one for those after it. Its own may be missing: others' are compared with
    /// all the same.
    hints: Option<Box<dyn Hints>>,
    /// Why nothing can be changed for now (I4).
    poison: Option<Poison>,
    /// Records of which a change was begun and never confirmed.
    doubtful: HashSet<Place>,
    /// Why nothing is believed any more (I6).
    put_back: Option<String>,
    /// Boot time at which the lock was waited for in vain, if it was not had since.
    missed_lock: Option<u64>,
    /// Whether this opening holds the lock: without it a change may be read half-way.
    is_locked: bool,
    /// The records that this opening changed last.
    changed: Vec<Place>,
    /// Where the records of names are.
    names: NameIndex,
}

/// What a process holds: a few workers at most, and the mark of its spill.
const CHANGED: usize = 8;

/// A failure of the disk.
struct Poison {
    why: String,
    /// The instant of boot time from which on the disk is tried again, and the pause after that in ns.
    retry: u64,
    pause: u64,
}

/// What opening made good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Healed {
    /// Records of which one copy was written again.
    pub(super) repaired: u32,
    /// Records of which both copies are unreadable.
    pub(super) damaged: u32,
}

impl<D: Disk> Records<D> {
    /// Opens the file on `disk` and leaves its lock taken. `None` if the path leads to another file by now.
    pub(super) fn open(
        mut disk: D,
        kind: FileKind,
        path: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Self>, LocalError> {
        if !lock(&mut disk).map_err(LocalError::io("lock", path))? {
            return Err(LocalError::Busy { path: path.to_owned(), waited: LOCK_WAIT });
        }
        if !disk.in_place().map_err(LocalError::io("look at", path))? {
            return Ok(None);
        }
        let found = read_header(&disk, kind, path)?;
        let now = disk.identity().map_err(LocalError::io("identify", path))?;
        check_identity(&found.header, &now, path)?;
        if !now.is_proof() {
            let path = path.display().to_string();
            deferred_log::log(move || {
                tracing::warn!(
                    path,
                    "the file system tells neither when a file was made nor its generation, so no start can tell this file from a \
                     copy: after a restore, a copy or a move use `xuid registry fence` or `adopt` before anything is started"
                );
            });
        }
        let mut records = Self {
            disk,
            header: found.header,
            clock,
            high_water: HighWater::default(),
            hints: None,
            poison: None,
            doubtful: HashSet::new(),
            put_back: None,
            missed_lock: None,
            is_locked: true,
            changed: Vec::new(),
            names: NameIndex::default(),
        };
        records.renew_header(&found, now, path)?;
        let healed = records.heal().map_err(LocalError::repairing(path))?;
        if healed != Healed::default() {
            let path = path.to_owned();
            deferred_log::log(move || {
                tracing::warn!(
                    path = %path.display(), repaired = healed.repaired, damaged = healed.damaged,
                    "the registry had damaged records: `repaired` had one good copy, `damaged` have none and stay unusable"
                );
            });
        }
        Ok(Some(records))
    }

    /// Opens the file on a disk without a folder, with hints if there are any, and leaves its lock free.
    pub(super) fn on(
        disk: D,
        kind: FileKind,
        hints: Option<Box<dyn Hints>>,
        path: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LocalError> {
        deferred_log::collected(|| {
            let opened = Self::open(disk, kind, path, clock)?;
            let mut records = opened.ok_or_else(|| LocalError::Unsettled { path: path.to_owned() })?;
            if let Some(hints) = hints {
                records.keep_hints(hints, path)?;
            }
            records.unlock();
            Ok(records)
        })
    }

    pub(super) fn genesis(&self) -> &Genesis {
        &self.header.genesis
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.header.geometry()
    }

    fn table(&self) -> Table {
        self.header.table()
    }

    /// Writes one copy of a record.
    fn write(&mut self, row: &Row, copy: Side) -> std::io::Result<()> {
        self.table().write(&mut self.disk, row, copy)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.read().wall / 1_000_000
    }

    /// Refuses a registry that says less than the processes of its folder knew; of one that does not, keeps what this
    /// process knows. Called with the lock that opening took.
    pub(super) fn keep_hints(&mut self, mut hints: Box<dyn Hints>, path: &Path) -> Result<(), LocalError> {
        let table = self.table();
        let mut known = hints::known(hints.as_mut(), table.widest());
        known.sort_by_key(|row| row.version);
        for row in &known {
            let is_there = table.geometry.position(row.place).is_some();
            let compared = if is_there { self.high_water.compare(row) } else { Err(Back::absent(row)) };
            if let Err(back) = compared
                && Guard::HintCompared.holds()
            {
                let (path, folder) = (path.to_owned(), path.parent().unwrap_or(path).to_owned());
                return Err(LocalError::Restored {
                    path,
                    folder,
                    what: row.place.to_string(),
                    how: back.found(),
                });
            }
        }
        // Of a sequence's record what was seen tells enough, and there may be very many.
        let of_names = self.high_water.rows(Kind::Sequence);
        let of_others = [Kind::Worker, Kind::Mark].into_iter().flat_map(|kind| self.pairs(kind));
        let changed = of_others.flatten().map(|pair| pair.row).chain(of_names).filter(|row| row.version > 1);
        // Of a record that cannot be read, what was known of it.
        if let Err(error) = hints::begin(hints.as_mut(), table, known.into_iter().chain(changed)) {
            let path = path.to_owned();
            deferred_log::log(move || {
                tracing::warn!(
                    path = %path.display(), %error,
                    "what this process knows of the registry cannot be kept beside it: should an old content be put \
                     back into the same file, only a person can tell"
                );
            });
        }
        self.hints = Some(hints);
        Ok(())
    }

    /// Makes what this process knows durable, at its clean stop.
    pub(super) fn sync_hints(&mut self) {
        if let Some(hints) = &mut self.hints {
            hints.sync();
        }
    }

    fn note(&mut self, rows: &[Row]) {
        let table = self.table();
        if let Some(hints) = &mut self.hints {
            hints::note(hints.as_mut(), table, rows);
        }
    }

    pub(super) fn unlock(&mut self) {
        self.is_locked = false;
        self.disk.unlock();
    }

    /// A volume that moved keeps its files, so it is taken as it is; the header learns where it is now.
    fn renew_header(&mut self, found: &HeaderPair, now: FileIdentity, path: &Path) -> Result<(), LocalError> {
        let then = found.header.identity;
        if then != now {
            let (path, machine_changed, device_changed) =
                (path.to_owned(), then.machine != now.machine, then.device != now.device);
            deferred_log::log(move || {
                tracing::warn!(
                    path = %path.display(),
                    machine_changed,
                    device_changed,
                    "the registry's volume was moved; make sure that nobody uses a copy of it elsewhere"
                );
            });
            self.header.identity = now;
            self.header.generation += 1;
        } else if found.sound == [true, true] {
            return Ok(());
        }
        found.replace(&mut self.disk, &self.header).map_err(LocalError::repairing(path))
    }

    /// Writes each copy again that is damaged, unreadable or behind, from the other one. The first sync makes durable
    /// what a killed process had written (I2), and everything that was found whole with it.
    fn heal(&mut self) -> std::io::Result<Healed> {
        if Guard::SyncAtOpening.holds() {
            self.disk.sync()?;
        }
        let mut healed = Healed::default();
        for chunk in self.geometry().chunks() {
            let found: Vec<_> = scan::chunk(&self.disk, self.table(), chunk).collect();
            for (place, pair) in found {
                self.names.learn(place, pair.as_ref().ok().map(|pair| &pair.row));
                let Ok(pair) = pair else {
                    healed.damaged += 1;
                    continue;
                };
                if !pair.is_whole() {
                    healed.repaired += 1;
                    self.write(&pair.row, pair.spare())?;
                }
                self.high_water.settle(&pair.row);
            }
        }
        if healed.repaired > 0 {
            self.disk.sync()?;
        }
        Ok(healed)
    }

    /// Both copies of one record.
    pub(super) fn pair(&mut self, place: Place) -> Result<Pair, ReadError> {
        let table = self.table();
        let [a, b] = Side::BOTH.map(|copy| table.row(&table.sector(&self.disk, place, copy), place));
        self.believe(place, Pair::of(a, b))
    }

    /// What a pair says, unless it contradicts what was seen before (I5) or is in doubt (I4).
    fn believe(&mut self, place: Place, pair: Result<Pair, PairFlaw>) -> Result<Pair, ReadError> {
        if self.doubtful.contains(&place) {
            let why = format!(
                "a change of {place} failed half-way, and its outcome is not known until the disk works again"
            );
            return Err(ReadError::Unavailable { why });
        }
        let damaged = |why: String| ReadError::Damaged { what: place.to_string(), why };
        let pair = pair.map_err(|flaw| damaged(flaw.to_string()))?;
        let Err(back) = self.high_water.see(&pair.row) else { return Ok(pair) };
        if self.is_locked && self.high_water.was_put_back(&pair.row) && Guard::PutBackRefused.holds() {
            return Err(self.refuse(place, back));
        }
        Err(damaged(back.to_string()))
    }

    /// The file was written over under this process: nothing of it is believed any more (I6).
    fn refuse(&mut self, place: Place, back: Back) -> ReadError {
        let why = format!(
            "{place} {}: an old content was put back into its file, or it was edited; {REMEDY}",
            back.found()
        );
        self.put_back = Some(why.clone());
        ReadError::Foreign { why }
    }

    /// Refuses a registry that says less than the processes of its folder know by now (I6). For a process that is
    /// about to take a worker, which another one may hold. Called under the lock.
    pub(super) fn compare_with_folder(&mut self) -> Result<(), ReadError> {
        let Some(hints) = &mut self.hints else { return Ok(()) };
        let known = hints::known(hints.as_mut(), self.header.table());
        let geometry = self.geometry();
        let found = [Kind::Worker, Kind::Mark].map(|kind| self.pairs(kind));
        for row in known {
            let position = geometry.position(row.place);
            let [workers, marks] = &found;
            let of_kind = if row.place.kind == Kind::Worker { workers } else { marks };
            let Some(Ok(pair)) = position.and_then(|at| of_kind.get(at as usize)) else { continue };
            if let Err(back) = high_water::compare(&pair.row, &row)
                && Guard::PutBackRefused.holds()
            {
                return Err(self.refuse(row.place, back));
            }
        }
        Ok(())
    }

    /// The same for one record, by what all processes of the folder know of it. Called under the lock.
    fn compare_place(&mut self, row: &Row) -> Result<(), ReadError> {
        let Some(hints) = &mut self.hints else { return Ok(()) };
        for known in hints::known_of(hints.as_mut(), self.header.table(), row.place) {
            if let Err(back) = high_water::compare(row, &known)
                && Guard::PutBackRefused.holds()
            {
                return Err(self.refuse(row.place, back));
            }
        }
        Ok(())
    }

    /// The records that this opening changed last.
    pub(super) fn changed(&self) -> Vec<Place> {
        self.changed.clone()
    }

    /// Both copies of all records of a kind, in order.
    pub(super) fn pairs(&self, kind: Kind) -> Vec<Result<Pair, PairFlaw>> {
        all_pairs(&self.disk, &self.header, kind)
    }

    /// The same, believed or not.
    pub(super) fn believed(&mut self, kind: Kind) -> Vec<Result<Pair, ReadError>> {
        let (numbers, pairs) = (self.geometry().numbers(kind), self.pairs(kind));
        numbers.zip(pairs).map(|(slot, pair)| self.believe(Place { kind, slot }, pair)).collect()
    }
}

/// What helps where the file is not what this process opened.
const REMEDY: &str = "stop the servers of its folder, look at what was done to the file, and run `xuid registry fence --restored` \
     on the folder";
