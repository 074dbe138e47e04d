//! What a clean stop leaves for the next life: the ids that names held, in a file of the data folder, `sequences.rest-K`.
//!
//! A copy of the file can be put back at any time, so the file says nothing about whether it was used. The registry does:
//! a record with the file's uuid keeps the first serial that was not claimed. A claim raises it by compare-and-set before
//! an id of the file is used (Q6).
//!
//! # Invariants
//! - I1 a batch has a serial that is not below its record's value when it is written, and the record is there before the
//!   file is: an absent record means that the registry is another one, and the batch is not used;
//! - I2 one process has a file: it holds the lock of the file with that name from the start to the end.

pub(crate) mod claim;
pub(crate) mod file;
pub(crate) mod format;
