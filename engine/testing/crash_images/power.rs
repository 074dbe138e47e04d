//! The power of a machine: what its disks hold that is not synced, and what a cut at this moment would leave of it.
//!
//! A registry's file and a spill a process, all behind [`Wired`], which tells after each write and sync that it was
//! made. Such moments, those before the first of them, and some between two actions of the host are *points*. At some
//! points an [`Image`] is made: of each disk any subset of what was written since its last sync, and what had been
//! issued and told by then. The machine goes on as if nothing had been.
//!
//! # Invariants
//! - I1 at a point nothing is half-done that the judge relies upon: what was issued is noted before the next action,
//!   and what the engine is told of a record is noted before it is told.

use std::io;
use std::sync::{Arc, Mutex};

use xuid_spill::{MemoryStorage, Storage};

use crate::registry::local::simulated::MemoryHints;
use crate::registry::local::{Disk, FileIdentity, MemoryDisk};
use crate::sys::atomics::lock;
use crate::testing::crash_images::known::{Known, What};
use crate::testing::crash_images::land::{self, Span};
use crate::testing::support::clock::Time;
use crate::testing::support::rng::Rng;

/// Processes of a machine at most, each with a spill of its own.
pub(crate) const PROCESSES: usize = 2;

/// So many points at most from one image to the next. A life's usual change is four of them, its start about twenty.
const FURTHEST: u64 = 48;

/// What a negative control does that no guard of the engine stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    /// A mark's write is confirmed at once, and made before the next request.
    pub(crate) mark_not_awaited: bool,
    /// A spill's sync does nothing.
    pub(crate) spill_not_synced: bool,
}

/// What a power cut left.
pub(crate) struct Image {
    /// In the course of what, and after how many writes and syncs of that.
    pub(crate) point: String,
    pub(crate) registry: Vec<u8>,
    /// What is beside it of what its processes knew.
    pub(crate) hints: Vec<Vec<u8>>,
    pub(crate) spills: [Option<Vec<u8>>; PROCESSES],
    pub(crate) known: Known,
    /// The mark of each process's spill when it began.
    pub(crate) begun: [u64; PROCESSES],
    /// How many spans had been issued.
    pub(crate) issued: usize,
    /// The true time.
    pub(crate) at: u64,
    /// Ids of records that were written, not granted, and are lost.
    pub(crate) unsynced: u64,
    /// Those of them that a clean stop had left.
    pub(crate) stopped_unsynced: u64,
}

/// The disks, and what is noted beside them.
struct Machine {
    rng: Rng,
    time: Arc<Time>,
    registry: MemoryDisk,
    hints: MemoryHints,
    spills: [Option<MemoryStorage>; PROCESSES],
    known: Known,
    /// Processes that were stopped cleanly and not begun again.
    stopped: [bool; PROCESSES],
    /// The mark of each process's spill when it began.
    begun: [u64; PROCESSES],
    issued: Vec<Span>,
    /// What is going on, and how many writes and syncs it has made.
    doing: (&'static str, u32),
    points: u64,
    /// The point at which the next image is made.
    next: u64,
    images: Vec<Image>,
    wanted: usize,
}

/// The power of a machine.
pub(crate) struct Power(Mutex<Machine>);

impl Power {
    /// A machine with these disks, of which so many images shall be made.
    pub(crate) fn new(
        time: Arc<Time>,
        (registry, hints): (MemoryDisk, MemoryHints),
        spills: [Option<MemoryStorage>; PROCESSES],
        known: Known,
        wanted: usize,
        rng: &mut Rng,
    ) -> Arc<Self> {
        let mut rng = rng.fork();
        let next = rng.magnitude(1, FURTHEST);
        Arc::new(Self(Mutex::new(Machine {
            rng,
            time,
            registry,
            hints,
            spills,
            known,
            stopped: [false; PROCESSES],
            begun: [0; PROCESSES],
            issued: Vec::new(),
            doing: ("idle", 0),
            points: 0,
            next,
            images: Vec::new(),
            wanted,
        })))
    }

    /// Whether all images were made that were wanted.
    pub(crate) fn is_done(&self) -> bool {
        let machine = lock(&self.0);
        machine.images.len() >= machine.wanted
    }

    pub(crate) fn take_images(&self) -> Vec<Image> {
        std::mem::take(&mut lock(&self.0).images)
    }

    /// All that was issued on this machine.
    pub(crate) fn issued(&self) -> Vec<Span> {
        lock(&self.0).issued.clone()
    }

