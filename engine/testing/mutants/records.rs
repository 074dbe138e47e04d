//! Records and marks that say less than was granted, and extents that must not come again.

use std::path::Path;
use std::time::Duration;

use xuid_id::Layout;
use xuid_spill::{Extent, Log, MemoryStorage, SpillId};

use crate::registry::memory::MemoryRegistry;
use crate::registry::ownership::WorkerRequest;
use crate::registry::{ClusterId, Genesis, MarkRecord, Registry, Token, Versioned, WorkerRecord};
use crate::sys::guards::Guard;
use crate::testing::mutants::{only_without, ownership, request, span};
use crate::tiers::reserve::Reserve;
use crate::tiers::reserve::open::{self, Opened};

const FLOOR: u64 = 1_000;

const SPILL_BYTES: u64 = 8_192 + 64 * 32;

fn genesis(cluster: u8) -> Genesis {
    let cluster = ClusterId::from_bytes([cluster; 16]);
    Genesis::new(cluster, Layout::default(), FLOOR, 1)
}

/// An idle second, `number` seconds after the floor.
fn second(number: u64) -> Extent {
    let stride = Layout::default().stride();
    Extent { first: (FLOOR + number * 1_000) * stride, len: 4096, ticks: 1_000 }
}

/// A spill of five extents on that disk, made by a process of that registry.
fn spilled(disk: &MemoryStorage, registry: &MemoryRegistry) -> SpillId {
    let spill = SpillId::from_bytes([9; 16]);
    let (path, mut ownership) = (Path::new("test"), ownership(registry, 1));
    let storage = Box::new(disk.clone());
    let mut log = open::create_log(
        storage,
        SPILL_BYTES,
        spill,
        path,
        (registry.genesis(), &mut ownership),
        Duration::ZERO,
    )
    .unwrap();
    log.append(&std::array::from_fn::<_, 5, _>(|number| second(number as u64))).unwrap();
    log.sync().unwrap();
    spill
}

/// What a process gets out of the spill of a disk: each extent's index and first id. None if it is refused.
fn replayed(disk: &MemoryStorage, registry: &MemoryRegistry, token: u8) -> Option<Vec<(u64, Extent)>> {
    let mut ownership = ownership(registry, token);
    let copy = Box::new(MemoryStorage::from_bytes(disk.bytes()));
    let opened =
        open::open_log(copy, Path::new("test"), registry.genesis(), &mut ownership, Duration::ZERO).unwrap();
    let Opened::Log(mut log, mark) = opened else { return None };
    let upto = ownership.grant(log.id(), mark, log.head()).ok()?;
    let mut found = Vec::new();
    log.read(mark..upto, &mut found).unwrap();
    log.resume_at(upto);
    Some(found)
}

#[test]
fn a_window_begins_at_the_floor() {
    only_without(&[Guard::Floor], || {
        let registry = MemoryRegistry::new(genesis(1));
        // Records begin at the floor too, unless somebody wrote them by hand.
        let record =
            WorkerRecord { reserved_until: 0, token: Token::default(), operation: 0, owner: String::new() };
        registry.tamper_worker(0, Some(Versioned { record, version: 3 }));
        let early = WorkerRequest { start: 0, ..request(1_500) };
        let span = span(ownership(&registry, 1).take(&early).unwrap());
        (span.start < FLOOR).then(|| format!("a window of {span:?}"))
    });
}

#[test]
fn a_record_that_went_back_is_left() {
    only_without(&[Guard::RecordWentBack], || {
        let registry = MemoryRegistry::new(genesis(1));
        let mut ownership = ownership(&registry, 1);
        drop(ownership.take(&request(2_000)).unwrap());
        let backup = registry.clone().worker(0).unwrap();
        let granted = span(ownership.extend(0, 2_050, 2_200).unwrap());
        registry.tamper_worker(0, Some(backup));
        let again = span(ownership.extend(0, 2_060, 2_300).ok()?);
        (again.start < granted.end).then(|| format!("{granted:?} was granted, and then {again:?}"))
    });
}

