//! Requests that wait for ids, and the form in which they want them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Instant;
use xuid_engine::{IdError, Pending, Run};
use xuid_protocol::{ArraySlots, Op, RunsWriter, reply_id};

use crate::crash_points;
use crate::fronts::buffers::Outbox;
use crate::state::id_limit::Charged;

/// Which reply the ids go into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Next { request_id: u64 },
    Array { request_id: u64, count: u32 },
    Runs { request_id: u64, count: u32 },
}

impl Shape {
    pub(super) fn request_id(self) -> u64 {
        match self {
            Self::Next { request_id } | Self::Array { request_id, .. } | Self::Runs { request_id, .. } => {
                request_id
            }
        }
    }

    pub(super) fn op(self) -> Op {
        match self {
            Self::Next { .. } => Op::Next,
            Self::Array { .. } => Op::Array,
            Self::Runs { .. } => Op::Runs,
        }
    }

    /// How many ids its reply holds.
    pub(super) fn ids(self) -> u64 {
        match self {
            Self::Next { .. } => 1,
            Self::Array { count, .. } | Self::Runs { count, .. } => u64::from(count),
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
                        slots.run(run.first().raw(), run.len());
                    }
                    slots.finish();
                    len
                });
            }
            Self::Runs { request_id, count } => outbox.append(|out| {
                let mut writer = RunsWriter::begin(out, request_id, count);
                for run in runs {
                    writer.run(run.first().raw(), run.len());
                }
                writer.finish();
            }),
        }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    shape: Shape,
    /// What it was charged for the ids that it may not get.
    charged: Charged,
    /// When it was read.
    came: Option<Instant>,
    pending: Pending,
}

/// How the waiting ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(super) shape: Shape,
    pub(super) charged: Charged,
    /// When it was read.
    pub(super) came: Option<Instant>,
    /// `None`: the engine panicked.
    pub(super) result: Option<Result<Vec<Run>, IdError>>,
}

impl Waiting {
    pub(super) fn new(shape: Shape, charged: Charged, pending: Pending, came: Option<Instant>) -> Self {
        Self { shape, charged, came, pending }
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
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.pending).poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Done { shape, charged, came, result: Some(result) }),
            Err(_) => Poll::Ready(Done { shape, charged, came, result: None }),
        }
    }
}
