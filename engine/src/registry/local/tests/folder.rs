//! The folder: genesis, seats, several processes, copies.

use std::collections::HashSet;
use std::sync::{Barrier, Mutex};

use super::*;
use crate::registry::local::header::Header;
use crate::sys::guards::Guard;

#[test]
fn a_registry_is_made_once_and_found_again() {
    let folder = folder();
    let inner = folder.path().join("a").join("b");
    let first = made_in(&inner, 1_024);
    assert!(first.created());
    let genesis = *first.genesis();
    assert_eq!(std::fs::metadata(registry_of(&inner)).unwrap().len(), 1_318_912);
    drop(first);
    let again = made_in(&inner, 16);
    assert!(!again.created());
    assert_eq!(again.genesis(), &genesis);
    let exists = LocalRegistry::create(&inner, &genesis).err().unwrap();
    assert!(matches!(exists, LocalError::Exists { .. }), "{exists}");
    let names = std::fs::read_dir(&inner).unwrap().map(|entry| entry.unwrap().file_name());
    let is_hint = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("registry.known-");
    let (hints, names): (HashSet<_>, HashSet<_>) = names.partition(is_hint);
    assert_eq!(hints.len(), 1, "each start removes those of the processes that ended");
    assert_eq!(names, ["registry", "registry.seat-0"].map(Into::into).into());
}

