//! Several processes at one folder, stopped and killed while they make their spills.

use std::fs;
use std::sync::Barrier;

use xuid_id::Layout;
use xuid_spill::Extent;

use super::*;
use crate::registry::memory::{Fault, MemoryRegistry};
use crate::registry::{ClusterId, MarkRecord, Registry, Token};

thread_local! {
    /// What another process does before this one sets a refused file aside.
    pub(super) static OTHER: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

fn registry() -> MemoryRegistry {
    let cluster = ClusterId::from_bytes([1; 16]);
    MemoryRegistry::new(Genesis::new(cluster, Layout::default(), 1_000, 1))
}

fn ownership(registry: &MemoryRegistry, token: u8) -> Ownership {
    Ownership::new(
        Box::new(registry.clone()),
        crate::registry::ownership::Identity::new(Token([token; 16]), format!("test {token}")),
    )
}

fn open_as(token: u8, folder: &Path, registry: &MemoryRegistry) -> OpenedSpill {
    open(folder, registry.genesis(), &mut ownership(registry, token))
}

/// The names of what is in the folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn append(log: &mut Log) -> u64 {
    let stride = Layout::default().stride();
    log.append(&[Extent { first: 2_000 * stride, len: 4_096, ticks: 1_000 }]).unwrap();
    log.sync().unwrap();
    log.stock().ids
}

#[test]
fn a_spill_in_the_making_is_left_alone_and_found_by_the_next_start() {
    let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
    let folder = folder.path();
    // Stopped when its file was locked; then another process comes, and goes on.
    let (storage, stopped) = draft::make_by(folder, STEM, MappedFile::create).unwrap();
    let mut other = open_as(1, folder, &registry).log.unwrap().0;
    assert!(stopped.exists(), "the other one removed it");
    let spill = SpillId::from_bytes([9; 16]);
    let mut one = ownership(&registry, 2);
    let mut log = create_log(
        Box::new(storage),
        DEFAULT_BYTES,
        spill,
        &stopped,
        (registry.genesis(), &mut one),
        Duration::ZERO,
    )
    .unwrap();
    assert_eq!(publish(folder, &stopped).unwrap(), folder.join("spill-1"));
    let left = [append(&mut log), append(&mut other)];
    drop((log, other));
    let heirs = [3, 4].map(|token| open_as(token, folder, &registry));
    assert_eq!(heirs.each_ref().map(|heir| (heir.inherited, heir.refused)), left.map(|ids| (ids, 0)));
    assert_eq!(names(folder), ["spill-0", "spill-1"]);
}

/// Else it has no spill for its whole life.
#[test]
fn a_registry_that_does_not_answer_for_a_moment_is_asked_again_for_the_mark() {
    let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
    registry.fail_reads(2);
    let mut first = open_as(1, folder.path(), &registry).log.unwrap().0;
    let left = append(&mut first);
    drop(first);
    registry.fail_reads(2);
    assert_eq!(open_as(2, folder.path(), &registry).inherited, left);
    assert_eq!(names(folder.path()), ["spill-0"]);
}

#[test]
fn what_cannot_be_opened_under_one_name_keeps_no_process_from_the_next_one() {
    let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
    fs::create_dir(folder.path().join("spill-0")).unwrap();
    let mut first = open_as(1, folder.path(), &registry).log.unwrap().0;
    let left = append(&mut first);
    drop(first);
    assert_eq!(open_as(2, folder.path(), &registry).inherited, left);
    assert_eq!(names(folder.path()), ["spill-0", "spill-1"]);
}

#[test]
fn what_makers_of_spills_left_behind_that_died_is_swept_away() {
    let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
    for _ in 0..3 {
        // Killed before its file was locked, and after it was laid out.
        drop(draft::make(folder.path(), STEM).unwrap());
        let (mut storage, _) = draft::make_by(folder.path(), STEM, MappedFile::create).unwrap();
        storage.allocate(DEFAULT_BYTES).unwrap();
        storage.sync().unwrap();
    }
    assert_eq!(names(folder.path()).len(), 6);
    let stock = open_as(1, folder.path(), &registry);
    assert_eq!(names(folder.path()), ["spill-0"]);
    assert_eq!(stock.refused, 0, "what was never named was never a spill");
}

