//! Commands that wait for ids, or for the store.

use tokio::time::Instant;
use xuid_engine::sequence::{Numbers, SequenceError, SequenceName};
use xuid_engine::{IdError, Run};
use xuid_protocol::Op;

use super::command::Shape;
use super::keys::Answer;
use crate::state::id_limit::Charged;

/// What a command waited for.
#[derive(Debug)]
pub(super) enum Ended {
    Ids(Shape, Result<Vec<Run>, IdError>),
    Numbers(Shape, SequenceName, Result<Vec<Numbers>, SequenceError>),
    Answer(Answer),
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
