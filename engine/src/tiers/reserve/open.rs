//! Opens this process's spill file: the first of `spill-0`, `spill-1`, ... that no other process has, and that the
//! registry has a mark for. A file that cannot be trusted is set aside as `spill-N.K.refused`.
//!
//! # Invariants
//! - I1 a file gets the name of a spill when it is whole, locked and has a mark, and replaces none;
//! - I2 a file is renamed only by a process that has it locked, and had made sure after locking it that it had its
//!   name: so a process that was stopped in between finds out, and no process loses a spill that it goes on with.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xuid_spill::{DEFAULT_BYTES, Expected, Identity, Log, MappedFile, OpenError, SpillId, Storage};

use crate::clock::{boot_ns, nanos};
use crate::registry::Genesis;
use crate::registry::ownership::{GrantError, Ownership};
use crate::sys::deferred_log;
use crate::sys::draft;
use crate::sys::guards::Guard;
use crate::tiers::reserve::with_source;

/// Processes that share a folder. More go without a spill.
const MOST_FILES: u32 = 256;

/// How long a registry that was reached a moment ago is waited for, as in a fail-over of an ensemble: without its mark a process
/// has no spill for its whole life.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two attempts.
const RETRY: Duration = Duration::from_millis(100);

/// How spills begin, and their drafts: `spill.new-...`.
const STEM: &str = "spill";

/// The spill that was opened, or why there is none.
pub(crate) struct OpenedSpill {
    pub(crate) log: Result<(Log, u64), String>,
    /// Ids found that an earlier life left.
    pub(crate) inherited: u64,
    /// Files set aside.
    pub(crate) refused: u64,
}

/// No spill, for this reason.
pub(crate) fn none(why: &str) -> OpenedSpill {
    OpenedSpill { log: Err(why.to_owned()), inherited: 0, refused: 0 }
}

/// Opens or creates.
pub(crate) fn open(folder: &Path, genesis: &Genesis, ownership: &mut Ownership) -> OpenedSpill {
    draft::sweep(folder, STEM);
    let (mut refused, mut trouble) = (0, None);
    for number in 0..MOST_FILES {
        let path = numbered(folder, number);
        match open_one(&path, genesis, ownership, &mut refused) {
            Ok(Opened::Log(log, mark)) => {
                let inherited = log.stock().ids;
                return OpenedSpill { log: Ok((log, mark)), inherited, refused };
            }
            // One that cannot be set aside is in the way.
            Ok(Opened::Taken | Opened::Refused(_)) => {}
            Ok(Opened::Absent) => return create(folder, genesis, ownership, refused),
            Ok(Opened::Later(why)) => return OpenedSpill { log: Err(why), inherited: 0, refused },
            // It stays for a life that can read it, and is in nobody's way.
            Err(why) => {
                let (path, told) = (path.display().to_string(), why.clone());
                deferred_log::log(move || {
                    tracing::error!(path, why = told, "no spill; the next number is used");
                });
                trouble.get_or_insert(why);
            }
        }
    }
    OpenedSpill { log: Err(trouble.unwrap_or_else(all_in_use)), inherited: 0, refused }
}

/// The mark of a spill. A registry that does not answer is asked again for that long.
fn mark(ownership: &mut Ownership, spill: SpillId, new: bool, wait: Duration) -> Result<u64, GrantError> {
    let begun = boot_ns();
    loop {
        match ownership.mark(spill, new) {
            Err(GrantError::Later { .. }) if boot_ns() - begun < nanos(wait) => std::thread::sleep(RETRY),
            marked => return marked,
        }
    }
}

fn numbered(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{STEM}-{number}"))
}

fn all_in_use() -> String {
    format!("all of spill-0 to spill-{} are in use", MOST_FILES - 1)
}

/// What was found where a spill may be.
pub(crate) enum Opened {
    Log(Log, u64),
    /// Another process has it.
    Taken,
    /// It cannot be trusted.
    Refused(String),
    /// The registry does not answer.
    Later(String),
    Absent,
}

