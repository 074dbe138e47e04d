//! Pages that the disk cannot read, as a kernel shows them: a read of one fails, and so does a write of a part, which
//! would have to read the rest; a write of the whole page succeeds, and makes it good.

use std::io;
use std::sync::Mutex;

use super::*;
use crate::registry::local::format::{MARK_SLOTS, PAGE, SECTOR, Side};

/// Two pages of workers.
const WORKERS: u32 = 11;

#[derive(Clone, Default)]
struct Bad(Arc<Mutex<Vec<u64>>>);

impl Bad {
    fn pages(pages: &[u64]) -> Self {
        Self(Arc::new(Mutex::new(pages.to_vec())))
    }

    fn is_touched(&self, offset: u64, bytes: usize) -> bool {
        let touched = offset / PAGE..(offset + bytes as u64).div_ceil(PAGE);
        self.0.lock().unwrap().iter().any(|page| touched.contains(page))
    }

    /// The pages that are written whole can be read again.
    fn cover(&self, offset: u64, bytes: usize) {
        let covered = offset.div_ceil(PAGE)..(offset + bytes as u64) / PAGE;
        self.0.lock().unwrap().retain(|page| !covered.contains(page));
    }
}

struct BadDisk {
    disk: MemoryDisk,
    bad: Bad,
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl Disk for BadDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.bad.is_touched(offset, buffer.len()) { Err(eio()) } else { self.disk.read_at(buffer, offset) }
    }
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.bad.cover(offset, bytes.len());
        if self.bad.is_touched(offset, bytes.len()) { Err(eio()) } else { self.disk.write_at(bytes, offset) }
    }
    fn sync(&mut self) -> io::Result<()> {
        self.disk.sync()
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

fn opened(disk: &MemoryDisk, bad: &Bad) -> Result<LocalRegistry<BadDisk>, LocalError> {
    LocalRegistry::on(BadDisk { disk: disk.open_again(), bad: bad.clone() }, clock())
}

/// A registry of which each worker and a mark were changed.
fn used() -> MemoryDisk {
    let disk = memory(WORKERS);
    let mut registry = on(&disk);
    for worker in 0..WORKERS {
        registry.claim(worker, 1, &claim_of(2_000 + u64::from(worker), 1)).unwrap();
    }
    registry.create_mark(spill(1), &mark_of(7, 2)).unwrap();
    disk
}

fn reach(registry: &mut LocalRegistry<impl Disk>, worker: u32) -> u64 {
    registry.worker(worker).unwrap().record.reserved_until
}

/// Each page of the file that is ever written: headers, workers, marks.
fn pages() -> std::ops::Range<u64> {
    let marks = u64::from(MARK_SLOTS) * SECTOR as u64 / PAGE;
    0..2 + 2 * 2 + 2 * marks
}

fn page_of(place: Place, copy: Side) -> u64 {
    offset_of(WORKERS, place, copy) as u64 / PAGE
}

#[test]
fn a_page_of_one_copy_that_cannot_be_read_is_written_again_by_the_next_start() {
    for page in pages() {
        let (disk, bad) = (used(), Bad::pages(&[page]));
        let before = disk.bytes();
        let mut registry = opened(&disk, &bad).unwrap_or_else(|error| panic!("page {page}: {error}"));
        for worker in 0..WORKERS {
            assert_eq!(reach(&mut registry, worker), 2_000 + u64::from(worker), "page {page}");
        }
        assert_eq!(registry.mark(spill(1)).unwrap().record, mark_of(7, 2), "page {page}");
        assert!(bad.0.lock().unwrap().is_empty(), "page {page} was not written");
        let headers = page < 2;
        assert!(headers || disk.bytes() == before, "page {page} has another content");
    }
}

#[test]
fn a_page_that_becomes_unreadable_under_a_running_process_is_written_again_by_its_next_change() {
    for copy in Side::BOTH {
        let headers = [copy as u64];
        for page in
            headers.into_iter().chain([page_of(Place::worker(1), copy), page_of(Place::mark(0), copy)])
        {
            let (disk, bad) = (used(), Bad::default());
            let mut registry = opened(&disk, &bad).unwrap();
            bad.0.lock().unwrap().push(page);
            registry.swap_worker(1, 2, &claim_of(3_000, 3)).unwrap();
            let mark = registry.mark(spill(1)).unwrap();
            registry.swap_mark(spill(1), mark.version, &mark_of(9, 4)).unwrap();
            let is_header = page == copy as u64;
            assert_eq!(bad.0.lock().unwrap().is_empty(), !is_header, "page {page}");
            // By either copy.
            for lost in Side::BOTH {
                let image = MemoryDisk::new(disk.bytes(), some_identity());
                for place in (0..WORKERS).map(Place::worker).chain([Place::mark(0)]) {
                    image.tamper(offset_of(WORKERS, place, lost), |sector| sector.fill(9));
                }
                let mut next = opened(&image, &bad).unwrap();
                let found: Vec<_> = (0..WORKERS).map(|worker| reach(&mut next, worker)).collect();
                let expected = |worker| if worker == 1 { 3_000 } else { 2_000 + worker };
                assert_eq!(found, (0..u64::from(WORKERS)).map(expected).collect::<Vec<_>>(), "page {page}");
                assert_eq!(next.mark(spill(1)).unwrap().record, mark_of(9, 4));
            }
        }
    }
}

/// A change of a neighbour was cut off between its copies: its readable copy is the older one, or the newer one.
#[test]
fn a_neighbour_on_such_a_page_is_what_its_other_copy_says() {
    for (copy, is_newer) in [(Side::A, false), (Side::A, true), (Side::B, false), (Side::B, true)] {
        let disk = used();
        let before = disk.bytes();
        on(&disk).swap_worker(2, 2, &claim_of(9_000, 5)).unwrap();
        let stale = if is_newer { copy } else { copy.other() };
        let at = offset_of(WORKERS, Place::worker(2), stale);
        disk.tamper(at, |sector| sector.copy_from_slice(&before[at..at + SECTOR]));
        let bad = Bad::pages(&[page_of(Place::worker(2), copy)]);
        let mut registry = opened(&disk, &bad).unwrap();
        let expected = if is_newer { 9_000 } else { 2_002 };
        assert_eq!(reach(&mut registry, 2), expected);
        // And by whichever copy.
        for copy in Side::BOTH {
            let lost = MemoryDisk::new(disk.bytes(), some_identity());
            lost.tamper(offset_of(WORKERS, Place::worker(2), copy), |sector| sector.fill(9));
            assert_eq!(reach(&mut on(&lost), 2), expected);
        }
    }
}

#[test]
fn a_neighbour_of_which_the_other_copy_is_damaged_stays_unusable_and_the_rest_goes_on() {
    let (disk, bad) = (used(), Bad::pages(&[page_of(Place::worker(2), Side::A)]));
    disk.tamper(offset_of(WORKERS, Place::worker(2), Side::B), |sector| sector[40] ^= 1);
    let mut registry = opened(&disk, &bad).unwrap();
    for mut registry in [opened(&disk, &bad).unwrap(), opened(&disk, &Bad::default()).unwrap()] {
        let error = registry.worker(2).unwrap_err();
        assert!(matches!(&error, ReadError::Damaged { .. }), "{error}");
        assert_eq!([0, 1, 3, 7].map(|worker| reach(&mut registry, worker)), [2_000, 2_001, 2_003, 2_007]);
    }
    registry.swap_worker(1, 2, &claim_of(3_000, 3)).unwrap();
}

/// What a power cut leaves of the page that is written whole, in each way that sectors can be cut: all records are
/// there, and of the one that is changed either version.
#[test]
fn a_power_cut_while_such_a_page_is_written_loses_no_record() {
    for (copy, after, way) in Side::BOTH
        .into_iter()
        .flat_map(|copy| (0..6).flat_map(move |after| (0..12).map(move |way| (copy, after, way))))
    {
        let (disk, bad) = (used(), Bad::default());
        // A neighbour's readable copy is the newer one, and not on the disk yet.
        let older = disk.bytes();
        on(&disk).swap_worker(2, 2, &claim_of(9_000, 5)).unwrap();
        let newer = disk.bytes();
        let [at, other] = [copy, copy.other()].map(|copy| offset_of(WORKERS, Place::worker(2), copy));
        for at in [at, other] {
            disk.tamper(at, |sector| sector.copy_from_slice(&older[at..at + SECTOR]));
        }
        let mut registry = opened(&disk, &bad).unwrap();
        disk.open_again().write_at(&newer[other..other + SECTOR], other as u64).unwrap();
        let page = page_of(Place::worker(1), copy);
        bad.0.lock().unwrap().push(page);
        disk.stop_after(Some(after));
        let is_stored = registry.swap_worker(1, 2, &claim_of(3_000, 3)).is_ok();
        let mut draw = way;
        let image = disk.image(|ways| {
            draw = draw * 31 + 7 + way;
            if way < 2 { way * (ways - 1) } else { draw % ways }
        });
        // Until the page was written and synced, which is the fourth step, it may be as bad as before.
        let still_bad: &[u64] = if after < 4 { &[page] } else { &[] };
        for bad in [Bad::default(), Bad::pages(still_bad)] {
            let is_bad = !bad.0.lock().unwrap().is_empty();
            let mut next = opened(&MemoryDisk::new(image.clone(), some_identity()), &bad).unwrap();
            let what = format!("copy {copy:?} after {after}, way {way}");
            let found = reach(&mut next, 1);
            assert!(found == 3_000 || (found == 2_001 && !is_stored), "{what}");
            // Before anything was synced the neighbour's other copy may be torn: that is not of this write.
            if after > 0 || !is_bad {
                assert!(matches!(reach(&mut next, 2), 2_002 | 9_000), "{what}");
            }
            for worker in (3..WORKERS).chain([0]) {
                assert_eq!(reach(&mut next, worker), 2_000 + u64::from(worker), "{what}");
            }
        }
    }
}

#[test]
fn a_registry_that_cannot_be_made_good_is_refused_and_the_refusal_names_the_help() {
    let disk = used();
    disk.fail_sync(2);
    let bad = Bad::pages(&[page_of(Place::worker(2), Side::A)]);
    let refused = opened(&disk, &bad).err().unwrap().to_string();
    assert!(refused.contains("xuid registry fence --restored"), "{refused}");
    let both = opened(&disk, &Bad::pages(&[0, 1])).err().unwrap();
    assert!(matches!(both, LocalError::Io { action: "read", .. }), "{both}");
}
