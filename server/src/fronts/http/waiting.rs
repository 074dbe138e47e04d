//! Requests that wait for ids, or for the store.

use xuid_engine::sequence::{Numbers, SequenceError, SequenceName};
use xuid_engine::{IdError, Run};
use xuid_protocol::Refusal;

use super::ask::Got;
use crate::fronts::waiting;

/// How the waiting ended.
pub(crate) type Done = waiting::Done<Ended>;

/// What a request waited for.
#[derive(Debug)]
pub(crate) enum Ended {
    Ids(Result<Vec<Run>, IdError>),
    Numbers(SequenceName, Result<Vec<Numbers>, SequenceError>),
    /// How long the segments of a sequence are that this process has not used yet.
    Step(SequenceName, Result<u64, Refusal>),
    Answer(Result<Got, Refusal>),
}
