//! Replies with memory of their own, checked against what was asked.

use std::sync::Arc;

use xuid_protocol::{Decoded, Op, Reply, Request, Run};

use crate::error::{Breach, ClientError};

/// A successful reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Id(u64),
    Ids(Vec<u64>),
    Runs(Vec<Run>),
    Decoded(Decoded),
    Json(String),
    Echo(Vec<u8>),
    Left,
}

pub(crate) type Outcome = Result<Answer, ClientError>;

/// What a reply must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) op: Op,
    /// Ids asked for; 0 if the op asks for none by number.
    pub(crate) count: u32,
    /// They are to be one run.
    pub(crate) contiguous: bool,
}

impl Expected {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let (count, contiguous) = match request {
            Request::Array(bulk) | Request::Runs(bulk) => (bulk.count, false),
            Request::SeqArray(asked) => (asked.bulk.count, false),
            Request::SeqRuns(asked) => (asked.bulk.count, asked.contiguous),
            _ => (0, false),
        };
        Self { op: request.op(), count, contiguous }
    }
}

/// What the waiter is told; the error is a breach, which ends the connection.
pub(crate) fn check(
    server: &Arc<str>,
    expected: Expected,
    op: u8,
    reply: &Reply<'_>,
) -> Result<Outcome, Breach> {
    if op != expected.op.code() {
        return Err(Breach::OtherOp { asked: expected.op, answered: op });
    }
    let counted = |answered: u32| {
        let asked = expected.count;
        if answered == asked { Ok(()) } else { Err(Breach::Count { asked, answered }) }
    };
    Ok(Ok(match reply {
        Reply::Error(error) => return Ok(Err(ClientError::refused(server, error))),
        Reply::Next(id) => Answer::Id(*id),
        Reply::Array(ids) => {
            counted(ids.len() as u32)?;
            Answer::Ids(ids.iter().collect())
        }
        Reply::Runs(runs) => {
            counted(runs.ids())?;
            if expected.contiguous && runs.len() != 1 {
                return Err(Breach::Seams(runs.len() as u32));
            }
            Answer::Runs(runs.iter().collect())
        }
        Reply::Decode(decoded) => Answer::Decoded(*decoded),
        Reply::Info(json) | Reply::Stats(json) | Reply::Provenance(json) | Reply::Sequence(json) => {
            Answer::Json((*json).to_owned())
        }
        Reply::Ping(bytes) => Answer::Echo(bytes.to_vec()),
        Reply::Bye => Answer::Left,
        Reply::Hello(_) | Reply::GoAway => return Err(Breach::OtherOp { asked: expected.op, answered: op }),
    }))
}
