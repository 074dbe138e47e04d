//! Grants of extents: as they are asked for, and as they are remembered.

use std::ops::Range;

use xuid_spill::SpillId;

use crate::registry::MarkRecord;

/// A move of a spill's mark that is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantRequest {
    pub(crate) spill: SpillId,
    pub(crate) from: u64,
    pub(crate) upto: u64,
    /// What it brings is dropped: it only moves the mark.
    pub(crate) gives_up: bool,
    /// It is not in the file any more.
    pub(crate) is_erased: bool,
}

/// A grant of which it is not known whether it was stored.
pub(super) struct Grant {
    pub(super) spill: SpillId,
    pub(super) extents: Range<u64>,
    pub(super) record: MarkRecord,
}
