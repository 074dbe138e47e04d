//! What the engine is held to, measured: each row is a ratio inside one run, of medians, with a baseline beside it.
//!
//! Burst figures are of land declared unused; a subject that is refused or runs out of it makes its rows void.

pub mod ablation;
mod bulk;
mod field;
mod hot;
mod idle;
mod land;
mod sequences;
mod served;
mod spill;
mod steady;

use crate::table::Group;

/// All groups, in the order of the table.
pub const GROUPS: [Group; 9] = [
    // First: some peers leave threads of their own behind, which tick.
    ("idle", idle::rows),
    ("hot", hot::rows),
    ("steady", steady::rows),
    ("bulk", bulk::rows),
    ("sustained", land::sustained),
    ("burst", land::burst),
    ("spill", spill::rows),
    ("tcp", served::tcp),
    ("client", served::client),
];

/// The groups of named sequences that need nothing but this process.
pub const SEQUENCES: [Group; 2] = [("hot", sequences::hot), ("cold", sequences::cold)];

pub use sequences::check as check_sequences;
