//! Opens an image as the machine does that was switched on again, lets an engine live on it, and judges.
//!
//! # What is judged
//! - J1 every record of the registry is readable, and says what was confirmed before the cut or what was under way;
//! - J2 no id is issued that was issued before the cut or in this life, and none but of land that nobody had: of a
//!   window from the record on, or of the spill from the mark on;
//! - J3 every extent that survived the cut, was not granted and is young enough is issued to the last id: what a cut
//!   wastes is the grants and windows held, and what was not synced, which is nothing after a clean stop;
//! - J4 an id comes within a bound, and at a clean stop every id is accounted for.

use xuid_id::Id;

use crate::Order;
use crate::clock::nanos;
use crate::registry::local::MemoryDisk;
use crate::registry::local::simulated::MemoryHints;
use crate::testing::campaigns::Tally;
use crate::testing::crash_images::host::{Disks, Host};
use crate::testing::crash_images::known::What;
use crate::testing::crash_images::land::{self, Span};
use crate::testing::crash_images::power::{Image, PROCESSES};
use crate::testing::crash_images::scenario::{FILE, Scenario};
use crate::testing::simulation::history::{MS, SECOND};
use crate::testing::support::rng::Rng;

use xuid_spill::{Extent, MemoryStorage};

/// Cuts one within the recovery from another.
const DEEPEST: u32 = 3;

/// An id comes within this: the longest window of a worker that nobody can wait for, and a margin.
const BOUND: u64 = 65 * SECOND;

/// Rounds of a drain at most. In each, ring and queue are emptied once: 128 blocks of 16 ids or more.
const ROUNDS: u32 = 2_000;

/// A process holds two grants ahead and may have one under way, each of 64 s of land at most.
const GRANTED: u64 = 3 * 64;

/// An image, and what was issued before it.
pub(crate) struct Case<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) image: &'a Image,
    pub(crate) before: &'a [Span],
    pub(crate) depth: u32,
}

/// What the machine must give back, and what it may.
struct Land {
    /// The first tick of each worker that nobody had been granted.
    windows: Vec<u64>,
    /// What the spills must give back.
    spilled: Vec<Extent>,
}

/// Judges one image, and those that are made of its recovery.
pub(crate) fn judge(case: &Case, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
    let told = |why: String| format!("cut at {}, depth {}: {why}", case.image.point, case.depth);
    tally.note(format!("cut_in_{}", case.image.point), 1);
    tally.note(if case.depth == 0 { "images" } else { "images_of_recoveries" }, 1);
    tally.waste("unsynced", case.image.unsynced);
    if case.image.stopped_unsynced > 0 {
        let ids = case.image.stopped_unsynced;
        return Err(told(format!("{ids} ids that a clean stop had spilled were not synced")));
    }
    let nested = usize::from(case.depth < DEEPEST && rng.chance(30));
    let mut host = switch_on(case, nested, rng);
    let lived = live(case, &mut host, tally);
    let images = host.power.take_images();
    let issued = host.power.issued();
    let ids = |spans: &[Span]| spans.iter().map(|span| span.end - span.start).sum();
    tally.ids += ids(&issued);
    tally.note("ids_before_cuts", ids(case.before));
    // What was wrong before the end is worth less than an id that came twice.
    let twice = land::merged([case.before, &issued].concat());
    if let Err(id) = twice {
        tally.duplicates += land::twice([case.before, &issued].concat());
        let parts = case.scenario.layout.decode(Id::new(id));
        return Err(told(format!("an id came twice: {parts:?} {lived:?}")));
    }
    lived.map_err(told)?;
    for image in &images {
        let before = [case.before, &issued[..image.issued]].concat();
        let inner = Case { scenario: case.scenario, image, before: &before, depth: case.depth + 1 };
        judge(&inner, rng, tally).map_err(told)?;
    }
    Ok(())
}

/// The machine, some time after the cut.
fn switch_on(case: &Case, nested: usize, rng: &mut Rng) -> Host {
    let Case { scenario, image, .. } = case;
    let outage = match rng.below(10) {
        0 => rng.magnitude(60 * SECOND, 7_200 * SECOND),
        1..4 => rng.magnitude(SECOND, 60 * SECOND),
        _ => rng.magnitude(MS, SECOND),
    };
    let spill = |bytes: &Option<Vec<u8>>| bytes.clone().map(MemoryStorage::from_bytes);
    let disks = Disks {
        registry: MemoryDisk::new(image.registry.clone(), FILE),
        hints: MemoryHints::of(&image.hints),
        spills: image.spills.each_ref().map(spill),
        known: image.known.clone(),
    };
    let kind = (scenario.layout, scenario.settings.clone(), scenario.fault);
    let host = Host::new(kind, disks, image.at + outage, nested, rng);
    if rng.chance(10) {
        host.set_back(rng.magnitude(MS, 10 * SECOND));
    }
    host
}

