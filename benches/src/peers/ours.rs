//! This engine, by each of its calls.
//!
//! A burst is on land declared unused; sustained has what the clock brings, and begins with what it had gathered in
//! memory taken away. A call's outcome is consumed by `match`, as a caller does; refused calls void a measurement.

use std::hint::black_box;

use xuid_engine::{Engine, Id, IdError, Order};

use super::calls::{Refusals, many, single};
use crate::land::{Farm, drain};
use crate::subject::{Fixture, Kind, Subject, Supply, Worker};

/// Ids a call for a run asks for: a whole tick of the default layout.
const RUN: u32 = 4_096;

pub(super) fn subjects() -> Vec<Subject> {
    use Supply::{Burst, Sustained};
    vec![
        ours("xuid/next_id", "one engine shared by all threads", Burst, 1, || declared(next_id)),
        ours("xuid/try_next_id", "try_next_id, and next_id where that is refused", Burst, 1, || {
            declared(try_next_id)
        }),
        ours("xuid/next_id-outlined", "next_id through a call that is not inlined", Burst, 1, || {
            declared(next_id_outlined)
        }),
        ours("xuid/handle", "a handle owned by each thread, a local variable of its loop", Burst, 1, || {
            declared(handle)
        }),
        ours("xuid/handle-in-box", "a handle behind a pointer", Burst, 1, || declared(handle_in_box)),
        ours("xuid/fill-16", "fill a slice of 16", Burst, 16, || declared(|ours| fill(ours, 16))),
        ours("xuid/fill-1024", "fill a slice of 1,024", Burst, 1_024, || declared(|ours| fill(ours, 1_024))),
        ours("xuid/runs-4096", "runs of 4,096 ids in all, nothing copied", Burst, u64::from(RUN), || {
            declared(|ours| runs(ours, RUN, Order::Any))
        }),
        ours("xuid/next_id-sustained", "one engine shared by all threads", Sustained, 1, || clocked(next_id)),
        ours("xuid/handle-sustained", "a handle owned by each thread", Sustained, 1, || clocked(handle)),
        ours("xuid/ordered-sustained", "one ordered id a call", Sustained, 1, || {
            clocked(|ours| runs(ours, 1, Order::Ordered))
        }),
        ours("xuid/fresh-sustained", "one fresh id a call", Sustained, 1, || {
            clocked(|ours| runs(ours, 1, Order::Fresh))
        }),
    ]
}

fn ours(
    name: &'static str,
    about: &'static str,
    supply: Supply,
    ids_per_call: u64,
    set_up: fn() -> Box<dyn Fixture>,
) -> Subject {
    Subject { name, about, kind: Kind::Ours, supply, ids_per_call, set_up }
}

type Make = for<'a> fn(&'a Ours) -> Box<dyn Worker + 'a>;

/// An engine, and how a thread calls it.
struct Ours {
    farm: Farm,
    make: Make,
    refused: Refusals,
}

impl Ours {
    fn new(farm: Result<Farm, xuid_engine::BuildError>, make: Make) -> Self {
        let farm = farm.unwrap_or_else(|error| panic!("an engine in a temporary folder: {error}"));
        Self { farm, make, refused: Refusals::default() }
    }
}

fn declared(make: Make) -> Box<dyn Fixture> {
    Box::new(Ours::new(Farm::declared(), make))
}

fn clocked(make: Make) -> Box<dyn Fixture> {
    let ours = Ours::new(Farm::sustained(), make);
    drain(&ours.farm.engine);
    Box::new(ours)
}

impl Fixture for Ours {
    fn worker(&self) -> Box<dyn Worker + '_> {
        (self.make)(self)
    }

    fn objection(&self) -> Option<String> {
        match self.refused.count() {
            0 => None,
            calls => Some(format!("{calls} calls were refused: {:?}", self.farm.engine.stats().refused)),
        }
    }
}

fn next_id(ours: &Ours) -> Box<dyn Worker + '_> {
    let engine = &ours.farm.engine;
    single(&ours.refused, || engine.next_id())
}

fn try_next_id(ours: &Ours) -> Box<dyn Worker + '_> {
    let engine = &ours.farm.engine;
    // A refused try brings the reserve in for the next one; as a caller would, it comes back, and here at once.
    single(&ours.refused, || engine.try_next_id().or_else(|_| engine.next_id()))
}

fn next_id_outlined(ours: &Ours) -> Box<dyn Worker + '_> {
    let engine = &ours.farm.engine;
    single(&ours.refused, || outlined(engine))
}

#[inline(never)]
fn outlined(engine: &Engine) -> Result<Id, IdError> {
    engine.next_id()
}

fn handle(ours: &Ours) -> Box<dyn Worker + '_> {
    let mut handle = ours.farm.engine.handle();
    single(&ours.refused, move || handle.next_id())
}

fn handle_in_box(ours: &Ours) -> Box<dyn Worker + '_> {
    let mut handle = Box::new(ours.farm.engine.handle());
    single(&ours.refused, move || handle.next_id())
}

fn fill(ours: &Ours, count: usize) -> Box<dyn Worker + '_> {
    let mut slice = vec![Id::default(); count];
    many(&ours.refused, move |ids| {
        ours.farm.engine.fill(&mut slice, Order::Any)?;
        match ids {
            Some(ids) => ids.extend(slice.iter().map(|id| id.raw())),
            None => _ = black_box(slice.as_slice()),
        }
        Ok::<_, IdError>(())
    })
}

fn runs(ours: &Ours, count: u32, order: Order) -> Box<dyn Worker + '_> {
    many(&ours.refused, move |ids| {
        let runs = ours.farm.engine.runs(count, order)?;
        match ids {
            Some(ids) => ids.extend(runs.into_iter().flatten().map(Id::raw)),
            None => _ = black_box(runs.as_slice()),
        }
        Ok::<_, IdError>(())
    })
}
