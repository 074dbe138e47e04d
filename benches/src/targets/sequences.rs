//! Named sequences in this process: each call beside the engine's or beside what bounds it, and how soon a name is at
//! full speed.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use xuid_engine::sequence::store::memory::{MemoryDatabase, MemoryStore};
use xuid_engine::sequence::store::{
    Alteration, Ask, Identity, NewSequence, Outcome, Row as StoreRow, Store, StoreError,
};
use xuid_engine::sequence::{Sequence, SequenceName, Sequences};

use super::field::Field;
use crate::measure::{checked, now, together};
use crate::peers::{TAKE, of_sequences};
use crate::rows::{Row, SHORT_ROUNDS, at_least, at_most, figure, median, ratio_in_turn};
use crate::subject::{Fixture, Worker, consume, repeat};
use crate::timing::Interval;

const ENGINE: [&str; 2] = ["xuid/next_id", "xuid/handle"];
const SEQUENCE: [&str; 2] = ["xuid/sequence-next_id", "xuid/sequence-handle"];
const ORDERED: &str = "xuid/sequence-ordered";
const ADD: &str = "limit/fetch_add";
const TAKES: &str = "xuid/sequence-take-1000";
const BUFFER: &str = "leaf/double-buffer";

/// What is checked before anything is measured: no call brings an id twice.
///
/// # Errors
/// One did.
pub fn check() -> Result<()> {
    of_sequences().iter().try_for_each(|subject| checked(subject.name).map(drop))
}

/// The rows of single calls and of neighbours.
pub(super) fn hot() -> Result<Vec<Row>> {
    let mut names = vec![ORDERED, ADD, TAKES, BUFFER];
    names.extend(ENGINE.into_iter().chain(SEQUENCE));
    let mut field = Field::new(&names)?;
    for _ in 0..SHORT_ROUNDS {
        field.round(1);
        field.round(2);
    }
    let mut rows = Vec::new();
    for threads in [1, 2] {
        let of = |name| field.figures(name, threads);
        let path = |name: &str| format!("{name}, {threads} thread{}", if threads == 1 { "" } else { "s" });
        let buffer = format!("{BUFFER} {}", figure(of(BUFFER)?, "M/s"));
        for (ours, engine) in SEQUENCE.into_iter().zip(ENGINE) {
            let text =
                format!("{}, {engine} {}; {buffer}", figure(of(ours)?, "M/s"), figure(of(engine)?, "M/s"));
            let ratio = ratio_in_turn(of(ours)?, of(engine)?);
            rows.push(at_least(&path(ours), text, ratio, 0.8, &format!("x {engine}")));
        }
        let text = format!("{}, {ADD} {}; {buffer}", figure(of(ORDERED)?, "M/s"), figure(of(ADD)?, "M/s"));
        let ratio = ratio_in_turn(of(ORDERED)?, of(ADD)?);
        rows.push(at_least(&path(ORDERED), text, ratio, 0.7, &format!("x {ADD}")));
        let takes: Vec<f64> = of(TAKES)?.iter().map(|ids| ids / f64::from(TAKE)).collect();
        let text = figure(&takes, "M takes/s");
        rows.push(at_least(&path(TAKES), text, median(&takes), 40.0, "M takes/s"));
    }
    Ok(rows)
}

/// How long a grant of the slow store takes.
const GRANT: Duration = Duration::from_millis(1);

/// A name is to be at full speed by then ...
const COLD: Duration = Duration::from_millis(50);
/// ... which is measured from then on for so long ...
const SPAN: Duration = Duration::from_millis(100);
/// ... and compared with what it does later. Both beside the engine in the same moments: the machine's speed changes
/// meanwhile by more than is looked for.
const WARM: Duration = Duration::from_millis(250);

/// Beginnings of which the middle is told: one per cent is less than one of them differs from the next.
const BEGINNINGS: usize = 91;

/// Calls between two looks at the clock: some microseconds.
const BATCH: u64 = 4_096;

/// Batches of the name for one of the engine's, which tells how fast the processor is in that moment.
const TURNS: u32 = 4;

/// A batch that takes longer waited for the store, or for the processor.
const STALL: Duration = Duration::from_micros(500);

/// What one thread did.
#[derive(Debug, Default, Clone, Copy)]
struct Begun {
    /// In the span after [`COLD`], and in one after [`WARM`].
    early: Pace,
    late: Pace,
    /// The end of the last batch before [`WARM`] that stalled.
    stalled: Duration,
}

/// How fast a name was in a span, and the engine beside it.
#[derive(Debug, Default, Clone, Copy)]
struct Pace {
    name: Batches,
    engine: Batches,
}

/// Batches, and how long they took.
#[derive(Debug, Default, Clone, Copy)]
struct Batches {
    count: u32,
    taken: Duration,
}

impl Batches {
    fn add(&mut self, taken: Duration) {
        self.count += 1;
        self.taken += taken;
    }

