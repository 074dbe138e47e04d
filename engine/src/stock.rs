//! Opens this process's spill file: the first of `spill-0`, `spill-1`, ... that nobody else has, and that the
//! registry has a mark for. A file that cannot be trusted is set aside as `spill-N.K.refused`.

use std::io;
use std::path::{Path, PathBuf};

use xuid_spill::{DEFAULT_BYTES, Expected, Identity, Log, MappedFile, OpenError, SpillId, Storage};

use crate::guards::Guard;
use crate::later;
use crate::registry::Genesis;
use crate::reserve::with_source;
use crate::tenure::{GrantError, Tenure};

/// Processes that share a folder. More go without a spill.
const MOST_FILES: u32 = 256;

/// The spill that was opened, or why there is none.
pub(crate) struct Stock {
    pub(crate) log: Result<(Log, u64), String>,
    /// Ids found that an earlier life left.
    pub(crate) inherited: u64,
    /// Files set aside.
    pub(crate) refused: u64,
}

/// No spill, for this reason.
pub(crate) fn none(why: &str) -> Stock {
    Stock { log: Err(why.to_owned()), inherited: 0, refused: 0 }
}

/// Opens or creates.
pub(crate) fn open(folder: &Path, genesis: &Genesis, tenure: &mut Tenure) -> Stock {
    let mut refused = 0;
    for number in 0..MOST_FILES {
        let path = folder.join(format!("spill-{number}"));
        match open_one(&path, genesis, tenure) {
            Ok(Opened::Log(log, mark)) => {
                let inherited = log.stock().ids;
                return Stock { log: Ok((log, mark)), inherited, refused };
            }
            Ok(Opened::Taken) => {}
            Ok(Opened::Refused(why)) => {
                refused += 1;
                let shown = path.display().to_string();
                later::log(move || {
                    tracing::error!(path = %shown, why, "the spill is refused and set aside; what it held is wasted");
                });
                if let Err(error) = set_aside(&path) {
                    let shown = path.display().to_string();
                    later::log(move || {
                        tracing::error!(path = %shown, %error, "it could not be renamed; the next number is used");
                    });
                    continue;
                }
                return create(&path, genesis, tenure, refused);
            }
            Ok(Opened::Absent) => return create(&path, genesis, tenure, refused),
            Err(why) => return Stock { log: Err(why), inherited: 0, refused },
        }
    }
    Stock {
        log: Err(format!("all of spill-0 to spill-{} are in use", MOST_FILES - 1)),
        inherited: 0,
        refused,
    }
}

/// What was found where a spill may be.
pub(crate) enum Opened {
    Log(Log, u64),
    /// Another process has it.
    Taken,
    /// It cannot be trusted.
    Refused(String),
    Absent,
}

fn open_one(path: &Path, genesis: &Genesis, tenure: &mut Tenure) -> Result<Opened, String> {
    let storage = match MappedFile::open(path) {
        Ok(storage) => storage,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opened::Absent),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Opened::Taken),
        Err(error) => return Err(format!("failed to open {}: {error}", path.display())),
    };
    open_log(Box::new(storage), path, genesis, tenure)
}

/// For a negative control: what the file says of its cluster, instead of what is expected.
fn as_found(storage: &dyn Storage, mut expected: Expected) -> Expected {
    /// Where the header has it (`docs/spill-format.md`).
    const CLUSTER_AT: u64 = 32;
    // A file that is too short is refused all the same.
    let _ = storage.read_at(CLUSTER_AT, &mut expected.cluster);
    expected
}

/// Opens what a storage holds, if the registry has a mark for it. The path is for messages.
pub(crate) fn open_log(
    storage: Box<dyn Storage>,
    path: &Path,
    genesis: &Genesis,
    tenure: &mut Tenure,
) -> Result<Opened, String> {
    let layout = genesis.layout;
    let expected =
        Expected { cluster: genesis.cluster.bytes(), stride: layout.stride(), layout: layout.to_bytes() };
    let expected =
        if Guard::SpillOfCluster.is_out() { as_found(storage.as_ref(), expected) } else { expected };
    let (mut log, report) = match Log::open(storage, &expected) {
        Ok(opened) => opened,
        Err(OpenError::Io(error)) => return Err(format!("failed to read {}: {error}", path.display())),
        Err(error) => return Ok(Opened::Refused(with_source(&error))),
    };
    let mark = match tenure.mark(log.id(), false) {
        Ok(u64::MAX) => return Ok(Opened::Refused("its mark was raised to the end by a fence".into())),
        Ok(mark) => mark,
        Err(GrantError::Refused { .. }) if Guard::AbsentMarkRefused.is_out() => {
            tenure.mark(log.id(), true).map_err(|error| error.to_string())?
        }
        Err(GrantError::Refused { why }) => return Ok(Opened::Refused(why)),
        Err(error) => return Err(error.to_string()),
    };
    let mark = if Guard::MarkOfRegistry.is_out() { 0 } else { mark };
    log.resume_at(mark);
    let stock = log.stock();
    let (spill, path) = (log.id(), path.display().to_string());
    later::log(move || {
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
            tracing::warn!(%path, damaged = report.damaged, header_repaired = report.header_repaired,
                "the spill is damaged; damaged extents are skipped and wasted");
        }
    });
    Ok(Opened::Log(log, mark))
}

fn create(path: &Path, genesis: &Genesis, tenure: &mut Tenure, refused: u64) -> Stock {
    let log = create_one(path, genesis, tenure).map(|log| (log, 0));
    if let Err(why) = &log {
        let why = why.clone();
        later::log(move || tracing::error!(why, "no spill: unused ids will not survive a restart"));
    }
    Stock { log, inherited: 0, refused }
}

fn create_one(path: &Path, genesis: &Genesis, tenure: &mut Tenure) -> Result<Log, String> {
    let fail = |what: &str, error: String| format!("failed to {what} {}: {error}", path.display());
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|error| fail("draw an id for", error.to_string()))?;
    let storage = MappedFile::create(path).map_err(|error| fail("create", error.to_string()))?;
    crash_point!(SpillCreated);
    create_log(Box::new(storage), DEFAULT_BYTES, SpillId::from_bytes(uuid), path, genesis, tenure)
        .inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Lays a log of so many bytes out in an empty storage and has a mark made for it.
pub(crate) fn create_log(
    storage: Box<dyn Storage>,
    bytes: u64,
    spill: SpillId,
    path: &Path,
    genesis: &Genesis,
    tenure: &mut Tenure,
) -> Result<Log, String> {
    let fail = |what: &str, error: String| format!("failed to {what} {}: {error}", path.display());
    let layout = genesis.layout;
    let identity = Identity {
        spill,
        cluster: genesis.cluster.bytes(),
        stride: layout.stride(),
        layout: layout.to_bytes(),
    };
    let log = Log::create(storage, identity, bytes).map_err(|error| fail("lay out", with_source(&error)))?;
    crash_point!(SpillLaidOut);
    match tenure.mark(log.id(), true) {
        Ok(_) => {
            crash_point!(SpillMarked);
            let (spill, path) = (log.id(), path.display().to_string());
            later::log(move || tracing::info!(%path, %spill, "spill created"));
            Ok(log)
        }
        Err(error) => Err(fail("get a mark for", error.to_string())),
    }
}

/// Renames a refused file to the first free `spill-N.K.refused`.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 0.. {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}.refused"));
        let aside = PathBuf::from(name);
        if !aside.try_exists()? {
            std::fs::rename(path, &aside)?;
            return Ok(aside);
        }
    }
    unreachable!("the numbers do not end before the disk does")
}
