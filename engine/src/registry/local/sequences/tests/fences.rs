//! Fences, adoptions, copies and restores of folders: no number comes twice.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::registry::local::hints::READ_AT;
use crate::registry::local::{adopt, fence_restored, inspect as inspect_registry};
use crate::registry::sequences::{NewNames, allow_new};

const NOW_NS: u64 = 1_763_683_200_000_000_000;

/// A copy of a folder, as `cp -a` makes it.
fn copied(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn is_closed(error: &ReadError) -> bool {
    matches!(error, ReadError::Closed { .. })
}

fn refused(folder: &Path) -> LocalError {
    LocalSequences::open_or_create(folder, None).err().expect("it is opened")
}

/// After a fence: nothing is granted or made, until a person said how far each may have come.
fn is_all_closed(folder: &Path) {
    let mut records = opened(folder);
    for name in ["orders", "users"] {
        let error = read(&mut records, name).unwrap_err();
        assert!(is_closed(&error), "{error}");
        assert!(error.to_string().contains("xuid sequence fence"), "{error}");
        assert!(matches!(grant(&mut records, name, 1), Err(SwapError::Read(error)) if is_closed(&error)));
    }
    let made = swap_one(&mut records, "made since the backup", None, 1);
    assert!(matches!(&made, Err(SwapError::Read(error)) if is_closed(error)), "{made:?}");
}

fn with_names() -> tempfile::TempDir {
    let folder = folder();
    let mut records = opened(folder.path());
    assert_eq!(grant(&mut records, "orders", 1_000).unwrap(), (1, 1_001));
    assert_eq!(grant(&mut records, "users", 50).unwrap(), (1, 51));
    drop(records);
    folder
}

#[test]
fn a_fenced_folder_grants_of_a_name_what_a_person_says_and_nothing_before() {
    let folder = with_names();
    let fenced = fence_restored(folder.path(), NOW_NS).unwrap();
    assert_eq!((fenced.sequences, fenced.lost_sequences), (2, 0));
    is_all_closed(folder.path());

    let mut records = opened(folder.path());
    assert_eq!(records.closed_record("orders").unwrap().value, 1_001);
    records.reopen("orders", 70_000).unwrap();
    assert_eq!(grant(&mut records, "orders", 10).unwrap(), (70_000, 70_010));
    // Never below what is known.
    records.reopen("users", 7).unwrap();
    assert_eq!(grant(&mut records, "users", 10).unwrap(), (51, 61));
    assert!(matches!(records.closed_record("users"), Err(ReadError::Absent { .. })));
    // A name that was made after the backup, and then the rest.
    assert!(swap_one(&mut records, "later", None, 1).is_err());
    records.reopen("later", 500).unwrap();
    assert_eq!(grant(&mut records, "later", 1).unwrap(), (500, 501));
    allow_new(&mut records, 0).unwrap();
    swap_one(&mut opened(folder.path()), "new", None, 1).unwrap();
    swap_one(&mut records, "newer", None, 1).unwrap();
}

/// A name that was made since the backup would begin again.
#[test]
fn after_a_fence_a_mark_is_made_no_lower_than_a_person_said() {
    let folder = with_names();
    let mut records = opened(folder.path());
    assert_eq!(records.new_names().unwrap(), NewNames { are_closed: false, least: 0 });
    swap_one(&mut records, "first", None, 1).unwrap();
    drop(records);
    fence_restored(folder.path(), NOW_NS).unwrap();
    let mut records = opened(folder.path());
    assert_eq!(records.new_names().unwrap(), NewNames { are_closed: true, least: 0 });
    allow_new(&mut records, 500).unwrap();
    for records in [&mut records, &mut opened(folder.path())] {
        assert_eq!(records.new_names().unwrap(), NewNames { are_closed: false, least: 500 });
        let low = swap_one(records, "second", None, 499);
        assert!(matches!(low, Err(SwapError::TooLow { least: 500 })), "{low:?}");
    }
    swap_one(&mut records, "second", None, 500).unwrap();
    // What a witness saw is no mark, and neither are leftovers.
    for (name, value) in [("seen", 3), ("@rest:1", 0)] {
        let record = SequenceRecord { value, ..SequenceRecord::default() };
        let change = SequenceChange { record, ..change(name, None, value) };
        assert!(swap(&mut records, &[change])[0].is_ok(), "{name}");
    }
    // The file grows, and is put back once more.
    for n in 0..GROWTH_SLOTS {
        swap_one(&mut records, &format!("n{n}"), None, 500).unwrap();
    }
    drop(records);
    fence_restored(folder.path(), NOW_NS).unwrap();
    let mut records = opened(folder.path());
    assert_eq!(records.new_names().unwrap(), NewNames { are_closed: true, least: 500 });
    allow_new(&mut records, 1).unwrap();
    swap_one(&mut records, "third", None, 1).unwrap();
}

/// The second half of what the refusal says alone: the folder's own file is not back yet.
#[test]
fn a_fence_is_refused_over_the_sequences_of_another_registry_and_forgets_nothing() {
    let (folder, other) = (with_names(), with_names());
    let path = |folder: &Path| folder.join("sequences");
    fs::copy(path(folder.path()), folder.path().join("own")).unwrap();
    fs::copy(path(other.path()), folder.path().join("theirs")).unwrap();
    fs::rename(folder.path().join("theirs"), path(folder.path())).unwrap();
    let refused = fence_restored(folder.path(), NOW_NS).expect_err("it is fenced");
    assert!(matches!(refused, LocalError::SequencesOfOther { .. }), "{refused}");
    fs::rename(folder.path().join("own"), path(folder.path())).unwrap();
    fence_restored(folder.path(), NOW_NS).unwrap();
    let mut records = opened(folder.path());
    records.reopen("orders", 1).unwrap();
    assert_eq!(grant(&mut records, "orders", 1).unwrap().0, 1_001);
}

/// Else new names would begin where the one said that ends last, and the other told its person something else.
#[test]
fn of_two_fences_at_once_one_is_told_of_the_other() {
    let folder = with_names();
    fence_restored(folder.path(), NOW_NS).unwrap();
    let (mut one, mut other) = (opened(folder.path()), opened(folder.path()));
    let seen = [&mut one, &mut other].map(|records| records.new_names().unwrap());
    one.allow_new(seen[0], 90_000).unwrap();
    let late = other.allow_new(seen[1], 10_000);
    assert!(matches!(late, Err(SwapError::Conflict)), "{late:?}");
    assert_eq!(other.new_names().unwrap(), NewNames { are_closed: false, least: 90_000 });
    // What says so already is no other.
    other.allow_new(seen[1], 90_000).unwrap();
    allow_new(&mut other, 1).unwrap();
    assert_eq!(one.new_names().unwrap(), NewNames { are_closed: false, least: 1 });
}

/// Else it would go no higher than what it could read, and a person who trusts that would have numbers granted again.
#[test]
fn a_fence_is_refused_where_what_the_folder_knew_of_names_cannot_be_read_whole() {
    let folder = with_names();
    READ_AT.set(Some(|_, _, _| Err(std::io::Error::from_raw_os_error(libc::EIO))));
    let refused = fence_restored(folder.path(), NOW_NS);
    READ_AT.set(None);
    let refused = refused.expect_err("it is fenced").to_string();
    assert!(refused.contains("sequences.known-"), "{refused}");
    fence_restored(folder.path(), NOW_NS).unwrap();
}

#[test]
fn a_fence_goes_above_what_the_folder_knew() {
    let folder = with_names();
    let backup = fs::read(file_of(folder.path())).unwrap();
    let mut records = opened(folder.path());
    grant(&mut records, "orders", 5_000).unwrap();
    swap_one(&mut records, "made later", None, 5_000).unwrap();
    records.close();
    drop(records);
    fs::write(file_of(folder.path()), &backup).unwrap();
    assert!(matches!(refused(folder.path()), LocalError::Restored { .. }));
    let fenced = fence_restored(folder.path(), NOW_NS).unwrap();
    // The folder knew a record in the slot of "made later", and how far it came, and not whose.
    assert_eq!((fenced.sequences, fenced.lost_sequences), (2, 1));
    let mut records = opened(folder.path());
    assert_eq!(records.closed_record("orders").unwrap().value, 6_001);
    for name in ["orders", "users"] {
        records.reopen(name, 0).unwrap();
    }
    let lost = allow_new(&mut records, 0).unwrap_err().to_string();
    assert!(lost.contains("which had come to 5000 at least"), "{lost}");
    assert!(swap_one(&mut records, "made later", None, 1).is_err());
    let mut other = opened(folder.path());
    records.reopen("made later", 900).unwrap();
    assert_eq!(grant(&mut other, "made later", 1).unwrap(), (5_000, 5_001));
    allow_new(&mut records, 0).unwrap();
    swap_one(&mut other, "new", None, 1).unwrap();
    // Fenced once more, all of it is closed again, and the old content is refused still.
    drop((records, other));
    fence_restored(folder.path(), NOW_NS).unwrap();
    is_all_closed(folder.path());
    fs::write(file_of(folder.path()), &backup).unwrap();
    assert!(LocalSequences::open_or_create(folder.path(), None).is_err());
}

/// The first clean stop after the backup made it, with a name that no person knows.
#[test]
fn a_lost_record_of_leftovers_keeps_no_folder_closed() {
    let folder = with_names();
    let backup = fs::read(file_of(folder.path())).unwrap();
    let mut records = opened(folder.path());
    swap_one(&mut records, "@rest:1", None, 1).unwrap();
    records.close();
    drop(records);
    fs::write(file_of(folder.path()), &backup).unwrap();
    assert_eq!(fence_restored(folder.path(), NOW_NS).unwrap().lost_sequences, 1);
    let mut records = opened(folder.path());
    for name in ["orders", "users"] {
        records.reopen(name, 0).unwrap();
    }
    let told = allow_new(&mut records, 0).unwrap_err().to_string();
    assert!(told.contains("that of leftovers") && told.contains("--above 1"), "{told}");
    records.reopen("none", 1).unwrap();
    allow_new(&mut records, 0).unwrap();
    swap_one(&mut records, "new", None, 1).unwrap();
}

#[test]
fn a_copied_folder_is_refused_and_adopted_closed() {
    let folder = with_names();
    let copy = copied(folder.path());
    assert!(matches!(refused(copy.path()), LocalError::Copied { .. }));
    let adopted = adopt(copy.path(), NOW_NS).unwrap();
    assert_eq!(adopted.fenced.unwrap().sequences, 2);
    is_all_closed(copy.path());
    assert_eq!(opened(copy.path()).cluster(), adopted.cluster);
    // The original goes on.
    assert_eq!(grant(&mut opened(folder.path()), "orders", 1).unwrap(), (1_001, 1_002));
    // Nothing changes when it is done again.
    opened(copy.path()).reopen("orders", 9_000).unwrap();
    assert_eq!(adopt(copy.path(), NOW_NS).unwrap().fenced, None);
    assert_eq!(grant(&mut opened(copy.path()), "orders", 1).unwrap(), (9_000, 9_001));
}

#[test]
fn a_copied_file_of_sequences_alone_is_refused_until_it_is_fenced() {
    let folder = with_names();
    let file = file_of(folder.path());
    let beside = folder.path().join("copy");
    fs::copy(&file, &beside).unwrap();
    grant(&mut opened(folder.path()), "orders", 500).unwrap();
    fs::rename(&beside, &file).unwrap();
    assert!(matches!(refused(folder.path()), LocalError::Copied { .. }));
    assert_eq!(adopt(folder.path(), NOW_NS).unwrap().fenced, None, "the registry is no copy");
    is_all_closed(folder.path());
    assert_eq!(opened(folder.path()).closed_record("orders").unwrap().value, 1_501);
}

#[test]
fn a_file_that_is_gone_is_not_made_again_before_a_fence() {
    let folder = with_names();
    fs::remove_file(file_of(folder.path())).unwrap();
    assert!(matches!(refused(folder.path()), LocalError::SequencesLost { .. }));
    let fenced = fence_restored(folder.path(), NOW_NS).unwrap();
    assert!(fenced.lost_sequences > 0, "the folder knew of names: {fenced:?}");
    let mut records = opened(folder.path());
    assert!(allow_new(&mut records, 0).is_err(), "none of them is told of");
    let made = swap_one(&mut records, "orders", None, 1).unwrap_err();
    assert!(
        matches!(&made, SwapError::Read(ReadError::Damaged { why, .. }) if why.contains("sequence fence")),
        "{made}"
    );
    records.reopen("orders", 2_000).unwrap();
    assert_eq!(grant(&mut records, "orders", 1).unwrap(), (2_000, 2_001));
}

/// Of a witness alone: its registry is in an ensemble.
#[test]
fn a_witness_s_file_that_is_gone_is_fenced_where_the_folder_tells_its_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let genesis = some_genesis();
    let open = || LocalSequences::open_or_create(folder.path(), Some(&genesis));
    drop(open().unwrap());
    fs::remove_file(file_of(folder.path())).unwrap();
    assert!(are_alone(folder.path()), "it had one");
    assert!(matches!(open().err(), Some(LocalError::SequencesLost { .. })));
    assert!(matches!(fence_sequences(folder.path()), Err(LocalError::Absent { .. })));
    let node = format!("{{\"version\":1,\"cluster\":\"{}\"}}", genesis.cluster);
    fs::write(folder.path().join("node.json"), node).unwrap();
    fence_sequences(folder.path()).unwrap();
    let made = swap_one(&mut open().unwrap(), "orders", None, 1);
    assert!(matches!(&made, Err(SwapError::Read(error)) if is_closed(error)), "{made:?}");
}

