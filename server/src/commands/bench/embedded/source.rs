//! What a thread of an embedded load calls: an engine, or a named sequence.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::registry::local::{CreateOptions, LocalRegistry};
use xuid_engine::sequence::store::NewSequence;
use xuid_engine::sequence::store::registry::RegistryStore;
use xuid_engine::sequence::{Demand, Sequence, SequenceError, SequenceName, Sequences};
use xuid_engine::{Engine, Id, IdError, Layout};
use xuid_load::{Ask, Shape};
use xuid_protocol::Order;

/// Makes calls of one kind.
pub(super) trait Source: Clone + Send + 'static {
    /// One id of a call for one.
    fn next(&mut self) -> Result<u64, Refusal>;

    /// The ids of one call, shown as neighbours: the first, and how many.
    fn call(&mut self, see: impl FnMut(u64, u32)) -> Result<(), Refusal>;
}

/// Why a call brought no id.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refusal {
    Id(IdError),
    Sequence(SequenceError),
}

impl Refusal {
    /// The name of its kind, as the code spells it.
    pub(super) fn kind(self) -> String {
        match self {
            Self::Id(error) => format!("{:?}", error.kind()),
            Self::Sequence(error) => format!("{:?}", error.kind()),
        }
    }

    pub(super) fn is_retryable(self) -> bool {
        match self {
            Self::Id(error) => error.is_retryable(),
            Self::Sequence(error) => error.is_retryable(),
        }
    }

    pub(super) fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Id(error) => error.retry_after(),
            Self::Sequence(error) => error.retry_after(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(error) => error.fmt(f),
            Self::Sequence(error) => error.fmt(f),
        }
    }
}

/// An engine, and memory for the ids of a call.
#[derive(Clone)]
pub(super) struct OfEngine {
    engine: Engine,
    ask: Ask,
    ids: Vec<Id>,
}

impl OfEngine {
    pub(super) fn new(engine: Engine, ask: Ask) -> Self {
        let ids = vec![Id::default(); if ask.shape == Shape::Runs { 0 } else { ask.count as usize }];
        Self { engine, ask, ids }
    }
}

impl Source for OfEngine {
    #[inline]
    fn next(&mut self) -> Result<u64, Refusal> {
        self.engine.next_id().map(Id::raw).map_err(Refusal::Id)
    }

    fn call(&mut self, mut see: impl FnMut(u64, u32)) -> Result<(), Refusal> {
        let Self { engine, ask, ids } = self;
        match ask.shape {
            Shape::Next if ask.order == Order::Any => see(self.next()?, 1),
            Shape::Next | Shape::Array => {
                engine.fill(ids, ask.order).map_err(Refusal::Id)?;
                for id in ids.iter() {
                    see(id.raw(), 1);
                }
            }
            Shape::Runs => {
                for run in engine.runs(ask.count, ask.order).map_err(Refusal::Id)? {
                    if run.stride() == 1 {
                        see(run.first().raw(), run.len());
                    } else {
                        run.into_iter().for_each(|id| see(id.raw(), 1));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A sequence with an increment of 1.
#[derive(Clone)]
pub(super) struct OfSequence {
    sequence: Sequence,
    ask: Ask,
}

impl OfSequence {
    /// Makes the sequence in a registry in this folder. The sequences go on while the first part lives.
    pub(super) fn make(folder: &Path, name: &SequenceName, ask: Ask) -> Result<(Sequences, Self)> {
        let options = CreateOptions { layout: Layout::default(), floor: 0, workers: 1 };
        LocalRegistry::open_or_create(folder, &options).context("failed to make the registry")?;
        let records = LocalSequences::open_or_create(folder, None).context("failed to make its sequences")?;
        let store = Box::new(RegistryStore::new(Box::new(records)));
        let all = Sequences::builder(store).wait(ask.wait).build()?;
        all.create(name, NewSequence::default()).wait().context("failed to make the sequence")?;
        let sequence = all.sequence(name)?;
        Ok((all, Self { sequence, ask }))
    }
}

impl Source for OfSequence {
    #[inline]
    fn next(&mut self) -> Result<u64, Refusal> {
        let next = match self.ask.order {
            Order::Any => self.sequence.next_id(),
            _ => self.sequence.next_ordered(),
        };
        next.map_err(Refusal::Sequence)
    }

    fn call(&mut self, mut see: impl FnMut(u64, u32)) -> Result<(), Refusal> {
        if self.ask.shape == Shape::Next {
            see(self.next()?, 1);
            return Ok(());
        }
        let demand = match self.ask.order {
            Order::Any => Demand::any(self.ask.count),
            _ => Demand::ordered(self.ask.count),
        };
        for numbers in self.sequence.runs(demand).map_err(Refusal::Sequence)? {
            see(numbers.first(), numbers.len());
        }
        Ok(())
    }
}
