//! An old content put back into the same file, which only the folder's hints can tell.

use std::fs;
use std::os::unix::fs::FileExt;

use super::*;
use crate::registry::local::format::Side;
#[cfg(not(loom))]
use crate::registry::local::simulated::MemoryHints;
use crate::sys::guards::Guard;

/// The tick, in the default layout, of a round time in 2023 and that time in nanoseconds.
const NOW_NS: u64 = 1_700_000_000_000_000_000;
const NOW_TICK: u64 = 1_700_000_000_000 - xuid_id::DEFAULT_EPOCH_MS;

/// What is in a folder.
pub(super) type Copy = Vec<(PathBuf, Vec<u8>)>;

/// Copies a folder as `cp` does.
pub(super) fn copied(folder: &Path) -> Copy {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Puts the copy over the folder: what is there gets its old content and stays the same file, what is new stays.
pub(super) fn put_back(copy: &Copy) {
    for (path, bytes) in copy {
        fs::write(path, bytes).unwrap();
    }
}

/// The same with the registry alone.
pub(super) fn put_registry_back(copy: &Copy) {
    let (path, bytes) = copy.iter().find(|(path, _)| path.ends_with("registry")).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(super) fn hints_in(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains("registry.known-")).collect()
}

fn refused(folder: &Path) -> String {
    let error = LocalRegistry::open(folder).err().expect("it is opened");
    assert!(matches!(error, LocalError::Restored { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_registry_put_back_into_its_file_is_refused_until_it_is_fenced() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 4);
    let backup = copied(path);
    registry.claim(1, 1, &claim_of(NOW_TICK, 1)).unwrap();
    drop(registry);
    put_registry_back(&backup);
    let said = refused(path);
    assert!(said.contains("worker 1 was at version 2 and is at 1"), "{said}");
    assert!(said.contains(&format!("xuid registry fence --restored {}", path.display())), "{said}");
    let found = inspect(path).unwrap().findings;
    assert!(matches!(&found[..], [Finding::Restored { what, .. }] if what == "worker 1"), "{found:?}");
    refused(path);

    fence_restored(path, NOW_NS).unwrap();
    assert_eq!(inspect(path).unwrap().findings, []);
    let fenced = LocalRegistry::open(path).unwrap().worker(1).unwrap();
    assert!(fenced.record.reserved_until > NOW_TICK + 120_000);
    drop(LocalRegistry::open(path).unwrap());
    // The fence made another file, in which the old content is a copy.
    put_registry_back(&backup);
    assert!(matches!(LocalRegistry::open(path).err(), Some(LocalError::Copied { .. })));
}

#[test]
fn a_mark_that_went_back_with_its_registry_is_found_too() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    registry.create_mark(spill(1), &mark_of(7, 1)).unwrap();
    let backup = copied(folder.path());
    registry.swap_mark(spill(1), 2, &mark_of(9, 2)).unwrap();
    drop(registry);
    put_registry_back(&backup);
    assert!(refused(folder.path()).contains("mark slot 0"));
}

#[test]
fn a_whole_folder_put_back_over_itself_is_refused_too() {
    let folder = folder();
    let path = folder.path();
    drop(made_in(path, 4));
    let mut registry = made_in(path, 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    // While it is in use, hints and all.
    let backup = copied(path);
    assert_eq!(hints_in(path).len(), 1);
    registry.swap_worker(1, 2, &claim_of(6_000, 2)).unwrap();
    drop(registry);
    put_back(&backup);
    assert!(refused(path).contains("worker 1 was at version 3 and is at 2"));
    fence_restored(path, NOW_NS).unwrap();
    drop(LocalRegistry::open(path).unwrap());
    assert_eq!(hints_in(path).len(), 1, "what was put back is gone as well");
}

/// As `rsync --inplace --delete` does it. Nothing is left that could tell: `docs/operations.md` says so.
#[test]
fn a_whole_folder_put_back_without_what_it_knew_since_is_opened() {
    let folder = folder();
    let path = folder.path();
    drop(made_in(path, 4));
    let backup = copied(path);
    let mut registry = made_in(path, 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    drop(registry);
    for hint in hints_in(path) {
        fs::remove_file(hint).unwrap();
    }
    put_back(&backup);
    assert_eq!(LocalRegistry::open(path).unwrap().worker(1).unwrap().version, 1);
}

#[test]
fn what_any_process_of_the_folder_knew_counts_whichever_ended_first() {
    for ended in 0..2 {
        let folder = folder();
        let path = folder.path();
        let backup = {
            drop(made_in(path, 4));
            copied(path)
        };
        let mut both = [made_in(path, 4), made_in(path, 4)].map(Some);
        for (worker, registry) in (0..).zip(&mut both) {
            registry.as_mut().unwrap().claim(worker, 1, &claim_of(5_000, 1)).unwrap();
        }
        assert_eq!(hints_in(path).len(), 2);
        both[ended] = None;
        // A third one takes over what the one that ended knew, and leaves the other's.
        drop(LocalRegistry::open(path).unwrap());
        drop(both);
        let now = fs::read(registry_of(path)).unwrap();
        let (_, then) = backup.iter().find(|(path, _)| path.ends_with("registry")).unwrap();
        for worker in 0..2 {
            // One record alone goes back.
            let mut bytes = now.clone();
            for copy in Side::BOTH {
                let at = offset_of(4, Place::worker(worker), copy);
                bytes[at..at + 512].copy_from_slice(&then[at..at + 512]);
            }
            fs::write(registry_of(path), bytes).unwrap();
            assert!(refused(path).contains(&format!("worker {worker} was at version 2 and is at 1")));
        }
        fence_restored(path, NOW_NS).unwrap();
        drop(LocalRegistry::open(path).unwrap());
        assert_eq!(hints_in(path).len(), 1);
    }
}

#[test]
fn hints_that_say_nothing_and_those_of_another_registry_refuse_nothing() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    drop(registry);
    let known = fs::read(&hints_in(path)[0]).unwrap();
    // Torn in the middle of its only record, empty, and of no use at all.
    let mut torn = known.clone();
    torn[512 + 30] ^= 1;
    for (n, bytes) in [&torn[..], &known[..700], &[], b"not a hint"].into_iter().enumerate() {
        fs::write(path.join(format!("registry.known-{n}")), bytes).unwrap();
    }
    fs::create_dir(path.join("registry.known-folder")).unwrap();
    drop(LocalRegistry::open(path).unwrap());
    fs::remove_dir(path.join("registry.known-folder")).unwrap();
    assert_eq!(hints_in(path).len(), 1);

    // Another registry begins in the folder, where versions are low.
    fs::remove_file(registry_of(path)).unwrap();
    drop(made_in(path, 4));
    drop(LocalRegistry::open(path).unwrap());
    assert_eq!(hints_in(path).len(), 1);
}

#[test]
fn a_fence_goes_above_what_the_folder_knew_whatever_its_clock_says() {
    let folder = folder();
    let path = folder.path();
    drop(made_in(path, 4));
    let backup = copied(path);
    fence_restored(path, NOW_NS).unwrap();
    let mut registry = LocalRegistry::open(path).unwrap();
    let found = registry.worker(1).unwrap();
    let far = found.record.reserved_until + 1_000_000;
    registry.claim(1, found.version, &claim_of(far, 1)).unwrap();
    drop(registry);
    // The fence made another file, so that what is put back has to be the same one again: its bytes but for the
    // identity.
    let (registry_path, bytes) = backup.iter().find(|(path, _)| path.ends_with("registry")).unwrap();
    let now = fs::read(registry_path).unwrap();
    fs::write(registry_path, [&now[..8_192], &bytes[8_192..]].concat()).unwrap();
    refused(path);
    // The clock is years back, and would give versions and ticks that were seen.
    let fenced = fence_restored(path, NOW_NS / 2).unwrap();
    assert_eq!(fenced.reserved_until, far);
    assert!(LocalRegistry::open(path).unwrap().worker(1).unwrap().version > found.version);
}

#[test]
fn without_the_hints_what_was_granted_is_granted_again() {
    let granted_twice = || {
        let folder = folder();
        let mut registry = made_in(folder.path(), 1);
        let backup = copied(folder.path());
        registry.claim(0, 1, &claim_of(5_000, 1)).unwrap();
        drop(registry);
        put_registry_back(&backup);
        LocalRegistry::open(folder.path())
            .is_ok_and(|mut again| again.claim(0, 1, &claim_of(5_000, 2)).is_ok())
    };
    assert!(!granted_twice());
    assert!(
        Guard::without(&[Guard::HintCompared, Guard::PutBackRefused], granted_twice),
        "ticks 1000 to 5000 of worker 0"
    );
}

/// What is written there later must not meet a full disk: nobody would hear of it.
#[test]
fn room_is_set_aside_for_all_that_a_hint_may_say() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder();
    drop(made_in(folder.path(), 1_024));
    let found = fs::metadata(&hints_in(folder.path())[0]).unwrap();
    assert!(found.blocks() * 512 >= found.len(), "{} blocks for {} bytes", found.blocks(), found.len());
}

/// A process without hints (a full disk, an earlier program) changed records; the next one finds them changed.
#[test]
fn what_is_found_changed_at_an_opening_is_known_from_then_on() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 4);
    let backup = copied(path);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    drop(registry);
    for hint in hints_in(path) {
        fs::remove_file(hint).unwrap();
    }
    drop(LocalRegistry::open(path).unwrap());
    put_registry_back(&backup);
    assert!(refused(path).contains("worker 1 was at version 2 and is at 1"));
}

