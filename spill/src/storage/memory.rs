//! A storage in memory, with the misfortunes of a disk: for tests and simulators.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::format::PAGE;
use crate::storage::{Shortened, Storage};

/// The unit that a disk writes whole, or not at all, or, where its power fails in the middle of it, in part.
const SECTOR: usize = 512;

/// Contents of one sector between two syncs that are remembered: the first, which is durable, and the latest. Of more,
/// the oldest but one is forgotten: a simulator that never syncs would fill the memory.
const REMEMBERED: usize = 6;

/// Bytes in memory. Clones are handles on the same bytes, so a test keeps one and tampers behind the log's back.
///
/// It remembers which sectors were written since the last sync and what they held before, so that a power cut can be
/// played: [`settle`](Self::settle) the sectors that are to survive, then [`crash`](Self::crash); or let
/// [`cut_power`](Self::cut_power) choose.
///
/// ```
/// use xuid_spill::{MemoryStorage, Storage};
/// let mut disk = MemoryStorage::new();
/// disk.allocate(1024)?;
/// disk.write_at(0, &[1; 1024])?;
/// disk.settle(|sector| sector == 1);
/// disk.crash();
/// assert_eq!(disk.bytes()[511..513], [0, 1]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    /// What the sectors written since the last sync held then, and each time that they were written before the last.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    failing_write: Option<Fault>,
    failing_sync: Option<u64>,
    unreadable: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    /// Calls until it strikes; 1 is the next one.
    nth: u64,
    /// How many bytes of the failing write land all the same.
    landed: usize,
}

