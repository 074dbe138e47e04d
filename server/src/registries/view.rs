//! What a registry says, wherever it is.

use xuid_engine::registry::local::Finding;
use xuid_engine::registry::{Genesis, MarkRecord, WorkerEntry, local};
use xuid_spill::SpillId;

/// What a registry says.
pub(crate) struct View {
    /// Where it is: a file, or a URL.
    pub(crate) place: String,
    pub(crate) genesis: Genesis,
    /// Whether anybody may use it before a fence.
    pub(crate) open: bool,
    /// Whether it says all that was granted, as far as that shows: an old content that was put back does not.
    pub(crate) is_current: bool,
    /// All workers, in order.
    pub(crate) workers: Vec<WorkerEntry>,
    pub(crate) marks: Vec<(SpillId, MarkRecord)>,
    /// Whatever is not as it should be.
    pub(crate) findings: Vec<String>,
    /// Records that cannot be read, or not be believed, and are among the findings.
    pub(crate) unreadable: usize,
}

/// A registry was created.
pub(crate) struct Created {
    pub(crate) genesis: Genesis,
    /// There seems to have been one before, so it serves later.
    pub(crate) again: bool,
    /// By how many ms an ensemble's clock is ahead of this host's.
    pub(crate) ensemble_ahead_ms: Option<i64>,
}

impl From<local::Inspection> for View {
    fn from(found: local::Inspection) -> Self {
        let is_old = |finding: &Finding| matches!(finding, Finding::Restored { .. } | Finding::Copied { .. });
        let is_unreadable = |finding: &&Finding| matches!(finding, Finding::Unreadable { .. });
        Self {
            unreadable: found.findings.iter().filter(is_unreadable).count(),
            place: found.path.display().to_string(),
            genesis: found.genesis,
            open: true,
            is_current: !found.findings.iter().any(is_old),
            workers: found.workers,
            marks: found.marks,
            findings: found.findings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl View {
    /// Workers that somebody seems to be alive with.
    pub(crate) fn live(&self) -> usize {
        self.workers.iter().filter(|entry| entry.live.is_some()).count()
    }

    /// Workers that another generator has.
    pub(crate) fn closed(&self) -> usize {
        let is_closed =
            |entry: &&WorkerEntry| entry.record.as_ref().is_ok_and(|found| found.record.is_closed());
        self.workers.iter().filter(is_closed).count()
    }
}