#[test]
fn a_spill_whose_mark_went_back_is_given_up() {
    only_without(&[Guard::MarkWentBack], || {
        let registry = MemoryRegistry::new(genesis(1));
        let (spill, mut ownership) = (SpillId::from_bytes([9; 16]), ownership(&registry, 1));
        ownership.mark(spill, true).unwrap();
        let backup = registry.clone().mark(spill).unwrap();
        ownership.grant(spill, 0, 10).unwrap();
        registry.tamper_mark(spill, Some(backup));
        // Whoever goes on from what the registry says now gets what was granted.
        let from = ownership.mark(spill, false).ok()?;
        let upto = ownership.grant(spill, from, 5).ok()?;
        Some(format!("0..10 was granted, and then {from}..{upto}"))
    });
}

#[test]
fn a_spill_without_a_mark_is_not_replayed() {
    only_without(&[Guard::AbsentMarkRefused], || {
        let (registry, disk) = (MemoryRegistry::new(genesis(1)), MemoryStorage::new());
        let spill = spilled(&disk, &registry);
        let first = replayed(&disk, &registry, 2).unwrap();
        assert_eq!(first.len(), 5);
        registry.tamper_mark(spill, None::<Versioned<MarkRecord>>);
        let again = replayed(&disk, &registry, 3)?;
        first.iter().find(|found| again.contains(found)).map(|found| format!("{found:?} was replayed twice"))
    });
}

#[test]
fn a_spill_of_another_cluster_is_not_replayed() {
    let replayed_by_both = || {
        let (here, there) = (MemoryRegistry::new(genesis(1)), MemoryRegistry::new(genesis(2)));
        let disk = MemoryStorage::new();
        spilled(&disk, &here);
        let first = replayed(&disk, &here, 2).unwrap();
        let again = replayed(&disk, &there, 3)?;
        first
            .iter()
            .find(|found| again.contains(found))
            .map(|found| format!("{found:?} was replayed by both"))
    };
    only_without(&[Guard::SpillOfCluster, Guard::AbsentMarkRefused], replayed_by_both);
    // Either is enough: another cluster's registry has no mark for it.
    for enough in [Guard::SpillOfCluster, Guard::AbsentMarkRefused] {
        assert_eq!(Guard::without(&[enough], replayed_by_both), None);
    }
}

#[test]
fn what_a_failed_append_may_have_written_is_waste() {
    only_without(&[Guard::FailedAppendWasted], || {
        let (registry, disk) = (MemoryRegistry::new(genesis(1)), MemoryStorage::new());
        spilled(&disk, &registry);
        drop(replayed(&disk, &registry, 2));
        let mut life = ownership(&registry, 3);
        let storage = Box::new(disk.clone());
        let opened =
            open::open_log(storage, Path::new("test"), registry.genesis(), &mut life, Duration::ZERO)
                .unwrap();
        let Opened::Log(log, mark) = opened else { panic!("refused") };
        let mut reserve = Reserve::new(Layout::default(), 3_600_000, Ok((log, mark)));
        // The whole record lands, and the disk says that nothing did.
        disk.fail_write(1, 32);
        reserve.put_away(vec![second(7)]);
        let kept = reserve.run(FLOOR + 9_000, 1)?.raw();
        let found = replayed(&disk, &registry, 4)?;
        let twice = found.iter().any(|(_, extent)| extent.first == kept);
        twice.then(|| format!("id {kept} is in memory and in the file"))
    });
}

#[test]
fn land_that_is_too_old_does_not_leave_the_reserve() {
    only_without(&[Guard::AgeOfSpill], || {
        let none: Result<(Log, u64), String> = Err("none".into());
        let mut reserve = Reserve::new(Layout::default(), 2_000, none);
        reserve.keep([second(0)]);
        let run = reserve.run(FLOOR + 10_000, 8)?;
        Some(format!("{run:?} is ten seconds old"))
    });
}