/// Nobody can read a damaged record, and what was known of it outlives who knew it.
#[test]
fn what_was_known_of_a_record_that_is_damaged_by_now_is_handed_on() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 4);
    let backup = copied(path);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    drop(registry);
    let mut bytes = fs::read(registry_of(path)).unwrap();
    for copy in Side::BOTH {
        bytes[offset_of(4, Place::worker(1), copy) + 40] ^= 1;
    }
    fs::write(registry_of(path), bytes).unwrap();
    assert!(LocalRegistry::open(path).unwrap().worker(1).is_err());
    put_registry_back(&backup);
    assert!(refused(path).contains("worker 1 was at version 2 and is at 1"));
}

/// Opens a registry while the disk cannot read the first block of any hint.
fn opened_without_a_block(folder: &Path) -> Result<LocalRegistry, LocalError> {
    let hints = FolderHints::read_by(folder, FileKind::Registry, |file, bytes, offset| {
        if offset < 4_096 {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        file.read_exact_at(bytes, offset)
    });
    LocalRegistry::on_with(FileDisk::open(&registry_of(folder)).unwrap(), Some(Box::new(hints)), clock())
}

#[test]
fn a_hint_with_a_block_that_cannot_be_read_refuses_by_what_can_be() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 16);
    let backup = copied(path);
    // One in the first block, and one in the second.
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    registry.claim(9, 1, &claim_of(5_000, 2)).unwrap();
    drop(registry);
    put_registry_back(&backup);
    let error = opened_without_a_block(path).err().expect("it is opened");
    assert!(error.to_string().contains("worker 9 was at version 2 and is at 1"), "{error}");
}

