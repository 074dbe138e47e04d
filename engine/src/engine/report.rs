//! Gathers an engine's figures.

use std::time::Duration;

use crate::gate::Gate;
use crate::minter::Now;
use crate::producer::{UpkeepTally, days_left};
use crate::shared::Shared;
use crate::stats::{ClockStats, Held, Served, SpillStats, Stats, Wasted, Windows};
use crate::sync::lock;

mod status;

pub(super) use status::status;

pub(super) fn stats(shared: &Shared) -> Stats {
    // Any of the locks below may have been taken by a thread that a child does not have.
    if shared.epoch.forked() {
        return Stats::default();
    }
    let at_gate = AtGate::of(shared);
    let AtGate { minted, expired, waiting, .. } = at_gate;
    let counters = &shared.counters;
    let threads = counters.totals();
    let gauges = lock(&shared.gauges);
    let (reserved, registrar_panics, registry) = {
        let tally = lock(&shared.tally);
        (tally.reserved, tally.panics, tally.stats(at_gate.boot))
    };
    let reserve = &gauges.reserve;
    let tickets_held = counters.tickets_in.value().saturating_sub(counters.tickets_out.value());
    let queue = counters.queue_in.value().saturating_sub(counters.queue_out.value() + threads.served.queue);
    Stats {
        minted,
        replayed: reserve.replayed,
        issued: threads.issued + counters.tickets_issued.value(),
        spilled: reserve.spilled,
        wasted: Wasted {
            thread: threads.wasted,
            expired: reserve.expired + expired,
            trimmed: reserve.trimmed,
            spill: reserve.wasted_spill + shared.returns.wasted(),
            grant: reserve.wasted_grant,
            step: reserve.wasted_step,
        },
        held: Held {
            ring: shared.ring.ids(),
            queue,
            reserve: gauges.held + shared.returns.held(),
            threads: threads.in_hand() + tickets_held,
        },
        served: Served {
            ring: threads.served.ring,
            queue: threads.served.queue + counters.tickets_queue.value(),
            minter: threads.served.minter + counters.tickets_minter.value(),
            reserve: counters.tickets_reserve.value(),
        },
        refused: counters.refused(),
        spill: SpillStats {
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
        },
        clock: at_gate.clock(&gauges.upkeep),
        windows: at_gate.windows(reserved, &gauges.upkeep),
        registry,
        refills: shared.refills.value(),
        waiting,
        panics: shared.panics.value() + registrar_panics,
    }
}

/// What is read under the gate's lock.
struct AtGate {
    minted: u64,
    expired: u64,
    waiting: u64,
    boot: u64,
    clock: ClockStats,
    /// Workers, and ticks to the ends of their windows in milliseconds.
    held: Vec<(u32, u64)>,
}

impl AtGate {
    fn of(shared: &Shared) -> Self {
        let mut gate = lock(&shared.gate);
        let now = shared.instant(&mut gate);
        let layout = &shared.layout;
        let course = gate.minter.course();
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
            waiting: gate.waiting() as u64,
            boot: now.reading.boot,
            clock,
            held: held(shared, &gate, &now),
        }
    }

    fn clock(&self, upkeep: &UpkeepTally) -> ClockStats {
        ClockStats {
            rollbacks: upkeep.rollbacks,
            jumps: upkeep.jumps,
            behind_registry_ms: upkeep.behind_registry_ns / 1_000_000,
            ..self.clock
        }
    }

    fn windows(self, reserved: u64, upkeep: &UpkeepTally) -> Windows {
        Windows {
            left_ms: self.held.iter().map(|(_, left)| *left).min().unwrap_or(0),
            held: self.held,
            reserved,
            switches: upkeep.switches,
            switched: upkeep.switched,
        }
    }
}

fn held(shared: &Shared, gate: &Gate, now: &Now) -> Vec<(u32, u64)> {
    let layout = &shared.layout;
    let left = |end: Option<u64>| {
        let ns = end.map_or(0, |end| layout.tick_to_ns(end).saturating_sub(now.ns));
        Duration::from_nanos(ns).as_millis() as u64
    };
    gate.minter.lanes.iter().map(|lane| (lane.worker, left(lane.end()))).collect()
}
