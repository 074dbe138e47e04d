use xuid_id::{ClusterId, Layout};
use xuid_spill::{Expected, Extent, Identity, Log, MappedFile};

use super::*;
use crate::registry::provenance::note::Event;
use crate::registry::provenance::windows_log::WindowsLog;
use crate::registry::{Token, Versioned};

const CLUSTER: ClusterId = ClusterId::from_bytes([5; 16]);
const SPILL: SpillId = SpillId::from_bytes([6; 16]);
const FLOOR: u64 = 1_000;

fn layout() -> Layout {
    Layout::default()
}

fn genesis() -> Genesis {
    Genesis::new(CLUSTER, layout(), FLOOR, 4)
}

fn worker(worker: u32, reserved_until: u64) -> WorkerEntry {
    let record = WorkerRecord { reserved_until, token: Token([1; 16]), operation: 1, owner: "us".to_owned() };
    WorkerEntry { worker, record: Ok(Versioned { record, version: 2 }), live: None }
}

/// A folder with a spill of two extents of worker 1, of ticks 1100 .. 1110 and 1120, of which the first one was granted.
fn folder() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let storage = MappedFile::create(&home.path().join("spill-0")).unwrap();
    let identity = Identity {
        spill: SPILL,
        cluster: CLUSTER.bytes(),
        stride: layout().stride(),
        layout: layout().to_bytes(),
    };
    let mut log = Log::create(Box::new(storage), identity, 1 << 16).unwrap();
    let first = |tick| layout().encode(tick, 1, 100).raw();
    let extents = [
        Extent { first: first(1_100), len: 50, ticks: 10 },
        Extent { first: first(1_120), len: 50, ticks: 1 },
    ];
    log.resume_at(0);
    log.append(&extents).unwrap();
    log.sync().unwrap();
    let mut notes = WindowsLog::new(home.path(), CLUSTER, "host pid 7".to_owned());
    notes.note(Token([1; 16]), 77, Event::Window { worker: 1, ticks: 1_000..1_500 });
    notes.note(Token([2; 16]), 88, Event::Grant { spill: SPILL.into(), extents: 0..1 });
    home
}

/// The spill of that folder, whose first extent was granted.
fn spill(home: &Path) -> Log {
    let storage = MappedFile::open(&home.join("spill-0")).unwrap();
    let expected =
        Expected { cluster: CLUSTER.bytes(), stride: layout().stride(), layout: layout().to_bytes() };
    let (mut log, _) = Log::open(Box::new(storage), &expected).unwrap();
    log.resume_at(1);
    log
}

fn mark(granted_upto: u64) -> [(SpillId, MarkRecord); 1] {
    [(SPILL, MarkRecord { granted_upto, token: Token([1; 16]), operation: 3 })]
}

fn evidence(home: &Path) -> Evidence {
    let mut evidence = Evidence::new(genesis());
    evidence.add_registry("registry", &[worker(0, FLOOR), worker(1, 1_500)], &mark(1));
    evidence.add_folder("folder", home);
    evidence
}

fn judged(evidence: &Evidence, tick: u64, worker: u32, sequence: u32) -> (Verdict, Vec<String>) {
    let found = evidence.judge(layout().encode(tick, worker, sequence), None);
    (found.verdict, found.sources)
}

#[test]
fn each_verdict_says_what_it_rests_on() {
    let home = folder();
    let evidence = evidence(home.path());
    let judged = |tick, worker, sequence| judged(&evidence, tick, worker, sequence);
    assert_eq!(judged(FLOOR - 1, 1, 0).0, Verdict::Impossible);
    assert_eq!(judged(2_000, 4, 0).0, Verdict::Impossible, "there is no worker 4");
    assert_eq!(judged(1_500, 1, 0), (Verdict::NotGranted, vec!["registry".to_owned()]));
    assert_eq!(judged(FLOOR, 0, 0).0, Verdict::NotGranted);
    assert_eq!(judged(1_120, 1, 149).0, Verdict::PutAside);
    for (tick, sequence) in [(1_120, 99), (1_120, 150), (1_121, 120), (1_499, 4_095), (1_000, 0)] {
        assert_eq!(judged(tick, 1, sequence).0, Verdict::Granted, "{tick} {sequence}");
    }
    assert_eq!(judged(1_109, 1, 100).0, Verdict::Replayed);
    assert_eq!(judged(1_110, 1, 100).0, Verdict::Granted);
    // Nothing is known of this one's record.
    assert_eq!(judged(1_110, 3, 100).0, Verdict::Granted);
    let uncut = evidence.judge(layout().encode(1_400, 1, 5), Some("a server"));
    assert_eq!((uncut.verdict, uncut.sources), (Verdict::NotCut, vec!["a server".to_owned()]));
}

#[test]
fn windows_name_their_holder_and_replayed_ids_the_one_that_got_them() {
    let home = folder();
    let evidence = evidence(home.path());
    let judge = |tick, sequence| evidence.judge(layout().encode(tick, 1, sequence), None);
    let granted = judge(1_200, 0);
    assert_eq!((granted.window, granted.when_ms), (Some(1_000..1_500), Some(77)));
    assert_eq!(granted.holder.as_deref(), Some("host pid 7"));
    let replayed = judge(1_105, 120);
    assert_eq!((replayed.window, replayed.when_ms), (Some(1_000..1_500), Some(88)));
    assert_eq!(replayed.sources, ["registry", "spill-0 in folder", "windows.log in folder"]);
}

