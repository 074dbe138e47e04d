//! What simulations do to a registry's disk besides writing to it: they look at it from outside, and fence it.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, FileIdentity, MemoryDisk};
use super::fence::raised;
use super::format::{Geometry, Kind, MARK_SLOTS, Pair, Place, Row, SECTOR, Side};
use super::genesis::write_image;
use super::header::{FileKind, Header};
use super::hints::Hints;
use super::records::read_header;
use crate::registry::{Fenced, Genesis, Versioned, WorkerRecord};

/// The offsets of the first copy of a place's record and of the second.
fn offsets(genesis: &Genesis, place: Place) -> [u64; 2] {
    let geometry = Geometry::registry(genesis.worker_range().numbers());
    Side::BOTH.map(|copy| geometry.offset(place, copy))
}

/// Where both copies of the header are, or of the `n`th of all records.
pub(crate) fn copies_of(genesis: &Genesis, n: Option<u32>) -> [usize; 2] {
    let place = match n {
        None => return Side::BOTH.map(|copy| super::header::offset(copy) as usize),
        Some(n) if n < genesis.workers => Place::worker(n),
        Some(n) => Place { kind: Kind::Mark, slot: (n - genesis.workers) % MARK_SLOTS },
    };
    offsets(genesis, place).map(|offset| offset as usize)
}

impl MemoryDisk {
    /// What whoever looked now would believe a worker's record to be.
    pub(crate) fn peek_worker(&self, genesis: &Genesis, worker: u32) -> Option<Versioned<WorkerRecord>> {
        let place = Place::worker(worker);
        let [a, b] = offsets(genesis, place).map(|offset| {
            let mut sector = [0; SECTOR];
            let read = self.read_at(&mut sector, offset);
            read.map_err(|error| super::format::Flaw::Unreadable(error.kind()))?;
            Row::decode(&sector, genesis.cluster, place)
        });
        let Row { version, value, token, operation, owner, .. } = Pair::of(a, b).ok()?.row;
        Some(Versioned { record: WorkerRecord { reserved_until: value, token, operation, owner }, version })
    }

    /// The file that a fence puts in the place of this one, which nobody may use any more.
    pub(crate) fn fenced(&self, now_ns: u64, identity: FileIdentity) -> Option<(Self, Fenced)> {
        let header = read_header(self, FileKind::Registry, Path::new("memory")).ok()?.header;
        let (fenced, row) = raised(self, &header, &[], now_ns, header.genesis.cluster);
        let mut image = Vec::new();
        let new = Header { identity, ..Header::new(&fenced.genesis, None) };
        write_image(&mut image, &new, &row).ok()?;
        Some((Self::new(image, identity), fenced))
    }
}

/// The hints of a simulated folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryHints(Arc<Mutex<Vec<Kept>>>);

/// Those of one process.
#[derive(Debug)]
struct Kept {
    disk: MemoryDisk,
    ended: bool,
}

impl MemoryHints {
    /// What an image of the power cut left.
    pub(crate) fn of(images: &[Vec<u8>]) -> Self {
        let kept = |image: &Vec<u8>| {
            let disk = MemoryDisk::new(image.clone(), FileIdentity::default());
            Kept { disk, ended: true }
        };
        Self(Arc::new(Mutex::new(images.iter().map(kept).collect())))
    }

    /// A process's.
    pub(crate) fn process(&self) -> Box<dyn Hints> {
        Box::new(Process { folder: self.clone(), own: None })
    }

    /// What a power cut at this moment would leave. See [`MemoryDisk::image`].
    pub(crate) fn image(&self, mut choose: impl FnMut(usize) -> usize) -> Vec<Vec<u8>> {
        self.kept().iter().map(|kept| kept.disk.image(&mut choose)).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Process {
    folder: MemoryHints,
    own: Option<MemoryDisk>,
}

impl Hints for Process {
    fn all(&mut self, _most: u64) -> Vec<Vec<u8>> {
        self.folder.kept().iter().map(|kept| kept.disk.bytes()).collect()
    }

    fn begin(&mut self, image: &[u8]) -> io::Result<()> {
        let mut disk = MemoryDisk::new(vec![0; image.len()], FileIdentity::default());
        disk.write_at(image, 0)?;
        disk.sync()?;
        self.own = Some(disk.open_again());
        self.folder.kept().push(Kept { disk, ended: false });
        Ok(())
    }

    fn sweep(&self) {
        self.folder.kept().retain(|kept| !kept.ended);
    }

    fn parts(&mut self, offset: u64, len: usize) -> Vec<Vec<u8>> {
        let part = |kept: &Kept| {
            let mut part = vec![0; len];
            kept.disk.read_at(&mut part, offset).ok().map(|()| part)
        };
        self.folder.kept().iter().filter_map(part).collect()
    }

    fn extend(&mut self, bytes: u64) -> io::Result<()> {
        self.own.as_mut().map_or(Ok(()), |own| own.extend(bytes))
    }

    fn note(&mut self, parts: &[(u64, Vec<u8>)]) {
        let Some(own) = &mut self.own else { return };
        for (offset, part) in parts {
            let _ = own.write_at(part, *offset);
        }
    }

    fn sync(&mut self) {
        if let Some(own) = &mut self.own {
            let _ = own.sync();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let own = self.own.take();
        for kept in self.folder.kept().iter_mut() {
            kept.ended |= own.as_ref().is_some_and(|own| own.is_same(&kept.disk));
        }
    }
}
