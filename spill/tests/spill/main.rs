//! The log against models, torn writes, damage, copies, and real files.
#![expect(clippy::unwrap_used, reason = "the helpers of a test panic like the test")]

mod bodies;
mod damage;
mod erase;
mod file;
mod golden;
mod model;
mod once;
mod power_cut;
mod refusal;
mod rubbish;
mod support;
