//! A registry that is written over, locked or kept from writing under a process that uses it: what its next trial or
//! change finds, a few tenths of a second later.

use std::fs;

use super::restored::{copied, hints_in, put_registry_back};
use super::*;
use crate::registry::local::format::Side;
use crate::registry::local::header::FileKind;
use crate::sys::guards::Guard;

/// What a trial is refused with, which must be as a whole.
fn refusal(registry: &mut LocalRegistry) -> String {
    match registry.probe().expect("there is something to try") {
        Err(SwapError::Read(ReadError::Foreign { why })) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_old_content_under_a_running_process_is_refused_as_a_whole_by_its_next_trial() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    let backup = copied(path);
    registry.swap_worker(1, 2, &claim_of(6_000, 2)).unwrap();
    assert!(matches!(registry.probe(), Some(Ok(()))));
    put_registry_back(&backup);
    let why = refusal(&mut registry);
    assert!(why.contains("worker 1 was at version 3 and is at 2"), "{why}");
    assert!(why.contains("xuid registry fence --restored"), "{why}");
    // Records that did not go back are no better.
    assert!(matches!(registry.worker(2), Err(ReadError::Foreign { .. })));
    assert!(matches!(registry.workers(), Err(ReadError::Foreign { .. })));
    let claimed = registry.claim(2, 1, &claim_of(5_000, 3));
    assert!(matches!(claimed, Err(SwapError::Read(ReadError::Foreign { .. }))), "{claimed:?}");
    let marked = registry.create_mark(spill(1), &mark_of(0, 4));
    assert!(matches!(marked, Err(SwapError::Read(ReadError::Foreign { .. }))), "{marked:?}");
    // And so it stays, whatever is put there next: a start compares again.
    fs::write(registry_of(path), fs::read(registry_of(path)).unwrap()).unwrap();
    refusal(&mut registry);
    drop(registry);
    assert!(matches!(LocalRegistry::open(path).err(), Some(LocalError::Restored { .. })));
}

#[test]
fn zeros_over_the_file_are_refused_and_the_file_put_back_as_it_was_is_used_again() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    let now = copied(path);
    let length = fs::metadata(registry_of(path)).unwrap().len();
    for image in [vec![0; length as usize], Vec::new(), vec![0; 100]] {
        fs::write(registry_of(path), image).unwrap();
        let why = refusal(&mut registry);
        assert!(why.contains("xuid registry fence --restored"), "{why}");
    }
    put_registry_back(&now);
    assert!(matches!(registry.probe(), Some(Ok(()))));
    registry.swap_worker(1, 2, &claim_of(6_000, 2)).unwrap();
}

/// Two processes of a folder. The first holds a worker when an old content is put back, and the second, which knows
/// nothing of that, takes one. Whether it gets the first one's.
fn grants_again() -> bool {
    let folder = folder();
    let path = folder.path();
    let (mut one, mut two) = (made_in(path, 2), made_in(path, 2));
    let backup = copied(path);
    one.claim(0, 1, &claim_of(5_000, 1)).unwrap();
    put_registry_back(&backup);
    let Ok(workers) = two.workers() else { return false };
    let found = workers[0].record.as_ref().unwrap();
    two.claim(0, found.version, &claim_of(5_000, 1)).is_ok()
}

#[test]
fn without_the_comparison_a_worker_of_another_process_is_granted_again() {
    assert!(!grants_again());
    assert!(Guard::without(&[Guard::PutBackRefused], grants_again), "ticks 1000 to 5000 of worker 0");
}

/// The same, where the second process had looked through the workers before the first took one.
fn grants_what_it_saw_before() -> bool {
    let folder = folder();
    let path = folder.path();
    let (mut one, mut two) = (made_in(path, 2), made_in(path, 2));
    let backup = copied(path);
    let seen = two.workers().unwrap()[0].record.as_ref().unwrap().version;
    one.claim(0, 1, &claim_of(5_000, 1)).unwrap();
    put_registry_back(&backup);
    two.claim(0, seen, &claim_of(5_000, 1)).is_ok()
}

#[test]
fn a_worker_seen_before_an_old_content_was_put_back_is_not_granted_either() {
    assert!(!grants_what_it_saw_before());
    assert!(Guard::without(&[Guard::PutBackRefused], grants_what_it_saw_before));
}

/// What a process has whose folder takes no more files.
struct Unkept(FolderHints);

impl Hints for Unkept {
    fn all(&mut self, most: u64) -> Vec<Vec<u8>> {
        self.0.all(most)
    }