#[test]
fn without_a_mark_or_notes_less_is_known_and_nothing_that_is_wrong() {
    let home = folder();
    std::fs::remove_file(home.path().join("windows.log")).unwrap();
    for (mark, verdict) in
        [(&[][..], Verdict::Granted), (&mark(2), Verdict::Replayed), (&mark(0), Verdict::PutAside)]
    {
        let mut evidence = Evidence::new(genesis());
        evidence.add_registry("registry", &[worker(1, 1_500)], mark);
        evidence.add_folder("folder", home.path());
        let found = evidence.judge(layout().encode(1_105, 1, 120), None);
        assert_eq!((found.verdict, found.window, found.holder), (verdict, None, None), "{mark:?}");
    }
    // Of another cluster.
    let mut evidence = Evidence::new(Genesis { cluster: ClusterId::from_bytes([1; 16]), ..genesis() });
    evidence.add_registry("registry", &[worker(1, 1_500)], &mark(0));
    evidence.add_folder("folder", home.path());
    assert_eq!(judged(&evidence, 1_105, 1, 120).0, Verdict::Granted);
}

/// The extent that tells whose an id was may lie there.
#[test]
fn what_a_disk_does_not_give_of_a_spill_is_told() {
    let home = folder();
    drop(spill(home.path()));
    let mut inspection = xuid_spill::inspect(&home.path().join("spill-0")).unwrap();
    let mut evidence = Evidence::new(genesis());
    evidence.add_spill("spill-0".to_owned(), &inspection);
    assert!(evidence.unread().is_empty());
    inspection.unreadable = 3;
    evidence.add_spill("spill-0".to_owned(), &inspection);
    assert_eq!(evidence.unread(), ["spill-0: the disk does not give 3 of its slots"]);
}

#[test]
fn an_id_that_is_put_aside_again_waits() {
    let home = folder();
    let mut log = spill(home.path());
    log.append(&[Extent { first: layout().encode(1_105, 1, 130).raw(), len: 20, ticks: 5 }]).unwrap();
    let evidence = evidence(home.path());
    assert_eq!(judged(&evidence, 1_105, 1, 129).0, Verdict::Replayed);
    assert_eq!(judged(&evidence, 1_105, 1, 130).0, Verdict::PutAside);
}

/// Windows of before the restore, in a time when the worker was open, are in no record any more.
#[test]
fn of_a_closed_worker_nothing_was_granted_unless_a_fence_has_been() {
    for (not_before, verdict) in [(0, Verdict::NotGranted), (2_000, Verdict::Granted)] {
        let record = Ok(Versioned { record: WorkerRecord::closed(not_before), version: 2 });
        let mut evidence = Evidence::new(genesis());
        evidence.add_registry("registry", &[WorkerEntry { worker: 1, record, live: None }], &[]);
        assert_eq!(judged(&evidence, 1_100, 1, 0).0, verdict, "{not_before}");
    }
}

#[test]
fn of_two_folders_that_of_the_process_which_had_the_tick_last_names_the_holder() {
    let homes = [folder(), folder()];
    let mut later = WindowsLog::new(homes[0].path(), CLUSTER, "other pid 8".to_owned());
    later.note(Token([3; 16]), 99, Event::Window { worker: 1, ticks: 1_200..1_500 });
    for order in [[0, 1], [1, 0]] {
        let mut evidence = Evidence::new(genesis());
        evidence.add_registry("registry", &[worker(1, 1_500)], &mark(1));
        for at in order {
            evidence.add_folder("folder", homes[at].path());
        }
        let holder = |tick| evidence.judge(layout().encode(tick, 1, 0), None).holder.unwrap();
        assert_eq!((holder(1_199).as_str(), holder(1_200).as_str()), ("host pid 7", "other pid 8"));
    }
}

/// Extents of one worker overlap in their ticks, and not in their sequences.
#[test]
fn an_extent_is_found_behind_others_that_begin_later_and_end_before() {
    let home = folder();
    let mut log = spill(home.path());
    let first = |tick, sequence| layout().encode(tick, 1, sequence).raw();
    log.append(&[
        Extent { first: first(1_200, 500), len: 50, ticks: 100 },
        Extent { first: first(1_250, 900), len: 5, ticks: 1 },
        Extent { first: first(1_260, 900), len: 5, ticks: 1 },
        // What was granted and put aside once more, twice.
        Extent { first: first(1_100, 100), len: 10, ticks: 1 },
        Extent { first: first(1_100, 100), len: 5, ticks: 1 },
    ])
    .unwrap();
    assert_eq!(judged(&evidence(home.path()), 1_290, 1, 510).0, Verdict::PutAside);
    // All of them granted since: the last grant is the one that counts.
    let mut notes = WindowsLog::new(home.path(), CLUSTER, "last pid 9".to_owned());
    notes.note(Token([4; 16]), 99, Event::Grant { spill: SPILL.into(), extents: 1..20 });
    let mut evidence = Evidence::new(genesis());
    evidence.add_registry("registry", &[worker(1, 1_500)], &mark(20));
    evidence.add_folder("folder", home.path());
    let found = evidence.judge(layout().encode(1_100, 1, 102), None);
    assert_eq!((found.verdict, found.when_ms), (Verdict::Replayed, Some(99)));
}

#[test]
fn a_name_that_was_written_again_is_still_the_name() {
    let home = tempfile::tempdir().unwrap();
    let mut notes = WindowsLog::new(home.path(), CLUSTER, "a host of a longer name pid 7".to_owned());
    for tick in 1_000..1_600 {
        notes.note(Token([1; 16]), 77, Event::Window { worker: 1, ticks: tick..tick + 1 });
    }
    let mut evidence = Evidence::new(genesis());
    evidence.add_folder("folder", home.path());
    let found = evidence.judge(layout().encode(1_500, 1, 0), None);
    assert_eq!(found.holder.as_deref(), Some("a host of a longer name pid 7"));
}
