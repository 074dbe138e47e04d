//! The header of a registry file: what it was created with, and which file it is.
//!
//! Two copies, on pages of their own. Only the identity and the generation ever change.

use std::fmt;
use std::io;
use std::path::Path;

use xuid_id::Layout;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::disk::{Disk, FileIdentity};
use super::error::LocalError;
use super::format::{Geometry, MARK_SLOTS, PAGE, SECTOR, Side};
use crate::registry::{ClusterId, Genesis};
use crate::sys::guards::Guard;

/// The first byte is not ASCII, and a transfer that changes line ends breaks it.
const MAGIC: [u8; 8] = *b"\x89XREG\r\n\x1a";
/// The version of the file that is written, and the only one that is read.
pub const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) genesis: Genesis,
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
    marks: U32,
    zeros: [u8; 4],
    inode: U64,
    born_ns: U64,
    device: U64,
    machine: U64,
    generation: U64,
    rest: [u8; 404],
    checksum: U32,
}

impl Header {
    pub(super) fn geometry(&self) -> Geometry {
        Geometry { workers: self.genesis.workers, marks: MARK_SLOTS }
    }

    pub(super) fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = HeaderBytes {
            magic: MAGIC,
            version: VERSION.into(),
            workers: self.genesis.workers.into(),
            cluster: self.genesis.cluster.bytes(),
            layout: self.genesis.layout.to_bytes(),
            floor: self.genesis.floor.into(),
            marks: MARK_SLOTS.into(),
            zeros: [0; 4],
            inode: self.identity.inode.into(),
            born_ns: self.identity.born_ns.into(),
            device: self.identity.device.into(),
            machine: self.identity.machine.into(),
            generation: self.generation.into(),
            rest: [0; 404],
            checksum: U32::ZERO,
        };
        bytes.checksum = crc32c::crc32c(&bytes.as_bytes()[..SECTOR - 4]).into();
        zerocopy::transmute!(bytes)
    }
}

impl Found {
    /// Magic, version and checksum lie where they lie in every version, so that a later one is told from damage.
    fn decode(sector: &[u8; SECTOR]) -> Self {
        let bytes: HeaderBytes = zerocopy::transmute!(*sector);
        if bytes.magic != MAGIC {
            return Self::NoMagic;
        }
        if bytes.checksum.get() != crc32c::crc32c(&sector[..SECTOR - 4]) {
            return Self::Damaged;
        }
        if bytes.version.get() != VERSION {
            return Self::OtherVersion(bytes.version.get());
        }
        let workers = bytes.workers.get();
        match Layout::from_bytes(bytes.layout) {
            Ok(layout) if bytes.marks.get() == MARK_SLOTS && (1..=layout.workers()).contains(&workers) => {
                let cluster = ClusterId::from_bytes(bytes.cluster);
                Self::Intact(Header {
                    genesis: Genesis { cluster, layout, floor: bytes.floor.get(), workers },
                    identity: FileIdentity {
                        inode: bytes.inode.get(),
                        born_ns: bytes.born_ns.get(),
                        device: bytes.device.get(),
                        machine: bytes.machine.get(),
                    },
                    generation: bytes.generation.get(),
                })
            }
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
    pub(super) fn read<D: Disk>(disk: &D) -> io::Result<Result<Self, HeaderFlaw>> {
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
                Ok(()) => Found::decode(&sector),
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
