//! Gathers an engine's figures.

use crate::clock::Verdict;
use crate::gate::Trouble;
use crate::shared::Shared;
use crate::stats::{ClockStats, Held, Served, SpillStats, Stats, Status, Wasted, Windows};
use crate::sync::lock;

pub(super) fn stats(shared: &Shared) -> Stats {
    let (minted, minter_expired, workers, left_ms, waiting, clock) = gate_figures(shared);
    let counters = &shared.counters;
    let threads = counters.totals();
    let gauges = lock(&shared.gauges);
    let tally = *lock(&shared.tally);
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
            expired: reserve.expired + minter_expired,
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
        windows: Windows {
            workers,
            reserved: tally.reserved,
            conflicts: tally.conflicts,
            unknown: tally.unknown,
            unknown_ours: tally.unknown_ours,
            switches: gauges.switches,
            left_ms,
        },
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
        clock: ClockStats { rollbacks: gauges.rollbacks, jumps: gauges.jumps, ..clock },
        refills: shared.refills.value(),
        waiting,
    }
}

fn gate_figures(shared: &Shared) -> (u64, u64, Vec<u32>, u64, u64, ClockStats) {
    let mut gate = lock(&shared.gate);
    let now = gate.minter.now();
    let layout = &shared.layout;
    let tick = now.tick.unwrap_or(0);
    let workers: Vec<u32> = gate.minter.lanes.iter().map(|lane| lane.worker).collect();
    let ends = gate.minter.lanes.iter().map(|lane| lane.end().unwrap_or(0));
    let left = ends.min().map_or(0, |end| end.saturating_sub(tick));
    let left_ms = layout.tick_to_ms(left) - layout.epoch_ms();
    let lead = match now.seen.verdict {
        Verdict::Stand { lead } | Verdict::CatchUp { lead } | Verdict::Behind { lead } => lead,
        Verdict::Steady | Verdict::Ahead { .. } => 0,
    };
    let ns_left = layout.tick_to_ns(layout.last_tick()).saturating_sub(now.ns);
    let clock = ClockStats {
        lead_us: lead / 1_000,
        days_left: ns_left / 86_400_000_000_000,
        ..ClockStats::default()
    };
    (gate.minter.minted, gate.minter.expired, workers, left_ms, gate.waiting() as u64, clock)
}

pub(super) fn status(shared: &Shared) -> Status {
    let mut notes = Vec::new();
    let mut ready = true;
    {
        let mut gate = lock(&shared.gate);
        let now = gate.minter.now();
        if gate.closed || shared.is_closed() {
            ready = false;
            notes.push("shutting down".to_owned());
        } else if now.tick.is_none() {
            ready = false;
            notes.push("the clock is outside what the layout's time bits can say".to_owned());
        } else if !gate.holds_window(&now) {
            ready = false;
            notes.push("no window of ticks is held".to_owned());
        }
        match &gate.trouble {
            Some(Trouble::Behind { lead }) => {
                ready = false;
                let ms = lead / 1_000_000;
                notes.push(format!(
                    "the clock is {ms} ms behind what was issued, and no other worker was free yet"
                ));
            }
            Some(Trouble::WindowLost) => notes.push("a worker was lost to another process".to_owned()),
            Some(Trouble::NoWindow { why }) => notes.push(format!("the last window was not granted: {why}")),
            None => {}
        }
        match now.seen.verdict {
            Verdict::Ahead { by } => notes
                .push(format!("the wall clock leapt {} ms forward and is not followed yet", by / 1_000_000)),
            Verdict::Stand { lead } | Verdict::CatchUp { lead } => {
                notes.push(format!("the clock went back; {} us are being caught up with", lead / 1_000));
            }
            Verdict::Steady | Verdict::Behind { .. } => {}
        }
    }
    if let Some(why) = &lock(&shared.gauges).why_not {
        notes.push(format!("running without a spill, so unused ids do not survive a restart: {why}"));
    }
    Status { ready, notes }
}
