//! Real files: the map, the lock, the full disk, the inspection beside a running log, the time an open takes.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use xuid_spill::{
    AppendError, CreateError, DEFAULT_BYTES, HeaderError, Holdings, InspectError, Log, MappedFile, OpenError,
    ReadError, Shortened, Storage, inspect,
};

use crate::support::{RECORDS_AT, STRIDE, bytes_for, expected, extent, extents, identity, read_all};

const FULL_DISK: &str = "XUID_TEST_FULL_DISK";

fn create(path: &Path, bytes: u64) -> Log {
    Log::create(Box::new(MappedFile::create(path).unwrap()), identity(), bytes).unwrap()
}

/// Opens a file that this test has let go. A child that another test starts has its descriptor and lock too, until it
/// becomes its program.
fn open(path: &Path) -> Result<Log, OpenError> {
    let patience = now() + Duration::from_secs(10);
    let file = loop {
        match MappedFile::open(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && now() < patience => {
                sleep(Duration::from_millis(1));
            }
            opened => break opened.unwrap(),
        }
    };
    Log::open(Box::new(file), &expected()).map(|(log, _)| log)
}

fn truncate(path: &Path, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

#[test]
fn what_was_appended_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    let mut log = create(&path, bytes_for(1000));
    log.append(&extents(0..1500)).unwrap();
    let all = read_all(&log);
    log.sync().unwrap();
    drop(log);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes_for(1000));
    let mut log = open(&path).unwrap();
    log.resume_at(0);
    assert_eq!(read_all(&log), all);
    log.append(&extents(1500..1600)).unwrap();
    assert_eq!(read_all(&log).last(), Some(&(1599, extent(1599))));
}

#[test]
fn all_blocks_are_set_aside_at_creation() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    let _log = create(&path, 1 << 20);
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 1 << 20);
}

#[test]
fn a_file_in_use_is_refused_and_one_let_go_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    let log = create(&path, bytes_for(8));
    let error = MappedFile::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(error.to_string().contains("in use by another process"), "{error}");
    assert_eq!(MappedFile::create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    drop(log);
    open(&path).unwrap();
}

#[test]
fn a_file_shortened_while_open_is_found_at_the_next_read_and_append() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    let mut log = create(&path, bytes_for(1000));
    log.append(&extents(0..1000)).unwrap();
    truncate(&path, RECORDS_AT + 16);
    let error = log.read(0..1000, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Shortened(Shortened { found: 8208, .. })), "{error}");
    let error = log.append(&extents(500..501)).unwrap_err();
    let AppendError::Io { source, .. } = &error else { panic!("{error}") };
    assert_eq!(Shortened::of(source), Some(Shortened { found: 8208, needed: RECORDS_AT + 32 }));
    // The write was not made, for it would have made the file long again.
    assert_eq!(std::fs::metadata(&path).unwrap().len(), RECORDS_AT + 16);
    drop(log);
    let error = open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Header(HeaderError::Shortened(_))), "{error}");
    assert!(matches!(inspect(&path), Err(InspectError::Header(HeaderError::Shortened(_)))));
}

#[test]
fn a_creation_that_fails_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    // No file system of today has room for this.
    let error = MappedFile::create(&path).unwrap().allocate(1 << 62).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FileTooLarge | ErrorKind::StorageFull), "{error:?}");
    assert!(!path.exists());
    assert!(matches!(
        Log::create(Box::new(MappedFile::create(&path).unwrap()), identity(), 0),
        Err(CreateError::Size { .. })
    ));
    assert!(!path.exists());
}

/// Runs the test of this name again, in a shell that has prepared the folder `$2`, and wants to see it pass.
fn run_again(name: &str, shell: &[&str], prepare: &str) {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{prepare} && exec \"$0\" --exact \"$1\" --nocapture");
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .arg(folder.path())
        .env(FULL_DISK, folder.path())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Tells `tests/run` of a trial that this machine does not allow; where `CI=true` is set, every trial has to be made.
fn not_tried(trial: &str) {
    use std::io::Write;
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "not tried, and CI=true is set: {trial}");
    if let Some(file) = std::env::var_os("XUID_NOT_TRIED") {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(format!("{trial}\n").as_bytes()).unwrap();
    }
}