    pub(crate) fn issue(&self, first: u64, len: u32) {
        lock(&self.0).issued.push(first..first + u64::from(len));
    }

    pub(crate) fn known<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut lock(&self.0).known)
    }

    pub(crate) fn registry(&self) -> MemoryDisk {
        lock(&self.0).registry.open_again()
    }

    pub(crate) fn hints(&self) -> MemoryHints {
        lock(&self.0).hints.clone()
    }

    pub(crate) fn spill(&self, process: usize) -> Option<MemoryStorage> {
        lock(&self.0).spills[process].clone()
    }

    pub(crate) fn set_spill(&self, process: usize, spill: Option<MemoryStorage>) {
        lock(&self.0).spills[process] = spill;
    }

    /// A process begins: what was granted before is not its own.
    pub(crate) fn begin(&self, process: usize) {
        let mut machine = lock(&self.0);
        let spill = machine.spills[process].as_ref().and_then(|spill| land::spill_id(&spill.bytes()));
        let mark = spill.and_then(|spill| machine.known.value(What::Mark(spill)));
        (machine.begun[process], machine.stopped[process]) = (mark.unwrap_or(0), false);
    }

    /// A process has put all that it had on its disk.
    pub(crate) fn stop(&self, process: usize) {
        lock(&self.0).stopped[process] = true;
    }

    /// Does something by name, so that an image that is made in the middle says in the middle of what.
    pub(crate) fn doing<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let before = std::mem::replace(&mut lock(&self.0).doing, (what, 0));
        self.point();
        let result = work();
        lock(&self.0).doing = before;
        result
    }

    /// A point, at which an image may be made.
    pub(crate) fn point(&self) {
        lock(&self.0).point();
    }

    /// The kernel writes some of what is cached of the spills to disk, as it does unasked.
    pub(crate) fn write_back(&self) {
        let mut machine = lock(&self.0);
        let Machine { spills, rng, .. } = &mut *machine;
        let percent = rng.pick(&[10, 50, 100]);
        spills.iter().flatten().for_each(|spill| spill.settle(|_| rng.chance(percent)));
    }

    fn did(&self) {
        let mut machine = lock(&self.0);
        machine.doing.1 += 1;
        machine.point();
    }
}

impl Machine {
    fn point(&mut self) {
        self.points += 1;
        if self.points < self.next || self.images.len() >= self.wanted {
            return;
        }
        self.next = self.points + self.rng.magnitude(1, FURTHEST);
        let image = self.image();
        self.images.push(image);
    }

    fn image(&mut self) -> Image {
        let Self { rng, registry, hints, spills, known, stopped, .. } = self;
        // All, none and some are all worth their while.
        let percent = rng.pick(&[0, 20, 50, 50, 80, 100]);
        let mut left = |spill: &MemoryStorage| spill.image(|_| rng.chance(percent));
        let images = spills.each_ref().map(|spill| spill.as_ref().map(&mut left));
        let lost = |(spill, left): (&Option<MemoryStorage>, &Option<Vec<u8>>)| {
            let (cached, left) = (spill.as_ref()?.bytes(), left.as_ref()?);
            let mark = known.value(What::Mark(land::spill_id(&cached)?))?;
            Some(land::lost(&cached, left, mark))
        };
        let lost: Vec<u64> = spills.iter().zip(&images).map(|pair| lost(pair).unwrap_or(0)).collect();
        let of_stopped = lost.iter().zip(stopped).filter(|(_, stopped)| **stopped);
        let stopped_unsynced = of_stopped.map(|(lost, _)| lost).sum();
        let (doing, done) = self.doing;
        Image {
            point: format!("{doing}_{done}"),
            registry: registry.image(|n| rng.below(n as u64) as usize),
            hints: hints.image(|n| rng.below(n as u64) as usize),
            spills: images,
            known: known.clone(),
            begun: self.begun,
            issued: self.issued.len(),
            at: self.time.now(),
            unsynced: lost.iter().sum(),
            stopped_unsynced,
        }
    }
}

/// A disk that tells of each write and sync that it was made.
pub(crate) struct Wired<D> {
    pub(crate) disk: D,
    pub(crate) power: Arc<Power>,
    pub(crate) fault: Fault,
}

impl Disk for Wired<MemoryDisk> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)?;
        self.power.did();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.sync()?;
        self.power.did();
        Ok(())
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

impl Storage for Wired<MemoryStorage> {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.allocate(bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buffer)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(offset, bytes)?;
        self.power.did();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if !self.fault.spill_not_synced {
            self.disk.sync()?;
        }
        self.power.did();
        Ok(())
    }
}
