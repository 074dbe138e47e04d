//! The header of a folder's file, `registry` or `sequences`: what it was created with, and which file it is.
//!
//! Two copies, on pages of their own. Only the identity and the generation ever change, and of the file of sequences
//! how long it is, whether names may be made, and where they begin.

use std::fmt;
use std::io;
use std::path::Path;

use xuid_id::Layout;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::disk::{Disk, FileIdentity};
use super::error::LocalError;
use super::format::{GROWTH_SLOTS, Geometry, MARK_SLOTS, MOST_SEQUENCES, PAGE, SECTOR, Side, Table};
use crate::registry::record::EraId;
use crate::registry::{ClusterId, GENESIS_VERSION, Genesis, Workers};
use crate::sys::guards::Guard;

/// The first byte is not ASCII, and a transfer that changes line ends breaks it.
const MAGIC: [u8; 8] = *b"\x89XREG\r\n\x1a";
/// The same of the file of sequences.
const SEQUENCES_MAGIC: [u8; 8] = *b"\x89XSQ\r\n\x1a\x01";
/// The newest version of the file. Which one is written depends on the layout, and all up to it are read.
pub const VERSION: u32 = GENESIS_VERSION;

/// Which of the folder's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Registry,
    Sequences,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Registry => MAGIC,
            Self::Sequences => SEQUENCES_MAGIC,
        }
    }
}

/// What the header of the file of sequences says beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SequencesHeader {
    /// Slots of records: the file grows by [`GROWTH_SLOTS`].
    pub(super) slots: u32,
    /// The name of the time since the last fence. A record of another era is closed.
    pub(super) era: EraId,
    /// A fence closed it to new names: one that it does not have may have been there.
    pub(super) is_closed: bool,
    /// A name's mark begins here at least: what a person said who opened it.
    pub(super) least: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) genesis: Genesis,
    /// `None` for the registry's.
    pub(super) sequences: Option<SequencesHeader>,
    pub(super) identity: FileIdentity,
    /// Raised by each rewriting of the header, so that the newer of two copies is known.
    pub(super) generation: u64,
}

/// What one copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Intact(Header),
    OtherVersion(u32),
    Damaged,
    NoMagic,
}

/// What the two copies are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeaderPair {
    pub(super) header: Header,
    /// The copies that say exactly this.
    pub(super) sound: [bool; 2],
}

/// Why the header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFlaw {
    NotARegistry,
    OtherVersion(u32),
    Damaged,
}

impl fmt::Display for HeaderFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARegistry => f.write_str("it is not a registry"),
            Self::OtherVersion(version) => write!(f, "its format is version {version}"),
            Self::Damaged => f.write_str("both copies of its header are damaged"),
        }
    }
}