#[test]
fn of_several_that_begin_at_once_one_makes_the_registry() {
    const STARTERS: usize = 4;
    for _ in 0..10 {
        let (folder, barrier) = (folder(), Barrier::new(STARTERS));
        let starters: Vec<_> = std::thread::scope(|scope| {
            let start = || {
                barrier.wait();
                made_in(folder.path(), 64)
            };
            let threads: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(starters.iter().filter(|one| one.created()).count(), 1);
        assert!(starters.iter().all(|one| one.genesis() == starters[0].genesis()));
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 1 + 2 * STARTERS, "{left:?}");
    }
}

/// Two processes have each a registry ready for its name. What the first one is granted, and the second one then, if it
/// gets a registry of its own.
fn two_makers(left_out: Option<Guard>) -> Option<[bool; 2]> {
    let (folder, path) = (folder(), |folder: &tempfile::TempDir| registry_of(folder.path()));
    let build = |cluster| {
        let genesis = Genesis { cluster: ClusterId::from_bytes([cluster; 16]), ..some_genesis(1) };
        genesis::Draft::build(folder.path(), &Header::new(&genesis, None), |place| {
            Row::genesis(place, genesis.floor)
        })
        .unwrap()
    };
    let [first, second] = [1, 2].map(build);
    first.publish(&path(&folder)).unwrap();
    let mut one = LocalRegistry::open(folder.path()).unwrap();
    let granted = one.claim(0, 1, &claim_of(5_000, 1)).is_ok();
    match Guard::without(left_out.as_slice(), || second.publish(&path(&folder))) {
        Ok(()) => {
            let mut other = LocalRegistry::open(folder.path()).unwrap();
            Some([granted, other.claim(0, 1, &claim_of(5_000, 2)).is_ok()])
        }
        Err(error) => {
            assert!(matches!(error, LocalError::Exists { .. }), "{error}");
            assert_eq!(one.worker(0).unwrap().record.reserved_until, 5_000);
            let left = std::fs::read_dir(folder.path()).unwrap().flatten();
            let drafts = left.filter(|entry| entry.file_name().to_string_lossy().contains(".new-"));
            assert_eq!(drafts.count(), 0, "the loser removes its own");
            None
        }
    }
}

#[test]
fn a_registry_that_is_there_is_not_replaced_by_one_that_was_begun_before() {
    assert_eq!(two_makers(None), None);
    // Ticks 1000 to 5000 of worker 0, granted twice.
    assert_eq!(two_makers(Some(Guard::NamedOnce)), Some([true, true]));
}

#[test]
fn what_a_maker_left_behind_that_died_is_swept_away() {
    let folder = folder();
    let left = folder.path().join("registry.new-0123456789abcdef");
    std::fs::write(&left, "half a registry").unwrap();
    drop(made_in(folder.path(), 4));
    assert!(!left.exists());
}

#[test]
fn of_two_that_swap_at_one_version_one_succeeds() {
    const EACH: u64 = 150;
    let folder = folder();
    drop(made_in(folder.path(), 1));
    let stored = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for token in 0..2 {
            let (folder, stored) = (folder.path(), &stored);
            scope.spawn(move || {
                let mut registry = LocalRegistry::open(folder).unwrap();
                for operation in 0..EACH {
                    let found = registry.worker(0).unwrap();
                    let reserved_until = found.record.reserved_until + 1;
                    let record =
                        WorkerRecord { token: Token([token; 16]), ..claim_of(reserved_until, operation) };
                    match registry.swap_worker(0, found.version, &record) {
                        Ok(()) => stored.lock().unwrap().push((found.version, reserved_until)),
                        Err(SwapError::Conflict) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let stored = stored.into_inner().unwrap();
    let versions: HashSet<_> = stored.iter().map(|(version, _)| version).collect();
    assert_eq!(versions.len(), stored.len(), "two swaps succeeded at one version");
    let last = LocalRegistry::open(folder.path()).unwrap().worker(0).unwrap();
    assert_eq!(last.version, 1 + stored.len() as u64);
    assert_eq!(last.record.reserved_until, 1_000 + stored.len() as u64);
}

#[test]
fn a_lock_that_is_never_let_go_ends_in_a_clear_error() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 1);
    let holder = std::fs::File::open(registry_of(folder.path())).unwrap();
    holder.lock().unwrap();
    let error = registry.swap_worker(0, 1, &claim_of(5_000, 1)).unwrap_err();
    assert!(matches!(&error, SwapError::Unavailable { why } if why.contains("locked")), "{error}");
    holder.unlock().unwrap();
    registry.swap_worker(0, 1, &claim_of(5_000, 1)).unwrap();
}

#[test]
fn a_seat_tells_who_is_alive_and_which_worker_was_last() {
    let folder = folder();
    let mut one = made_in(folder.path(), 8);
    let mut two = made_in(folder.path(), 8);
    one.claim(3, 1, &claim_of(5_000, 1)).unwrap();
    two.claim(5, 1, &claim_of(5_000, 2)).unwrap();
    let live = |registry: &mut LocalRegistry| -> Vec<u32> {
        let rows = registry.workers().unwrap();
        rows.iter().filter(|row| row.live.is_some()).map(|row| row.worker).collect()
    };
    assert_eq!(live(&mut one), [3, 5]);
    assert_eq!(live(&mut two), [3, 5]);
    let holder = one.workers().unwrap()[5].live.clone().unwrap();
    assert!(holder.ends_with(&format!("pid {}", std::process::id())), "{holder}");
    two.leave(5);
    assert_eq!(live(&mut one), [3]);
    one.close();
    assert_eq!(live(&mut two), [] as [u32; 0]);

    let mut third = made_in(folder.path(), 8);
    assert_eq!(third.last_worker(), Some(3), "the lowest free seat is the one that was left");
    third.claim(6, 1, &claim_of(5_000, 3)).unwrap();
    assert_eq!(third.last_worker(), Some(6));
    drop((one, two, third));
    assert_eq!(made_in(folder.path(), 8).last_worker(), Some(6));
}

#[test]
fn a_torn_seat_is_as_if_it_said_nothing() {
    let folder = folder();
    drop(made_in(folder.path(), 8));
    std::fs::write(folder.path().join("registry.seat-0"), "{\"pid\":12,\"ho").unwrap();
    let mut registry = made_in(folder.path(), 8);
    assert_eq!(registry.last_worker(), None);
    assert!(registry.workers().unwrap().iter().all(|row| row.live.is_none()));
}

#[test]
fn a_copied_folder_is_refused_with_both_identities_and_both_commands() {
    let (original, copy) = (folder(), folder());
    drop(made_in(original.path(), 8));
    std::fs::copy(registry_of(original.path()), registry_of(copy.path())).unwrap();
    let error = LocalRegistry::open(copy.path()).err().unwrap();
    assert!(matches!(error, LocalError::Copied { .. }), "{error}");
    let text = error.to_string();
    assert!(text.matches("inode").count() == 2, "{text}");
    for command in ["adopt", "fence --restored"] {
        let command = format!("xuid registry {command} {}", copy.path().display());
        assert!(text.contains(&command), "{text}");
    }
    drop(made_in(original.path(), 8));
}

/// A kernel or a filesystem may not tell it, and another one may.
#[test]
fn a_file_of_which_one_birth_is_unknown_is_refused_and_the_refusal_says_so() {
    let (known, unknown) = (some_identity(), FileIdentity { born_ns: 0, ..some_identity() });
    let refused = |recorded, found| {
        let disk = MemoryDisk::with_registry(&some_genesis(1), recorded);
        disk.identify(found);
        let error = LocalRegistry::on(disk, clock()).err().unwrap();
        assert!(matches!(error, LocalError::Copied { .. }), "{error}");
        let found = Finding::Copied { recorded, found }.to_string();
        let says = |what: &str| [error.to_string(), found.clone()].iter().all(|text| text.contains(what));
        [says("the recorded birth is unknown"), says("its birth is unknown now")]
    };
    assert_eq!(refused(unknown, known), [true, false]);
    assert_eq!(refused(known, unknown), [false, true]);
    assert_eq!(refused(known, FileIdentity { inode: 43, ..unknown }), [false, false]);
    assert_eq!(refused(known, FileIdentity { born_ns: 5, ..known }), [false, false]);
    // A file system that tells no time may tell a generation.
    let drawn = |number: u64| FileIdentity { born_ns: 1 << 63 | number, ..known };
    assert_eq!(refused(drawn(1), drawn(2)), [false, false]);
    assert_eq!(refused(drawn(1), known), [true, false]);
    assert_eq!(refused(known, drawn(0)), [false, true]);
    assert_eq!(refused(drawn(0), unknown), [true, false]);
    assert_eq!(drawn(7).to_string(), "inode 42 of generation 7");
    assert!(drawn(0).is_proof() && known.is_proof() && !unknown.is_proof());
}

#[test]
fn a_file_replaced_under_a_running_process_is_noticed() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 8);
    let (path, aside) = (registry_of(folder.path()), folder.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    assert!(matches!(registry.worker(0), Err(ReadError::Foreign { .. })));
    std::fs::copy(&aside, &path).unwrap();
    let swapped = registry.swap_worker(0, 1, &claim_of(5_000, 1));
    assert!(matches!(swapped, Err(SwapError::Read(ReadError::Foreign { .. }))), "{swapped:?}");
    std::fs::rename(&aside, &path).unwrap();
    registry.swap_worker(0, 1, &claim_of(5_000, 1)).unwrap();
}

#[test]
fn each_thing_that_is_wrong_with_the_file_has_an_error_of_its_own() {
    let folder = folder();
    let path = registry_of(folder.path());
    let opened = || LocalRegistry::open(folder.path()).err().unwrap();
    assert!(matches!(opened(), LocalError::Absent { .. }));
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(opened(), LocalError::NotARegistry { .. }));
    std::fs::remove_dir(&path).unwrap();
    for text in ["", "a foreign file", &"long ".repeat(10_000)] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(opened(), LocalError::NotARegistry { .. }));
        let made = LocalRegistry::open_or_create(
            folder.path(),
            &CreateOptions { layout: Layout::default(), floor: 0, workers: 1 },
        );
        assert!(matches!(made.err().unwrap(), LocalError::NotARegistry { .. }));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is not touched");
    }
    std::fs::remove_file(&path).unwrap();
    drop(made_in(folder.path(), 8));
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(9_000).unwrap();
    let error = opened();
    assert!(matches!(error, LocalError::Shortened { found: 9_000, expected: 278_528, .. }), "{error}");
    file.set_len(600).unwrap();
    assert!(matches!(opened(), LocalError::Shortened { found: 600, .. }));
}