impl MemoryStorage {
    /// An empty one, for [`Log::create`](crate::Log::create).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that holds these bytes: a copy of another one, say, or a file read from a disk.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let disk = Disk { bytes, ..Disk::default() };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// A copy of the bytes as they are now, synced or not.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Changes the bytes behind the log's back, their number included.
    pub fn tamper(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.lock().bytes);
    }

    /// Lets the `nth` write from now (1 is the next) fail after its first `landed` bytes were written.
    pub fn fail_write(&self, nth: u64, landed: usize) {
        self.lock().failing_write = Some(Fault { nth, landed });
    }

    /// Lets the `nth` sync from now (1 is the next) fail.
    pub fn fail_sync(&self, nth: u64) {
        self.lock().failing_sync = Some(nth);
    }

    /// Makes the pages that these bytes lie on unreadable, and all others readable. As with a disk under a system's
    /// cache, a read that touches such a page fails, and so does a write of a part of it, which would have to read the
    /// rest; a write of the whole page makes it good.
    pub fn fail_reads(&self, bytes: Range<u64>) {
        self.lock().unreadable =
            if bytes.is_empty() { BTreeSet::new() } else { pages(bytes.start, bytes.end).collect() };
    }

    /// Makes those of the unsynced 512-byte sectors durable that `survives` picks by number.
    pub fn settle(&self, mut survives: impl FnMut(u64) -> bool) {
        self.lock().unsynced.retain(|sector, _| !survives(*sector as u64));
    }

    /// The power is cut: every sector that is not durable is again what it was.
    pub fn crash(&self) {
        let mut disk = self.lock();
        for (sector, contents) in std::mem::take(&mut disk.unsynced) {
            if let Some(before) = contents.first() {
                disk.put(sector, before);
            }
        }
    }

    /// The power is cut: each sector that is not durable is what it was, or what it was to become at some time since,
    /// or the beginning of that and the rest of what it was. `choose(n)` picks one of `n` ways. Returns how many are
    /// torn.
    pub fn cut_power(&self, mut choose: impl FnMut(usize) -> usize) -> u64 {
        let mut disk = self.lock();
        let mut torn = 0;
        for (sector, mut contents) in std::mem::take(&mut disk.unsynced) {
            let start = sector * SECTOR;
            let until = (start + SECTOR).min(disk.bytes.len());
            let Some(now) = disk.bytes.get(start..until) else { continue };
            contents.push(now.to_vec());
            let chosen = choose(contents.len());
            let landed = if chosen > 0 && choose(4) == 0 { choose(SECTOR) } else { SECTOR };
            torn += u64::from(landed < SECTOR);
            let mut content = contents[0].clone();
            let landed = landed.min(content.len()).min(contents[chosen].len());
            content[..landed].copy_from_slice(&contents[chosen][..landed]);
            disk.put(sector, &content);
        }
        torn
    }

    /// What a power cut at this moment would leave, if those of the unsynced sectors survive that `survives` picks by
    /// number. Nothing is changed.
    #[must_use]
    pub fn image(&self, mut survives: impl FnMut(u64) -> bool) -> Vec<u8> {
        let disk = self.lock();
        let mut left = disk.bytes.clone();
        for (sector, contents) in &disk.unsynced {
            let start = sector * SECTOR;
            let Some(before) = contents.first() else { continue };
            if let Some(now) = left.get_mut(start..start + before.len()).filter(|_| !survives(*sector as u64))
            {
                now.copy_from_slice(before);
            }
        }
        left
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A test that panicked while it held the lock left the bytes in some state; any state is a legal disk.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    fn is_unreadable(&self, offset: u64, bytes: usize) -> bool {
        let touched = pages(offset, offset + bytes as u64);
        !self.unreadable.is_empty()
            && touched.start < touched.end
            && self.unreadable.range(touched).next().is_some()
    }

    /// Puts a content into a sector, if it is still there.
    fn put(&mut self, sector: usize, content: &[u8]) {
        let start = sector * SECTOR;
        if let Some(now) = self.bytes.get_mut(start..start + content.len()) {
            now.copy_from_slice(content);
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        for sector in offset / SECTOR..=(end - 1) / SECTOR {
            let start = sector * SECTOR;
            let until = (start + SECTOR).min(self.bytes.len());
            let contents = self.unsynced.entry(sector).or_default();
            if contents.len() == REMEMBERED {
                contents.remove(1);
            }
            contents.push(self.bytes[start..until].to_vec());
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }
}

/// The pages that bytes lie on.
fn pages(start: u64, end: u64) -> Range<u64> {
    start / PAGE..end.div_ceil(PAGE)
}

/// Counts down; whether this call is the one.
fn strikes(left: &mut u64) -> bool {
    *left = left.saturating_sub(1);
    *left == 0
}

impl Storage for MemoryStorage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().bytes.len() as u64)
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let mut disk = self.lock();
        if disk.bytes.len() < bytes {
            disk.bytes.resize(bytes, 0);
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let disk = self.lock();
        Shortened::check(disk.bytes.len() as u64, offset, buf.len())?;
        if disk.is_unreadable(offset, buf.len()) {
            return Err(io::Error::other("a read that was told to fail"));
        }
        // Checked: the end is within a Vec, so the offset fits.
        let start = offset as usize;
        buf.copy_from_slice(&disk.bytes[start..start + buf.len()]);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.lock();
        Shortened::check(disk.bytes.len() as u64, offset, bytes.len())?;
        if let Some(mut fault) = disk.failing_write.take() {
            if strikes(&mut fault.nth) {
                let landed = fault.landed.min(bytes.len());
                disk.write(offset as usize, &bytes[..landed]);
                return Err(io::Error::other("a write that was told to fail"));
            }
            disk.failing_write = Some(fault);
        }
        let end = offset + bytes.len() as u64;
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        disk.unreadable.retain(|page| !whole.contains(page));
        if disk.is_unreadable(offset, bytes.len()) {
            return Err(io::Error::other("a write to a part of a page that cannot be read"));
        }
        disk.write(offset as usize, bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.lock();
        if let Some(mut nth) = disk.failing_sync.take() {
            if strikes(&mut nth) {
                return Err(io::Error::other("a sync that was told to fail"));
            }
            disk.failing_sync = Some(nth);
        }
        disk.unsynced.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_leaves_of_each_sector_a_content_it_had_or_the_beginning_of_one() {
        let mut seen = BTreeSet::new();
        for seed in 0..200_usize {
            let mut disk = MemoryStorage::from_bytes(vec![0; 2 * SECTOR]);
            disk.write_at(0, &[1; 2 * SECTOR]).unwrap();
            disk.write_at(0, &[2; SECTOR]).unwrap();
            let mut draws = seed * 7_919;
            let torn = disk.cut_power(|n| {
                draws = draws.wrapping_mul(25_214_903_917).wrapping_add(11);
                (draws >> 16) % n
            });
            let bytes = disk.bytes();
            let (first, second) = bytes.split_at(SECTOR);
            let changes = |sector: &[u8]| sector.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(changes(first) <= 1 && changes(second) <= 1 && second.iter().all(|byte| *byte <= 1));
            assert!(changes(first) as u64 + changes(second) as u64 <= torn, "seed {seed}");
            seen.insert((first[0], first[SECTOR - 1], second[0]));
            // What survived is durable.
            disk.crash();
            assert_eq!(disk.bytes(), bytes);
        }
        assert!(
            [(0, 0, 0), (1, 1, 1), (2, 2, 0), (2, 0, 1)].iter().all(|whole| seen.contains(whole)),
            "{seen:?}"
        );
    }
}
