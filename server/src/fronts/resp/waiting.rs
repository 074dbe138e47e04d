//! Commands that wait for ids, or for the store.

use xuid_engine::sequence::{Numbers, SequenceError, SequenceName};
use xuid_engine::{IdError, Run};

use super::command::Shape;
use super::keys::Answer;
use crate::fronts::waiting;

/// How the waiting ended.
pub(crate) type Done = waiting::Done<Ended>;

/// What a command waited for.
#[derive(Debug)]
pub(crate) enum Ended {
    Ids(Shape, Result<Vec<Run>, IdError>),
    Numbers(Shape, SequenceName, Result<Vec<Numbers>, SequenceError>),
    Answer(Answer),
}
