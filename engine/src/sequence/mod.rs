//! Named sequences: dense ascending ids per name, 1, 2, 3 .., granted in segments by a store.
//!
//! ```text
//!   api/                what a caller sees: Sequences, Sequence, SequenceHandle, waiting as a future
//!   reply               an answer of the store, as a future
//!   figures             what was done, counted
//!   settings, pattern   what can be configured
//!   store/              the port to what keeps the marks, and its adaptors
//!   numbers             what a call asks for and gets
//!   name, error         what a sequence may be called, and why a call got no id
//! ```

mod api;
mod error;
mod figures;
mod name;
mod numbers;
mod pattern;
mod reply;
mod settings;
pub mod store;

pub use api::builder::SequencesBuilder;
pub use api::handle::SequenceHandle;
pub use api::pending::PendingNumbers;
pub use api::sequence::Sequence;
pub use api::sequences::Sequences;
pub use error::{ControlError, SequenceError, SequenceErrorKind};
pub use figures::{
    GrantCounts, NameFigures, NameState, SequenceFigures, SequenceInfo, SequenceWaste, SequencesStats,
    StoreStatus, Trouble,
};
pub use name::{MOST_NAME_BYTES, NameError, SequenceName};
pub use numbers::{Demand, MOST_IDS, Numbers, NumbersIter};
pub use pattern::NamePattern;
pub use reply::Reply;
pub use settings::BuildSequencesError;
