//! What fences and their commands say.

use xuid_engine::Layout;
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::registry::sequences::{SequenceChange, SequenceRecord, SequenceRecords};
use xuid_engine::registry::{ClusterId, Genesis};

use crate::support::{failure, run, shell, stdout};

#[test]
fn a_registry_is_created_once_shown_and_fenced_only_when_confirmed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let folder = folder.to_str().unwrap();
    let made = stdout(&run(&["registry", "init", folder, "--layout", "42/9/12", "--workers", "16"]));
    assert!(made.contains("42/9/12") && made.contains("16"), "{made}");
    let (code, said) = failure(&run(&["registry", "init", folder]));
    assert!(code == Some(1) && said.contains("already"), "{said}");
    let shown = stdout(&run(&["registry", "show", folder]));
    assert!(shown.contains("42/9/12"), "{shown}");

    let before = stdout(&run(&["workers", "--data-dir", folder, "--all", "--json"]));
    let (code, said) = failure(&run(&["registry", "fence", folder, "--yes"]));
    let command = format!("`xuid registry fence --restored {folder}`");
    assert!(code == Some(2) && said.contains(&command), "{said}");
    let (code, said) = failure(&run(&["registry", "fence", "--restored", "zookeeper://a:1/x", "--yes"]));
    assert!(code == Some(2) && said.contains("`xuid registry fence zookeeper://a:1/x`"), "{said}");
    let (code, said) = failure(&run(&["registry", "fence", "--restored", folder]));
    assert!(code == Some(2) && said.contains("--yes"), "nobody was there to ask: {said}");
    assert!(said.contains(folder) && said.contains("cluster stays the same"), "the plan is told: {said}");
    assert_eq!(stdout(&run(&["workers", "--data-dir", folder, "--all", "--json"])), before);
    let fenced = stdout(&run(&["registry", "fence", "--restored", folder, "--yes"]));
    assert!(fenced.starts_with("fenced"), "{fenced}");
    let after = stdout(&run(&["workers", "--data-dir", folder, "--all", "--json"]));
    assert_eq!(after.lines().count(), 16);
    let until = |text: &str| -> u64 {
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        first["reserved_until_ms"].as_u64().unwrap()
    };
    assert!(until(&after) >= until(&before) + 125_000, "{after}");
    let json = stdout(&run(&["registry", "fence", "--restored", folder, "--yes", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for field in ["sequences_closed", "sequences_lost", "newest_change_ms"] {
        assert!(json.get(field).is_some(), "{field}: {json}");
    }
}

#[test]
fn a_fence_where_nothing_was_put_back_says_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().to_str().unwrap();
    let args = ["registry", "fence", "--restored", folder, "--yes"];
    let (code, said) = failure(&run(&args));
    assert!(code == Some(1) && said.contains("put it back from the backup first"), "{said}");
    std::fs::write(home.path().join("registry.zookeeper-0"), "").unwrap();
    let (code, said) = failure(&run(&args));
    assert!(code == Some(1) && said.contains("xuid registry fence zookeeper://"), "{said}");
}

#[test]
fn what_a_folder_s_witness_saw_is_fenced_and_opened_also_where_the_registry_is_in_an_ensemble() {
    let home = tempfile::tempdir().unwrap();
    let (folder, file) = (home.path().to_str().unwrap(), home.path().join("sequences"));
    let genesis = Genesis::new(ClusterId::from_bytes([7; 16]), Layout::default(), 0, 1);
    let open = || LocalSequences::open_or_create(home.path(), Some(&genesis));
    let mut witness = open().unwrap();
    let (record, mut stored) = (SequenceRecord { value: 101, ..SequenceRecord::default() }, Vec::new());
    witness.swap(&[SequenceChange { name: "orders", expected: None, record }], &mut stored);
    assert!(stored[0].is_ok(), "{stored:?}");
    drop(witness);
    std::fs::write(home.path().join("registry.zookeeper-0"), "").unwrap();
    // Of a database it tells how far that came, and of an ensemble, which its server went over to, nothing.
    let of = |store| failure(&run(&["sequence", "fence", store, "--data-dir", folder, "--yes"])).1;
    let (of_database, of_ensemble) =
        (of("postgres://xuid@127.0.0.1:1/ids"), of("zookeeper://127.0.0.1:1/ids"));
    assert!(of_database.contains("127.0.0.1:1") && !of_database.contains("--above"), "{of_database}");
    assert!(of_ensemble.contains("is of another store") && of_ensemble.contains("--above"), "{of_ensemble}");
    let before = home.path().join("before");
    std::fs::copy(&file, &before).unwrap();
    // The folder is moved.
    std::fs::copy(&file, home.path().join("copy")).unwrap();
    std::fs::rename(home.path().join("copy"), &file).unwrap();
    let refused = open().map(drop).unwrap_err().to_string();
    let command = format!("`xuid registry fence --restored {folder}`");
    assert!(refused.contains(&command), "{refused}");
    let fenced = stdout(&run(&["registry", "fence", "--restored", folder, "--yes"]));
    assert!(fenced.starts_with("fenced; 1 sequences closed until `xuid sequence fence`"), "{fenced}");
    // What it says of a database's names is not known to be all: nobody is asked where that is.
    let database = "postgres://xuid@127.0.0.1:1/ids";
    let (code, said) = failure(&run(&["sequence", "fence", database, "--data-dir", folder, "--yes"]));
    assert!(code == Some(1) && said.contains("closed by a fence") && said.contains("--above"), "{said}");
    let lower = ["sequence", "fence", database, "--new-start", "1", "--lower-new-start", "--yes"];
    let (code, said) = failure(&run(&lower));
    assert!(code == Some(2) && said.contains("the row '@new'"), "{said}");
    // A folder that was copied may have been put back.
    let copy = home.path().join("copied");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(&before, copy.join("sequences")).unwrap();
    let data = ["sequence", "fence", database, "--data-dir", copy.to_str().unwrap(), "--yes"];
    let (code, said) = failure(&run(&data));
    let is_told = said.contains("it is a copy of a folder") && said.contains("127.0.0.1:1");
    assert!(code == Some(1) && is_told, "it goes on to the database, which is away: {said}");
    let (_, said) =
        failure(&run(&["sequence", "fence", database, "--data-dir", folder, "--above", "7", "--yes"]));
    assert!(said.contains("7 is taken for beyond that") && said.contains("closed by a fence"), "{said}");
    let opened = run(&["sequence", "fence", folder, "--above", "300", "--margin", "0", "--yes"]);
    let warned = String::from_utf8_lossy(&opened.stderr);
    assert!(warned.contains("names that are made from now on begin at 300"), "{warned}");
    assert_eq!(stdout(&opened), "orders  101 -> 300\n");
    let mut found = Vec::new();
    open().unwrap().read(&["orders"], &mut found);
    assert_eq!(found[0].as_ref().map(|found| found.record.value).ok(), Some(300), "{found:?}");
    let json = stdout(&run(&["registry", "fence", "--restored", folder, "--yes", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["closed"], &json["lost"]), (&1.into(), &0.into()));
    // What was said of the first fence stands, and is told whatever is logged.
    let again = shell("RUST_LOG=off exec \"$@\"", &["sequence", "fence", folder, "--margin", "0", "--yes"]);
    let warned = String::from_utf8_lossy(&again.stderr);
    assert!(warned.contains("names that are made from now on begin at 300"), "{warned}");
    let lower = ["sequence", "fence", folder, "--new-start", "1", "--yes"];
    let said = run(&lower);
    let warned = String::from_utf8_lossy(&said.stderr);
    assert!(warned.contains("begin at 300") && warned.contains("--lower-new-start"), "{warned}");
    let said = run(&[&lower[..], &["--lower-new-start"]].concat());
    assert!(said.status.success(), "{said:?}");
    let warned = String::from_utf8_lossy(&said.stderr);
    assert!(!warned.contains("made from now on begin"), "at 1 they begin anyhow: {warned}");
}

/// Both copies of a record are damaged: of which name it is, nobody knows.
#[test]
fn a_record_that_cannot_be_believed_is_told_and_a_fence_needs_to_know_how_far_it_came() {
    let home = tempfile::tempdir().unwrap();
    let (folder, file) = (home.path().to_str().unwrap(), home.path().join("sequences"));
    stdout(&run(&["registry", "init", folder]));
    let genesis = Genesis::new(ClusterId::from_bytes([7; 16]), Layout::default(), 0, 1);
    let mut witness = LocalSequences::open_or_create(home.path(), Some(&genesis)).unwrap();
    for name in ["orders", "users"] {
        let (record, mut stored) = (SequenceRecord { value: 101, ..SequenceRecord::default() }, Vec::new());
        witness.swap(&[SequenceChange { name, expected: None, record }], &mut stored);
        assert!(stored[0].is_ok(), "{stored:?}");
    }
    drop(witness);
    assert!(run(&["inspect", folder]).status.success());
    let mut bytes = std::fs::read(&file).unwrap();
    let places: Vec<_> = (0..bytes.len() - 6).filter(|at| &bytes[*at..at + 6] == b"orders").collect();
    assert_eq!(places.len(), 2);
    for at in places {
        bytes[at] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    let (code, said) = failure(&run(&["inspect", folder]));
    assert!(code == Some(1) && said.contains("1 file or registry"), "{said}");
    let other = tempfile::tempdir().unwrap();
    let store = other.path().to_str().unwrap();
    stdout(&run(&["registry", "init", store]));
    let fence = ["sequence", "fence", store, "--data-dir", folder, "--yes"];
    let (code, said) = failure(&run(&fence));
    assert!(code == Some(1) && said.contains("say --above"), "{said}");
    let (code, said) = failure(&run(&[&fence[..], &["--above", "500"]].concat()));
    assert!(code == Some(1) && said.contains("no sequences"), "goes on to the store: {said}");
}

/// `cp backup/sequences data/sequences`: the folder knows better, and a fence must not go by what was put back.
#[test]
fn records_that_were_put_back_are_not_taken_for_what_a_folder_knows() {
    let home = tempfile::tempdir().unwrap();
    let (folder, file) = (home.path().to_str().unwrap(), home.path().join("sequences"));
    stdout(&run(&["registry", "init", folder]));
    let mut witness = LocalSequences::open_or_create(home.path(), None).unwrap();
    let mut see = |value: u64| {
        let (mut found, mut stored) = (Vec::new(), Vec::new());
        witness.read(&["orders"], &mut found);
        let expected = found[0].as_ref().ok().map(|found| found.version);
        let record = SequenceRecord { value, ..SequenceRecord::default() };
        witness.swap(&[SequenceChange { name: "orders", expected, record }], &mut stored);
        assert!(stored[0].is_ok(), "{stored:?}");
    };
    see(101);
    let backup = std::fs::read(&file).unwrap();
    see(5_001);
    drop(witness);
    std::fs::write(&file, backup).unwrap();
    let other = tempfile::tempdir().unwrap();
    let store = other.path().to_str().unwrap();
    stdout(&run(&["registry", "init", store]));
    let fence = ["sequence", "fence", store, "--data-dir", folder, "--yes"];
    let (code, said) = failure(&run(&fence));
    assert!(code == Some(1) && said.contains("xuid registry fence --restored"), "{said}");
    stdout(&run(&["registry", "fence", "--restored", folder, "--yes"]));
    // Of one that was put back whole nothing knows better.
    let (code, said) = failure(&run(&fence));
    assert!(code == Some(1) && said.contains("closed by a fence"), "{said}");
    assert_eq!(
        stdout(&run(&["sequence", "fence", folder, "--margin", "9", "--yes"])),
        "orders  5001 -> 5010\n"
    );
    // Nor of what was opened by a guess.
    let (code, said) = failure(&run(&fence));
    assert!(code == Some(1) && said.contains("were opened by `xuid sequence fence`"), "{said}");
    let (code, said) = failure(&run(&[&fence[..], &["--above", "9000"]].concat()));
    assert!(code == Some(1) && said.contains("no sequences"), "goes on to the store: {said}");
}