#[test]
fn what_a_fence_cannot_read_it_does_not_do_without() {
    let folder = folder();
    drop(made_in(folder.path(), 16));
    let mut hints = FolderHints::read_by(folder.path(), FileKind::Registry, |_, _, _| {
        Err(io::Error::from_raw_os_error(libc::EIO))
    });
    assert!(hints.check_whole().is_ok(), "nothing was read yet");
    hints.all(1 << 20);
    let refused = hints.check_whole().unwrap_err().to_string();
    assert!(refused.contains("registry.known-"), "{refused}");
}

/// A read may fail once.
#[test]
fn a_hint_that_was_not_read_whole_stays_until_it_is() {
    let folder = folder();
    let path = folder.path();
    let mut registry = made_in(path, 16);
    let backup = copied(path);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    drop(registry);
    put_registry_back(&backup);
    drop(opened_without_a_block(path).unwrap());
    assert_eq!(hints_in(path).len(), 2, "the one that was not read, and the next process's");
    assert!(refused(path).contains("worker 1 was at version 2 and is at 1"));
    fence_restored(path, NOW_NS).unwrap();
    drop(LocalRegistry::open(path).unwrap());
    assert_eq!(hints_in(path).len(), 1);
}

/// The order of the files is the folder's.
#[test]
#[cfg(not(loom))]
fn of_what_several_processes_knew_of_a_damaged_record_the_newest_is_handed_on() {
    let (disk, hints) = (memory(1), MemoryHints::default());
    let open = |disk: MemoryDisk| LocalRegistry::on_with(disk, Some(hints.process()), clock());
    let (mut first, mut second) = (open(disk.open_again()).unwrap(), open(disk.open_again()).unwrap());
    second.claim(0, 1, &claim_of(5_000, 1)).unwrap();
    let backup = disk.bytes();
    first.claim(0, 2, &claim_of(6_000, 2)).unwrap();
    drop((first, second));
    for copy in Side::BOTH {
        disk.tamper(offset_of(1, Place::worker(0), copy), |sector| sector[40] ^= 1);
    }
    drop(open(disk.open_again()).unwrap());
    let restored = open(MemoryDisk::new(backup, some_identity()));
    assert!(
        matches!(restored.err(), Some(LocalError::Restored { .. })),
        "5000 to 6000 are granted once more"
    );
}
