//! The middle of things: where a process meets the world outside (its clock, its disk, the registry), it may be killed,
//! be stopped for a while, or find that its disk fails.
//!
//! Each life has its faults. The driver of the simulation arms one: the `n`th pass of a kind of point from now meets
//! it. A kill unwinds, without a word of the panic hook, to the driver, which drops what is left of the life.
//!
//! # Invariants
//! - F1 after a kill nothing of that life reaches disk or registry any more: what runs while it unwinds or is dropped
//!   finds all of it failing, and is not killed again;
//! - F2 what a caller did not get before the kill was not issued.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use xuid_spill::{MemoryStorage, Storage};

use crate::clock::{Clock, Reading};
use crate::registry::local::{Disk, FileIdentity, MemoryDisk};
use crate::sys::atomics::lock;
use crate::testing::support::clock::{SimClock, Time};

/// What a kill unwinds with.
pub(crate) struct Killed;

/// What a panic of the producer or of the registry thread unwinds with.
pub(crate) struct Panicked;

/// Where a fault can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// A reading of the clock.
    Clock,
    /// Before or after an operation of the registry.
    Registry,
    /// A write or a sync of the spill.
    Spill,
    /// A write or a sync of the registry's file, where it is one.
    Folder,
}

/// What happens there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The process dies. Of a write so many 256ths land; a sync is done from one half on.
    Kill(u8),
    /// It is stopped for so many nanoseconds, before.
    Pause(u64),
    /// The producer panics in the middle of a turn, or the registry thread in the middle of a job, and goes on with the
    /// next one: a defect, which may cost ids.
    Panic,
    /// The write or sync fails. Of a write so many 256ths land.
    Fail(u8),
}

/// A fault that is to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Armed {
    pub(crate) point: Point,
    /// Passes of such points before it strikes.
    pub(crate) after: u32,
    pub(crate) kind: FaultKind,
}

impl Armed {
    /// For tests of what a panic anywhere in the engine's own code leaves behind.
    pub(crate) const NEXT_READING_PANICS: Self =
        Self { point: Point::Clock, after: 0, kind: FaultKind::Panic };
}

#[derive(Debug, Default)]
struct State {
    armed: Option<Armed>,
    /// The faults that struck, until somebody asks.
    injected: Vec<(Point, FaultKind)>,
    /// The registry's file failed under this life, which therefore changes nothing in it any more.
    folder_failed: bool,
}

/// The faults of one life.
#[derive(Debug)]
pub(crate) struct Faults {
    time: Arc<Time>,
    dead: AtomicBool,
    /// Whether `state` has anything armed: most passes look at nothing else.
    is_armed: AtomicBool,
    /// Whether anything struck since that was asked.
    has_injected: AtomicBool,
    /// The producer is in the middle of a turn, or the registry thread in that of a job.
    working: AtomicBool,
    state: Mutex<State>,
}

impl Faults {
    pub(crate) fn new(time: Arc<Time>, armed: Option<Armed>) -> Arc<Self> {
        let is_armed = AtomicBool::new(armed.is_some());
        let state = Mutex::new(State { armed, ..State::default() });
        let [dead, has_injected, working] = [const { AtomicBool::new(false) }; 3];
        Arc::new(Self { time, dead, is_armed, has_injected, working, state })
    }

    /// A fault that was to come and did not is forgotten.
    pub(crate) fn arm(&self, armed: Option<Armed>) {
        lock(&self.state).armed = armed;
        self.is_armed.store(armed.is_some(), Ordering::Relaxed);
    }

