//! Everything that is measured: this engine, other generators, and what bounds them all.
//!
//! Names are stable: tables and charts are made of them. A subject without a suffix is a burst; `-sustained` brings
//! what the clock allows. What a peer is and how it is used stands in its module; the rules for all of them:
//!
//! - each is used as its own documentation says, with its fastest documented settings;
//! - a burst is the way it goes fastest without waiting for the clock: more sequence bits where its layout can be
//!   chosen, several instances in turn where it can't;
//! - sustained is 12 bits of sequence a millisecond, as this engine has it, or the nearest the crate offers;
//! - generators of one thread each get a worker number of their own.

mod calls;
mod clock;
mod ferroid;
mod idgenerator;
mod limits;
mod ours;
mod peer;
mod rs_snowflake;
mod seed;
mod sequences;
mod snowdon;
mod snowflake;
mod snowflaked;
mod uuid;
mod wide;

use crate::subject::Subject;

pub use seed::SeedRing;
pub(crate) use sequences::TAKE;

/// All subjects, ours first.
#[must_use]
pub fn all() -> Vec<Subject> {
    let mut all = ours::subjects();
    all.extend(limits::subjects());
    all.extend(seed::subjects());
    all.extend(snowflake::subjects());
    all.extend(ferroid::subjects());
    all.extend(idgenerator::subjects());
    all.extend(rs_snowflake::subjects());
    all.extend(snowflaked::subjects());
    all.extend(snowdon::subjects());
    all.extend(uuid::subjects());
    all
}

/// Those of named sequences, ours first. They stand apart: their ids are dense numbers, not snowflakes.
#[must_use]
pub fn of_sequences() -> Vec<Subject> {
    sequences::subjects()
}

/// The subject of this name.
#[must_use]
pub fn named(name: &str) -> Option<Subject> {
    all().into_iter().chain(of_sequences()).find(|subject| subject.name == name)
}

#[cfg(test)]
mod tests;