#[test]
fn another_version_is_told_from_damage() {
    let disk = memory(1);
    let mut header = disk.bytes()[..512].to_vec();
    header[8] = 4;
    let sum = crc32c::crc32c(&header[..508]);
    header[508..].copy_from_slice(&sum.to_le_bytes());
    disk.tamper(0, |sector| sector.copy_from_slice(&header));
    let error = LocalRegistry::on(disk.open_again(), clock()).err().unwrap();
    assert!(matches!(error, LocalError::Version { found: 4, known: 3, .. }), "{error}");
}

#[test]
fn more_workers_than_the_layout_has_are_refused() {
    let folder = folder();
    for workers in [0, 1_025] {
        let error = LocalRegistry::create(folder.path(), &some_genesis(workers)).err().unwrap();
        assert!(matches!(error, LocalError::Workers { most: 1_024, .. }), "{error}");
    }
    assert!(!registry_of(folder.path()).exists());
}

#[test]
fn a_long_owner_is_cut_between_characters() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 1);
    let owner = "ü".repeat(31) + "x" + "ü";
    registry.claim(0, 1, &WorkerRecord { owner, ..claim_of(5_000, 1) }).unwrap();
    assert_eq!(registry.worker(0).unwrap().record.owner, "ü".repeat(31) + "x");
}

/// As a person may take it away, and put it back: docs/operations.md promises that this costs nothing.
#[test]
fn a_grant_that_meets_no_file_is_asked_for_again_when_the_file_is_back() {
    use crate::registry::ownership::{GrantError, Identity, Ownership};

    let folder = folder();
    let registry = made_in(folder.path(), 2);
    let mut ownership = Ownership::new(Box::new(registry), Identity::new(Token([1; 16]), "a test".into()));
    ownership.mark(spill(1), true).unwrap();
    let (there, away) = (registry_of(folder.path()), folder.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    let error = ownership.grant(spill(1), 0, 1).unwrap_err();
    std::fs::rename(&away, &there).unwrap();
    assert!(matches!(error, GrantError::Later { .. }), "the spill is given up for good: {error}");
    assert_eq!(ownership.grant(spill(1), 0, 1).unwrap(), 1);
}

/// A stop hands something back for each worker.
#[test]
fn a_lock_that_another_process_keeps_is_waited_for_once_by_changes_in_a_row() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 8);
    let stopped = std::fs::File::open(registry_of(folder.path())).unwrap();
    stopped.lock().unwrap();
    let mut took = || {
        let begun = crate::clock::boot_ns();
        let error = registry.claim(0, 1, &claim_of(5_000, 1)).unwrap_err();
        assert!(error.to_string().contains("kept it locked"), "{error}");
        crate::clock::boot_ns() - begun
    };
    let (first, others) = (took(), (0..8).map(|_| took()).sum::<u64>());
    assert!(first >= crate::clock::SECOND && others < crate::clock::SECOND, "{first} ns, then {others}");
    drop(stopped);
    registry.claim(0, 1, &claim_of(5_000, 1)).unwrap();
}
