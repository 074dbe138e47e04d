//! The registry that the nodes of a history share: one in memory, as on other hosts, or the real local one on a disk
//! in memory, of which each node is a process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::registry::local::simulated::copies_of;
use crate::registry::local::{FileIdentity, LocalError, LocalRegistry, MemoryDisk};
use crate::registry::memory::{Backup, Fault, MemoryRegistry};
use crate::registry::{Genesis, Registry, Versioned, WorkerRecord};
use crate::sys::atomics::lock;
use crate::testing::support::clock::SimClock;
use crate::testing::support::faults::{Faults, FaultyClock, FaultyDisk};

/// The registry of a history.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(MemoryRegistry),
    Local(Box<Folder>),
}

/// A host's registry: a file, and the host's clock.
#[derive(Debug)]
pub(crate) struct Folder {
    genesis: Genesis,
    disk: Mutex<MemoryDisk>,
    clock: Arc<SimClock>,
    /// Files there have been: each has an inode of its own.
    files: AtomicU64,
}

/// What a store was once.
#[derive(Debug, Clone)]
pub(crate) enum Copy {
    Memory(Backup),
    Local(Vec<u8>),
}

fn identity(inode: u64) -> FileIdentity {
    FileIdentity { inode, born_ns: 1_000 + inode, device: 1, machine: 1 }
}

impl Store {
    pub(crate) fn memory(genesis: Genesis) -> Self {
        Self::Memory(MemoryRegistry::new(genesis))
    }

    pub(crate) fn local(genesis: Genesis, clock: Arc<SimClock>) -> Self {
        let disk = Mutex::new(MemoryDisk::with_registry(&genesis, identity(1)));
        Self::Local(Box::new(Folder { genesis, disk, clock, files: AtomicU64::new(1) }))
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    pub(crate) fn genesis(&self) -> &Genesis {
        match self {
            Self::Memory(registry) => registry.genesis(),
            Self::Local(folder) => &folder.genesis,
        }
    }

    /// The way of one life to it.
    pub(crate) fn open(&self, faults: &Arc<Faults>) -> Result<Box<dyn Registry>, LocalError> {
        match self {
            Self::Memory(registry) => Ok(Box::new(registry.clone())),
            Self::Local(folder) => {
                let disk = FaultyDisk { disk: lock(&folder.disk).open_again(), faults: faults.clone() };
                let clock = FaultyClock { clock: folder.clock.clone(), faults: faults.clone() };
                Ok(Box::new(LocalRegistry::on(disk, Arc::new(clock))?))
            }
        }
    }

    /// The way of somebody else to it, if it can be opened.
    pub(crate) fn outsider(&self) -> Option<Box<dyn Registry>> {
        match self {
            Self::Memory(registry) => Some(Box::new(registry.clone())),
            Self::Local(folder) => {
                let disk = lock(&folder.disk).open_again();
                Some(Box::new(LocalRegistry::on(disk, folder.clock.clone()).ok()?))
            }
        }
    }

    /// What a worker's record is; none if it cannot be read.
    pub(crate) fn peek(&self, worker: u32) -> Option<Versioned<WorkerRecord>> {
        match self {
            Self::Memory(registry) => registry.clone().worker(worker).ok(),
            Self::Local(folder) => lock(&folder.disk).peek_worker(&folder.genesis, worker),
        }
    }

    /// The next write of anybody meets this, where there is a wire that can fail.
    pub(crate) fn fail(&self, fault: Fault) {
        if let Self::Memory(registry) = self {
            registry.fail(fault);
        }
    }

    /// No fault waits any more.
    pub(crate) fn mend(&self) {
        if let Self::Memory(registry) = self {
            registry.mend();
        }
    }

    /// All of it as it is now.
    pub(crate) fn copy(&self) -> Copy {
        match self {
            Self::Memory(registry) => Copy::Memory(registry.backup()),
            Self::Local(folder) => Copy::Local(lock(&folder.disk).bytes()),
        }
    }

    /// It is again what it was, and then fenced, if `fence` says so: at that time of whoever does it. Nobody may have a
    /// local one open.
    pub(crate) fn restore(&self, copy: &Copy, fence: Option<u64>) -> Result<(), String> {
        match (self, copy) {
            (Self::Memory(registry), Copy::Memory(backup)) => {
                registry.restore(backup);
                if let Some(now_ns) = fence {
                    registry.fence(now_ns);
                }
                Ok(())
            }
            (Self::Local(folder), Copy::Local(bytes)) => {
                let same = identity(folder.files.load(Ordering::Relaxed));
                let mut disk = MemoryDisk::new(bytes.clone(), same);
                // The copy may be of a file before a fence, whose inode was another.
                let refused = LocalRegistry::on(disk.open_again(), folder.clock.clone());
                if let Err(LocalError::Copied { recorded, .. }) = &refused {
                    disk.identify(*recorded);
                }
                drop(refused);
                if let Some(now_ns) = fence {
                    let inode = folder.files.fetch_add(1, Ordering::Relaxed) + 1;
                    let (fenced, _) = disk.fenced(now_ns, identity(inode)).ok_or("it was not fenced")?;
                    disk = fenced;
                }
                *lock(&folder.disk) = disk;
                Ok(())
            }
            _ => Err("a copy of another kind of registry".into()),
        }
    }

    /// The host's power is cut.
    pub(crate) fn cut_power(&self, choose: impl FnMut(usize) -> usize) {
        if let Self::Local(folder) = self {
            lock(&folder.disk).cut_power(choose);
        }
    }

    /// One copy of a record, or of the header, rots: `n` chooses which, `spoil` does it.
    pub(crate) fn rot(&self, n: Option<u32>, copy: usize, spoil: impl Fn(&mut [u8])) {
        if let Self::Local(folder) = self {
            lock(&folder.disk).tamper(copies_of(&folder.genesis, n)[copy], spoil);
        }
    }
}
