//! Looking at a registry without using it: nothing is written, and no process waits for it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use xuid_spill::SpillId;

use super::disk::{Disk, FileDisk, FileIdentity};
use super::error::LocalError;
use super::format::{Geometry, Kind, NO_SPILL, Pair, PairFlaw, Place, Row};
use super::header::FileKind;
use super::high_water::{Back, HighWater};
use super::hints::{self, FolderHints};
use super::records::{all_pairs, read_header};
use super::{genesis, seat, versioned};
use crate::registry::{Genesis, MarkRecord, ReadError, WorkerEntry};

/// What a registry says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// The file.
    pub path: PathBuf,
    /// What it was created with.
    pub genesis: Genesis,
    /// All workers, in order.
    pub workers: Vec<WorkerEntry>,
    /// The marks that can be read, the latest changed first.
    pub marks: Vec<(SpillId, MarkRecord)>,
    /// Whatever is not as it should be.
    pub findings: Vec<Finding>,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// One copy of a record, or of the header, is damaged, behind or cannot be read: opening the registry writes it
    /// again.
    OneCopy {
        /// Which record.
        what: String,
    },
    /// Neither copy of a record can be believed.
    Unreadable {
        /// Which record.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A slot had the record of a name, and nothing tells which: no name can be made.
    NameLost {
        /// Which slot.
        what: String,
    },
    /// A record says less than the folder's processes knew: an old content was put back, and will not be opened.
    Restored {
        /// Which record.
        what: String,
        /// What was known of it, and what it says.
        how: String,
    },
    /// The file is a copy and will not be opened.
    Copied {
        /// What its header says it is.
        recorded: FileIdentity,
        /// What it is.
        found: FileIdentity,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneCopy { what } => {
                write!(
                    f,
                    "one copy of {what} is damaged, behind or cannot be read; the next start writes it again"
                )
            }
            Self::Unreadable { what, why } => {
                write!(
                    f,
                    "{what} is unreadable ({why}) and stays unused until `xuid registry fence --restored`"
                )
            }
            Self::NameLost { what } => {
                write!(
                    f,
                    "{what} had the record of a name, and nothing tells which: no name can be made until \
                     `xuid sequence fence` said it"
                )
            }
            Self::Restored { what, how } => {
                write!(
                    f,
                    "{what} {how}, as its folder knows: it was restored; see `xuid registry fence --restored`"
                )
            }
            Self::Copied { recorded, found } => {
                write!(
                    f,
                    "the file was put back, moved or copied: it was created as {recorded} and is {found}{}; see \
                     `xuid registry fence --restored` and, for a copy beside its original, `xuid registry adopt`",
                    recorded.doubt(found)
                )
            }
        }
    }
}

/// How often the records are read while they look wrong: a process that uses them may be in the middle of a change.
const LOOKS: u32 = 3;

/// Looks at the registry of a folder. Takes no lock that a change waits for, and writes nothing.
///
/// # Errors
/// If there is none, or its header cannot be believed.
pub fn inspect(folder: &Path) -> Result<Inspection, LocalError> {
    let path = genesis::path(folder);
    let disk = FileDisk::open_to_read(&path).map_err(super::opening(&path))?;
    let pair = read_header(&disk, FileKind::Registry, &path)?;
    let mut findings = Vec::new();
    if pair.sound != [true, true] {
        findings.push(Finding::OneCopy { what: "the header".into() });
    }
    let (recorded, found) =
        (pair.header.identity, disk.identity().map_err(LocalError::io("identify", &path))?);
    if !recorded.same_file(&found) {
        findings.push(Finding::Copied { recorded, found });
    }
    // Before the records, which a process may change meanwhile.
    let known = hints::known(&mut FolderHints::of(folder, FileKind::Registry), pair.header.table());
    let look = |kind| {
        let mut pairs = Vec::new();
        for _ in 0..LOOKS {
            pairs = all_pairs(&disk, &pair.header, kind);
            if pairs.iter().all(|pair| pair.as_ref().is_ok_and(Pair::is_whole)) {
                break;
            }
        }
        pairs
    };
    let (workers, marks) = (look(Kind::Worker), look(Kind::Mark));
    let geometry = pair.header.geometry();
    findings.extend(strange(geometry, Kind::Worker, &workers).chain(strange(geometry, Kind::Mark, &marks)));
    findings.extend(went_back(&known, workers.iter().chain(&marks), |_| true));
    let mut live = seat::live(folder, None);
    let workers = geometry.numbers(Kind::Worker).zip(workers).map(|(worker, pair)| WorkerEntry {
        worker,
        record: pair.map(|pair| versioned(&pair, Row::worker_record)).map_err(|flaw| ReadError::Damaged {
            what: Place::worker(worker).to_string(),
            why: flaw.to_string(),
        }),
        live: live.remove(&worker),
    });
    let workers = workers.collect();
    let mut marks: Vec<_> = marks.into_iter().flatten().filter(|pair| pair.row.spill != NO_SPILL).collect();
    marks.sort_by_key(|pair| std::cmp::Reverse(pair.row.updated_ms));
    let marks = marks.iter().map(|pair| (pair.row.spill, pair.row.mark_record())).collect();
    Ok(Inspection { path, genesis: pair.header.genesis, workers, marks, findings })
}

/// The records that say less than was known of them, and those whose place the file does not have.
pub(super) fn went_back<'a>(
    known: &[Row],
    pairs: impl Iterator<Item = &'a Result<Pair, PairFlaw>>,
    has_place: impl Fn(Place) -> bool,
) -> impl Iterator<Item = Finding> {
    let mut high_water = HighWater::default();
    pairs.flatten().for_each(|pair| high_water.settle(&pair.row));
    // Several processes may have known the same.
    let found: BTreeMap<String, String> = known
        .iter()
        .filter_map(|row| {
            let compared =
                if has_place(row.place) { high_water.compare(row) } else { Err(Back::absent(row)) };
            Some((row.place.to_string(), compared.err()?.found()))
        })
        .collect();
    found.into_iter().map(|(what, how)| Finding::Restored { what, how })
}

fn strange(
    geometry: Geometry,
    kind: Kind,
    pairs: &[Result<Pair, PairFlaw>],
) -> impl Iterator<Item = Finding> {
    geometry.numbers(kind).zip(pairs).filter_map(move |(slot, pair)| {
        let what = Place { kind, slot }.to_string();
        match pair {
            Ok(pair) if pair.is_whole() => None,
            Ok(_) => Some(Finding::OneCopy { what }),
            Err(flaw) => Some(Finding::Unreadable { what, why: flaw.to_string() }),
        }
    })
}
