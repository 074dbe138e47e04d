//! Which orders an engine serves, and what is wrong, in sentences: what happened, what it means for callers, and what
//! to do about it.

use std::time::Duration;

use xuid_id::Order;

use crate::api::report::is_anything_held;
use crate::background::log_once::{FEW_DAYS, days_left};
use crate::clock::engine_clock::Now;
use crate::clock::{Verdict, nanos, utc};
use crate::mint::gate::Trouble;
use crate::registry::ConnectionState;
use crate::shared::EngineState;
use crate::stats::{RegistryStats, Status};
use crate::sys::atomics::lock;

/// What the gate knows, so that nothing is written down under its lock.
struct View {
    now: Now,
    closed: bool,
    trouble: Option<Trouble>,
    /// The tick after the last one reserved, if that is not past.
    end: Option<u64>,
    /// Nanoseconds until engine time has passed the last ordered id; mostly 0.
    ordered_waits: u64,
    /// Whether calls of any age can have ids although nothing is minted. Each refusal asks for a status, and ids are
    /// looked for slot by slot: while something is minted this is not asked, and false.
    in_memory: bool,
}

impl View {
    fn of(shared: &EngineState) -> Self {
        let (mut view, aside) = Self::at_gate(shared);
        view.in_memory = !view.is_minting() && (aside > 0 || is_anything_held(shared));
        view
    }

    /// What is known under the gate's lock, and how many ids are set aside there.
    fn at_gate(shared: &EngineState) -> (Self, u64) {
        let mut gate = lock(&shared.gate);
        let now = shared.instant(&mut gate);
        let end = gate.minter.workers.iter().filter_map(crate::mint::worker::HeldWorker::end).max();
        let view = Self {
            now,
            closed: gate.closed || shared.is_closed(),
            trouble: gate.trouble.clone(),
            end: end.filter(|end| now.tick.is_some_and(|tick| *end > tick)),
            ordered_waits: gate.minter.ordered_waits(&now),
            in_memory: false,
        };
        (view, gate.minter.aside_ids())
    }

    /// Whether a window is held that ids are minted from now.
    fn is_minting(&self) -> bool {
        self.end.is_some() && !self.is_behind()
    }

    fn is_behind(&self) -> bool {
        matches!(self.now.seen.verdict, Verdict::Behind { .. })
    }

    /// What becomes of calls while nothing is minted.
    fn meaning(&self) -> &'static str {
        if self.in_memory {
            "calls of any age are served from what is in memory, all others are refused with the time to come back"
        } else {
            "nothing is left in memory, and every call is refused with the time to come back"
        }
    }
}

pub(crate) fn status(shared: &EngineState) -> Status {
    // Before any lock: a thread that a child does not have may have held it.
    if shared.generation.forked() {
        let note = "this process was forked from the engine's, which has its threads and its ids: build another engine here";
        return Status { notes: vec![note.to_owned()], ..Status::default() };
    }
    let view = View::of(shared);
    let registry = lock(&shared.tally).stats(view.now.reading.boot);
    if view.closed {
        let note = "the engine is shutting down and refuses every call: ask another server";
        return Status { notes: vec![note.to_owned()], ..Status::default() };
    }
    let mut status = served(shared, &view);
    clock(shared, &view, &mut status.notes);
    windows(shared, &view, &registry, &mut status.notes);
    standing(shared, &view, &mut status.notes);
    status
}

/// Which orders are served.
fn served(shared: &EngineState, view: &View) -> Status {
    // A call that waits no longer than calls may is served.
    let waits = match view.now.seen.verdict {
        Verdict::Stand { lead } => lead,
        _ => 0,
    };
    let most = nanos(shared.settings.wait);
    let fresh = view.is_minting() && waits <= most;
    // Out of the layout's time everything is refused, unless the clock is only on its way back.
    let any = (view.now.tick.is_some() || view.is_behind()) && (view.is_minting() || view.in_memory);
    let ordered = fresh && view.ordered_waits <= most && shared.check_order(Order::Ordered).is_ok();
    Status { ready: any, fresh, ordered, notes: Vec::new() }
}

