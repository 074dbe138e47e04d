//! What fences and adoptions report, of either registry.

use crate::registry::{ClusterId, Genesis};

/// What a fence did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fenced {
    /// What the registry is.
    pub genesis: Genesis,
    /// Up to which tick every worker is reserved now.
    pub reserved_until: u64,
    /// Spills that can never be read again.
    pub marks: u32,
    /// Records that were unreadable and are not any more.
    pub repaired: u32,
    /// Records that were absent and were made again; none in a folder, where a fence writes the whole file anew.
    pub remade: u32,
    /// When the newest change was made that the records and the folder show, in Unix ms, by the clock of its process, or by the
    /// ensemble's; `None` where no record says so.
    pub newest_change_ms: Option<u64>,
    /// By how many ms the ensemble's clock, by which it was fenced, is ahead of this host's; `None` for a folder.
    pub ensemble_ahead_ms: Option<i64>,
    /// Names whose records are closed now, until a person says how far each may have come; those of leftovers are counted, too.
    pub sequences: u32,
    /// Records of names of which nothing tells whose they were.
    pub lost_sequences: u32,
}

/// What an adoption did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    /// The cluster that the registry belonged to.
    pub before: ClusterId,
    /// The cluster that it is now: the same if there was nothing to adopt.
    pub cluster: ClusterId,
    /// The fence that came with it; `None` if there was nothing to adopt, which only a folder can tell.
    pub fenced: Option<Fenced>,
}