    /// Whether what follows is a turn of the producer, or a job of the registry thread.
    pub(crate) fn set_working(&self, working: bool) {
        self.working.store(working, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// From now on everything outside fails (F1).
    pub(crate) fn cut(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// What struck since this was asked last.
    pub(crate) fn take_injected(&self) -> Vec<(Point, FaultKind)> {
        if !self.has_injected.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.state).injected)
    }

    pub(crate) fn has_folder_failed(&self) -> bool {
        lock(&self.state).folder_failed
    }

    fn meet(&self, point: Point) -> Option<FaultKind> {
        if !self.is_armed.load(Ordering::Relaxed) || self.is_dead() {
            return None;
        }
        let mut state = lock(&self.state);
        let armed = state.armed.as_mut().filter(|armed| armed.point == point)?;
        if armed.kind == FaultKind::Panic && !self.working.load(Ordering::Relaxed) {
            return None;
        }
        if armed.after > 0 {
            armed.after -= 1;
            return None;
        }
        let kind = armed.kind;
        state.armed = None;
        state.injected.push((point, kind));
        state.folder_failed |= point == Point::Folder && matches!(kind, FaultKind::Fail(_));
        self.is_armed.store(false, Ordering::Relaxed);
        self.has_injected.store(true, Ordering::Relaxed);
        Some(kind)
    }

    fn kill(&self) -> ! {
        self.cut();
        resume_unwind(Box::new(Killed))
    }

    /// A point at which nothing can fail.
    pub(crate) fn pass(&self, point: Point) {
        match self.meet(point) {
            Some(FaultKind::Kill(_)) => self.kill(),
            Some(FaultKind::Panic) => resume_unwind(Box::new(Panicked)),
            Some(FaultKind::Pause(ns)) => self.time.pass(ns),
            Some(FaultKind::Fail(_)) | None => {}
        }
    }

    /// A write that may land in part.
    fn write(
        &self,
        point: Point,
        bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_dead() {
            return Err(io::Error::other("the process is dead"));
        }
        let part = |share: u8| &bytes[..bytes.len() * usize::from(share) / 256];
        match self.meet(point) {
            Some(FaultKind::Kill(share)) => {
                let _ = write(part(share));
                self.kill()
            }
            Some(FaultKind::Fail(share)) => {
                let _ = write(part(share));
                return Err(io::Error::other("the disk failed in a write"));
            }
            Some(FaultKind::Panic) => resume_unwind(Box::new(Panicked)),
            Some(FaultKind::Pause(ns)) => self.time.pass(ns),
            None => {}
        }
        write(bytes)
    }

    /// A sync that may not be done, by `fail`, or not come back.
    fn sync(
        &self,
        point: Point,
        sync: impl FnOnce() -> io::Result<()>,
        fail: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match self.meet(point) {
            _ if self.is_dead() => Err(io::Error::other("the process is dead")),
            Some(FaultKind::Kill(share)) => {
                if share >= 128 {
                    let _ = sync();
                }
                self.kill()
            }
            Some(FaultKind::Panic) => resume_unwind(Box::new(Panicked)),
            Some(FaultKind::Fail(_)) => fail(),
            Some(FaultKind::Pause(ns)) => {
                self.time.pass(ns);
                sync()
            }
            None => sync(),
        }
    }
}

/// A machine's clocks, as one life reads them.
#[derive(Debug)]
pub(crate) struct FaultyClock {
    pub(crate) clock: Arc<SimClock>,
    pub(crate) faults: Arc<Faults>,
}

impl Clock for FaultyClock {
    fn read(&self) -> Reading {
        self.faults.pass(Point::Clock);
        self.clock.read()
    }
}

/// A spill's storage, as one life uses it.
#[derive(Debug)]
pub(crate) struct FaultyStorage {
    pub(crate) storage: MemoryStorage,
    pub(crate) faults: Arc<Faults>,
}

impl Storage for FaultyStorage {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        self.faults.write(Point::Spill, &[], |_| self.storage.allocate(bytes))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.storage.read_at(offset, buf)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.faults.write(Point::Spill, bytes, |bytes| self.storage.write_at(offset, bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        let fail = || {
            self.storage.clone().fail_sync(1);
            self.storage.clone().sync()
        };
        self.faults.sync(Point::Spill, || self.storage.clone().sync(), fail)
    }
}

/// The registry's disk, as one life uses it.
#[derive(Debug)]
pub(crate) struct FaultyDisk {
    pub(crate) disk: MemoryDisk,
    pub(crate) faults: Arc<Faults>,
}

impl Disk for FaultyDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.faults.write(Point::Folder, bytes, |bytes| self.disk.write_at(bytes, offset))
    }

    fn sync(&mut self) -> io::Result<()> {
        let disk = std::cell::RefCell::new(&mut self.disk);
        let fail = || {
            disk.borrow().fail_syncs(1);
            disk.borrow_mut().sync()
        };
        self.faults.sync(Point::Folder, || disk.borrow_mut().sync(), fail)
    }

    fn extend(&mut self, size: u64) -> io::Result<()> {
        self.disk.extend(size)
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.disk.identity()
    }

    fn in_place(&self) -> io::Result<bool> {
        self.disk.in_place()
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        self.disk.try_lock()
    }

    fn unlock(&mut self) {
        self.disk.unlock();
    }
}
