//! Sequences as callers use them, on a database in memory.

mod batches;
mod callers;
mod elsewhere;
mod faults;
mod forks;
mod leaps;
mod many;
mod meddled;
mod on_demand;
mod panics;
mod questions;
mod restarts;
mod strict;

use std::collections::HashSet;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tracing::{Event, Level, Metadata, Subscriber, span};

use super::api::builder::SequencesBuilder;
use super::store::memory::MemoryDatabase;
use super::store::{NewSequence, SequenceSettings, Store};
use super::{Demand, Sequence, SequenceName, Sequences};
use crate::clock::{Clock, Reading, SystemClock};
use crate::registry::ClusterId;
use crate::registry::sequences::memory::MemoryRecords;

/// Long enough for any grant on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// A subscriber of the log that does something at each line of a level.
struct AtEach<F>(Level, F);

impl<F: Fn() + 'static> Subscriber for AtEach<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() == self.0 {
            (self.1)();
        }
    }
}

/// A clock that runs as the machine's does, and steps when it is told to.
#[derive(Debug, Default)]
struct SteppedClock {
    wall: AtomicU64,
    boot: AtomicU64,
}

impl SteppedClock {
    /// Time passes.
    fn pass(&self, time: Duration) {
        self.wall.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.boot.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The wall leaps.
    fn leap(&self, time: Duration) {
        self.wall.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for SteppedClock {
    fn read(&self) -> Reading {
        let Reading { wall, boot } = SystemClock.read();
        Reading {
            wall: wall + self.wall.load(Ordering::Relaxed),
            boot: boot + self.boot.load(Ordering::Relaxed),
        }
    }
}

/// A database with one host, and a registry's records.
struct World {
    database: MemoryDatabase,
    records: MemoryRecords,
}

impl World {
    fn new() -> Self {
        Self::with_hosts(1)
    }

    fn with_hosts(hosts: usize) -> Self {
        let records = MemoryRecords::new(ClusterId::from_bytes([9; 16]));
        Self { database: MemoryDatabase::new(hosts), records }
    }

    /// A sequence on host 0, made as by its command.
    fn create(&self, name: &str, settings: SequenceSettings) {
        let new = NewSequence { settings, ..NewSequence::default() };
        self.database.store(0).create(&named(name), &new).unwrap();
    }

    /// Sequences on host 0, with the records as their witness.
    fn builder(&self) -> SequencesBuilder {
        self.without_records().records(Box::new(self.records.clone()))
    }

    fn without_records(&self) -> SequencesBuilder {
        Sequences::builder(Box::new(self.database.store(0))).wait(LONG)
    }

    fn in_folder(&self, folder: &Path) -> SequencesBuilder {
        self.builder().data_dir(folder)
    }
}

fn named(name: &str) -> SequenceName {
    SequenceName::new(name).unwrap()
}

fn sequence(sequences: &Sequences, name: &str) -> Sequence {
    sequences.sequence(&named(name)).unwrap()
}

/// A world with the sequence "a" of the usual settings, and sequences on it.
fn plain() -> (World, Sequences, Sequence) {
    let world = World::new();
    world.create("a", SequenceSettings::default());
    let sequences = world.builder().build().unwrap();
    let a = sequence(&sequences, "a");
    (world, sequences, a)
}

/// Stops, and holds the books against what callers were issued.
fn stop_after(sequences: &Sequences, issued: u64) {
    let figures = sequences.shutdown().figures;
    assert_eq!(figures.moving(), 0, "{figures:?}");
    // Runs of threads that live on are theirs, and void.
    assert_eq!(figures.issued, issued, "{figures:?}");
}

/// Takes ids of what is held, if there are as many.
fn take_held(a: &Sequence, ids: &mut Vec<u64>) {
    let mut out = Vec::new();
    if a.try_runs(Demand::any(50), &mut out).is_ok() {
        ids.extend(out.into_iter().flatten());
    }
}

/// Takes ids of what is held, so many times, with a turn behind each.
fn take_in_turns(times: usize, a: &Sequence, ids: &mut Vec<u64>, mut turn: impl FnMut()) {
    for _ in 0..times {
        take_held(a, ids);
        turn();
    }
}

/// How many ids came twice.
fn twice(ids: &[u64]) -> usize {
    ids.len() - ids.iter().collect::<HashSet<_>>().len()
}

/// That no id is there twice.
fn assert_distinct(ids: impl IntoIterator<Item = u64>) {
    let mut seen = HashSet::new();
    for id in ids {
        assert!(seen.insert(id), "{id} came twice");
    }
}

/// Waits for something that will come.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = crate::clock::boot_ns();
    while !is_so() {
        assert!(crate::clock::boot_ns() - begun < 60_000_000_000, "{what} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn clock() -> Arc<SteppedClock> {
    Arc::default()
}

/// Has the store asked until the name has an id, and returns it.
fn next(a: &Sequence, mut turn: impl FnMut()) -> u64 {
    let mut context = Context::from_waker(Waker::noop());
    let mut call = Box::pin(a.request(Demand::ordered(1), LONG));
    for _ in 0..10 {
        if let Poll::Ready(got) = call.as_mut().poll(&mut context) {
            return got.unwrap()[0].first();
        }
        turn();
    }
    panic!("no id comes");
}
