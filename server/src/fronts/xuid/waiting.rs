//! Requests that wait for ids, and the form in which they want them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::time::Instant;
use xuid_engine::sequence::{Numbers, PendingNumbers, SequenceError, SequenceName};
use xuid_engine::{IdError, Pending, Run};
use xuid_protocol::{ArraySlots, Op, Refusal, RunsWriter, reply_id, seq_id_reply};

use crate::crash_points;
use crate::fronts::buffers::Outbox;
use crate::fronts::conversation::{run_of_ids, run_of_numbers};
use crate::state::id_limit::Charged;

/// Which reply the ids go into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Next { request_id: u64 },
    Array { request_id: u64, count: u32 },
    Runs { request_id: u64, count: u32 },
    SeqNext { request_id: u64 },
    SeqArray { request_id: u64, count: u32 },
    SeqRuns { request_id: u64, count: u32 },
    Json { op: Op, request_id: u64 },
}

impl Shape {
    pub(super) fn request_id(self) -> u64 {
        match self {
            Self::Next { request_id }
            | Self::Array { request_id, .. }
            | Self::Runs { request_id, .. }
            | Self::SeqNext { request_id }
            | Self::SeqArray { request_id, .. }
            | Self::SeqRuns { request_id, .. }
            | Self::Json { request_id, .. } => request_id,
        }
    }

    pub(super) fn op(self) -> Op {
        match self {
            Self::Next { .. } => Op::Next,
            Self::Array { .. } => Op::Array,
            Self::Runs { .. } => Op::Runs,
            Self::SeqNext { .. } => Op::SeqNext,
            Self::SeqArray { .. } => Op::SeqArray,
            Self::SeqRuns { .. } => Op::SeqRuns,
            Self::Json { op, .. } => op,
        }
    }

    /// How many ids its reply holds.
    pub(super) fn ids(self) -> u64 {
        match self {
            Self::Next { .. } | Self::SeqNext { .. } => 1,
            Self::Array { count, .. }
            | Self::Runs { count, .. }
            | Self::SeqArray { count, .. }
            | Self::SeqRuns { count, .. } => u64::from(count),
            Self::Json { .. } => 0,
        }
    }

    /// Copies the ids into the output: from here on they are spent.
    pub(super) fn write(self, runs: impl Iterator<Item = Run>, outbox: &mut Outbox) {
        let runs = runs.inspect(|run| crash_points::issued(run.first().raw(), run.len()));
        match self {
            Self::Next { request_id } => outbox.append(|out| {
                for run in runs {
                    reply_id(out, request_id, run.first().raw());
                }
            }),
            Self::Array { request_id, count } => {
                let len = ArraySlots::frame_len(count);
                outbox.put(len, |frame| {
                    let mut slots = ArraySlots::begin(frame, request_id, count);
                    for run in runs {
                        slots.push(run_of_ids(&run));
                    }
                    slots.finish();
                    len
                });
            }
            Self::Runs { request_id, count } => outbox.append(|out| {
                let mut writer = RunsWriter::begin(out, request_id, count);
                for run in runs {
                    writer.push(run_of_ids(&run));
                }
                writer.finish();
            }),
            Self::SeqNext { .. } | Self::SeqArray { .. } | Self::SeqRuns { .. } | Self::Json { .. } => {
                debug_assert!(false, "ids for {self:?}");
            }
        }
    }

    /// The same of numbers of a sequence.
    pub(super) fn write_numbers(self, numbers: impl Iterator<Item = Numbers>, outbox: &mut Outbox) {
        let runs = numbers.map(|numbers| run_of_numbers(&numbers));
        match self {
            Self::SeqNext { request_id } => outbox.append(|out| {
                for run in runs {
                    out.extend_from_slice(&seq_id_reply(request_id, run.first));
                }
            }),
            Self::SeqArray { request_id, count } => {
                let len = ArraySlots::frame_len(count);
                outbox.put(len, |frame| {
                    let mut slots = ArraySlots::of_sequence(frame, request_id, count);
                    for run in runs {
                        slots.push(run);
                    }
                    slots.finish();
                    len
                });
            }
            Self::SeqRuns { request_id, count } => outbox.append(|out| {
                let mut writer = RunsWriter::of_sequence(out, request_id, count);
                for run in runs {
                    writer.push(run);
                }
                writer.finish();
            }),
            Self::Next { .. } | Self::Array { .. } | Self::Runs { .. } | Self::Json { .. } => {
                debug_assert!(false, "numbers for {self:?}");
            }
        }
    }
}

/// An answer in JSON that the store of the sequences has its part in.
pub(super) type Json = dyn Future<Output = Result<String, Refusal>> + Send;

/// What a request waits for.
enum Awaited {
    Ids(Pending),
    Numbers(SequenceName, PendingNumbers),
    // Never locked: a session is looked at by one thread at a time, and this says so.
    Json(Mutex<Pin<Box<Json>>>),
}

/// What it got.
#[derive(Debug)]
pub(super) enum Ended {
    Ids(Result<Vec<Run>, IdError>),
    Numbers(SequenceName, Result<Vec<Numbers>, SequenceError>),
    Json(Result<String, Refusal>),
}

/// A request that waits.
pub(super) struct Waiting {
    shape: Shape,
    /// What it was charged for the ids that it may not get.
    charged: Charged,
    /// When it was read.
    came: Option<Instant>,
    awaited: Awaited,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// How the waiting ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(super) shape: Shape,
    pub(super) charged: Charged,
    /// When it was read.
    pub(super) came: Option<Instant>,
    /// `None`: the engine panicked.
    pub(super) result: Option<Ended>,
}

impl Waiting {
    pub(super) fn new(shape: Shape, charged: Charged, pending: Pending, came: Option<Instant>) -> Self {
        Self { shape, charged, came, awaited: Awaited::Ids(pending) }
    }

    /// For numbers of a sequence.
    pub(super) fn numbers(
        shape: Shape,
        charged: Charged,
        pending: PendingNumbers,
        name: SequenceName,
        came: Option<Instant>,
    ) -> Self {
        Self { shape, charged, came, awaited: Awaited::Numbers(name, pending) }
    }

    /// For an answer in JSON.
    pub(super) fn json(shape: Shape, charged: Charged, json: Pin<Box<Json>>, came: Option<Instant>) -> Self {
        Self { shape, charged, came, awaited: Awaited::Json(Mutex::new(json)) }
    }

    /// What it was charged.
    pub(super) fn charged(&self) -> Charged {
        self.charged
    }
}

impl Future for Waiting {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        let (shape, charged, came) = (self.shape, self.charged, self.came);
        let polled = catch_unwind(AssertUnwindSafe(|| match &mut self.awaited {
            Awaited::Ids(pending) => Pin::new(pending).poll(context).map(Ended::Ids),
            Awaited::Numbers(name, pending) => {
                Pin::new(pending).poll(context).map(|numbers| Ended::Numbers(name.clone(), numbers))
            }
            Awaited::Json(json) => {
                let json = json.get_mut().unwrap_or_else(PoisonError::into_inner);
                json.as_mut().poll(context).map(Ended::Json)
            }
        }));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Done { shape, charged, came, result: Some(result) }),
            Err(_) => Poll::Ready(Done { shape, charged, came, result: None }),
        }
    }
}
