//! The campaign of damaged spills: a file of the default size, full and in its second lap, with each of its 32,768
//! sectors cut off, flipped and zeroed in turn. The real binary visits the other files, and a sample of this one's
//! sectors.
//!
//! An image is opened as at a start ([`open::open_log`]), with the mark in the registry somewhere between tail and
//! head. Then all from the mark on is granted and read.
//!
//! # What is checked
//! - every extent that is read is the one that was appended under its index, to the last bit, and none is below the
//!   mark;
//! - all are there but those of the damaged sector; a flip takes one record, a damaged copy of the header nothing;
//! - a file that was cut off is refused, with its name in the log's sentence;
//! - what is appended afterwards gets indexes that were never granted.

use std::cell::RefCell;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use xuid_id::Layout;
use xuid_spill::{DEFAULT_BYTES, Extent, MemoryStorage, SpillId};

use crate::registry::memory::MemoryRegistry;
use crate::registry::ownership::{Identity, Ownership};
use crate::registry::{ClusterId, Genesis, Token};
use crate::testing::campaigns::{Tally, campaign};
use crate::testing::support::rng::Rng;
use crate::tiers::reserve::open::{self, Opened};

/// Images where nobody asks for a range.
const DEFAULT: u64 = 300;

const SECTOR: u64 = 512;
const SECTORS: u64 = DEFAULT_BYTES / SECTOR;
/// Two copies of the header, 128 bytes each, on pages of their own.
const HEADERS: u64 = 8_192;
const HEADER_BYTES: u64 = 128;
const COPY_AT: u64 = 4_096;
const RECORD: u64 = 32;
const CAPACITY: u64 = (DEFAULT_BYTES - HEADERS) / RECORD;
/// One lap and a half: slots of both laps, and indexes that differ from their slots.
const HEAD: u64 = CAPACITY + CAPACITY / 2;
/// Of the trials that visit everything once, neighbours are far apart: a prime, and no factor of their number.
const STRIDE: u64 = 7_919;
/// Extents granted and read at a time.
const STEP: u64 = 8_192;
const SPILL: SpillId = SpillId::from_bytes([0x5b; 16]);

pub(crate) fn run() {
    campaign("files", DEFAULT, |number| Ok(image(number)));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Cut,
    Flip,
    Zeros,
}

fn genesis() -> Genesis {
    Genesis::new(ClusterId::from_bytes([0xc1; 16]), Layout::default(), 0, 4)
}

/// The extent of an index: no two overlap.
fn extent(index: u64) -> Extent {
    let stride = Layout::default().stride();
    Extent {
        first: index * 4 * stride + index % 7,
        len: 4_000 + (index % 90) as u32,
        ticks: 1 + (index % 3) as u32,
    }
}

fn path() -> &'static Path {
    Path::new("spill-0")
}

/// The bytes of the whole file.
fn whole() -> &'static [u8] {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    WHOLE.get_or_init(|| filled(extent))
}

/// The bytes of a file with these extents.
fn filled(extent: impl Fn(u64) -> Extent) -> Vec<u8> {
    let disk = MemoryStorage::new();
    let mut ownership = Ownership::new(
        Box::new(MemoryRegistry::new(genesis())),
        Identity::new(Token::default(), String::new()),
    );
    let storage = Box::new(disk.clone());
    let made =
        open::create_log(storage, DEFAULT_BYTES, SPILL, path(), (&genesis(), &mut ownership), Duration::ZERO);
    let mut log = made.expect("nothing fails in memory");
    for start in (0..HEAD).step_by(STEP as usize) {
        let extents: Vec<Extent> = (start..HEAD.min(start + STEP)).map(&extent).collect();
        log.append(&extents).expect("nothing fails in memory");
        log.sync().expect("nothing fails in memory");
    }
    disk.bytes()
}

thread_local! {
    /// One file a thread, damaged and made whole again: copying it for each image would take most of the time.
    static DISK: RefCell<Option<MemoryStorage>> = const { RefCell::new(None) };
}

