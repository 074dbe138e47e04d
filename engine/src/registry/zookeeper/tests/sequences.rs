//! The records of names on a real server.

use super::*;
use crate::registry::sequences::{NewNames, SequenceChange, SequenceRecord, SequenceRecords, allow_new};
use crate::registry::zookeeper::tree::MEANWHILE;
use crate::registry::zookeeper::znode::{SEQUENCES, sequence_path};
use crate::registry::zookeeper::{ZooKeeperSequences, adopt};
use crate::registry::{ReadError, Versioned};

fn opened(url: &ZooKeeperUrl) -> ZooKeeperSequences {
    ZooKeeperSequences::open(url, &options()).unwrap()
}

fn marked(value: u64) -> SequenceRecord {
    SequenceRecord { value, last: (1 << 63) - 1, step: 1_000, increment: 1, ..SequenceRecord::default() }
}

fn change(name: &str, expected: Option<u64>, value: u64) -> SequenceChange<'_> {
    SequenceChange { name, expected, record: marked(value) }
}

fn swap(records: &mut ZooKeeperSequences, changes: &[SequenceChange<'_>]) -> Vec<Result<(), SwapError>> {
    let mut outcomes = Vec::new();
    records.swap(changes, &mut outcomes);
    assert_eq!(outcomes.len(), changes.len());
    outcomes
}

fn make(records: &mut ZooKeeperSequences, name: &str) -> Result<(), SwapError> {
    swap(records, &[change(name, None, 1)]).pop().unwrap()
}

fn read(records: &mut ZooKeeperSequences, name: &str) -> Result<Versioned<SequenceRecord>, ReadError> {
    let mut found = Vec::new();
    records.read(&[name], &mut found);
    found.pop().unwrap()
}

/// Moves a mark by so much; the numbers that are granted by that.
fn grant(records: &mut ZooKeeperSequences, name: &str, count: u64) -> Result<(u64, u64), SwapError> {
    let Versioned { record, version } = read(records, name)?;
    let (first, end) = (record.value, record.value + count);
    swap(records, &[change(name, Some(version), end)]).pop().unwrap()?;
    Ok((first, end))
}

fn is_closed(error: &ReadError) -> bool {
    matches!(error, ReadError::Closed { .. })
}

/// Else the ensemble would be taken for one that is away, and names that have nodes would wait, too.
#[test]
fn a_new_name_that_the_ensemble_has_no_room_for_is_refused_alone() {
    let ensemble = Ensemble::start_with(&["-Dzookeeper.enforceQuota=true"]);
    let url = ensemble.url();
    made(&url);
    let mut records = opened(&url);
    make(&mut records, "orders").unwrap();
    ensemble.fill();
    let version = read(&mut records, "orders").unwrap().version;
    let outcomes = swap(&mut records, &[change("users", None, 1), change("orders", Some(version), 1_001)]);
    assert!(matches!(outcomes[..], [Err(SwapError::Full { .. }), Ok(())]), "{outcomes:?}");
    assert_eq!(read(&mut records, "orders").unwrap().record, marked(1_001));
    assert!(matches!(make(&mut records, "users"), Err(SwapError::Full { .. })));
}

#[test]
fn records_of_names_are_compared_and_set_and_listed() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let (mut ours, mut theirs) = (opened(&url), opened(&url));
    assert!(matches!(read(&mut ours, "orders"), Err(ReadError::Absent { .. })));
    assert_eq!(ours.list("", "", 10).unwrap().len(), 0);
    make(&mut ours, "orders").unwrap();
    assert!(matches!(make(&mut theirs, "orders"), Err(SwapError::Conflict)));
    let found = read(&mut theirs, "orders").unwrap();
    let all = SequenceRecord { gaps: vec![(3, 7)], strict: true, remainder: 1, ..marked(1_001) };
    let set = SequenceChange { name: "orders", expected: Some(found.version), record: all.clone() };
    assert!(swap(&mut theirs, std::slice::from_ref(&set))[0].is_ok());
    assert!(matches!(swap(&mut ours, &[set])[0], Err(SwapError::Conflict)));
    assert_eq!(read(&mut ours, "orders").unwrap().record, all);

    // Of several changes each stands for itself.
    let version = read(&mut ours, "orders").unwrap().version;
    let too_long = "n".repeat(129);
    let outcomes = swap(
        &mut ours,
        &[
            change("a/b", None, 1),
            change("orders", Some(version + 9), 5_000),
            change("Größe", None, 1),
            change("gone", Some(0), 1),
            change(&too_long, None, 1),
            change("orders:1", None, 1),
            change("a/b/c", None, 1),
        ],
    );
    assert!([0, 2, 5, 6].iter().all(|n| outcomes[*n].is_ok()), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(SwapError::Conflict)));
    assert!(matches!(outcomes[3], Err(SwapError::Read(ReadError::Absent { .. }))));
    assert!(matches!(outcomes[4], Err(SwapError::Read(ReadError::Damaged { .. }))));
    make(&mut theirs, "@rest:1").unwrap();
    let mut names = |prefix: &str, after: &str, limit| {
        let page = theirs.list(prefix, after, limit).unwrap();
        page.into_iter().map(|(name, found)| found.map(|_| name).unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("", "", 100), "Größe a/b a/b/c orders orders:1");
    assert_eq!(names("", "a/b", 2), "a/b/c orders");
    assert_eq!(names("orders", "orders", 9), "orders:1");
}