#[test]
fn a_process_that_refuses_a_file_does_not_set_the_spill_of_another_aside() {
    let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
    let path = folder.path().to_owned();
    fs::write(path.join("spill-0"), "not a spill").unwrap();
    let other = std::rc::Rc::new(std::cell::Cell::new(None));
    let (theirs, shared) = (other.clone(), registry.clone());
    OTHER.set(Some(Box::new(move || theirs.set(Some(open_as(1, &path, &shared))))));
    let mut one = open_as(2, folder.path(), &registry);
    let mut other = other.take().unwrap();
    let left = [&mut one, &mut other].map(|stock| append(&mut stock.log.as_mut().unwrap().0));
    assert_eq!(one.refused + other.refused, 1);
    drop((one, other));
    let heirs = [3, 4].map(|token| open_as(token, folder.path(), &registry).inherited);
    assert_eq!(heirs, left, "{:?}", names(folder.path()));
    assert_eq!(names(folder.path()), ["spill-0", "spill-0.0.refused", "spill-1"]);
}

/// Appended to where such a mark says, it would have no index left.
#[test]
fn a_spill_whose_mark_a_fence_raised_to_the_end_is_set_aside_for_another_one() {
    let (folder, mut registry) = (tempfile::tempdir().unwrap(), registry());
    let spill = open_as(1, folder.path(), &registry).log.unwrap().0.id();
    let found = registry.mark(spill).unwrap();
    let raised = MarkRecord { granted_upto: u64::MAX, ..found.record };
    registry.swap_mark(spill, found.version, &raised).unwrap();
    let opened = open_as(2, folder.path(), &registry);
    assert_eq!(opened.refused, 1);
    assert!(append(&mut opened.log.unwrap().0) > 0);
    assert_eq!(names(folder.path()), ["spill-0", "spill-0.0.refused"]);
}

#[test]
fn of_many_that_find_a_refused_file_each_goes_on_with_a_spill_that_is_found_again() {
    const STARTERS: u8 = 4;
    for _ in 0..3 {
        let (folder, registry, barrier) =
            (tempfile::tempdir().unwrap(), registry(), Barrier::new(STARTERS.into()));
        let folder = folder.path();
        fs::write(folder.join("spill-0"), "not a spill").unwrap();
        let start = |token| {
            barrier.wait();
            let mut stock = open_as(token, folder, &registry);
            (append(&mut stock.log.as_mut().unwrap().0), stock)
        };
        let begun: Vec<(u64, OpenedSpill)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..STARTERS).map(|token| scope.spawn(move || start(token))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(begun.iter().map(|(_, stock)| stock.refused).sum::<u64>(), 1);
        let left: u64 = begun.iter().map(|(ids, _)| ids).sum();
        drop(begun);
        let heirs: Vec<_> = (0..STARTERS).map(|token| open_as(token, folder, &registry)).collect();
        assert_eq!(heirs.iter().map(|heir| heir.inherited).sum::<u64>(), left, "{:?}", names(folder));
        let expected = ["spill-0", "spill-0.0.refused", "spill-1", "spill-2", "spill-3"];
        assert_eq!(names(folder), expected);
    }
}

/// An ensemble that elects a leader while a process starts: what was asked of it is lost, and so is the look for it.
#[test]
fn a_new_spill_s_mark_waits_for_a_registry_that_is_away_for_a_moment() {
    for fault in [Fault::LostUnseen, Fault::LandsUnseen, Fault::Away] {
        for unread in 0..3 {
            let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
            registry.fail(fault);
            registry.fail_reads(unread);
            let mut first = open_as(1, folder.path(), &registry).log.unwrap().0;
            let left = append(&mut first);
            drop(first);
            registry.fail_reads(0);
            assert_eq!(open_as(2, folder.path(), &registry).inherited, left, "{fault:?}, {unread} reads");
        }
    }
}

#[test]
fn a_registry_that_stays_away_leaves_the_spill_where_it_is() {
    let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
    let mut first = open_as(1, folder.path(), &registry).log.unwrap().0;
    let left = append(&mut first);
    drop(first);
    registry.fail_reads(u32::MAX);
    let found = open_as(2, folder.path(), &registry);
    assert_eq!((found.log.is_err(), found.refused), (true, 0));
    registry.fail_reads(0);
    assert_eq!(open_as(2, folder.path(), &registry).inherited, left);
    assert_eq!(names(folder.path()), ["spill-0"]);
}