/// It may have known one.
#[test]
fn no_file_is_made_in_a_folder_that_cannot_be_listed() {
    let folder = folder();
    // A file is listed by no user.
    let mut hints = FolderHints::of(&folder.path().join("registry"), FileKind::Sequences);
    assert!(matches!(hints.exist(), Err(LocalError::Io { action: "list", .. })));
    assert!(matches!(hints.readable(), Err(LocalError::Io { action: "list", .. })));
    assert!(hints.all(1_000).is_empty());
    assert!(hints.check_whole().is_err(), "a fence goes by it");
    let mut gone = FolderHints::of(&folder.path().join("nothing"), FileKind::Sequences);
    assert!(!gone.exist().unwrap() && gone.all(1_000).is_empty() && gone.check_whole().is_ok());
}

/// A backup of before the first name, put back as a whole.
#[test]
fn a_folder_that_is_restored_to_before_its_first_name_makes_none_before_a_person_said_so() {
    let folder = folder();
    let backup = copied(folder.path());
    drop(opened(folder.path()));
    fence_restored(backup.path(), NOW_NS).unwrap();
    let made = swap_one(&mut opened(backup.path()), "orders", None, 1).unwrap_err();
    assert!(matches!(&made, SwapError::Read(error) if is_closed(error)), "{made}");
}

