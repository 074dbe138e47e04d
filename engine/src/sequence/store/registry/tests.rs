//! The store on records in memory, with faults, and on a folder.

use std::path::Path;

use super::*;
use crate::registry::ClusterId;
use crate::registry::local::sequences::LocalSequences;
use crate::registry::local::{CreateOptions, LocalRegistry, fence_restored};
use crate::registry::sequences::memory::{MemoryRecords, RecordFault};
use crate::sequence::Sequences;
use crate::sequence::store::{Fence, fence};

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn memory() -> (MemoryRecords, RegistryStore) {
    let records = MemoryRecords::new(ClusterId::from_bytes([7; 16]));
    (records.clone(), RegistryStore::new(Box::new(records)))
}

/// A folder with a registry.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions { layout: crate::Layout::default(), floor: 1_000, workers: 4 };
    drop(LocalRegistry::open_or_create(folder.path(), &options).unwrap());
    folder
}

fn in_folder(folder: &Path) -> RegistryStore {
    RegistryStore::new(Box::new(LocalSequences::open_or_create(folder, None).unwrap()))
}

/// What `xuid registry fence --restored` does after a restore.
fn put_back(folder: &Path) {
    fence_restored(folder, 1_763_683_200_000_000_000).unwrap();
}

fn created(store: &mut RegistryStore, text: &str, settings: SequenceSettings) {
    store.create(&name(text), &NewSequence { settings, ..NewSequence::default() }).unwrap();
}

fn grant(store: &mut RegistryStore, text: &str, count: u64) -> Outcome {
    let mut out = Vec::new();
    let identity = store.grant(&[Ask { name: name(text), count, least: 1, floor: 0 }], &mut out);
    let outcome = out.pop().unwrap();
    assert_eq!(identity.is_some(), matches!(outcome, Outcome::Granted { .. }));
    outcome
}

fn range(outcome: Outcome) -> (u64, u64) {
    match outcome {
        Outcome::Granted { first, end, .. } => (first, end),
        other => panic!("{other:?}"),
    }
}

#[test]
fn grants_follow_each_other_from_the_start_to_the_last_number() {
    let (_, mut store) = memory();
    let settings = SequenceSettings { step: 100, last: 350, ..SequenceSettings::default() };
    created(&mut store, "orders", settings);
    for (count, expected) in [(1, (1, 101)), (150, (101, 251)), (1, (251, 351))] {
        assert_eq!(range(grant(&mut store, "orders", count)), expected);
    }
    assert_eq!(grant(&mut store, "orders", 1), Outcome::Exhausted { settings });
    assert_eq!(store.read(&name("orders")).unwrap().next, 351);
    assert_eq!(grant(&mut store, "users", 1), Outcome::Absent);
}

#[test]
fn the_highest_number_is_granted_and_nothing_after_it() {
    let (_, mut store) = memory();
    let new = NewSequence { start: HIGHEST - 4, ..NewSequence::default() };
    store.create(&name("end"), &new).unwrap();
    assert_eq!(range(grant(&mut store, "end", MOST_STEP)), (HIGHEST - 4, HIGHEST + 1));
    assert!(matches!(grant(&mut store, "end", 1), Outcome::Exhausted { .. }));
}

#[test]
fn an_increment_widens_the_range_and_a_strict_row_is_granted_what_is_waited_for() {
    let (_, mut store) = memory();
    let settings = SequenceSettings { increment: 3, remainder: 1, step: 10, ..Default::default() };
    created(&mut store, "thirds", settings);
    assert_eq!(range(grant(&mut store, "thirds", 1)), (1, 31));
    created(&mut store, "strict", SequenceSettings { strict: true, ..settings });
    assert_eq!(range(grant(&mut store, "strict", 1_000)), (1, 4));
    // 9 is there, and is none of 1, 4, 7, 10.
    let settings = SequenceSettings { last: 9, ..settings };
    created(&mut store, "short", settings);
    assert_eq!(range(grant(&mut store, "short", 3)), (1, 10));
    let new = NewSequence { start: 8, settings, ..NewSequence::default() };
    store.create(&name("none"), &new).unwrap();
    assert_eq!(grant(&mut store, "none", 1), Outcome::Exhausted { settings });
}

/// Records of which each change meets a fault, and each read none.
struct Second(MemoryRecords, RecordFault);
impl SequenceRecords for Second {
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn cluster(&self) -> ClusterId {
        self.0.cluster()
    }
    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        self.0.read(names, out);
    }
    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        self.0.fail([self.1]);
        self.0.swap(changes, out);
    }
    fn list(
        &mut self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<crate::registry::sequences::SequenceEntry>, ReadError> {
        self.0.list(prefix, after, limit)
    }
}