fn image(number: u64) -> Tally {
    let mut rng = Rng::new(number);
    let at = number.wrapping_mul(STRIDE) % (3 * SECTORS);
    let damage = [Damage::Cut, Damage::Flip, Damage::Zeros][(at % 3) as usize];
    let begin = at / 3 * SECTOR;
    let (byte, bit) = (begin + rng.next() % SECTOR, 1 << (rng.next() % 8));
    // Mostly near the head, as in life; sometimes all of the lap is left.
    let left = if rng.next().is_multiple_of(8) { CAPACITY } else { rng.next() % 20_000 };
    let mark = HEAD - left.min(CAPACITY);
    let disk = DISK.with_borrow_mut(|disk| {
        disk.get_or_insert_with(|| MemoryStorage::from_bytes(whole().to_vec())).clone()
    });
    disk.tamper(|bytes| match damage {
        Damage::Cut => bytes.truncate(begin as usize),
        Damage::Flip => bytes[byte as usize] ^= bit,
        Damage::Zeros => bytes[begin as usize..(begin + SECTOR) as usize].fill(0),
    });
    let mut tally = Tally::default();
    let judged = judge(&disk, (damage, begin, byte), mark, &mut tally);
    // An append that the judge made is the only other thing that changed, and is at most a sector.
    disk.tamper(|bytes| {
        bytes.resize(DEFAULT_BYTES as usize, 0);
        let from = if damage == Damage::Cut { begin as usize } else { bytes.len() };
        bytes[from..].copy_from_slice(&whole()[from..]);
    });
    for touched in [0, COPY_AT, begin, slot_at(HEAD), slot_at(mark), slot_at(HEAD - SECTOR / RECORD)] {
        let start = (touched / SECTOR * SECTOR) as usize;
        let span = start..whole().len().min(start + 2 * SECTOR as usize);
        disk.tamper(|bytes| bytes[span.clone()].copy_from_slice(&whole()[span.clone()]));
    }
    let told = judged.map_err(|why| format!("{damage:?} at {begin}, byte {byte}, mark {mark}: {why}"));
    tally.failures.extend(told.err());
    tally
}

/// Where the record of an index lies.
fn slot_at(index: u64) -> u64 {
    HEADERS + index % CAPACITY * RECORD
}

