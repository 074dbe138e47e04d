//! The header: what a file says about itself, in two copies on different pages.
//!
//! It is written once, at creation. Nothing in it ever changes, so the two copies of an intact file are equal and
//! either of them is enough.

use std::io;

use crate::error::HeaderError;
use crate::format::{COPIES_AT, HEADER_BYTES, MAX_BYTES, PAGE, RECORD_BYTES, RECORDS_AT, VERSION};
use crate::identity::{Identity, SpillId};
use crate::le;
use crate::storage::{ReadAt, Shortened};

/// As in other binary formats: a byte that is not ASCII, a name, and line ends that a text-mode copy would change.
const MAGIC: [u8; 8] = *b"\x89XSPL\r\n\x1a";
// Signature, version and checksum stay where they are in every version of the format.
const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + MAGIC.len();
const RECORD_BYTES_AT: usize = VERSION_AT + size_of::<u32>();
const SPILL_AT: usize = RECORD_BYTES_AT + size_of::<u32>();
const CLUSTER_AT: usize = SPILL_AT + 16;
const LAYOUT_AT: usize = CLUSTER_AT + 16;
const STRIDE_AT: usize = LAYOUT_AT + 16;
const CAPACITY_AT: usize = STRIDE_AT + size_of::<u64>();
const RESERVED_AT: usize = CAPACITY_AT + size_of::<u64>();
const CHECKSUM_AT: usize = HEADER_BYTES - size_of::<u32>();
const _: () = assert!(RESERVED_AT <= CHECKSUM_AT && HEADER_BYTES as u64 <= PAGE);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) identity: Identity,
    /// How many records fit.
    pub(crate) capacity: u64,
}

/// A header, and which copy of it has to be written again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) header: Header,
    pub(crate) damaged_copy: Option<usize>,
}

#[derive(Clone, Copy)]
enum Copy {
    Intact(Header),
    OtherVersion(u32),
    Damaged,
    /// No signature.
    Foreign,
}

impl Header {
    /// How many records fit into a file of `bytes`.
    pub(crate) fn capacity_of(bytes: u64) -> u64 {
        bytes.saturating_sub(RECORDS_AT) / RECORD_BYTES as u64
    }

    pub(crate) fn slot(&self, index: u64) -> u64 {
        index % self.capacity
    }

    pub(crate) fn offset(slot: u64) -> u64 {
        RECORDS_AT + slot * RECORD_BYTES as u64
    }

    /// How long the file has to be.
    pub(crate) fn file_bytes(&self) -> u64 {
        Self::offset(self.capacity)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        le::put(&mut bytes, MAGIC_AT, MAGIC);
        le::put(&mut bytes, VERSION_AT, VERSION.to_le_bytes());
        le::put(&mut bytes, RECORD_BYTES_AT, (RECORD_BYTES as u32).to_le_bytes());
        le::put(&mut bytes, SPILL_AT, self.identity.spill.bytes());
        le::put(&mut bytes, CLUSTER_AT, self.identity.cluster);
        le::put(&mut bytes, LAYOUT_AT, self.identity.layout);
        le::put(&mut bytes, STRIDE_AT, self.identity.stride.to_le_bytes());
        le::put(&mut bytes, CAPACITY_AT, self.capacity.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        le::put(&mut bytes, CHECKSUM_AT, checksum.to_le_bytes());
        bytes
    }

    /// A copy, and the zeros up to the next page.
    pub(crate) fn page(&self) -> [u8; PAGE as usize] {
        let mut page = [0; PAGE as usize];
        page[..HEADER_BYTES].copy_from_slice(&self.encode());
        page
    }

    /// Reads both copies of a file of `found` bytes and decides what the file is. Of a copy that cannot be read the
    /// other has to tell; where it does not, nobody knows what the file is.
    pub(crate) fn find(read: ReadAt<'_>, found: u64) -> Result<Result<Found, HeaderError>, io::Error> {
        let mut copies = [Copy::Foreign; 2];
        let mut unread = None;
        for (copy, at) in copies.iter_mut().zip(COPIES_AT) {
            // A file that ends before a copy may still be known by the other, and is then refused as shortened.
            if at + HEADER_BYTES as u64 <= found {
                let mut bytes = [0; HEADER_BYTES];
                *copy = match read(at, &mut bytes) {
                    Ok(()) => decode(&bytes),
                    Err(error) => {
                        unread = Some(error);
                        Copy::Damaged
                    }
                };
            }
        }
        match (judge(copies, found), unread) {
            (Err(HeaderError::Damaged), Some(error)) => Err(error),
            (judged, _) => Ok(judged),
        }
    }
}

fn decode(bytes: &[u8; HEADER_BYTES]) -> Copy {
    if le::take(bytes, MAGIC_AT) != MAGIC {
        return Copy::Foreign;
    }
    if le::u32_at(bytes, CHECKSUM_AT) != crc32c::crc32c(&bytes[..CHECKSUM_AT]) {
        return Copy::Damaged;
    }
    let version = le::u32_at(bytes, VERSION_AT);
    if version != VERSION {
        return Copy::OtherVersion(version);
    }
    let identity = Identity {
        spill: SpillId::from_bytes(le::take(bytes, SPILL_AT)),
        cluster: le::take(bytes, CLUSTER_AT),
        stride: le::u64_at(bytes, STRIDE_AT),
        layout: le::take(bytes, LAYOUT_AT),
    };
    let header = Header { identity, capacity: le::u64_at(bytes, CAPACITY_AT) };
    let possible = le::u32_at(bytes, RECORD_BYTES_AT) == RECORD_BYTES as u32
        && (1..=Header::capacity_of(MAX_BYTES)).contains(&header.capacity)
        && identity.stride >= 1;
    if possible { Copy::Intact(header) } else { Copy::Damaged }
}

fn judge(copies: [Copy; 2], found: u64) -> Result<Found, HeaderError> {
    let (header, damaged_copy) = match copies {
        // An intact copy of another version counts even next to one of ours: somebody began to convert the file.
        [Copy::OtherVersion(found), _] | [_, Copy::OtherVersion(found)] => {
            return Err(HeaderError::Version { found });
        }
        [Copy::Intact(first), Copy::Intact(second)] if first != second => {
            return Err(HeaderError::CopiesDiffer);
        }
        [Copy::Intact(header), Copy::Intact(_)] => (header, None),
        [Copy::Intact(header), _] => (header, Some(1)),
        [_, Copy::Intact(header)] => (header, Some(0)),
        [Copy::Foreign, Copy::Foreign] => return Err(HeaderError::NotASpill { found }),
        _ => return Err(HeaderError::Damaged),
    };
    let needed = header.file_bytes();
    if found < needed {
        return Err(HeaderError::Shortened(Shortened { found, needed }));
    }
    Ok(Found { header, damaged_copy })
}
