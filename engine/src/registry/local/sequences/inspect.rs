//! Looking at the records of names without using them: nothing is written, and no process waits for it.

use std::path::{Path, PathBuf};

use crate::registry::local::disk::{Disk, FileDisk};
use crate::registry::local::error::LocalError;
use crate::registry::local::format::{Kind, Pair};
use crate::registry::local::header::FileKind;
use crate::registry::local::hints::{self, FolderHints};
use crate::registry::local::inspect::{Finding, went_back};
use crate::registry::local::records::{pairs, read_header};
use crate::registry::local::{genesis, opening};
use crate::registry::printable;
use crate::registry::sequences::SequenceRecord;

/// What the file of a folder says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SequencesInspection {
    /// The file.
    pub path: PathBuf,
    /// The records, in the order in which they were made.
    pub records: Vec<InspectedSequence>,
    /// No name can be made since a fence.
    pub is_closed: bool,
    /// Whatever is not as it should be.
    pub findings: Vec<Finding>,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedSequence {
    /// Whose, as text that can be shown.
    pub name: String,
    /// What it says.
    pub record: SequenceRecord,
    /// A fence closed it.
    pub is_closed: bool,
    /// A person opened it after that, and no grant was shown to it since: it is a witness's, and what it saw is not known.
    pub was_opened: bool,
}

impl SequencesInspection {
    /// Records that cannot be believed in any copy: of which names they are is not known.
    pub fn lost(&self) -> impl Iterator<Item = &Finding> {
        let is_lost =
            |finding: &&Finding| matches!(finding, Finding::Unreadable { .. } | Finding::NameLost { .. });
        self.findings.iter().filter(is_lost)
    }
}

/// How often the records are read while they look wrong: a process that uses them may be in the middle of a change.
const LOOKS: u32 = 3;

/// Looks at the file of sequences of a folder; `None` if there is none.
///
/// # Errors
/// If its header cannot be believed.
pub fn inspect(folder: &Path) -> Result<Option<SequencesInspection>, LocalError> {
    let path = genesis::path_of(folder, FileKind::Sequences);
    let disk = match FileDisk::open_to_read(&path).map_err(opening(&path)) {
        Err(LocalError::Absent { .. }) => return Ok(None),
        opened => opened?,
    };
    let pair = read_header(&disk, FileKind::Sequences, &path)?;
    let mut findings = Vec::new();
    if pair.sound != [true, true] {
        findings.push(Finding::OneCopy { what: "the header of the sequences".into() });
    }
    let (recorded, found) =
        (pair.header.identity, disk.identity().map_err(LocalError::io("identify", &path))?);
    if !recorded.same_file(&found) {
        findings.push(Finding::Copied { recorded, found });
    }
    // Before the records, which a process may change meanwhile.
    let table = pair.header.table();
    let known = hints::known(&mut FolderHints::of(folder, FileKind::Sequences), table.widest());
    let mut looked = Vec::new();
    for _ in 0..LOOKS {
        looked = pairs(&disk, pair.header.table(), Kind::Sequence).collect::<Vec<_>>();
        if looked.iter().all(|(_, pair)| pair.as_ref().is_ok_and(Pair::is_whole)) {
            break;
        }
    }
    let has_place = |place| table.geometry.position(place).is_some();
    findings.extend(went_back(&known, looked.iter().map(|(_, pair)| pair), has_place));
    let header = pair.header.sequences;
    let mut records = Vec::new();
    for (place, pair) in looked {
        let what = place.to_string();
        match &pair {
            Ok(pair) if pair.is_whole() => {}
            Ok(_) => findings.push(Finding::OneCopy { what: what.clone() }),
            Err(flaw) => findings.push(Finding::Unreadable { what: what.clone(), why: flaw.to_string() }),
        }
        let Ok(Pair { row, .. }) = pair else { continue };
        let Some(named) = &row.named else { continue };
        match row.sequence_record() {
            None => findings.push(Finding::NameLost { what }),
            Some(record) => records.push(InspectedSequence {
                name: printable(&named.name),
                was_opened: record.was_opened(),
                record,
                is_closed: header.is_none_or(|header| header.era != named.era),
            }),
        }
    }
    Ok(Some(SequencesInspection {
        path,
        records,
        is_closed: header.is_none_or(|header| header.is_closed),
        findings,
    }))
}
