//! Processes that share the records of names in a folder, and are killed while they change them: no number comes twice.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use xuid_engine::Layout;
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::registry::local::{CreateOptions, LocalError, LocalRegistry};
use xuid_engine::registry::sequences::{SequenceChange, SequenceRecord, SequenceRecords};
use xuid_engine::registry::{ReadError, SwapError};

/// The folder of a child.
const FOLDER: &str = "XUID_TEST_SEQUENCES";
const NAMES: u64 = 5;

fn marked(value: u64) -> SequenceRecord {
    SequenceRecord { value, last: u64::MAX >> 1, step: 10, increment: 1, ..SequenceRecord::default() }
}

/// Grants numbers of all names, and says which, until it is killed.
fn work(folder: &Path) {
    // Another process may keep the lock to itself for a while.
    let mut opened = LocalSequences::open_or_create(folder, None);
    while matches!(opened, Err(LocalError::Busy { .. })) {
        opened = LocalSequences::open_or_create(folder, None);
    }
    let mut records = opened.unwrap();
    let names: Vec<String> = (0..NAMES).map(|n| format!("name {n}")).collect();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut out = std::io::stdout().lock();
    loop {
        let mut found = Vec::new();
        records.read(&asked, &mut found);
        let mut changes = Vec::new();
        for (name, found) in asked.iter().zip(found) {
            let (expected, value) = match found {
                Ok(found) => (Some(found.version), found.record.value),
                Err(ReadError::Absent { .. }) => (None, 1),
                Err(ReadError::Unavailable { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            changes.push(SequenceChange { name, expected, record: marked(value + 7) });
        }
        let mut outcomes = Vec::new();
        records.swap(&changes, &mut outcomes);
        for (change, outcome) in changes.iter().zip(outcomes) {
            match outcome {
                Ok(()) => writeln!(out, "{} {}", change.name, change.record.value - 7).unwrap(),
                Err(SwapError::Conflict | SwapError::Unavailable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Not a test: what a child runs.
#[test]
fn a_child_works_where_it_is_told_to() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        work(Path::new(&folder));
    }
}

fn child(folder: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_child_works_where_it_is_told_to", "--nocapture", "--test-threads=1"]);
    let mut child = command.env(FOLDER, folder).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    (child, said)
}

#[test]
fn processes_that_are_killed_in_their_changes_repeat_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions { layout: Layout::default(), floor: 0, workers: 4 };
    drop(LocalRegistry::open_or_create(folder.path(), &options).unwrap());
    let mut granted: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for round in 0..12 {
        let children: Vec<_> = (0..2).map(|_| child(folder.path())).collect();
        for (n, (mut child, mut said)) in children.into_iter().enumerate() {
            let mut lines = 0;
            let mut line = String::new();
            // A kill may cut off the last one.
            while said.read_line(&mut line).is_ok() && line.ends_with('\n') {
                let line = std::mem::take(&mut line);
                // The rest of a line of the harness may stand before it.
                let Some(begin) = line.find("name ") else { continue };
                let Some((name, first)) = line[begin..].trim_end().rsplit_once(' ') else { continue };
                let Ok(first) = first.parse() else { continue };
                granted.entry(name.to_owned()).or_default().push(first);
                lines += 1;
                if lines == 40 + 13 * (round + n) {
                    child.kill().unwrap();
                }
            }
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(lines >= 40, "a child said {lines} lines");
        }
    }
    assert_eq!(granted.len() as u64, NAMES);
    for (name, firsts) in &mut granted {
        firsts.sort_unstable();
        let all = firsts.len();
        firsts.dedup();
        assert_eq!(firsts.len(), all, "{name} has a number twice");
        assert!(firsts.windows(2).all(|two| two[0] + 7 <= two[1]), "{name}: {firsts:?}");
    }
}