    fn begin(&mut self, _image: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sweep(&self) {
        self.0.sweep();
    }

    fn parts(&mut self, offset: u64, len: usize) -> Vec<Vec<u8>> {
        self.0.parts(offset, len)
    }

    fn extend(&mut self, bytes: u64) -> io::Result<()> {
        self.0.extend(bytes)
    }

    fn note(&mut self, parts: &[(u64, Vec<u8>)]) {
        self.0.note(parts);
    }

    fn sync(&mut self) {
        self.0.sync();
    }
}

/// Two processes of a folder, of which the second could not keep what it knows. The first holds a worker when an old
/// content is put back. Whether the second gets that worker: one that looks through the workers, and one that did before.
fn grants_again_unkept() -> [bool; 2] {
    [true, false].map(|looks| {
        let folder = folder();
        let path = folder.path();
        let mut one = made_in(path, 2);
        let disk = FileDisk::open(&registry_of(path)).unwrap();
        let hints = Box::new(Unkept(FolderHints::of(path, FileKind::Registry)));
        let mut two = LocalRegistry::on_with(disk, Some(hints), clock()).unwrap();
        assert_eq!(hints_in(path).len(), 1, "it has none of its own");
        let backup = copied(path);
        one.claim(0, 1, &claim_of(5_000, 1)).unwrap();
        put_registry_back(&backup);
        if looks && two.workers().is_err() {
            return false;
        }
        two.claim(0, 1, &claim_of(5_000, 1)).is_ok()
    })
}

#[test]
fn a_process_that_cannot_keep_what_it_knows_compares_with_what_others_know() {
    assert_eq!(grants_again_unkept(), [false, false]);
    assert_eq!(Guard::without(&[Guard::PutBackRefused], grants_again_unkept), [true, true]);
}

#[test]
fn what_another_process_knows_refuses_a_registry_only_where_it_says_less() {
    let folder = folder();
    let path = folder.path();
    let (mut one, mut two) = (made_in(path, 4), made_in(path, 4));
    for round in 0..20 {
        let (mine, other) = if round % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
        let found = mine.worker(1).unwrap();
        mine.swap_worker(1, found.version, &claim_of(5_000 + round, round)).unwrap();
        mine.create_mark(spill(round as u8 + 1), &mark_of(round, round)).unwrap();
        assert_eq!(other.workers().unwrap().len(), 4);
        assert!(matches!(other.probe(), Some(Ok(()))));
    }
}

#[test]
fn a_record_that_was_never_known_to_be_durable_takes_no_other_with_it() {
    let disk = memory(2);
    let (mut one, mut two) = (on(&disk), on(&disk));
    let before = disk.bytes();
    one.swap_worker(0, 1, &claim_of(5_000, 1)).unwrap();
    // Seen by a process that did not sync it: a disk that fails may take it back.
    assert_eq!(two.worker(0).unwrap().version, 2);
    for copy in Side::BOTH {
        let at = offset_of(2, Place::worker(0), copy);
        disk.tamper(at, |sector| sector.copy_from_slice(&before[at..at + 512]));
    }
    assert!(matches!(two.worker(0), Err(ReadError::Damaged { .. })));
    assert_eq!(two.worker(1).unwrap().version, 1);
    assert!(matches!(one.worker(0), Err(ReadError::Foreign { .. })), "it was durable when this one wrote it");
}

#[test]
fn a_lock_that_another_process_keeps_fails_a_trial_until_it_is_let_go() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    let stranger = fs::File::open(registry_of(folder.path())).unwrap();
    stranger.lock().unwrap();
    let tried = registry.probe();
    assert!(
        matches!(&tried, Some(Err(SwapError::Unavailable { why })) if why.contains("locked")),
        "{tried:?}"
    );
    stranger.unlock().unwrap();
    assert!(matches!(registry.probe(), Some(Ok(()))));
}

#[test]
fn a_trial_writes_nothing() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    let seen = || {
        let metadata = fs::metadata(registry_of(folder.path())).unwrap();
        (metadata.modified().unwrap(), copied(folder.path()))
    };
    let before = seen();
    assert!(matches!(registry.probe(), Some(Ok(()))));
    assert_eq!(seen(), before);
}

/// A clock that stands where it is set.
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn read(&self) -> Reading {
        let ns = self.0.load(Ordering::Relaxed);
        Reading { wall: 1_700_000_000_000_000_000 + ns, boot: ns }
    }
}

#[test]
fn a_disk_that_failed_fails_trials_until_it_is_written_again() {
    let disk = memory(2);
    let time = Arc::new(AtomicU64::new(0));
    let mut registry = LocalRegistry::on(disk.open_again(), Arc::new(Set(time.clone()))).unwrap();
    disk.fail_syncs(1);
    assert!(registry.claim(0, 1, &claim_of(5_000, 1)).is_err());
    let tried = registry.probe();
    assert!(matches!(&tried, Some(Err(SwapError::Unavailable { why })) if why.contains("disk")), "{tried:?}");
    time.store(2_000_000_000, Ordering::Relaxed);
    assert!(matches!(registry.probe(), Some(Ok(()))));
}

/// A disk on which whoever reads without the lock finds an older content.
struct Stale {
    disk: MemoryDisk,
    older: Vec<u8>,
    is_locked: bool,
}

impl Disk for Stale {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.is_locked {
            return self.disk.read_at(buffer, offset);
        }
        let begin = offset as usize;
        buffer.copy_from_slice(&self.older[begin..begin + buffer.len()]);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
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
        self.is_locked = self.disk.try_lock()?;
        Ok(self.is_locked)
    }

    fn unlock(&mut self) {
        self.is_locked = false;
        self.disk.unlock();
    }
}

#[test]
fn what_was_read_without_the_lock_refuses_no_registry_before_it_was_read_again_under_it() {
    let disk = memory(2);
    let stale = Stale { older: disk.bytes(), disk: disk.open_again(), is_locked: false };
    let mut registry = LocalRegistry::on(stale, clock()).unwrap();
    registry.claim(0, 1, &claim_of(5_000, 1)).unwrap();
    assert_eq!(registry.worker(0).unwrap().version, 2, "as it is under the lock");
    registry.swap_worker(0, 2, &claim_of(6_000, 2)).unwrap();
}
