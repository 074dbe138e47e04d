//! Named sequences: dense ascending ids per name, 1, 2, 3 .., granted in segments by a store.
//!
//! ```text
//!   name, error   what a sequence may be called, and why a call got no id
//!   store/        the port to what keeps the marks, and its adaptors
//! ```

pub(crate) mod error;
pub(crate) mod name;
pub mod store;

pub use error::{ControlError, SequenceError, SequenceErrorKind};
pub use name::{MOST_NAME_BYTES, NameError, SequenceName};

/// Ids that one call may ask for.
pub const MOST_IDS: u32 = 131_072;
