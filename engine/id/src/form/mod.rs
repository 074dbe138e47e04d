//! Ids as text: nine [`Form`]s, each to write and to read, without allocation.
//!
//! Nothing here is on the path of an id that is issued: commands call it, and programs that show ids or read them.
//!
//! # Invariants
//! - F1 for each form, `parse(text(id)) == id`;
//! - F2 for each form with a [`width`](Form::width), texts compare byte by byte as their ids do;
//! - F3 whatever is read is an id below 2^63 or an error that names the first thing wrong; no text panics.

mod digits;
mod error;
mod names;
mod prefix;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use error::ParseIdError;
pub use names::{Form, UnknownForm};
pub use prefix::{PrefixError, Prefixed, PrefixedText};
pub use write::IdText;