    /// M/s.
    fn rate(self) -> f64 {
        f64::from(self.count) * BATCH as f64 / self.taken.as_secs_f64() / 1e6
    }
}

impl Pace {
    /// As a part of what the engine did in the same moments.
    fn beside_the_engine(self) -> f64 {
        self.name.rate() / self.engine.rate()
    }
}

/// The rows of a name's first moments.
pub(super) fn cold() -> Result<Vec<Row>> {
    let (_, engine) = checked(ENGINE[0])?;
    let mut rows = Vec::new();
    for threads in [1, 2] {
        let (mut ratios, mut early, mut late, mut stalls) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..BEGINNINGS {
            let begun = one_beginning(threads, &*engine)?;
            let sum = |of: fn(&Begun) -> f64| begun.iter().map(of).sum::<f64>();
            let later = sum(|begun| begun.late.beside_the_engine());
            ratios.push(sum(|begun| begun.early.beside_the_engine()) / later);
            early.push(sum(|begun| begun.early.name.rate()));
            late.push(sum(|begun| begun.late.name.rate()));
            let stalled = begun.iter().map(|begun| begun.stalled).max().unwrap_or_default();
            stalls.push(stalled.as_secs_f64() * 1e3);
        }
        let text = format!(
            "{} from 50 ms on, {} from {WARM:?} on; the last stall of {STALL:?} before that ended after {}",
            figure(&early, "M/s"),
            figure(&late, "M/s"),
            figure(&stalls, "ms")
        );
        let path = format!("next_id of a cold name, a grant in 1 ms, threads: {threads}");
        rows.push(at_least(&path, text, median(&ratios), 0.99, "x full speed"));
    }
    if let Some(why) = engine.objection() {
        bail!("the figures of {} are void: {why}", ENGINE[0]);
    }
    let first = first_id()?;
    rows.push(at_most("its first id", figure(&first, "ms"), median(&first), 5.0, "ms"));
    Ok(rows)
}

/// A sequence on a slow store, of which nothing was asked.
fn cold_sequence() -> Result<(Sequence, Sequences)> {
    let name = SequenceName::new("cold")?;
    let mut store = MemoryDatabase::new(1).faithful_store(0);
    store.create(&name, &NewSequence::default())?;
    let all = Sequences::builder(Box::new(Slow(store))).wait(Duration::from_secs(2)).build()?;
    Ok((all.sequence(&name)?, all))
}

/// Milliseconds to the first id of a name, each time of another one.
fn first_id() -> Result<Vec<f64>> {
    let first = |_| {
        let (sequence, _all) = cold_sequence()?;
        let begin = now();
        let id = sequence.next_id()?;
        ensure!(id == 1, "the first id is {id}");
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    (0..SHORT_ROUNDS).map(first).collect()
}

fn one_beginning(threads: usize, engine: &dyn Fixture) -> Result<Vec<Begun>> {
    let (sequence, _all) = cold_sequence()?;
    let begun = together(
        threads,
        WARM + SPAN,
        || engine.worker(),
        |worker, interval| begin(&sequence, &mut **worker, interval),
    );
    begun.into_iter().collect()
}

fn begin(sequence: &Sequence, engine: &mut dyn Worker, interval: Interval) -> Result<Begun> {
    while now() < interval.start {
        std::hint::spin_loop();
    }
    let (mut begun, mut before, mut turn) = (Begun::default(), Duration::ZERO, 0);
    while before < WARM + SPAN {
        turn += 1;
        let of_engine = turn % (TURNS + 1) == 0;
        if of_engine {
            engine.run(BATCH);
        } else {
            repeat!(BATCH, consume(sequence.next_id()?));
        }
        let after = interval.start.elapsed();
        let taken = after.saturating_sub(before);
        let within = |from: Duration| (from..from + SPAN).contains(&after);
        let pace =
            if within(WARM) { Some(&mut begun.late) } else { within(COLD).then_some(&mut begun.early) };
        match pace {
            Some(pace) if !of_engine => pace.name.add(taken),
            // What held the engine up is not what the name was held up by.
            Some(pace) if taken < STALL => pace.engine.add(taken),
            _ => {}
        }
        if !of_engine && taken > STALL && after < WARM {
            begun.stalled = after;
        }
        before = after;
    }
    Ok(begun)
}

/// A store whose every grant takes [`GRANT`].
struct Slow(MemoryStore);

impl Store for Slow {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn may_go_back(&self) -> bool {
        self.0.may_go_back()
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        self.0.identity()
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        std::thread::sleep(GRANT);
        self.0.grant(asks, out)
    }

    fn read(&mut self, name: &SequenceName) -> Result<StoreRow, StoreError> {
        self.0.read(name)
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<StoreRow>, StoreError> {
        self.0.list(prefix, after, limit)
    }

    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<StoreRow, StoreError> {
        self.0.create(name, new)
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<StoreRow, StoreError> {
        self.0.alter(name, alteration)
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<StoreRow, StoreError> {
        self.0.raise(name, least)
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        self.0.record_identity()
    }
}
