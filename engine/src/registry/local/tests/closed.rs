//! Closed workers in a folder, and a registry of a part of the workers.

use super::*;
use crate::registry::local::format::Side;
use crate::registry::{OpenError, Opened, Workers, open};

const NOW_NS: u64 = 1_700_000_000_000_000_000;
const NOW_TICK: u64 = 1_700_000_000_000 - xuid_id::DEFAULT_EPOCH_MS;
/// 125 s ahead, and the tick behind that.
const CLEAR: u64 = NOW_TICK + 125_001;

/// Workers 100 to 107, of which 100 to 103 are closed.
fn genesis() -> Genesis {
    Genesis { first_worker: 100, closed: workers(100, 104), ..some_genesis(8) }
}

fn workers(from: u32, until: u32) -> Workers {
    Workers { from, until }
}

fn until(registry: &mut LocalRegistry) -> Vec<(u32, Option<u64>)> {
    let until =
        |entry: WorkerEntry| (entry.worker, entry.record.ok().map(|found| found.record.reserved_until));
    registry.workers().unwrap().into_iter().map(until).collect()
}

fn closed(registry: &mut LocalRegistry) -> Vec<u32> {
    let is_closed = |(worker, until): (u32, Option<u64>)| (until == Some(u64::MAX)).then_some(worker);
    until(registry).into_iter().filter_map(is_closed).collect()
}

/// Damages both copies of a worker's record.
fn damage(folder: &Path, worker: u32) {
    let mut bytes = std::fs::read(registry_of(folder)).unwrap();
    for copy in Side::BOTH {
        let offset = format::Geometry::registry(100..108).offset(Place::worker(worker), copy) as usize;
        bytes[offset + 100] ^= 1;
    }
    std::fs::write(registry_of(folder), bytes).unwrap();
}

#[test]
fn a_part_of_the_workers_is_read_and_changed_by_its_numbers() {
    let folder = folder();
    let mut registry = LocalRegistry::create(folder.path(), &genesis()).unwrap();
    let closed = Some(u64::MAX);
    let wanted = [closed, closed, closed, closed, Some(1_000), Some(1_000), Some(1_000), Some(1_000)];
    assert_eq!(until(&mut registry), (100..).zip(wanted).collect::<Vec<_>>());
    registry.claim(107, 1, &claim_of(5_000, 1)).unwrap();
    for absent in [0, 7, 99, 108] {
        assert!(matches!(registry.worker(absent), Err(ReadError::Absent { .. })), "{absent}");
        assert!(registry.claim(absent, 1, &claim_of(5_000, 2)).is_err(), "{absent}");
    }
    registry.create_mark(spill(1), &mark_of(3, 2)).unwrap();
    registry.close();
    let mut registry = LocalRegistry::open(folder.path()).unwrap();
    assert_eq!(registry.genesis(), &Genesis { cluster: registry.genesis().cluster, ..genesis() });
    assert_eq!(until(&mut registry)[7], (107, Some(5_000)));
    assert_eq!(registry.mark(spill(1)).unwrap().record.granted_upto, 3);
    let found = inspect(folder.path()).unwrap();
    assert!(found.findings.is_empty() && found.workers[0].worker == 100, "{:?}", found.findings);
    damage(folder.path(), 106);
    let found = inspect(folder.path()).unwrap();
    assert!(
        found.findings.iter().any(|finding| finding.to_string().contains("worker 106")),
        "{:?}",
        found.findings
    );
}

#[test]
fn an_old_content_of_a_part_is_noticed_by_what_the_folder_knew() {
    let folder = folder();
    let mut registry = LocalRegistry::create(folder.path(), &genesis()).unwrap();
    let old = std::fs::read(registry_of(folder.path())).unwrap();
    open(&mut registry, workers(100, 102), 7, NOW_NS).unwrap();
    registry.claim(105, 1, &claim_of(5_000, 1)).unwrap();
    registry.close();
    std::fs::write(registry_of(folder.path()), old).unwrap();
    let error = LocalRegistry::open(folder.path()).err().unwrap();
    assert!(matches!(&error, LocalError::Restored { what, .. } if what == "worker 100"), "{error}");
    // What the folder knows to be open stays so; the others are closed still.
    let fenced = fence_restored(folder.path(), NOW_NS).unwrap();
    assert_eq!(fenced.reserved_until, CLEAR);
    let mut registry = LocalRegistry::open(folder.path()).unwrap();
    assert_eq!(closed(&mut registry), [102, 103]);
    assert_eq!(until(&mut registry)[0], (100, Some(CLEAR)));
}

#[test]
fn a_process_that_runs_sees_an_opened_worker_and_takes_it_when_its_time_has_come() {
    let folder = folder();
    let mut server = LocalRegistry::create(folder.path(), &genesis()).unwrap();
    assert_eq!(closed(&mut server).len(), 4);
    let mut command = LocalRegistry::open(folder.path()).unwrap();
    let opened = open(&mut command, workers(101, 103), NOW_TICK + 6, NOW_NS).unwrap();
    assert_eq!(opened, Opened { workers: workers(101, 103), from: CLEAR });
    command.close();
    let found = server.worker(101).unwrap();
    assert_eq!((found.version, found.record.reserved_until), (2, CLEAR));
    server.claim(101, 2, &claim_of(CLEAR + 100, 1)).unwrap();
    let again = open(&mut LocalRegistry::open(folder.path()).unwrap(), workers(101, 102), 7, NOW_NS);
    assert!(matches!(again, Err(OpenError::NotClosed { first: 101, .. })), "{again:?}");
}