/// Opens the spill of that name. One that is refused is set aside, and is absent then.
fn open_one(
    path: &Path,
    genesis: &Genesis,
    ownership: &mut Ownership,
    refused: &mut u64,
) -> Result<Opened, String> {
    let fail = |error: io::Error| format!("failed to open {}: {error}", path.display());
    let storage = match MappedFile::open(path) {
        Ok(storage) => storage,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opened::Absent),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Opened::Taken),
        Err(error) => return Err(fail(error)),
    };
    // Until the name is free: another process could have set the file aside by then, and named a spill of its own (I2).
    let _lock = storage.lock_holder().map_err(fail)?;
    let opened = open_log(Box::new(storage), path, genesis, ownership, PATIENCE)?;
    if let Opened::Refused(why) = &opened {
        *refused += 1;
        let (shown, why) = (path.display().to_string(), why.clone());
        deferred_log::log(move || {
            tracing::error!(path = %shown, why, "the spill is refused and set aside; what it held is wasted");
        });
        meanwhile();
        match set_aside(path) {
            Ok(_) => return Ok(Opened::Absent),
            Err(error) => {
                let shown = path.display().to_string();
                deferred_log::log(move || {
                    tracing::error!(path = %shown, %error, "it could not be renamed; the next number is used");
                });
            }
        }
    }
    Ok(opened)
}

/// A moment at which another process may come: in tests one does.
fn meanwhile() {
    #[cfg(test)]
    if let Some(other) = tests::OTHER.take() {
        other();
    }
}

/// For a negative control: what the file says of its cluster, instead of what is expected.
fn as_found(storage: &dyn Storage, mut expected: Expected) -> Expected {
    /// Where the header has it (`docs/spill-format.md`).
    const CLUSTER_AT: u64 = 32;
    // A file that is too short is refused all the same.
    let _ = storage.read_at(CLUSTER_AT, &mut expected.cluster);
    expected
}

/// Opens what a storage holds, if the registry has a mark for it, for which it may `wait`. The path is for messages.
pub(crate) fn open_log(
    storage: Box<dyn Storage>,
    path: &Path,
    genesis: &Genesis,
    ownership: &mut Ownership,
    wait: Duration,
) -> Result<Opened, String> {
    let layout = genesis.layout.plots();
    let expected =
        Expected { cluster: genesis.cluster.bytes(), stride: layout.stride(), layout: layout.to_bytes() };
    let expected =
        if Guard::SpillOfCluster.holds() { expected } else { as_found(storage.as_ref(), expected) };
    let (mut log, report) = match Log::open(storage, &expected) {
        Ok(opened) => opened,
        Err(OpenError::Io(error)) => return Err(format!("failed to read {}: {error}", path.display())),
        Err(error) => return Ok(Opened::Refused(with_source(&error))),
    };
    let mark = match mark(ownership, log.id(), false, wait) {
        Ok(u64::MAX) => return Ok(Opened::Refused("its mark was raised to the end by a fence".into())),
        Ok(mark) => mark,
        Err(GrantError::Refused { .. }) if !Guard::AbsentMarkRefused.holds() => {
            ownership.mark(log.id(), true).map_err(|error| error.to_string())?
        }
        Err(GrantError::Refused { why }) => return Ok(Opened::Refused(why)),
        Err(error) => return Ok(Opened::Later(error.to_string())),
    };
    let mark = if Guard::MarkOfRegistry.holds() { mark } else { 0 };
    log.resume_at(mark);
    let stock = log.stock();
    let (spill, path) = (log.id(), path.display().to_string());
    deferred_log::log(move || {
        tracing::info!(
            %path, %spill, head = report.head, mark, extents = stock.extents, ids = stock.ids,
            damaged = report.damaged, stale = report.stale,
            "spill opened: extents from the mark on will be replayed"
        );
        if report.head < mark {
            tracing::warn!(
                %path, head = report.head, mark,
                "the spill ends before what was already granted from it: it is an older copy, or lost its unsynced \
                 end; nothing below the mark is replayed"
            );
        }
        if report.damaged > 0 || report.header_repaired {
            tracing::warn!(
                %path, damaged = report.damaged, unreadable = report.unreadable,
                header_repaired = report.header_repaired,
                "the spill is damaged; damaged extents are skipped and wasted, and where `unreadable` is not 0 the disk \
                 cannot read them: check it"
            );
        }
    });
    Ok(Opened::Log(log, mark))
}

