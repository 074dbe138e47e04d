//! Gathers an engine's figures.

use std::time::Duration;

use crate::background::log_once::days_left;
use crate::clock::engine_clock::Now;
use crate::mint::gate::Gate;
use crate::shared::EngineState;
use crate::stats::counters::ThreadTotals;
use crate::stats::published::{Gauges, WindowTally};
use crate::stats::{ClockStats, Held, SpillStats, Stats, Wasted, Windows};
use crate::sys::atomics::lock;

/// All of them, read against the stream: what was issued first, what was minted last. An id that moves on meanwhile may
/// be seen in two places or in none, but never among those that are gone without being among those that came.
pub(super) fn stats(shared: &EngineState) -> Stats {
    // Any of the locks below may have been taken by a thread that a child does not have.
    if shared.generation.forked() {
        return Stats::default();
    }
    let counters = &shared.counters;
    let threads = counters.totals();
    let served = counters.served(&threads);
    let held = held(shared, &threads);
    // A copy: neither waits for the other's lock.
    let gauges = lock(&shared.gauges).clone();
    let at_gate = AtGate::of(shared);
    let AtGate { minted, expired, aside, waiting, .. } = at_gate;
    let oldest = gauges.oldest.map_or(0, |tick| at_gate.ns.saturating_sub(shared.layout.tick_to_ns(tick)));
    let (reserved, registry_panics, registry) = {
        let tally = lock(&shared.tally);
        (tally.reserved, tally.panics, tally.stats(at_gate.boot))
    };
    let reserve = &gauges.reserve;
    Stats {
        minted,
        replayed: reserve.replayed,
        issued: served.total(),
        spilled: reserve.spilled,
        wasted: Wasted {
            thread: threads.wasted,
            expired: reserve.expired + expired,
            trimmed: reserve.trimmed,
            spill: reserve.wasted_spill + shared.returns.wasted(),
            grant: reserve.wasted_grant,
            step: reserve.wasted_step + shared.returns.voided(),
            panic: reserve.wasted_panic,
        },
        held: Held { reserve: gauges.held + aside + held.reserve, ..held },
        served,
        refused: counters.refused(),
        spill: spill(&gauges, shared),
        clock: at_gate.clock(&gauges.windows),
        windows: at_gate.windows(reserved, &gauges.windows),
        registry,
        refills: shared.refills.value(),
        waiting,
        oldest: Duration::from_nanos(oldest),
        panics: shared.panics.value() + registry_panics,
    }
}

/// What callers and producer hold between them, and what is on its way back.
fn held(shared: &EngineState, threads: &ThreadTotals) -> Held {
    let counters = &shared.counters;
    let out_of_tickets = counters.tickets_out.value();
    let out_of_queue = counters.queue_out.value() + threads.queue;
    Held {
        threads: threads.in_hand() + counters.tickets_in.value().saturating_sub(out_of_tickets),
        queue: counters.queue_in.value().saturating_sub(out_of_queue),
        ring: shared.ring.ids(),
        reserve: shared.returns.held(),
    }
}

/// Whether there are ids in memory for calls of any age: any but those in threads' hands, as far as that is known
/// without the producer. What costs least is asked first, and the ring, which is read slot by slot, last.
pub(super) fn is_anything_held(shared: &EngineState) -> bool {
    shared.returns.held() > 0
        || lock(&shared.gauges).held > 0
        || shared.queue.len() > 0
        || shared.ring.is_anything_held()
}

fn spill(gauges: &Gauges, shared: &EngineState) -> SpillStats {
    let reserve = &gauges.reserve;
    SpillStats {
        active: gauges.spill_active,
        why_not: gauges.why_not.clone(),
        extents: gauges.stock.extents,
        ids: gauges.stock.ids,
        inherited: shared.inherited,
        granted: reserve.granted_extents,
        damaged: reserve.damaged,
        overwritten: reserve.overwritten,
        refused: reserve.refused + shared.refused_spills,
        failures: reserve.failures,
    }
}

/// What is read under the gate's lock.
struct AtGate {
    minted: u64,
    expired: u64,
    aside: u64,
    waiting: u64,
    boot: u64,
    /// Engine time.
    ns: u64,
    clock: ClockStats,
    /// Workers, and ticks to the ends of their windows in milliseconds.
    held: Vec<(u32, u64)>,
}

impl AtGate {
    fn of(shared: &EngineState) -> Self {
        let mut gate = lock(&shared.gate);
        let now = shared.instant(&mut gate);
        let layout = &shared.layout;
        let course = gate.clock.course();
        let clock = ClockStats {
            verdict: course.verdict,
            entered: course.entered,
            lead_us: course.verdict.lead() / 1_000,
            days_left: days_left(layout, now.ns),
            ..ClockStats::default()
        };
        Self {
            minted: gate.minter.minted,
            expired: gate.minter.expired,
            aside: gate.minter.aside_ids(),
            waiting: gate.waiting() as u64,
            boot: now.reading.boot,
            ns: now.ns,
            clock,
            held: windows_left(shared, &gate, &now),
        }
    }

    fn clock(&self, windows: &WindowTally) -> ClockStats {
        ClockStats {
            rollbacks: windows.rollbacks,
            jumps: windows.jumps,
            behind_registry_ms: windows.behind_registry_ns / 1_000_000,
            ..self.clock
        }
    }

    fn windows(self, reserved: u64, windows: &WindowTally) -> Windows {
        Windows {
            left_ms: self.held.iter().map(|(_, left)| *left).min().unwrap_or(0),
            held: self.held,
            reserved,
            switches: windows.switches,
            switched: windows.switched,
        }
    }
}

fn windows_left(shared: &EngineState, gate: &Gate, now: &Now) -> Vec<(u32, u64)> {
    let layout = &shared.layout;
    let left = |end: Option<u64>| {
        let ns = end.map_or(0, |end| layout.tick_to_ns(end).saturating_sub(now.ns));
        Duration::from_nanos(ns).as_millis() as u64
    };
    gate.minter.workers.iter().map(|held| (held.worker, left(held.end()))).collect()
}