/// Whether a change lands that was read before a fence and is made after it.
#[test]
fn a_fence_closes_all_names_and_new_ones_until_a_person_raises_them() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut records = opened(&url);
    make(&mut records, "orders").unwrap();
    make(&mut records, "users").unwrap();
    assert_eq!(grant(&mut records, "orders", 1_000).unwrap(), (1, 1_001));
    let before = read(&mut records, "orders").unwrap();
    assert_eq!(fence(&url, &options()).unwrap().sequences, 2);
    let late = swap(&mut records, &[change("orders", Some(before.version), 2_001)]).pop().unwrap();
    assert!(matches!(late, Err(SwapError::Unavailable { .. })), "{late:?}");
    // By now it knows of the fence: the version is that of an era that is over.
    let late = swap(&mut records, &[change("orders", Some(before.version), 2_001)]).pop().unwrap();
    assert!(matches!(late, Err(SwapError::Conflict)), "{late:?}");
    for records in [&mut records, &mut opened(&url)] {
        assert!(is_closed(&read(records, "orders").unwrap_err()));
        assert!(matches!(grant(records, "users", 1), Err(SwapError::Read(error)) if is_closed(&error)));
        assert!(matches!(make(records, "new"), Err(SwapError::Read(error)) if is_closed(&error)));
    }
    assert_eq!(records.closed_record("orders").unwrap().value, 1_001);
    records.reopen("orders", 50_000).unwrap();
    assert_eq!(grant(&mut opened(&url), "orders", 5).unwrap(), (50_000, 50_005));
    records.reopen("users", 0).unwrap();
    assert_eq!(grant(&mut records, "users", 5).unwrap(), (1, 6));
    // A name that is not in the backup.
    records.reopen("later", 700).unwrap();
    assert_eq!(grant(&mut records, "later", 5).unwrap(), (700, 705));
    allow_new(&mut records, 0).unwrap();
    make(&mut opened(&url), "new").unwrap();
    let gone = records.reopen("never there", 7);
    assert!(matches!(gone, Err(SwapError::Read(ReadError::Absent { .. }))), "{gone:?}");
}

#[test]
fn a_fenced_registry_that_had_no_names_makes_none_before_a_person_said_so() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    fence(&url, &options()).unwrap();
    let mut records = opened(&url);
    assert!(matches!(make(&mut records, "orders"), Err(SwapError::Read(error)) if is_closed(&error)));
    records.reopen("orders", 9).unwrap();
    assert_eq!(grant(&mut records, "orders", 1).unwrap(), (9, 10));
    allow_new(&mut records, 0).unwrap();
    make(&mut records, "users").unwrap();
}