/// What an opened worker was granted before a restore is below where it opens again, though no record shows it.
#[test]
fn a_worker_that_was_opened_after_a_backup_opens_again_above_what_it_was_granted() {
    let (folder, elsewhere) = (folder(), folder());
    drop(LocalRegistry::create(folder.path(), &genesis()).unwrap());
    let backup = elsewhere.path().join("registry");
    std::fs::copy(registry_of(folder.path()), &backup).unwrap();
    let mut registry = LocalRegistry::open(folder.path()).unwrap();
    open(&mut registry, workers(100, 104), 7, NOW_NS).unwrap();
    // As far as windows reach, an hour later.
    let later_ns = NOW_NS + 3_600_000_000_000;
    let granted = NOW_TICK + 3_600_000 + 120_000;
    registry.claim(100, 2, &claim_of(granted, 1)).unwrap();
    registry.close();
    for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
        std::fs::remove_file(entry.path()).unwrap();
    }
    std::fs::copy(&backup, registry_of(folder.path())).unwrap();
    fence_restored(folder.path(), later_ns).unwrap();
    let mut registry = LocalRegistry::open(folder.path()).unwrap();
    assert_eq!(closed(&mut registry), [100, 101, 102, 103]);
    // The clock of the host that opens them is behind by an hour: the fence's time counts.
    let opened = open(&mut registry, workers(100, 104), 7, NOW_NS).unwrap();
    assert!(opened.from > granted, "{} is not above {granted}", opened.from);
}

#[test]
fn a_record_that_cannot_be_read_is_closed_by_a_fence_if_genesis_says_so_and_the_folder_nothing_else() {
    let folder = folder();
    let mut registry = LocalRegistry::create(folder.path(), &genesis()).unwrap();
    open(&mut registry, workers(101, 102), 7, NOW_NS).unwrap();
    registry.close();
    for worker in [100, 101, 105] {
        damage(folder.path(), worker);
    }
    let fenced = fence_restored(folder.path(), NOW_NS).unwrap();
    assert_eq!(
        (fenced.repaired, fenced.reserved_until),
        (3, CLEAR),
        "closed ones do not count as the highest"
    );
    let mut registry = LocalRegistry::open(folder.path()).unwrap();
    assert_eq!(closed(&mut registry), [100, 102, 103]);
    registry.close();
    // Fenced once more, all stays as it is.
    let fenced = fence_restored(folder.path(), NOW_NS + 1_000_000_000).unwrap();
    assert_eq!(fenced.reserved_until, CLEAR + 1_000);
    assert_eq!(closed(&mut LocalRegistry::open(folder.path()).unwrap()), [100, 102, 103]);
}

/// What is known of a worker is of several times, and to be closed it must be closed in all of it.
#[test]
fn a_worker_that_was_opened_behind_what_the_folder_knows_stays_open() {
    let folder = folder();
    LocalRegistry::create(folder.path(), &genesis()).unwrap().close();
    // It tells the folder of all records.
    fence_restored(folder.path(), NOW_NS).unwrap();
    let files = || std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
    let known: Vec<_> = files()
        .filter(|path| *path != registry_of(folder.path()))
        .map(|path| (std::fs::read(&path).unwrap(), path))
        .collect();
    let mut registry = LocalRegistry::open(folder.path()).unwrap();
    open(&mut registry, workers(100, 104), 7, NOW_NS).unwrap();
    registry.close();
    let changed = |(old, path): &&(Vec<u8>, PathBuf)| std::fs::read(path).ok().as_ref() != Some(old);
    let newer: Vec<_> = known.iter().filter(changed).collect();
    assert!(!newer.is_empty(), "the folder knows of it");
    for (old, path) in newer {
        std::fs::write(path, old).unwrap();
    }
    fence_restored(folder.path(), NOW_NS).unwrap();
    assert_eq!(closed(&mut LocalRegistry::open(folder.path()).unwrap()), [0; 0]);
}

#[test]
fn closed_workers_that_are_none_are_none() {
    let folder = folder();
    let genesis = Genesis { first_worker: 100, closed: workers(103, 103), ..some_genesis(8) };
    let mut registry = LocalRegistry::create(folder.path(), &genesis).unwrap();
    assert_eq!(registry.genesis().closed, Workers::NONE);
    assert!(closed(&mut registry).is_empty());
}

/// Made, it could not be opened, and stood in the way of the next one.
#[test]
fn what_could_not_be_opened_is_not_made() {
    let folder = folder();
    let outside = Genesis { closed: workers(3, 5), ..genesis() };
    assert_eq!(outside.checked(3), None);
    assert!(matches!(LocalRegistry::create(folder.path(), &outside), Err(LocalError::Workers { .. })));
    let of_no_key = Genesis { layout: Layout::default().opaque().unwrap(), ..some_genesis(8) };
    assert!(matches!(LocalRegistry::create(folder.path(), &of_no_key), Err(LocalError::Key(_))));
    LocalRegistry::create(folder.path(), &genesis()).unwrap();
}