/// The supervisor's verdict, and what the layout can say.
fn clock(shared: &EngineState, view: &View, notes: &mut Vec<String>) {
    let now = &view.now;
    match now.seen.verdict {
        Verdict::Behind { lead } => {
            let (behind, until, shown) =
                (for_people(lead), utc(now.ns / 1_000_000), utc(now.ns.saturating_sub(lead) / 1_000_000));
            let instead = match shared.settings.pinned {
                Some(worker) => format!("it may use worker {worker} only, so"),
                None => "no other worker was free at the clock's time yet, and".to_owned(),
            };
            notes.push(format!(
                "the clock says {shown}, {behind} behind what ids were stamped with: {instead} nothing new is minted \
                 before {until}; {}; set the clock right",
                view.meaning()
            ));
            return;
        }
        Verdict::Ahead { by } => notes.push(format!(
            "the wall clock is {} ahead of what boot time or the registry's clock explains and is not followed: ids \
             are stamped by boot time; it is believed when the registry's clock agrees or, without one, after a \
             minute; check the clock",
            for_people(by)
        )),
        Verdict::Stand { lead } => notes.push(format!(
            "the wall clock went back by {}: ids get the last timestamp until it is reached; calls for fresh or \
             ordered ids may wait that long",
            for_people(lead)
        )),
        Verdict::CatchUp { lead } => notes.push(format!(
            "the wall clock went back: timestamps are {} ahead of it, which is worn off at a tenth of the pace; calls \
             are served as ever",
            for_people(lead)
        )),
        Verdict::Steady => {}
    }
    if now.tick.is_none() {
        let (layout, shown) = (&shared.layout, utc(now.ns / 1_000_000));
        let (first, last) = (utc(layout.epoch_ms()), utc(layout.tick_to_ms(layout.last_tick())));
        notes.push(format!(
            "the clock says {shown}, and the layout's time bits reach from {first} to {last}: every call is refused; \
             set the clock right, or use a layout whose time has not run out"
        ));
    }
}

/// What is reserved, and whether more can be.
fn windows(shared: &EngineState, view: &View, registry: &RegistryStats, notes: &mut Vec<String>) {
    let until = view.end.map(|end| {
        let left = shared.layout.tick_to_ns(end).saturating_sub(view.now.ns);
        format!("{} ({} from now)", utc(shared.layout.tick_to_ms(end)), for_people(left))
    });
    let meaning = match &until {
        Some(until) => {
            format!("the windows that are held last until {until}, and calls are served as ever until then")
        }
        None => format!("no window is held: {}", view.meaning()),
    };
    let unready = until.is_none();
    let note = match (&registry.problem, &view.trouble) {
        (Some(why), _) => {
            let away = for_people(nanos(registry.away));
            let what = match registry.state {
                ConnectionState::Refused => {
                    format!("the registry has refused this process for {away} ({why})")
                }
                ConnectionState::Expired => {
                    format!("the session with the registry ended, and for {away} there is no other ({why})")
                }
                _ => format!("the registry has not answered for {away} ({why})"),
            };
            Some(format!("{what}; {meaning}; see to the registry"))
        }
        (None, Some(Trouble::NoWindow { why })) => Some(format!(
            "the last window was not granted ({why}) and is tried again every second; {meaning}"
        )),
        (None, Some(Trouble::WindowLost)) => Some(format!(
            "a worker was lost, since its record is another process's now or cannot be read (the log says which), and \
             another one is being taken; {meaning}; where it happens often, look for processes that stand still for \
             long, or for one --worker given twice"
        )),
        (None, _) if unready && view.now.tick.is_some() && !view.is_behind() => Some(meaning),
        (None, _) => None,
    };
    notes.extend(note);
    if view.ordered_waits > nanos(shared.settings.wait) {
        notes.push(format!(
            "the clock went back behind the last ordered id: ordered calls are refused for another {}, all others are \
             served as the other notes say",
            for_people(view.ordered_waits)
        ));
    }
}

/// What is wrong for longer, while calls are served as ever.
fn standing(shared: &EngineState, view: &View, notes: &mut Vec<String>) {
    let gauges = lock(&shared.gauges);
    let behind = gauges.windows.behind_registry_ns;
    if behind > nanos(shared.settings.max_forward) {
        notes.push(format!(
            "the wall clock was {} behind the registry's: ids are stamped too early, and are as unique as ever; \
             check both clocks",
            for_people(behind)
        ));
    }
    let days = days_left(&shared.layout, view.now.ns);
    if days < FEW_DAYS && view.now.tick.is_some() {
        notes.push(format!(
            "the layout's time bits run out in {days} days, and every call is refused from then on: plan for another \
             layout, or a later epoch"
        ));
    }
    if gauges.windows.switches.copied > 0 {
        notes.push(
            "a copy of this machine's memory ran, and wrote to the registry as this process: until the log said so both \
             may have issued the same ids. This process is another one since and is as unique as ever; find the \
             copy, and restart this process to end this note"
                .to_owned(),
        );
    }
    if let Some(why) = &gauges.why_not {
        notes.push(format!(
            "running without a spill ({why}): ids that are not used end with the process, and calls are served as ever"
        ));
    }
}

/// A time of nanoseconds, as exact as somebody who reads it needs.
fn for_people(ns: u64) -> String {
    let time = Duration::from_nanos(ns);
    match time.as_millis() {
        ..1_000 => format!("{} ms", time.as_millis()),
        1_000..600_000 => format!("{}.{} s", time.as_secs(), time.subsec_millis() / 100),
        _ => format!("{} min", time.as_secs() / 60),
    }
}