#[test]
fn after_a_fence_a_mark_is_made_no_lower_than_a_person_said() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut records = opened(&url);
    assert_eq!(records.new_names().unwrap(), NewNames { are_closed: false, least: 0 });
    make(&mut records, "first").unwrap();
    fence(&url, &options()).unwrap();
    let mut other = opened(&url);
    assert_eq!(other.new_names().unwrap(), NewNames { are_closed: true, least: 0 });
    allow_new(&mut other, 500).unwrap();
    assert_eq!(other.new_names().unwrap(), NewNames { are_closed: false, least: 500 });
    // Also by a process that was there before the fence, and does nothing else, and together with others.
    let outcomes = swap(&mut records, &[change("low", None, 499), change("high", None, 500)]);
    assert!(matches!(outcomes[..], [Err(SwapError::TooLow { least: 500 }), Ok(())]), "{outcomes:?}");
    // What a witness saw is no mark, and neither are leftovers.
    for (name, value) in [("seen", 3), ("@rest:1", 0)] {
        let record = SequenceRecord { value, ..SequenceRecord::default() };
        let change = SequenceChange { record, ..change(name, None, value) };
        assert!(swap(&mut records, &[change])[0].is_ok(), "{name}");
    }
    fence(&url, &options()).unwrap();
    assert_eq!(opened(&url).new_names().unwrap(), NewNames { are_closed: true, least: 500 });
    allow_new(&mut opened(&url), 0).unwrap();
    make(&mut opened(&url), "third").unwrap();
}

/// Names are made while servers go on, and a fence lists those that it raises behind its word.
#[test]
fn a_name_is_made_no_lower_than_a_fence_said_between_the_look_at_it_and_the_commit() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut records = opened(&url);
    make(&mut records, "first").unwrap();
    let mut late = |name: &str, value, said| {
        let url = url.clone();
        MEANWHILE.set(Some(Box::new(move || allow_new(&mut opened(&url), said).unwrap())));
        swap(&mut records, &[change(name, None, value)]).pop().unwrap()
    };
    late("second", 1, 0).unwrap();
    let low = late("low", 499, 500);
    assert!(matches!(low, Err(SwapError::TooLow { least: 500 })), "{low:?}");
    late("high", 600, 550).unwrap();
}

#[test]
fn of_two_fences_at_once_one_is_told_of_the_other() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    fence(&url, &options()).unwrap();
    let (mut one, mut other) = (opened(&url), opened(&url));
    let seen = [&mut one, &mut other].map(|records| records.new_names().unwrap());
    one.allow_new(seen[0], 90_000).unwrap();
    let late = other.allow_new(seen[1], 10_000);
    assert!(matches!(late, Err(SwapError::Conflict)), "{late:?}");
    other.allow_new(seen[1], 90_000).unwrap();
    assert_eq!(opened(&url).new_names().unwrap(), NewNames { are_closed: false, least: 90_000 });
}

/// One that takes the place of an ensemble that is lost.
#[test]
fn a_registry_that_never_had_a_name_is_told_where_they_begin() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut records = opened(&url);
    allow_new(&mut records, 0).unwrap();
    assert_eq!(records.new_names().unwrap(), NewNames::default());
    allow_new(&mut records, 500).unwrap();
    assert_eq!(opened(&url).new_names().unwrap(), NewNames { are_closed: false, least: 500 });
    assert!(matches!(make(&mut records, "low"), Err(SwapError::TooLow { least: 500 })));
    assert!(swap(&mut records, &[change("high", None, 500)])[0].is_ok());
}

#[test]
fn an_adopted_registry_has_its_names_closed_and_raised_they_go_on() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    make(&mut opened(&url), "orders").unwrap();
    let adopted = adopt(&url, &options()).unwrap();
    let mut records = opened(&url);
    assert_eq!(records.cluster(), adopted.cluster);
    assert!(is_closed(&read(&mut records, "orders").unwrap_err()));
    records.reopen("orders", 77).unwrap();
    assert_eq!(grant(&mut records, "orders", 1).unwrap(), (77, 78));
}