fn create(folder: &Path, genesis: &Genesis, ownership: &mut Ownership, refused: u64) -> OpenedSpill {
    let log = create_one(folder, genesis, ownership).map(|log| (log, 0));
    if let Err(why) = &log {
        let why = why.clone();
        deferred_log::log(move || tracing::error!(why, "no spill: unused ids will not survive a restart"));
    }
    OpenedSpill { log, inherited: 0, refused }
}

/// Makes a spill, and names it when it is whole: with the first number that is free by then.
fn create_one(folder: &Path, genesis: &Genesis, ownership: &mut Ownership) -> Result<Log, String> {
    let fail =
        |what: &str, error: String| format!("failed to {what} a spill in {}: {error}", folder.display());
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|error| fail("draw an id for", error.to_string()))?;
    let (storage, draft) = draft::make_by(folder, STEM, MappedFile::create)
        .map_err(|error| fail("create", error.to_string()))?;
    crash_point!(SpillCreated);
    let spill = SpillId::from_bytes(uuid);
    let made = create_log(Box::new(storage), DEFAULT_BYTES, spill, &draft, (genesis, ownership), PATIENCE)
        .and_then(|log| Ok((publish(folder, &draft)?, log)));
    match made {
        Ok((path, log)) => {
            crash_point!(SpillNamed);
            // A name that a power cut takes back costs what a clean stop has left there.
            let synced = draft::sync_folder(folder);
            deferred_log::log(move || {
                let path = path.display();
                if let Err(error) = synced {
                    tracing::warn!(%path, %error, "the spill's name may not survive a power cut");
                }
                tracing::info!(%path, %spill, "spill created");
            });
            Ok(log)
        }
        Err(why) => {
            let _ = std::fs::remove_file(&draft);
            Err(why)
        }
    }
}

/// Gives a spill the first name that is free.
fn publish(folder: &Path, draft: &Path) -> Result<PathBuf, String> {
    for number in 0..MOST_FILES {
        let path = numbered(folder, number);
        match draft::publish(draft, &path) {
            Ok(true) => return Ok(path),
            Ok(false) => {}
            Err(error) => return Err(format!("failed to name {}: {error}", path.display())),
        }
    }
    Err(all_in_use())
}

/// Lays a log of so many bytes out in an empty storage and has a mark made for it, for which it may `wait`.
pub(crate) fn create_log(
    storage: Box<dyn Storage>,
    bytes: u64,
    spill: SpillId,
    path: &Path,
    (genesis, ownership): (&Genesis, &mut Ownership),
    wait: Duration,
) -> Result<Log, String> {
    let fail = |what: &str, error: String| format!("failed to {what} {}: {error}", path.display());
    let layout = genesis.layout.plots();
    let identity = Identity {
        spill,
        cluster: genesis.cluster.bytes(),
        stride: layout.stride(),
        layout: layout.to_bytes(),
    };
    let log = Log::create(storage, identity, bytes).map_err(|error| fail("lay out", with_source(&error)))?;
    crash_point!(SpillLaidOut);
    match mark(ownership, log.id(), true, wait) {
        Ok(_) => {
            crash_point!(SpillMarked);
            Ok(log)
        }
        Err(error) => Err(fail("get a mark for", error.to_string())),
    }
}

/// Renames a refused file, which is locked, to the first free `spill-N.K.refused`.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 0.. {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}.refused"));
        let aside = PathBuf::from(name);
        if draft::publish(path, &aside)? {
            return Ok(aside);
        }
    }
    unreachable!("the numbers do not end before the disk does")
}

#[cfg(test)]
mod tests;
