//! A registry's storage in memory, for simulations: several openings share it, and its power can be cut.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, FileIdentity};
use crate::registry::local::format::SECTOR;

/// Tells openings apart.
static OPENINGS: AtomicU64 = AtomicU64::new(1);

/// Storage that behaves like a disk under a page cache: what was written and not synced may, sector by sector,
/// survive a power cut or not, or survive in part.
#[derive(Debug)]
pub struct MemoryDisk {
    shared: Arc<Mutex<DiskState>>,
    opening: u64,
}

#[derive(Debug)]
struct DiskState {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// Per sector, each content it had since the last sync.
    unsynced: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    identity: FileIdentity,
    in_place: bool,
    holder: Option<u64>,
    /// Writes and syncs until everything fails.
    countdown: Option<u32>,
    failing_syncs: u32,
    /// Syncs that succeed before those.
    sound_syncs: u32,
}

impl MemoryDisk {
    /// A disk that holds `bytes`, durably.
    #[must_use]
    pub fn new(mut bytes: Vec<u8>, identity: FileIdentity) -> Self {
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        let shared = DiskState {
            cached: bytes.clone(),
            durable: bytes,
            unsynced: BTreeMap::new(),
            identity,
            in_place: true,
            holder: None,
            countdown: None,
            failing_syncs: 0,
            sound_syncs: 0,
        };
        Self { shared: Arc::new(Mutex::new(shared)), opening: OPENINGS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Another opening of the same disk, as another process has it.
    #[must_use]
    pub fn open_again(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), opening: OPENINGS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Whether both are openings of one disk.
    #[cfg(all(test, not(loom)))]
    pub(in crate::registry::local) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// What a reader sees now.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.shared().cached.clone()
    }

    /// Changes the sector at `offset` behind everybody's back, in the cache and on the disk.
    ///
    /// # Panics
    /// If there is no such sector.
    pub fn tamper(&self, offset: usize, change: impl Fn(&mut [u8])) {
        let mut shared = self.shared();
        change(&mut shared.cached[offset..offset + SECTOR]);
        let length = shared.durable.len().max(offset + SECTOR);
        shared.durable.resize(length, 0);
        change(&mut shared.durable[offset..offset + SECTOR]);
        shared.unsynced.remove(&(offset / SECTOR));
    }

    /// Makes it another file than it was.
    pub fn identify(&self, identity: FileIdentity) {
        self.shared().identity = identity;
    }

    /// Puts another file at its path, or this one back.
    pub fn set_in_place(&self, in_place: bool) {
        self.shared().in_place = in_place;
    }

    /// After `operations` more writes and syncs, all of them fail; `None`: never. The first write that fails is
    /// made all the same, unsynced: the call that was interrupted does not know.
    pub fn stop_after(&self, operations: Option<u32>) {
        self.shared().countdown = operations;
    }

    /// Makes the next syncs fail as disks do: readers go on seeing what was written, and it is never durable.
    pub fn fail_syncs(&self, count: u32) {
        self.shared().failing_syncs = count;
    }

    /// The `nth` sync from now fails so, counted from 1.
    ///
    /// # Panics
    /// There is no sync 0.
    pub fn fail_sync(&self, nth: u32) {
        let mut shared = self.shared();
        shared.sound_syncs = nth.checked_sub(1).unwrap_or_else(|| panic!("syncs are counted from 1"));
        shared.failing_syncs = 1;
    }

    /// What a power cut at this moment would leave: each sector that was not synced is what it was, one of what it was
    /// to become, or a mixture. `choose(n)` picks one of `n` ways. Nothing is changed.
    pub fn image(&self, mut choose: impl FnMut(usize) -> usize) -> Vec<u8> {
        let shared = self.shared();
        let mut left = shared.durable.clone();
        for (sector, contents) in &shared.unsynced {
            let at = sector * SECTOR..(sector + 1) * SECTOR;
            let chosen = choose(2 * contents.len() + 1);
            if let Some(content) = contents.get(chosen / 2) {
                // A length that was not synced is durable with what was written behind it, or not at all.
                left.resize(left.len().max(at.end), 0);
                let torn = if chosen.is_multiple_of(2) { SECTOR } else { choose(SECTOR) };
                left[at][..torn].copy_from_slice(&content[..torn]);
            }
        }
        left
    }

    /// Cuts the power: what is left is an [`image`](Self::image).
    pub fn cut_power(&self, choose: impl FnMut(usize) -> usize) {
        let left = self.image(choose);
        let mut shared = self.shared();
        shared.cached.clone_from(&left);
        shared.durable = left;
        shared.unsynced.clear();
        shared.holder = None;
        shared.countdown = None;
    }

    fn shared(&self) -> MutexGuard<'_, DiskState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskState {
    /// One operation nearer to the stop; `true` once it is reached.
    fn stops(&mut self) -> bool {
        match &mut self.countdown {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

fn stopped() -> io::Error {
    io::Error::other("the disk stopped")
}

impl Disk for MemoryDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let shared = self.shared();
        let begin = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = shared.cached.get(begin..begin + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut shared = self.shared();
        let begin = usize::try_from(offset).map_err(io::Error::other)?;
        let first_to_fail = shared.countdown == Some(0) && shared.holder == Some(self.opening);
        let stops = shared.stops();
        if stops && !first_to_fail {
            return Err(stopped());
        }
        let end = begin + bytes.len();
        shared.cached.get_mut(begin..end).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(bytes);
        for sector in begin / SECTOR..end.div_ceil(SECTOR) {
            let mut content = [0; SECTOR];
            content.copy_from_slice(&shared.cached[sector * SECTOR..(sector + 1) * SECTOR]);
            shared.unsynced.entry(sector).or_default().push(content);
        }
        if stops { Err(stopped()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut shared = self.shared();
        if shared.stops() {
            return Err(stopped());
        }
        if shared.sound_syncs > 0 {
            shared.sound_syncs -= 1;
        } else if shared.failing_syncs > 0 {
            shared.failing_syncs -= 1;
            shared.unsynced.clear();
            return Err(io::Error::other("the disk refused to sync"));
        }
        let length = shared.cached.len();
        shared.durable.resize(length, 0);
        for sector in std::mem::take(&mut shared.unsynced).into_keys() {
            let at = sector * SECTOR..(sector + 1) * SECTOR;
            let DiskState { durable, cached, .. } = &mut *shared;
            durable[at.clone()].copy_from_slice(&cached[at]);
        }
        Ok(())
    }

    fn extend(&mut self, size: u64) -> io::Result<()> {
        let mut shared = self.shared();
        if shared.stops() {
            return Err(stopped());
        }
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let size = size.next_multiple_of(SECTOR).max(shared.cached.len());
        shared.cached.resize(size, 0);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.shared().cached.len() as u64)
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(self.shared().identity)
    }

    fn in_place(&self) -> io::Result<bool> {
        Ok(self.shared().in_place)
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        let mut shared = self.shared();
        let free = shared.holder.is_none_or(|holder| holder == self.opening);
        if free {
            shared.holder = Some(self.opening);
        }
        Ok(free)
    }

    fn unlock(&mut self) {
        let mut shared = self.shared();
        if shared.holder == Some(self.opening) {
            shared.holder = None;
        }
    }
}

/// As a process that ends lets its lock go.
impl Drop for MemoryDisk {
    fn drop(&mut self) {
        self.unlock();
    }
}