#[test]
fn an_unknown_outcome_is_no_grant_and_what_may_have_been_stored_is_a_gap() {
    for (fault, next) in [(RecordFault::LandsUnseen, 1_001), (RecordFault::LostUnseen, 1)] {
        let (records, mut store) = memory();
        created(&mut store, "orders", SequenceSettings::default());
        let mut failing = RegistryStore::new(Box::new(Second(records, fault)));
        assert!(matches!(grant(&mut failing, "orders", 1), Outcome::Unknown { .. }));
        assert_eq!(range(grant(&mut store, "orders", 1)).0, next);
    }
}

#[test]
fn a_store_that_is_away_grants_nothing() {
    let (records, mut store) = memory();
    created(&mut store, "orders", SequenceSettings::default());
    records.set_away(true);
    assert!(matches!(grant(&mut store, "orders", 1), Outcome::Away { .. }));
    assert!(matches!(store.read(&name("orders")), Err(StoreError::Away { .. })));
}

#[test]
fn a_name_is_created_once_and_over_a_witness_above_all_that_was_seen() {
    let (records, mut store) = memory();
    created(&mut store, "orders", SequenceSettings::default());
    let again = store.create(&name("orders"), &NewSequence::default());
    assert!(matches!(again, Err(StoreError::Exists(row)) if row.next == 1));
    let seen = SequenceRecord { value: 5_000, gaps: vec![(10, 20)], ..SequenceRecord::default() };
    let mut outcome = Vec::new();
    records.clone().swap(&[SequenceChange { name: "seen", expected: None, record: seen }], &mut outcome);
    assert!(outcome[0].is_ok());
    assert!(matches!(grant(&mut store, "seen", 1), Outcome::Absent), "a witness is no sequence");
    assert!(matches!(store.read(&name("seen")), Err(StoreError::Absent { .. })));
    assert_eq!(store.list("", "", 10).unwrap().len(), 1);
    created(&mut store, "seen", SequenceSettings::default());
    assert_eq!(range(grant(&mut store, "seen", 1)), (5_000, 6_000));
    assert!(records.record("seen").unwrap().gaps.is_empty());
}

#[test]
fn a_last_number_only_rises_but_to_retire_a_sequence() {
    let (_, mut store) = memory();
    created(&mut store, "orders", SequenceSettings { last: 10_000, ..Default::default() });
    let alter = |store: &mut RegistryStore, last, step| {
        store.alter(&name("orders"), &Alteration { step, last, description: None })
    };
    assert!(matches!(alter(&mut store, Some(NewLast::At(9_999)), None), Err(StoreError::Refused { .. })));
    let row = alter(&mut store, Some(NewLast::At(20_000)), Some(7)).unwrap();
    assert_eq!((row.settings.last, row.settings.step), (20_000, 7));
    assert_eq!(range(grant(&mut store, "orders", 1)), (1, 8));
    assert_eq!(alter(&mut store, Some(NewLast::Retired), None).unwrap().settings.last, 7);
    assert!(matches!(grant(&mut store, "orders", 1), Outcome::Exhausted { .. }));
    let absent = store.alter(&name("users"), &Alteration::default());
    assert!(matches!(absent, Err(StoreError::Absent { .. })));
}

#[test]
fn a_fenced_folder_s_names_are_listed_and_raised_before_they_grant() {
    let folder = folder();
    let open = || in_folder(folder.path());
    let mut store = open();
    created(&mut store, "orders", SequenceSettings { step: 50, ..Default::default() });
    assert_eq!(range(grant(&mut store, "orders", 1)), (1, 51));
    drop(store);
    put_back(folder.path());
    let mut store = open();
    let refused = grant(&mut store, "orders", 1);
    assert!(
        matches!(&refused, Outcome::Refused { why } if why.contains("xuid sequence fence")),
        "{refused:?}"
    );
    let new = store.create(&name("users"), &NewSequence::default());
    let read = store.read(&name("orders"));
    let altered = store.alter(&name("orders"), &Alteration { step: Some(9), ..Alteration::default() });
    for closed in [&new, &read, &altered] {
        let says = |why: &String| why.contains("closed by a fence") && why.contains("`xuid sequence fence`");
        assert!(matches!(closed, Err(StoreError::Closed { why }) if says(why)), "{closed:?}");
    }
    // A process that was granted more opens nothing, nor does a program that raises marks.
    assert!(matches!(store.raise_open(&name("orders"), 9_000), Err(StoreError::Closed { .. })));
    // What `xuid sequence fence` does.
    let rows = store.list("", "", 100).unwrap();
    assert_eq!(rows.iter().map(|row| (row.name.as_str(), row.next)).collect::<Vec<_>>(), [("orders", 51)]);
    assert_eq!(store.raise(&name("orders"), 5_051).unwrap().settings.step, 50);
    let seen = store.new_names().unwrap();
    store.allow_new(seen, 0).unwrap();
    assert_eq!(range(grant(&mut store, "orders", 1)), (5_051, 5_101));
    for (least, next) in [(9_000, 9_000), (1, 9_000)] {
        assert_eq!(store.raise_open(&name("orders"), least).unwrap().next, next);
    }
    created(&mut store, "users", SequenceSettings::default());
}

