//! Sequences of a registry that do nothing before one of them is named, and many that are made at once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{LONG, named, sequence};
use crate::registry::local::sequences::LocalSequences;
use crate::registry::local::{CreateOptions, LocalRegistry};
use crate::registry::sequences::{OnDemand, SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords};
use crate::registry::{ClusterId, ReadError, Registry, SwapError, Versioned};
use crate::sequence::store::NewSequence;
use crate::sequence::store::registry::RegistryStore;
use crate::sequence::{ControlError, Demand, NamePattern, SequenceErrorKind, Sequences, SequencesBuilder};

/// Records in a folder, as a server opens them.
fn records(folder: &Path, cluster: ClusterId) -> Box<dyn SequenceRecords> {
    let folder = folder.to_owned();
    Box::new(OnDemand::new("here", cluster, move |makes| {
        let opened = if makes {
            LocalSequences::open_or_create(&folder, None).map(Some)
        } else {
            LocalSequences::open(&folder, None)
        };
        let boxed = opened.map(|found| found.map(|found| Box::new(found) as Box<dyn SequenceRecords>));
        boxed.map_err(|error| ReadError::Unavailable { why: error.to_string() })
    }))
}

/// A folder with a registry, and its cluster.
fn folder() -> (tempfile::TempDir, ClusterId) {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions { layout: crate::Layout::default(), floor: 1_000, workers: 4 };
    let registry = LocalRegistry::open_or_create(folder.path(), &options).unwrap();
    let cluster = registry.genesis().cluster;
    (folder, cluster)
}

fn builder(folder: &Path, cluster: ClusterId) -> SequencesBuilder {
    Sequences::builder(Box::new(RegistryStore::new(records(folder, cluster))))
        .records(records(folder, cluster))
        .data_dir(folder)
        .on_demand(true)
        .wait(LONG)
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn nothing_runs_before_a_sequence_is_named_and_nothing_is_made_before_one_is_created() {
    let (folder, cluster) = folder();
    let before = files(folder.path());
    let sequences = builder(folder.path(), cluster).build().unwrap();
    assert_eq!((sequences.status().store.as_str(), sequences.stats().names), ("registry here", 0));
    assert!(!sequences.has_begun_for_test(), "a thread runs");
    assert!(matches!(sequences.info(&named("orders")).wait(), Err(ControlError::NoSequence { .. })));
    assert!(sequences.has_begun_for_test());
    assert!(sequences.list("", "", 10).wait().unwrap().is_empty());
    let refused = sequence(&sequences, "orders").next_ordered().unwrap_err();
    assert_eq!(refused.kind(), SequenceErrorKind::NoSequence);
    sequences.shutdown();
    assert_eq!(files(folder.path()), before);

    // A life that names none leaves what another one left, and the next one goes on with it.
    let mut issued = 0;
    for life in 0..6 {
        let sequences = builder(folder.path(), cluster).build().unwrap();
        if life % 2 == 0 {
            sequences.create(&named("orders"), NewSequence::default()).wait().unwrap();
            let orders = sequence(&sequences, "orders");
            for _ in 0..50 {
                issued += 1;
                assert_eq!(orders.next_ordered().unwrap(), issued, "in life {life}");
            }
        }
        sequences.shutdown();
        assert_eq!(sequences.has_begun_for_test(), life % 2 == 0);
    }
    let sequences = builder(folder.path(), cluster).build().unwrap();
    sequences.shutdown();
    assert!(sequences.sequence(&named("orders")).is_err(), "it was closed before its first use");
    assert!(matches!(sequences.info(&named("orders")).wait(), Err(ControlError::ShuttingDown)));
    assert!(!sequences.has_begun_for_test());
}

#[test]
fn a_sequences_file_that_is_gone_is_not_taken_for_one_that_never_was() {
    let (folder, cluster) = folder();
    let life =
        || builder(folder.path(), cluster).wait(std::time::Duration::from_millis(300)).build().unwrap();
    let sequences = life();
    sequences.create(&named("orders"), NewSequence::default()).wait().unwrap();
    assert_eq!(sequence(&sequences, "orders").runs(Demand::ordered(3)).unwrap().len(), 1);
    drop(sequences);
    std::fs::remove_file(folder.path().join("sequences")).unwrap();
    let sequences = life();
    let refused = sequence(&sequences, "orders").next_ordered().unwrap_err();
    assert_ne!(refused.kind(), SequenceErrorKind::NoSequence, "it was there");
    let error = sequences.create(&named("orders"), NewSequence::default()).wait().unwrap_err();
    assert!(matches!(&error, ControlError::StoreAway { why } if why.contains("is gone")), "{error:?}");
    assert!(!folder.path().join("sequences").exists());
}

/// Records that count how often they are changed.
struct Counting(Box<dyn SequenceRecords>, Arc<AtomicU64>);

impl SequenceRecords for Counting {
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
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.swap(changes, out);
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        self.0.list(prefix, after, limit)
    }
}

#[test]
fn sequences_that_are_made_at_once_share_their_changes() {
    const NAMES: u64 = 1_000;
    let (folder, cluster) = folder();
    let swaps = Arc::new(AtomicU64::new(0));
    let store = RegistryStore::new(Box::new(Counting(records(folder.path(), cluster), swaps.clone())));
    let sequences = Sequences::builder(Box::new(store))
        .create([NamePattern::new("auto:*")])
        .wait(LONG)
        .on_demand(true)
        .build()
        .unwrap();
    let name = |n: u64| named(&format!("name-{n:04}"));
    let replies: Vec<_> = (0..NAMES)
        .map(|n| sequences.create(&name(n), NewSequence { start: n, ..Default::default() }))
        .collect();
    let create_again = |start| sequences.create(&name(7), NewSequence { start, ..Default::default() });
    let (again, above) = (create_again(3), create_again(99));
    for (n, reply) in (0..).zip(replies) {
        let made = reply.wait().unwrap().row;
        assert_eq!((made.name, made.next), (name(n), n));
    }
    assert_eq!(again.wait().unwrap().row.next, 7, "the same settings again change nothing");
    let above = above.wait().unwrap_err();
    assert!(
        matches!(above, ControlError::Exists { .. }),
        "it still grants numbers below that start: {above}"
    );
    let made = swaps.load(Ordering::Relaxed);
    println!("{NAMES} sequences were made with {made} changes of the records");
    assert!(made <= NAMES / 8, "{made} changes");
    // The same by their first use.
    let all: Vec<_> = (0..NAMES).map(|n| sequence(&sequences, &format!("auto:{n}"))).collect();
    // Each is asked for, and what came of it is looked at when all were.
    for one in &all {
        assert!(one.try_next_ordered().is_err());
    }
    assert!(all.iter().all(|one| one.next_ordered().unwrap() == 1));
    let used = swaps.load(Ordering::Relaxed) - made;
    println!("{NAMES} sequences were made and granted with {used} changes of the records");
    assert!(used <= NAMES / 4, "{used} changes");
}