fn judge(
    disk: &MemoryStorage,
    (damage, begin, byte): (Damage, u64, u64),
    mark: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut ownership = Ownership::new(
        Box::new(MemoryRegistry::new(genesis())),
        Identity::new(Token([7; 16]), String::new()),
    );
    let told = |error: crate::registry::ownership::GrantError| error.to_string();
    ownership.mark(SPILL, true).map_err(told)?;
    ownership.grant(SPILL, 0, mark).map_err(told)?;
    let mut log =
        match open::open_log(Box::new(disk.clone()), path(), &genesis(), &mut ownership, Duration::ZERO)? {
            Opened::Refused(why) if damage == Damage::Cut && !why.is_empty() => {
                tally.note("refused", 1);
                return Ok(());
            }
            Opened::Refused(why) => return Err(format!("refused: {why}")),
            Opened::Log(..) if damage == Damage::Cut => {
                return Err("a file that was cut off was opened".into());
            }
            Opened::Log(log, found) if found == mark => log,
            Opened::Log(_, found) => return Err(format!("opened at mark {found}")),
            Opened::Taken | Opened::Later(_) | Opened::Absent => return Err("it is not there".into()),
        };
    let gone = |index: u64| {
        let at = slot_at(index);
        match damage {
            Damage::Flip => (at..at + RECORD).contains(&byte),
            _ => (begin..begin + SECTOR).contains(&at),
        }
    };
    let (mut from, mut extents, mut lost, mut read_well) = (mark, Vec::new(), 0, 0);
    while from < log.head() {
        let upto = log.head().min(from + STEP);
        ownership.grant(SPILL, from, upto).map_err(told)?;
        extents.clear();
        log.read(from..upto, &mut extents).map_err(|error| error.to_string())?;
        let mut read = extents.iter().peekable();
        for index in from..upto {
            match read.next_if(|(found, _)| *found == index) {
                Some((_, found)) if *found != extent(index) => {
                    // Whatever that is, it is of another index, and comes there as well.
                    tally.duplicates += found.ids();
                    return Err(format!("{index} reads as {found:?}"));
                }
                Some((_, found)) if gone(index) => {
                    return Err(format!("{index} was damaged, and reads as {found:?}"));
                }
                Some(_) => read_well += 1,
                None if gone(index) => lost += 1,
                None => return Err(format!("{index} is lost, and was not damaged")),
            }
        }
        if let Some((index, found)) = read.next() {
            tally.duplicates += found.ids();
            return Err(format!("{index} came beside its turn: {found:?}"));
        }
        log.resume_at(upto);
        from = upto;
    }
    // The last ones may have been what was damaged: then the head is below theirs.
    lost += (log.head().max(mark)..HEAD).filter(|index| gone(*index)).count() as u64;
    tally.note("extents lost", lost);
    tally.note("extents read", read_well);
    let (first, new) = (log.head().max(from), extent(HEAD + 1));
    let appended = log.append(&[new]).map_err(|error| error.to_string())?;
    if appended.indexes != (first..first + 1) || first < mark {
        return Err(format!("appended at {:?}, and all below {first} was granted", appended.indexes));
    }
    if matches!(begin, 0 | COPY_AT) {
        let copy = |bytes: &[u8]| bytes[begin as usize..(begin + HEADER_BYTES) as usize].to_vec();
        if copy(&disk.bytes()) != copy(whole()) {
            return Err("the damaged copy of the header was not written again".into());
        }
    }
    Ok(())
}

#[test]
fn damage_beside_the_image_is_noticed() {
    let disk = MemoryStorage::from_bytes(whole().to_vec());
    let (sector, mark) = (slot_at(HEAD - 100) / SECTOR * SECTOR, HEAD - 1_000);
    assert!(
        judge(&disk, (Damage::Zeros, HEADERS, HEADERS), mark, &mut Tally::default()).is_ok(),
        "the image is far below the mark"
    );
    disk.tamper(|bytes| bytes[sector as usize..(sector + SECTOR) as usize].fill(0));
    let why = judge(&disk, (Damage::Zeros, HEADERS, HEADERS), mark, &mut Tally::default())
        .expect_err("records are gone");
    assert!(why.contains("is lost, and was not damaged"), "{why}");
    // A well-formed record of another index in its place is no better than none.
    disk.tamper(|bytes| {
        bytes.copy_within((sector + SECTOR) as usize..(sector + 2 * SECTOR) as usize, sector as usize);
    });
    let why = judge(&disk, (Damage::Zeros, HEADERS, HEADERS), mark, &mut Tally::default())
        .expect_err("records are in the wrong slots");
    assert!(why.contains("is lost, and was not damaged"), "{why}");
}

#[test]
fn a_record_that_reads_as_another_counts_as_ids_that_came_twice() {
    let disk = MemoryStorage::from_bytes(whole().to_vec());
    let (sector, mark) = (slot_at(HEAD - 100) / SECTOR * SECTOR, HEAD - 1_000);
    // Well-formed, each under its own index, but what the record before it says.
    let shifted = filled(|index| extent(index.saturating_sub(1)));
    let span = sector as usize..(sector + SECTOR) as usize;
    disk.tamper(|bytes| bytes[span.clone()].copy_from_slice(&shifted[span.clone()]));
    let mut tally = Tally::default();
    let why = judge(&disk, (Damage::Zeros, HEADERS, HEADERS), mark, &mut tally).expect_err("it is forged");
    assert!(why.contains("reads as") && tally.duplicates > 0, "{why}, {}", tally.duplicates);
}
