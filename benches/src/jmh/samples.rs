//! Small subjects and results for the tests of the runner.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::entry::{Entry, result};
use super::host::Raw;
use super::plan::{ClockCost, Figure, Iterations, Mode, Plan};
use crate::subject::{Fixture, Kind, PerThread, SharedGenerator, Subject, Supply, Worker, single};

struct Objects;

impl Fixture for Objects {
    fn worker(&self) -> Box<dyn Worker + '_> {
        let next = Cell::new(0u64);
        single(move || next.replace(next.get() + 1))
    }

    fn objection(&self) -> Option<String> {
        Some("the land ran out".to_owned())
    }
}

const fn subject(
    name: &'static str,
    kind: Kind,
    supply: Supply,
    set_up: fn() -> Box<dyn Fixture>,
) -> Subject {
    Subject { name, about: "for tests", kind, supply, ids_per_call: 1, set_up }
}

fn shared() -> Box<dyn Fixture> {
    SharedGenerator::new(AtomicU64::new(0), |counter| counter.fetch_add(1, Ordering::Relaxed))
}

fn alone() -> Box<dyn Fixture> {
    PerThread::new(|| {
        let next = Cell::new(0u64);
        move || next.replace(next.get() + 1)
    })
}

fn panicking() -> Box<dyn Fixture> {
    PerThread::new(|| || panic!("out of patience"))
}

fn stuck() -> Box<dyn Fixture> {
    PerThread::new(|| {
        || loop {
            std::thread::park();
        }
    })
}

/// One of each sort.
pub(super) const SUBJECTS: [Subject; 7] = [
    subject("xuid/next_id", Kind::Ours, Supply::Burst, shared),
    subject("xuid/next_id_paced", Kind::Ours, Supply::Sustained, shared),
    subject("xuid/repeats", Kind::Ours, Supply::Burst, alone),
    subject("limit/alone", Kind::Limit, Supply::Burst, alone),
    subject("peer/objects", Kind::Peer, Supply::Burst, || Box::new(Objects)),
    subject("peer/panics", Kind::Peer, Supply::Burst, panicking),
    subject("peer/stuck", Kind::Peer, Supply::Burst, stuck),
];

/// A plan of some milliseconds: one iteration of warm-up, two that count.
pub(super) fn plan(name: &str, threads: usize, mode: Mode) -> Plan {
    Plan {
        subject: name.to_owned(),
        threads,
        mode,
        batch: 1,
        warmup: Iterations { count: 1, time: Duration::from_millis(2) },
        measurement: Iterations { count: 2, time: Duration::from_millis(5) },
        pin: false,
    }
}

/// The result of two forks that measured these figures, as it is written.
pub(super) fn written(subject: &Subject, threads: usize, figures: [Vec<Figure>; 2]) -> Value {
    let mode = match figures[0][0] {
        Figure::Rate(_) => Mode::Throughput,
        Figure::Times(_) => Mode::Sample,
    };
    let raw = |iterations| Raw {
        checked: 1_000,
        iterations,
        clock: (mode == Mode::Sample).then_some(ClockCost { mean_ns: 21.5, p50_ns: 20.0 }),
        ..Raw::default()
    };
    result(&plan(subject.name, threads, mode), subject, &figures.map(raw))
}

/// The same as it is read.
pub(super) fn entry(subject: &Subject, threads: usize, figures: [Vec<Figure>; 2]) -> Entry {
    Entry::try_from(&written(subject, threads, figures)).unwrap()
}

/// A result of that score.
pub(super) fn scored(name: &'static str, kind: Kind, supply: Supply, threads: usize, score: f64) -> Entry {
    let subject = subject(name, kind, supply, shared);
    let rates = || vec![Figure::Rate(score * 0.99), Figure::Rate(score * 1.01)];
    entry(&subject, threads, [rates(), rates()])
}
