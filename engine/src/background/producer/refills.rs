//! The producer's refills: what is old makes way once a second, and what is asked for is topped up.

use xuid_spill::Extent;

use super::Producer;
use crate::clock::SECOND;
use crate::id::run::Run;
use crate::settings::{CALM_BLOCK, CALM_IDS, LONGEST_BLOCK, SLOTS};
use crate::sys::guards::Guard;
use crate::tiers::ring::PARTITIONS;

impl Producer {
    /// Once a second: what is older than a second makes way for what is fresh.
    /// `keep`: what leaves ring and queue stays in memory.
    pub(super) fn turn_over(&mut self, fresh: Vec<Extent>, tick: u64, keep: bool) {
        if Guard::TurnOverVoids.holds() {
            self.shared.void_runs();
        }
        let layout = self.shared.layout;
        let mut all: Vec<Extent> = fresh;
        all.extend(self.reserve.fresh.drain());
        let mut sweep = |run: Run| all.push(run.into_extent());
        while let Some(block) = self.shared.pop_queue() {
            sweep(block.into_run());
        }
        for partition in 0..PARTITIONS {
            self.ledger.sweep(&self.shared.ring, partition, &mut sweep);
        }
        // The newest second stays in memory, as far as the ring holds it.
        let youngest = tick.saturating_sub(layout.ticks_in_ns(SECOND)) * layout.stride();
        let mut room = CALM_IDS;
        all.sort_unstable_by_key(|extent| std::cmp::Reverse(extent.first));
        let (mut staying, mut leaving) = (Vec::new(), Vec::new());
        for extent in all {
            let (old, new) = split_newest(&extent, youngest, room, layout.stride());
            leaving.extend(old);
            if let Some(new) = new {
                room -= new.ids();
                staying.push(new);
            }
        }
        staying.into_iter().rev().for_each(|extent| self.reserve.fresh.push(extent));
        crash_point!(TurnedOver);
        if keep {
            self.reserve.put_by(leaving);
        } else {
            // What earlier bursts put by survives a crash on disk only.
            leaving.extend(self.reserve.take_put_by());
            self.reserve.put_away(leaving);
        }
    }

    /// Tops the queue up and refills the partitions that were asked for, or all of them.
    pub(super) fn refill(&mut self, tick: u64, burst: bool, all: bool) {
        let shared = self.shared.clone();
        let wanted: Vec<usize> =
            (0..PARTITIONS).filter(|partition| all || shared.ring.is_asked(*partition)).collect();
        if wanted.is_empty() {
            return;
        }
        let at_hand = if burst { self.reserve.held() } else { self.reserve.fresh.ids() };
        let longest = block_len(at_hand + shared.queue.len() as u64 * CALM_BLOCK)
            .min(shared.settings.tiers.longest_run);
        self.top_up(tick, burst, longest);
        for partition in wanted {
            if Guard::AnswerFirst.holds() {
                shared.ring.answer(partition);
            }
            let (reserve, ledger) = (&mut self.reserve, &self.ledger);
            // In a burst past the queue, which then is there for callers that find the ring empty: going through it,
            // each block would meet them at both its ends.
            let refilled = shared.ring.refill(partition, || {
                let direct = if burst { reserve.block(tick, burst, longest) } else { None };
                direct.or_else(|| shared.pop_queue()).map(|block| ledger.to_ring(block))
            });
            if !Guard::AnswerFirst.holds() {
                shared.ring.answer(partition);
            }
            if let Some(block) = refilled.left_over {
                ledger.from_ring.add(u64::from(block.len()));
                reserve.fresh.push_run(block.into_run());
            }
            if refilled.blocks > 0 {
                shared.count_refill();
            } else if refilled.dry {
                // Nothing to give: stays asked for, so that no caller wakes this thread for it again.
                shared.ring.ask_again(partition);
            }
            self.top_up(tick, burst, longest);
        }
    }

    fn top_up(&mut self, tick: u64, burst: bool, longest: u32) {
        let shared = &self.shared;
        for _ in 0..shared.queue.room() {
            let Some(block) = self.reserve.block(tick, burst, longest) else { return };
            if let Err(block) = shared.push_queue(block) {
                self.reserve.fresh.push_run(block.into_run());
                return;
            }
        }
    }
}

/// The length of blocks where so many ids are at hand: long, but so that all slots of the ring get one.
fn block_len(at_hand: u64) -> u32 {
    let share = (at_hand / SLOTS as u64).clamp(16, u64::from(LONGEST_BLOCK));
    1 << share.ilog2()
}

/// Splits off the newest ticks of an extent: those that begin at `youngest` or later, as many as `room` ids hold.
fn split_newest(extent: &Extent, youngest: u64, room: u64, stride: u64) -> (Option<Extent>, Option<Extent>) {
    let too_old = youngest.saturating_sub(extent.first).div_ceil(stride).min(u64::from(extent.ticks)) as u32;
    let fits = (room / u64::from(extent.len)).min(u64::from(extent.ticks - too_old)) as u32;
    let older = extent.ticks - fits;
    let old = (older > 0).then_some(Extent { ticks: older, ..*extent });
    let first = extent.first + u64::from(older) * stride;
    (old, (fits > 0).then_some(Extent { first, ticks: fits, ..*extent }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ticks_that_fit_stay() {
        let extent = Extent { first: 10, len: 4, ticks: 5 };
        let older = |ticks| Some(Extent { ticks, ..extent });
        let newer = |first, ticks| Some(Extent { first, len: 4, ticks });
        assert_eq!(split_newest(&extent, 0, 9, 100), (older(3), newer(310, 2)));
        assert_eq!(split_newest(&extent, 0, 3, 100), (Some(extent), None));
        assert_eq!(split_newest(&extent, 0, 20, 100), (None, Some(extent)));
        assert_eq!(split_newest(&extent, 200, 20, 100), (older(2), newer(210, 3)));
        assert_eq!(split_newest(&extent, 411, 20, 100), (Some(extent), None));
    }

    #[test]
    fn blocks_grow_with_supply() {
        assert_eq!((block_len(0), block_len(1 << 20), block_len(CALM_IDS - 1)), (16, 256, 512));
        assert_eq!((block_len(CALM_IDS), block_len(u64::MAX)), (1024, 4096));
    }
}