/// It may do so at each of its starts, for the highest number that it knows.
#[test]
fn a_program_that_raises_marks_opens_and_makes_nothing_that_a_fence_closed() {
    let folder = folder();
    created(&mut in_folder(folder.path()), "orders", SequenceSettings::default());
    let raised = |text: &str, least| {
        let sequences = Sequences::builder(Box::new(in_folder(folder.path()))).build().unwrap();
        let raised = sequences.raise(&name(text), least).wait();
        sequences.shutdown();
        raised.map(|info| info.row.next)
    };
    assert_eq!(raised("orders", 70).unwrap(), 70);
    put_back(folder.path());
    for text in ["orders", "made since"] {
        let refused = raised(text, 90_000);
        assert!(refused.is_err(), "{text}: {refused:?}");
    }
    let mut store = in_folder(folder.path());
    assert!(matches!(store.read(&name("orders")), Err(StoreError::Closed { .. })));
    assert_eq!(store.list("", "", 9).unwrap().len(), 1);
}

/// Else a fence would leave it closed, and open the store to new names.
#[test]
fn a_closed_name_that_is_not_had_for_the_moment_is_not_left_out_of_a_list() {
    let (records, mut store) = memory();
    for text in ["a", "b"] {
        created(&mut store, text, SequenceSettings::default());
        records.set_closed(text, true);
    }
    assert_eq!(store.list("", "", 9).unwrap().len(), 2);
    for calls in [1, 2] {
        records.fail_after(calls, RecordFault::Away);
        let listed = store.list("", "", 9);
        assert!(matches!(listed, Err(StoreError::Away { .. })), "{calls}: {listed:?}");
    }
    assert_eq!(store.list("", "", 9).unwrap().len(), 2);
}

/// A name that was made since the backup, of which nobody thinks, is made again by who uses it next.
#[test]
fn behind_a_fence_of_a_registry_a_name_begins_above_what_the_fence_says() {
    let folder = folder();
    let open = || in_folder(folder.path());
    let mut store = open();
    created(&mut store, "orders", SequenceSettings { step: 50, ..Default::default() });
    let whole = |above: Option<u64>| Fence { above, ..Fence::default() };
    // Nothing was put back, so nothing is missing.
    assert_eq!(fence(&mut store, &whole(Some(300))).unwrap().new_start, None);
    created(&mut store, "users", SequenceSettings::default());
    assert_eq!(range(grant(&mut store, "users", 1)).0, 1);
    drop(store);
    put_back(folder.path());
    let mut store = open();
    let done = fence(&mut store, &Fence { margin: Some(7), ..whole(Some(70_000)) }).unwrap();
    assert_eq!(done.new_start, Some(70_007));
    let new = |text: &str, start| (name(text), NewSequence { start, ..NewSequence::default() });
    let made = store.create_all(&[new("one", 1), new("two", 90_000)]);
    assert_eq!(made.into_iter().map(|made| made.unwrap().next).collect::<Vec<_>>(), [70_007, 90_000]);
    assert_eq!(range(grant(&mut store, "one", 1)).0, 70_007);
    let small = SequenceSettings { last: 70_006, ..Default::default() };
    let refused = store.create(&name("small"), &NewSequence { settings: small, ..NewSequence::default() });
    assert!(
        matches!(&refused, Err(StoreError::Refused { why }) if why.contains("--new-start 1")),
        "{refused:?}"
    );
    // Each fence goes on from there, by its margin.
    assert_eq!(fence(&mut store, &whole(None)).unwrap().new_start, Some(80_007));
    assert_eq!(fence(&mut store, &whole(Some(100))).unwrap().new_start, Some(90_007));
    drop(store);
    put_back(folder.path());
    let mut store = open();
    assert_eq!(fence(&mut store, &whole(None)).unwrap().new_start, Some(100_007));
    // A person says that none was made since the backup; and that those of earlier fences are there, too.
    let said = Fence { new_start: Some(1), ..whole(None) };
    assert_eq!(fence(&mut store, &said).unwrap().new_start, Some(100_007));
    assert_eq!(fence(&mut store, &Fence { lowers_new_start: true, ..said }).unwrap().new_start, None);
    created(&mut store, "three", SequenceSettings::default());
    assert_eq!(range(grant(&mut store, "three", 1)).0, 1);
}