#[test]
fn a_full_disk_is_an_error_at_creation_and_leaves_no_file() {
    const NAME: &str = "file::a_full_disk_is_an_error_at_creation_and_leaves_no_file";
    if let Some(folder) = std::env::var_os(FULL_DISK) {
        let path = Path::new(&folder).join("spill-0");
        let created = Log::create(Box::new(MappedFile::create(&path).unwrap()), identity(), DEFAULT_BYTES);
        let Err(CreateError::Io(source)) = created else { panic!("{created:?}") };
        assert!(matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::FileTooLarge), "{source:?}");
        assert!(!path.exists());
        // What does fit is made, filled, and never meets the limit again.
        let mut log = create(&path, 256 << 10);
        log.append(&extents(0..20_000)).unwrap();
        assert_eq!(read_all(&log).len() as u64, log.capacity());
        return;
    }
    // A limit on the size of files can be set anywhere.
    run_again(NAME, &["sh"], "trap '' XFSZ && ulimit -f 1024");
    // A file system of 1 MiB only where an own mount namespace is allowed.
    let namespaces = Command::new("unshare").args(["-rm", "true"]).status();
    if namespaces.is_ok_and(|status| status.success()) {
        run_again(NAME, &["unshare", "-rm", "sh"], "mount -t tmpfs -o size=1m tmpfs \"$2\"");
    } else {
        not_tried("a full file system under a spill: no user namespace here");
    }
}

#[test]
fn an_inspection_sees_what_a_running_log_holds_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    let mut log = create(&path, bytes_for(100));
    assert_eq!(inspect(&path).unwrap().all(), Holdings::default());
    log.append(&extents(0..130)).unwrap();
    {
        use std::os::unix::fs::FileExt;
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xFF; 4], RECORDS_AT + 50 * 32).unwrap();
        file.write_all_at(&[0], 4096).unwrap();
    }
    let before = std::fs::read(&path).unwrap();
    let inspection = inspect(&path).unwrap();
    assert_eq!((inspection.identity, inspection.capacity, inspection.head), (identity(), 100, 130));
    assert_eq!((inspection.file_bytes, inspection.damaged), (bytes_for(100), 1));
    assert!(inspection.header_damaged);

    let all = inspection.all();
    let ids = (30..130).filter(|index| *index != 50).map(|index| extent(index).ids()).sum();
    assert_eq!((all.extents, all.ids, all.missing), (99, ids, 1));
    assert_eq!(all.oldest_first, Some(extent(30).first));
    assert_eq!(all.newest_first, Some(extent(129).last_first(STRIDE)));
    let left = inspection.above(120);
    assert_eq!((left.extents, left.missing, left.oldest_first), (10, 0, Some(extent(120).first)));
    assert_eq!(inspection.above(u64::MAX), Holdings::default());

    assert_eq!(std::fs::read(&path).unwrap(), before);
    log.append(&extents(130..131)).unwrap();
}

#[test]
fn a_file_that_is_not_there_or_not_a_spill_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    let error = inspect(&path).unwrap_err();
    assert!(error.to_string().contains("spill-0"), "{error}");
    std::fs::write(&path, []).unwrap();
    assert!(matches!(inspect(&path), Err(InspectError::Header(HeaderError::NotASpill { found: 0 }))));
    assert!(matches!(open(&path), Err(OpenError::Header(HeaderError::NotASpill { found: 0 }))));
    assert!(MappedFile::open(folder.path()).is_err());
}

#[expect(clippy::disallowed_methods, reason = "how long an open takes on a real disk is what is asked")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn half_a_million_extents_open_well_within_200_ms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    let mut log = create(&path, DEFAULT_BYTES);
    assert_eq!(log.capacity(), 524_032);
    log.append(&extents(0..600_000)).unwrap();
    drop(log);
    // The best of five: other work on the machine can make an open slow, nothing can make it fast.
    let took = (0..5).map(|_| {
        let begin = now();
        let mut log = open(&path).unwrap();
        log.resume_at(0);
        assert_eq!(log.stock().extents, 524_032);
        begin.elapsed()
    });
    let best = took.min().unwrap();
    println!("524,032 extents opened in {best:?}");
    // A build without optimization says nothing about time.
    assert!(cfg!(debug_assertions) || best.as_millis() < 200, "{best:?}");
}
