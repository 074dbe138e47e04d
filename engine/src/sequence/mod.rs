//! Named sequences: dense ascending ids per name, 1, 2, 3 .., granted in segments by a store.
//!
//! ```text
//!   api/                what a caller sees: Sequences, Sequence, SequenceHandle, waiting as a future
//!   background/         two threads: the teller asks the store and its witness; the keeper keeps time
//!   names/              a name's state under one lock, what threads hold of names, the table of all names
//!   leftovers/          what a clean stop leaves for the next life, in a file that is claimed in the registry
//!   chain/              segments, the line of calls that wait, and how much is asked for
//!   figures             what was done, counted
//!   settings, pattern   what can be configured
//!   store/              the port to what keeps the marks, and its adaptors
//!   numbers             what a call asks for and gets
//!   name, error         what a sequence may be called, and why a call got no id
//! ```

mod api;
pub(crate) mod background;
mod chain;
mod error;
mod figures;
pub(crate) mod leftovers;
mod name;
pub(crate) mod names;
mod numbers;
mod pattern;
mod settings;
pub mod store;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use api::builder::SequencesBuilder;
pub use api::handle::SequenceHandle;
pub use api::pending::PendingNumbers;
pub use api::sequence::Sequence;
pub use api::sequences::Sequences;
pub use background::identity::{fence_known_in, unseen_in};
pub use error::{ControlError, SequenceError, SequenceErrorKind};
pub use figures::{
    GrantCounts, NameFigures, NameState, SequenceFigures, SequenceInfo, SequenceWaste, SequencesStats,
    StoreStatus, Trouble,
};
pub use leftovers::file::marks_left_in;
pub use name::{MOST_NAME_BYTES, NameError, SequenceName};
pub use names::reply::Reply;
pub use names::untold::UntoldNames;
pub use numbers::{Demand, MOST_IDS, Numbers, NumbersIter};
pub use pattern::NamePattern;
pub use settings::BuildSequencesError;
