//! Requests that wait for ids, or for the store.

use tokio::time::Instant;
use xuid_engine::sequence::{Numbers, SequenceError, SequenceName};
use xuid_engine::{IdError, Run};
use xuid_protocol::{Op, Refusal};

use super::ask::Got;
use crate::state::id_limit::Charged;

/// What a request waited for.
#[derive(Debug)]
pub(super) enum Ended {
    Ids(Result<Vec<Run>, IdError>),
    Numbers(SequenceName, Result<Vec<Numbers>, SequenceError>),
    /// How long the segments of a sequence are that this process has not used yet.
    Step(SequenceName, Result<u64, Refusal>),
    Answer(Result<Got, Refusal>),
}

/// How the waiting ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(super) op: Op,
    pub(super) charged: Charged,
    pub(super) came: Option<Instant>,
    /// `None`: the engine panicked.
    pub(super) ended: Option<Ended>,
}