impl HeaderFlaw {
    pub(super) fn at(self, path: &Path) -> LocalError {
        let path = path.to_owned();
        match self {
            Self::NotARegistry => LocalError::NotARegistry { path },
            Self::OtherVersion(found) => LocalError::Version { path, found, known: VERSION },
            Self::Damaged => LocalError::HeaderDamaged { path },
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    magic: [u8; 8],
    version: U32,
    workers: U32,
    cluster: [u8; 16],
    layout: [u8; 16],
    floor: U64,
    /// Of sequences where the file is theirs.
    slots: U32,
    flags: U32,
    inode: U64,
    born_ns: U64,
    device: U64,
    machine: U64,
    generation: U64,
    era: EraId,
    /// From version 3 on, and zeros before.
    first_worker: U32,
    zeros: [u8; 4],
    /// The same, and zeros where the face is not opaque.
    key_check: U64,
    /// Zeros before version 3, too.
    closed_from: U32,
    closed_until: U32,
    /// Of sequences.
    least: U64,
    rest: [u8; 356],
    checksum: U32,
}

/// A flag of the file of sequences.
const CLOSED: u32 = 1;

impl Header {
    /// Of a file that is made now, and does not know yet which it is.
    pub(super) fn new(genesis: &Genesis, sequences: Option<SequencesHeader>) -> Self {
        Self { genesis: *genesis, sequences, identity: FileIdentity::default(), generation: 1 }
    }

    pub(super) fn geometry(&self) -> Geometry {
        match &self.sequences {
            None => Geometry::registry(self.genesis.worker_range().numbers()),
            Some(sequences) => Geometry::sequences(sequences.slots),
        }
    }

    /// The records of the file.
    pub(super) fn table(&self) -> Table {
        Table { geometry: self.geometry(), cluster: self.genesis.cluster }
    }

    pub(super) fn kind(&self) -> FileKind {
        if self.sequences.is_some() { FileKind::Sequences } else { FileKind::Registry }
    }

    pub(super) fn encode(&self) -> [u8; SECTOR] {
        let (slots, flags, era, least) = match &self.sequences {
            None => (MARK_SLOTS, 0, [0; 16], 0),
            Some(of) => (of.slots, if of.is_closed { CLOSED } else { 0 }, of.era, of.least),
        };
        let mut bytes = HeaderBytes {
            magic: self.kind().magic(),
            version: self.genesis.version().into(),
            workers: self.genesis.workers.into(),
            cluster: self.genesis.cluster.bytes(),
            layout: self.genesis.layout.to_bytes(),
            floor: self.genesis.floor.into(),
            slots: slots.into(),
            flags: flags.into(),
            inode: self.identity.inode.into(),
            born_ns: self.identity.born_ns.into(),
            device: self.identity.device.into(),
            machine: self.identity.machine.into(),
            generation: self.generation.into(),
            era,
            first_worker: self.genesis.first_worker.into(),
            zeros: [0; 4],
            key_check: self.genesis.key_check.unwrap_or_default().into(),
            closed_from: self.genesis.closed.from.into(),
            closed_until: self.genesis.closed.until.into(),
            least: least.into(),
            rest: [0; 356],
            checksum: U32::ZERO,
        };
        bytes.checksum = crc32c::crc32c(&bytes.as_bytes()[..SECTOR - 4]).into();
        zerocopy::transmute!(bytes)
    }
}

impl Found {
    /// Magic, version and checksum lie where they lie in every version, so that a later one is told from damage.
    fn decode(sector: &[u8; SECTOR], kind: FileKind) -> Self {
        let bytes: HeaderBytes = zerocopy::transmute!(*sector);
        if bytes.magic != kind.magic() {
            return Self::NoMagic;
        }
        if bytes.checksum.get() != crc32c::crc32c(&sector[..SECTOR - 4]) {
            return Self::Damaged;
        }
        let version = bytes.version.get();
        if !(1..=VERSION).contains(&version) {
            return Self::OtherVersion(version);
        }
        let (workers, slots) = (bytes.workers.get(), bytes.slots.get());
        let (sequences, are_slots) = match kind {
            FileKind::Registry => (None, slots == MARK_SLOTS),
            FileKind::Sequences => {
                let is_closed = bytes.flags.get() & CLOSED != 0;
                let sequences =
                    SequencesHeader { slots, era: bytes.era, is_closed, least: bytes.least.get() };
                let are_slots =
                    slots.is_multiple_of(GROWTH_SLOTS) && (GROWTH_SLOTS..=MOST_SEQUENCES).contains(&slots);
                (Some(sequences), are_slots)
            }
        };
        let cluster = ClusterId::from_bytes(bytes.cluster);
        let genesis = Layout::from_bytes(bytes.layout)
            .ok()
            .map(|layout| Genesis::new(cluster, layout, bytes.floor.get(), workers))
            .map(|genesis| {
                let closed = Workers { from: bytes.closed_from.get(), until: bytes.closed_until.get() };
                genesis.with_third(version, bytes.first_worker.get(), bytes.key_check.get(), closed)
            })
            .and_then(|genesis| genesis.checked(version));
        match genesis {
            Some(genesis) if are_slots => Self::Intact(Header {
                genesis,
                sequences,
                identity: FileIdentity {
                    inode: bytes.inode.get(),
                    born_ns: bytes.born_ns.get(),
                    device: bytes.device.get(),
                    machine: bytes.machine.get(),
                },
                generation: bytes.generation.get(),
            }),
            _ => Self::Damaged,
        }
    }
}

impl HeaderPair {
    fn of(a: Found, b: Found) -> Result<Self, HeaderFlaw> {
        match (a, b) {
            (Found::OtherVersion(version), _) | (_, Found::OtherVersion(version)) => {
                Err(HeaderFlaw::OtherVersion(version))
            }
            // Two headers of two registries: the file was patched together, and no crash does that.
            (Found::Intact(a), Found::Intact(b)) if a.genesis != b.genesis => Err(HeaderFlaw::Damaged),
            (Found::Intact(a), Found::Intact(b)) if a == b => Ok(Self { header: a, sound: [true, true] }),
            (Found::Intact(a), Found::Intact(b)) if a.generation > b.generation => {
                Ok(Self { header: a, sound: [true, false] })
            }
            (Found::Intact(a), Found::Intact(b)) if a.generation == b.generation => Err(HeaderFlaw::Damaged),
            (Found::Intact(header), Found::Damaged | Found::NoMagic) => {
                Ok(Self { header, sound: [true, false] })
            }
            (_, Found::Intact(header)) => Ok(Self { header, sound: [false, true] }),
            (Found::NoMagic, Found::NoMagic) => Err(HeaderFlaw::NotARegistry),
            (Found::Damaged | Found::NoMagic, Found::Damaged | Found::NoMagic) => Err(HeaderFlaw::Damaged),
        }
    }

    /// Reads both copies. A file that ends before them has none. Of a copy that cannot be read the other has to tell;
    /// where it does not, nobody knows what the file is.
    pub(super) fn read<D: Disk>(disk: &D, kind: FileKind) -> io::Result<Result<Self, HeaderFlaw>> {
        let size = disk.size()?;
        let mut found = [Found::NoMagic; 2];
        let mut unread = None;
        for copy in Side::BOTH {
            let mut sector = [0; SECTOR];
            let read = if offset(copy) + SECTOR as u64 <= size {
                disk.read_at(&mut sector, offset(copy))
            } else {
                Ok(())
            };
            found[copy as usize] = match read {
                Ok(()) => Found::decode(&sector, kind),
                Err(error) => {
                    unread = Some(error);
                    Found::Damaged
                }
            };
        }
        let [a, b] = found;
        match (Self::of(a, b), unread) {
            (Err(HeaderFlaw::Damaged), Some(error)) => Err(error),
            (judged, _) => Ok(judged),
        }
    }

    /// Writes `header` over both copies, the sound one last, each synced before the next. The whole page of each: to
    /// write a part of one that cannot be read, a kernel would have to read it.
    pub(super) fn replace<D: Disk>(&self, disk: &mut D, header: &Header) -> io::Result<()> {
        let is_b = self.sound == [true, false] && Guard::HeaderSpareFirst.holds();
        let first = if is_b { Side::B } else { Side::A };
        let mut page = [0; PAGE as usize];
        page[..SECTOR].copy_from_slice(&header.encode());
        if Guard::HeaderSyncBefore.holds() {
            disk.sync()?;
        }
        for copy in [first, first.other()] {
            disk.write_at(&page, offset(copy))?;
            if Guard::HeaderSyncBetween.holds() {
                disk.sync()?;
            }
        }
        Ok(())
    }
}

pub(super) fn offset(copy: Side) -> u64 {
    match copy {
        Side::A => 0,
        Side::B => PAGE,
    }
}