/// The life of the machine after the cut.
fn live(case: &Case, host: &mut Host, tally: &mut Tally) -> Result<(), String> {
    let on = host.time.now();
    host.begin(0, true)?;
    let land = survey(case, host, tally)?;
    let with_spill = |process: &usize| *process == 0 || case.image.spills[*process].is_some();
    let processes: Vec<usize> = (0..PROCESSES).filter(with_spill).collect();
    for process in &processes[1..] {
        host.begin(*process, false)?;
    }
    recover(host, on, tally)?;
    for process in &processes {
        host.drain(*process, ROUNDS)?;
    }
    replayed(case, host, &land, tally)?;

    // What is spilled anew comes in a life after this one.
    let idle = host.rng.magnitude(MS, 3 * SECOND);
    host.pass(idle);
    for process in &processes {
        host.call(*process);
    }
    if host.rng.chance(30) {
        for process in &processes {
            if host.rng.chance(50) {
                host.stop(*process);
            } else {
                host.kill(*process);
            }
            host.begin(*process, false)?;
            host.drain(*process, ROUNDS)?;
        }
    }
    for process in &processes {
        host.stop(*process);
    }
    host.verdict()?;
    owned(host, &land)
}

/// What the registry grants from, and what the spills must give back, as the image says it.
fn survey(case: &Case, host: &Host, tally: &mut Tally) -> Result<Land, String> {
    let layout = &host.layout;
    let window = |worker| host.found.value(What::Worker(worker)).unwrap_or(u64::MAX);
    let (mut spilled, mut granted) = (Vec::new(), Vec::new());
    for (bytes, begun) in case.image.spills.iter().zip(case.image.begun) {
        let Some(bytes) = bytes else { continue };
        // Without a mark it is refused, and that is right: nothing was ever appended to it.
        let mark = land::spill_id(bytes).and_then(|spill| host.found.value(What::Mark(spill)));
        let Some(mark) = mark else { continue };
        spilled.extend(land::replayable(bytes, mark));
        let of_grants = land::slots(bytes).flatten().filter(|(index, _)| (begun..mark).contains(index));
        granted.push(of_grants.map(|(_, extent)| extent).collect::<Vec<_>>());
    }
    let still = [land::spans(&spilled, layout, 0), case.before.to_vec()].concat();
    let still = land::merged(still)
        .map_err(|id| format!("a plot in two places, issued or spilled: {:?}", layout.decode(Id::new(id))))?;
    let most = GRANTED * layout.ticks_in_ns(SECOND) * u64::from(layout.sequences());
    for granted in granted {
        let (held, _) = land::missing(&once(land::spans(&granted, layout, 0)), &still);
        tally.waste("grants", held);
        tally.note("max_grants_held", held);
        if held > most {
            return Err(format!("the cut lost {held} ids of grants, and a process holds {most} at most"));
        }
    }
    Ok(Land { windows: (0..layout.workers()).map(window).collect(), spilled })
}

/// Spans without repetition: land that was granted, and then spilled and granted again, has several records.
fn once(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| span.start);
    let mut end = 0;
    spans.retain_mut(|span| {
        span.start = span.start.max(end);
        end = end.max(span.end);
        span.start < span.end
    });
    spans
}

fn recover(host: &mut Host, on: u64, tally: &mut Tally) -> Result<(), String> {
    while host.ask(0, 1, Order::Any) == 0 {
        host.pass(MS);
        if host.time.now() > on + BOUND {
            return Err(format!("no id came within {} s", BOUND / SECOND));
        }
    }
    tally.recovered((host.time.now() - on) / MS);
    Ok(())
}

/// J3: what the spills held has come, but for what was too old.
fn replayed(case: &Case, host: &Host, land: &Land, tally: &mut Tally) -> Result<(), String> {
    let layout = &host.layout;
    let issued = land::merged(host.power.issued()).unwrap_or_default();
    let (unissued, _) = land::missing(&land::spans(&land.spilled, layout, 0), &issued);
    let max_age = layout.ticks_in_ns(nanos(case.scenario.settings.max_age));
    // A grant begins at the first extent that has a sixth of its life left.
    let now = layout.tick_at_ns(host.time.now()).unwrap_or(0);
    let oldest = now.saturating_sub(max_age - max_age / 6);
    let young = land::spans(&land.spilled, layout, oldest);
    let (lacking, first) = land::missing(&young, &issued);
    if let Some(first) = first {
        let parts = layout.decode(Id::new(first));
        return Err(format!("{lacking} ids that the spill held were not replayed, from {parts:?} on"));
    }
    tally.waste("expired", unissued);
    tally.note("replayed", young.iter().map(|span| span.end - span.start).sum());
    Ok(())
}

/// J2: of windows that nobody had, or of what the spills held.
fn owned(host: &Host, land: &Land) -> Result<(), String> {
    let layout = &host.layout;
    let of_windows = |span: &Span| {
        let parts = layout.decode(Id::new(span.start));
        parts.tick >= land.windows[parts.worker as usize]
    };
    let others: Vec<Span> = host.power.issued().into_iter().filter(|span| !of_windows(span)).collect();
    let spilled = land::merged(land::spans(&land.spilled, layout, 0)).unwrap_or_default();
    match land::missing(&others, &spilled) {
        (_, None) => Ok(()),
        (ids, Some(first)) => {
            let parts = layout.decode(Id::new(first));
            Err(format!("{ids} ids are of land that was not its own, from {parts:?} on"))
        }
    }
}