/// A backup of before the first name tells no step.
#[test]
fn behind_a_fence_of_a_registry_without_a_name_one_begins_ten_usual_steps_above() {
    let with_file = folder();
    drop(in_folder(with_file.path()));
    put_back(with_file.path());
    let mut store = in_folder(with_file.path());
    let known = [(name("gone"), 5_000)].into();
    let said = Fence { new_start: Some(1), known, ..Fence::default() };
    assert_eq!(fence(&mut store, &said).unwrap().new_start, Some(5_000), "a folder knows better");
    let without = folder();
    put_back(without.path());
    let mut store = in_folder(without.path());
    assert_eq!(fence(&mut store, &Fence::default()).unwrap().new_start, Some(10_000));
    created(&mut store, "orders", SequenceSettings::default());
    assert_eq!(range(grant(&mut store, "orders", 1)).0, 10_000);
}

#[test]
fn a_fence_of_one_name_opens_it_also_where_the_registry_lost_it() {
    let folder = folder();
    let open = || in_folder(folder.path());
    let mut store = open();
    created(&mut store, "orders", SequenceSettings { step: 50, ..Default::default() });
    created(&mut store, "orders:eu", SequenceSettings::default());
    assert_eq!(range(grant(&mut store, "orders", 1)), (1, 51));
    drop(store);
    put_back(folder.path());
    let mut store = open();
    let one = |text: &str| Fence { name: Some(name(text)), ..Fence::default() };
    let done = fence(&mut store, &one("orders")).unwrap();
    assert_eq!(done.raised, [(name("orders"), 51, 551)]);
    assert_eq!(range(grant(&mut store, "orders", 1)), (551, 601));
    assert!(matches!(grant(&mut store, "orders:eu", 1), Outcome::Refused { .. }));
    // Made after the backup that was put back: its mark is known to the operator alone.
    let lost = fence(&mut store, &one("users"));
    assert!(matches!(lost, Err(StoreError::Absent { .. })), "{lost:?}");
    fence(&mut store, &Fence { above: Some(7_000), ..one("users") }).unwrap();
    let seen = store.new_names().unwrap();
    store.allow_new(seen, 0).unwrap();
    created(&mut store, "users", SequenceSettings::default());
    assert_eq!(range(grant(&mut store, "users", 1)).0, 7_000);
}

#[test]
fn of_two_stores_that_grant_at_once_each_gets_numbers_of_its_own() {
    let (records, mut store) = memory();
    created(&mut store, "orders", SequenceSettings { step: 1, ..Default::default() });
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut store = RegistryStore::new(Box::new(records.clone()));
            std::thread::spawn(move || {
                let grants = (0..200).map(|_| grant(&mut store, "orders", 3));
                grants
                    .filter(|outcome| !matches!(outcome, Outcome::Away { .. }))
                    .map(range)
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let mut ranges: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    ranges.sort_unstable();
    assert!(ranges.len() > 400, "{} grants", ranges.len());
    assert!(ranges.windows(2).all(|two| two[0].1 == two[1].0), "{ranges:?}");
}

/// No number of any sequence is granted meanwhile, and in an ensemble each look at the list is some 260 requests.
#[test]
fn names_that_only_a_witness_made_are_passed_over_in_few_steps() {
    let (mut records, mut store) = memory();
    for n in 0..300 {
        let record = SequenceRecord { value: 5, ..SequenceRecord::default() };
        let mut out = Vec::new();
        records.swap(&[SequenceChange { name: &format!("w{n:03}"), expected: None, record }], &mut out);
        assert!(out[0].is_ok());
    }
    created(&mut store, "z", SequenceSettings::default());
    let rows = store.list("", "", 1).unwrap();
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["z"]);
    assert_eq!(records.listed(), 2);
    assert_eq!(store.list("", "", 1_000).unwrap().len(), 1);
    assert_eq!(records.listed(), 3, "none behind the last one");
}
