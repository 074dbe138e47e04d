//! Reading and changing the records of one registry, by one opening of its storage.
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

mod copies;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;

use self::copies::Copies;
use super::disk::{Disk, FileIdentity, LOCK_WAIT, lock};
use super::error::LocalError;
use super::format::{Flaw, Geometry, Kind, Pair, PairFlaw, Place, Row, SECTOR, Side};
use super::header::{Header, HeaderPair};
use super::high_water::{self, Back, HighWater};
use super::hints::{self, Hints};
use crate::clock::Clock;
use crate::registry::{Genesis, ReadError, SwapError};
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
    /// Whether this opening holds the lock: without it a change may be read half-way.
    is_locked: bool,
    /// The records that this opening changed last.
    changed: Vec<Place>,
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

/// Between two tries of a disk that failed: from a second, doubling, up to half a minute, in ns.
const DISK_PAUSES: (u64, u64) = (1_000_000_000, 30_000_000_000);

/// What opening made good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Healed {
    /// Records of which one copy was written again.
    pub(super) repaired: u32,
    /// Records of which both copies are unreadable.
    pub(super) damaged: u32,
}

impl<D: Disk> Records<D> {
    /// Opens the registry on `disk` and leaves its lock taken. `None` if the path leads to another file by now.
    pub(super) fn open(mut disk: D, path: &Path, clock: Arc<dyn Clock>) -> Result<Option<Self>, LocalError> {
        if !lock(&mut disk).map_err(LocalError::io("lock", path))? {
            return Err(LocalError::Busy { path: path.to_owned(), waited: LOCK_WAIT });
        }
        if !disk.in_place().map_err(LocalError::io("look at", path))? {
            return Ok(None);
        }
        let found = read_header(&disk, path)?;
        let now = disk.identity().map_err(LocalError::io("identify", path))?;
        check_identity(&found.header, &now, path)?;
        let mut records = Self {
            disk,
            header: found.header,
            clock,
            high_water: HighWater::default(),
            hints: None,
            poison: None,
            doubtful: HashSet::new(),
            put_back: None,
            is_locked: true,
            changed: Vec::new(),
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

    pub(super) fn genesis(&self) -> &Genesis {
        &self.header.genesis
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.header.geometry()
    }

    fn copies(&self) -> Copies {
        Copies { geometry: self.geometry(), cluster: self.genesis().cluster }
    }

    /// Writes one copy of a record.
    fn write(&mut self, row: &Row, copy: Side) -> std::io::Result<()> {
        self.copies().write(&mut self.disk, row, copy)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.read().wall / 1_000_000
    }

    /// Refuses a registry that says less than the processes of its folder knew; of one that does not, keeps what this
    /// process knows. Called with the lock that opening took.
    pub(super) fn keep_hints(&mut self, mut hints: Box<dyn Hints>, path: &Path) -> Result<(), LocalError> {
        let genesis = *self.genesis();
        let mut known = hints::known(hints.as_mut(), &genesis);
        known.sort_by_key(|row| row.version);
        for row in &known {
            if let Err(back) = self.high_water.compare(row)
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
        let pairs = [Kind::Worker, Kind::Mark].into_iter().flat_map(|kind| self.pairs(kind));
        let changed = pairs.flatten().map(|pair| pair.row).filter(|row| row.version > 1);
        // Of a record that cannot be read, what was known of it.
        let rows: Vec<Row> = known.into_iter().chain(changed).collect();
        if let Err(error) = hints::begin(hints.as_mut(), &genesis, &rows) {
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

    fn note(&mut self, row: &Row) {
        if let Some(hints) = &mut self.hints {
            hints::note(hints.as_mut(), &self.header.genesis, row);
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
        for kind in [Kind::Worker, Kind::Mark] {
            for pair in self.pairs(kind) {
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

    /// Does something under the lock, on the file that was opened.
    pub(super) fn locked<T, E: From<ReadError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        match lock(&mut self.disk) {
            Ok(true) => {}
            Ok(false) => {
                let why = format!("another process kept it locked for {LOCK_WAIT:?}");
                return Err(ReadError::Unavailable { why }.into());
            }
            Err(error) => return Err(unavailable("lock", &error).into()),
        }
        self.is_locked = true;
        // A panic must not keep others out: they wait for this lock, and the next one to take it here may come late.
        let work = AssertUnwindSafe(|| self.verify().map_err(E::from).and_then(|()| work(self)));
        let result = catch_unwind(work);
        self.unlock();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Tries a disk that failed again, if it is time for that, and ends the doubt that a panic left. A process that
    /// only reads needs it as well: a change of its own is in doubt until then.
    pub(super) fn recover(&mut self) {
        let is_due = match &self.poison {
            Some(poison) => self.clock.read().boot >= poison.retry,
            None => !self.doubtful.is_empty(),
        };
        if is_due {
            // What fails says so itself, and is tried again later.
            let _: Result<(), SwapError> = self.locked(Self::cure);
        }
    }

    /// Changes something under the lock. What could not even be read is told apart from what was refused.
    pub(super) fn change(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        if let Some(poison) = self.poison.as_ref().filter(|poison| self.clock.read().boot < poison.retry) {
            return Err(SwapError::Unavailable { why: poison.why.clone() });
        }
        let work = |records: &mut Self| {
            records.cure()?;
            work(records)
        };
        self.locked(work).map_err(|error| match error {
            SwapError::Read(ReadError::Unavailable { why }) => SwapError::Unavailable { why },
            other => other,
        })
    }

    /// Whether the open file is still the registry that was opened: a file that was replaced, shortened or written
    /// over while we run is noticed before anything is believed or written.
    pub(super) fn verify(&self) -> Result<(), ReadError> {
        if let Some(why) = &self.put_back {
            return Err(ReadError::Foreign { why: why.clone() });
        }
        let foreign = |what: String| Err(ReadError::Foreign { why: format!("{what}; {REMEDY}") });
        if !self.disk.in_place().map_err(|error| unavailable("look at", &error))? {
            return foreign("its file was removed or replaced".into());
        }
        let (size, least) =
            (self.disk.size().map_err(|error| unavailable("measure", &error))?, self.geometry().bytes());
        if size < least {
            return foreign(format!("its file has {size} bytes and should have {least}"));
        }
        match HeaderPair::read(&self.disk).map_err(|error| unavailable("read", &error))? {
            Err(flaw) => foreign(flaw.to_string()),
            Ok(found) if found.header.genesis != self.header.genesis => {
                let (now, then) = (found.header.genesis.cluster, self.header.genesis.cluster);
                foreign(format!("its header names cluster {now}, and cluster {then} was opened"))
            }
            Ok(found) if !found.header.identity.same_file(&self.header.identity) => foreign(format!(
                "its header belongs to {}, and it is {}: another copy was written over it",
                found.header.identity, self.header.identity
            )),
            Ok(_) => Ok(()),
        }
    }

    /// Both copies of one record.
    pub(super) fn pair(&mut self, place: Place) -> Result<Pair, ReadError> {
        let copies = self.copies();
        let [a, b] = Side::BOTH.map(|copy| copies.row(&copies.sector(&self.disk, place, copy), place));
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
        let known = hints::known(hints.as_mut(), &self.header.genesis);
        let geometry = self.geometry();
        let found = [Kind::Worker, Kind::Mark].map(|kind| self.pairs(kind));
        for row in known {
            let slot = (row.place.slot < geometry.slots(row.place.kind)).then_some(row.place.slot as usize);
            let [workers, marks] = &found;
            let of_kind = if row.place.kind == Kind::Worker { workers } else { marks };
            let Some(Ok(pair)) = slot.and_then(|slot| of_kind.get(slot)) else { continue };
            if let Err(back) = high_water::compare(&pair.row, &row)
                && Guard::PutBackRefused.holds()
            {
                return Err(self.refuse(row.place, back));
            }
        }
        Ok(())
    }

    /// Whether a change could be made now, as far as that shows without one: the file is the one that was opened, its lock
    /// is to be had, and the disk takes writes.
    pub(super) fn probe(&mut self) -> Result<(), SwapError> {
        self.change(|_| Ok(()))?;
        // Without the lock: a disk that stands still must not keep others from it.
        self.disk.would_write().map_err(|error| SwapError::Unavailable { why: refused_write(&error) })
    }

    /// The records that this opening changed last.
    pub(super) fn changed(&self) -> Vec<Place> {
        self.changed.clone()
    }

    /// After a failure of the disk, or a panic in the middle of a change: makes it hold what can be read, or tells that
    /// it does not. Called under the lock.
    fn cure(&mut self) -> Result<(), SwapError> {
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
        let pairs = [Kind::Worker, Kind::Mark].into_iter().flat_map(|kind| self.pairs(kind));
        let pairs: Vec<Pair> = pairs.flatten().collect();
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
                    self.note(&pair.row);
                }
            }
        }
        Ok(())
    }

    /// Both copies of all records of a kind, in order.
    pub(super) fn pairs(&self, kind: Kind) -> Vec<Result<Pair, PairFlaw>> {
        all_pairs(&self.disk, &self.header, kind)
    }

    /// The same, believed or not.
    pub(super) fn believed(&mut self, kind: Kind) -> Vec<Result<Pair, ReadError>> {
        let pairs = self.pairs(kind);
        (0..).zip(pairs).map(|(slot, pair)| self.believe(Place { kind, slot }, pair)).collect()
    }

    /// Stores `row` over `base`, under the lock.
    pub(super) fn store(&mut self, base: &Pair, row: &Row) -> Result<(), SwapError> {
        let place = row.place;
        assert_eq!(place, base.row.place, "a record is stored where it was read");
        assert!(row.version > base.row.version, "each change raises the version");
        self.doubtful.insert(place);
        let durable = base.is_whole() && self.high_water.is_settled(&base.row);
        if !durable && Guard::SyncBefore.holds() {
            // Another process may have been killed between a write and its sync (I2).
            if let Err(error) = self.disk.sync() {
                return Err(SwapError::Unavailable { why: self.poison(place, &error) });
            }
        }
        if !Guard::HintLast.holds() {
            self.note(row);
        }
        if let Err(error) = self.write_both(base, row) {
            return Err(SwapError::Unknown { why: self.poison(place, &error) });
        }
        self.doubtful.remove(&place);
        self.high_water.settle(row);
        self.note(row);
        self.changed.retain(|changed| *changed != place);
        self.changed.insert(0, place);
        self.changed.truncate(CHANGED);
        Ok(())
    }

    fn write_both(&mut self, base: &Pair, row: &Row) -> std::io::Result<()> {
        let first = if Guard::SecondCopy.holds() { base.spare() } else { Side::A };
        self.write(row, first)?;
        crash_point!(CopyOneWritten);
        if Guard::SyncBetween.holds() {
            self.disk.sync()?;
        }
        crash_point!(CopyOneSynced);
        if !Guard::SecondCopy.holds() {
            return Ok(());
        }
        self.write(row, first.other())?;
        crash_point!(CopyTwoWritten);
        self.disk.sync()?;
        crash_point!(CopyTwoSynced);
        Ok(())
    }

    fn poison(&mut self, place: Place, error: &std::io::Error) -> String {
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

/// What helps where the file is not what this process opened.
const REMEDY: &str = "stop the servers of its folder, look at what was done to the file, and run `xuid registry fence --restored` \
     on the folder";

fn refused_write(error: &std::io::Error) -> String {
    format!("its disk takes no writes ({error}): check the disk, and whether it is mounted read-only")
}

fn unavailable(action: &str, error: &std::io::Error) -> ReadError {
    ReadError::Unavailable { why: format!("failed to {action} its file: {error}") }
}

/// The header of a file that is as long as it says.
pub(super) fn read_header<D: Disk>(disk: &D, path: &Path) -> Result<HeaderPair, LocalError> {
    let read = HeaderPair::read(disk).map_err(LocalError::io("read", path))?;
    let pair = read.map_err(|flaw| flaw.at(path))?;
    let (found, expected) =
        (disk.size().map_err(LocalError::io("measure", path))?, pair.header.geometry().bytes());
    if found < expected {
        return Err(LocalError::Shortened { path: path.to_owned(), found, expected });
    }
    Ok(pair)
}

/// Whether the file is the one that the header was written for.
pub(super) fn check_identity(header: &Header, found: &FileIdentity, path: &Path) -> Result<(), LocalError> {
    if header.identity.same_file(found) || !Guard::FileIdentity.holds() {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path).to_owned();
    Err(LocalError::Copied { path: path.to_owned(), folder, recorded: header.identity, found: *found })
}

/// Sectors read at a time: 64 KiB.
const CHUNK: u32 = 128;

/// Both copies of all records of a kind, in order.
pub(super) fn all_pairs<D: Disk>(disk: &D, header: &Header, kind: Kind) -> Vec<Result<Pair, PairFlaw>> {
    let (geometry, cluster) = (header.geometry(), header.genesis.cluster);
    let slots = geometry.slots(kind);
    let mut pairs = Vec::with_capacity(slots as usize);
    for first in (0..slots).step_by(CHUNK as usize) {
        let end = slots.min(first + CHUNK);
        let [a, b] = Side::BOTH
            .map(|copy| read_chunk(disk, geometry.offset(Place { kind, slot: first }, copy), end - first));
        for ((slot, a), b) in (first..end).zip(a).zip(b) {
            let place = Place { kind, slot };
            let [a, b] = [a, b].map(|sector| Row::decode(&sector?, cluster, place));
            pairs.push(Pair::of(a, b));
        }
    }
    pairs
}

/// Some sectors; where they cannot be read at once, one by one, so that a bad one does not take the rest along.
fn read_chunk<D: Disk>(disk: &D, offset: u64, sectors: u32) -> Vec<Result<[u8; SECTOR], Flaw>> {
    let mut bytes = vec![[0; SECTOR]; sectors as usize];
    if disk.read_at(bytes.as_flattened_mut(), offset).is_ok() {
        return bytes.into_iter().map(Ok).collect();
    }
    (0..u64::from(sectors))
        .map(|sector| {
            let mut bytes = [0; SECTOR];
            let read = disk.read_at(&mut bytes, offset + sector * SECTOR as u64);
            read.map(|()| bytes).map_err(|error| Flaw::Unreadable(error.kind()))
        })
        .collect()
}
