//! What simulations do to a registry's disk besides writing to it: they look at it from outside, and fence it.

use std::path::Path;

use super::disk::{Disk, FileIdentity};
use super::fence::raised;
use super::format::{Geometry, Kind, MARK_SLOTS, Pair, Place, Row, SECTOR, Side};
use super::genesis::write_image;
use super::memory::MemoryDisk;
use super::records::read_header;
use crate::registry::{Fenced, Genesis, Versioned, WorkerRecord};

/// The offsets of the first copy of a place's record and of the second.
fn offsets(genesis: &Genesis, place: Place) -> [u64; 2] {
    let geometry = Geometry { workers: genesis.workers, marks: MARK_SLOTS };
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
        let header = read_header(self, Path::new("memory")).ok()?.header;
        let (fenced, row) = raised(self, &header, now_ns, header.genesis.cluster);
        let mut image = Vec::new();
        write_image(&mut image, &fenced.genesis, identity, &row).ok()?;
        Some((Self::new(image, identity), fenced))
    }
}