#[test]
fn a_fence_is_refused_while_sequences_are_used() {
    let folder = with_names();
    let records = opened(folder.path());
    assert!(matches!(fence_restored(folder.path(), NOW_NS), Err(LocalError::InUse { .. })));
    drop(records);
    assert!(fence_restored(folder.path(), NOW_NS).is_ok());
}

#[test]
fn a_fence_that_is_cut_off_anywhere_leaves_nothing_that_grants_old_numbers() {
    let mut moments = 0;
    loop {
        let folder = with_names();
        let backup = copied(folder.path());
        grant(&mut opened(folder.path()), "orders", 4_000).unwrap();
        // As a restore of the whole folder leaves it: it knows nothing of what was granted since.
        let path = backup.path();
        let fenced = cut_after(moments, || catch_unwind(AssertUnwindSafe(|| fence_restored(path, NOW_NS))));
        let is_whole = fenced.is_ok();
        let mut opened = LocalSequences::open_or_create(path, None);
        if let Ok(records) = &mut opened {
            assert!(is_closed(&read(records, "orders").unwrap_err()), "cut at moment {moments}");
        }
        drop(opened);
        // Done again, it is whole.
        fence_restored(path, NOW_NS).unwrap();
        is_all_closed(path);
        assert!(inspect_registry(path).unwrap().findings.is_empty());
        if is_whole {
            break;
        }
        moments += 1;
    }
    assert!(moments > 4, "{moments} moments");
}

#[test]
fn what_is_not_as_it_should_be_is_told_by_a_look() {
    let folder = with_names();
    assert!(inspect(tempfile::tempdir().unwrap().path()).unwrap().is_none());
    let found = inspect(folder.path()).unwrap().unwrap();
    assert!(found.findings.is_empty() && !found.is_closed);
    let marks: Vec<_> =
        found.records.iter().map(|one| (&*one.name, one.record.value, one.is_closed)).collect();
    assert_eq!(marks, [("orders", 1_001, false), ("users", 51, false)]);
    fence_restored(folder.path(), NOW_NS).unwrap();
    let found = inspect(folder.path()).unwrap().unwrap();
    assert!(found.is_closed && found.records.iter().all(|one| one.is_closed) && found.findings.is_empty());
}