#[test]
fn a_record_that_was_deleted_or_put_back_by_hand_is_not_used() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut records = opened(&url);
    for name in ["deleted", "remade", "edited"] {
        make(&mut records, name).unwrap();
    }
    let (path, first) = (sequence_path("remade"), ensemble.data(&sequence_path("remade")));
    for name in ["deleted", "remade", "edited"] {
        grant(&mut records, name, 1_000).unwrap();
        read(&mut records, name).unwrap();
    }
    ensemble.delete(&sequence_path("deleted"));
    ensemble.replace(&path, &first);
    let old = ensemble.data(&sequence_path("edited"));
    grant(&mut records, "edited", 1_000).unwrap();
    ensemble.replace(&sequence_path("edited"), &old);
    for name in ["deleted", "remade", "edited"] {
        let error = read(&mut records, name).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { .. }), "{name}: {error}");
    }
}

/// Versions of nodes end below 2^31, and a name may be changed more often.
#[test]
fn a_node_that_was_changed_too_often_is_made_anew_and_its_mark_goes_on() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let (mut ours, mut theirs) = (opened(&url), opened(&url));
    ours.tree().set_last_version(3);
    make(&mut ours, "orders").unwrap();
    make(&mut ours, "users").unwrap();
    for n in 0..10 {
        assert_eq!(grant(&mut theirs, "orders", 5).unwrap(), (10 * n + 1, 10 * n + 6));
        assert_eq!(grant(&mut ours, "orders", 5).unwrap(), (10 * n + 6, 10 * n + 11));
    }
    let version = read(&mut ours, "orders").unwrap().version;
    assert!(version <= 4, "{version}");
    // Beside one that does not fit.
    let users = read(&mut ours, "users").unwrap().version;
    let changes = [change("orders", Some(version), 500), change("users", Some(users + 1), 9)];
    let outcomes = swap(&mut ours, &changes);
    assert!(outcomes[0].is_ok() && matches!(outcomes[1], Err(SwapError::Conflict)), "{outcomes:?}");
}

/// Two hosts on one name, while their connections are cut again and again: replies are lost.
#[test]
fn numbers_of_a_name_are_granted_once_whatever_replies_are_lost() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    make(&mut opened(&url), "orders").unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let lost = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let lost = lost.clone();
            let recorder = std::sync::Arc::new(Recorder::before(&ensemble));
            let stop = stop.clone();
            let mut records = opened(&recorder.url());
            let (cutter, until) = (recorder.clone(), stop.clone());
            std::thread::spawn(move || {
                while !until.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(900));
                    cutter.cut();
                }
            });
            std::thread::spawn(move || {
                let _recorder = recorder;
                let mut got = Vec::new();
                while !stop.load(SeqCst) {
                    match grant(&mut records, "orders", 7) {
                        Ok(range) => got.push(range),
                        Err(SwapError::Unknown { .. }) => _ = lost.fetch_add(1, SeqCst),
                        Err(SwapError::Conflict) => {}
                        Err(SwapError::Unavailable { .. }) => {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                got
            })
        })
        .collect();
    let mut watch = opened(&url);
    ensemble::until("grants, and replies that are lost", || {
        lost.load(SeqCst) > 1 && read(&mut watch, "orders").is_ok_and(|found| found.record.value > 500)
    });
    stop.store(true, SeqCst);
    let mut got: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    got.sort_unstable();
    assert!(got.windows(2).all(|two| two[0].1 <= two[1].0), "{got:?}");
}

/// The data of the ensemble is put back while a process runs: it looks at what it wrote last, in the next connection.
#[test]
fn a_name_s_record_that_went_back_closes_the_registry() {
    let ensemble = Ensemble::start();
    made(&ensemble.url());
    let recorder = Recorder::before(&ensemble);
    let mut records = opened(&recorder.url());
    make(&mut records, "orders").unwrap();
    for _ in 0..3 {
        grant(&mut records, "orders", 10).unwrap();
    }
    read(&mut records, "orders").unwrap();
    // As far as a hand can do it: a lower version of the same birth cannot be made, so the seen one is raised.
    records.tree().pretend_seen(&sequence_path("orders"), 9);
    recorder.cut();
    let mut said = String::new();
    ensemble::until("it refuses", || {
        said = read(&mut records, "orders").map_or_else(|error| error.to_string(), |_| String::new());
        said.contains("restored from a backup")
    });
    assert!(ensemble.children(ERA).is_empty(), "it is open for others: {said}");
    assert_eq!(ensemble.children(SEQUENCES).len(), 256);
}
