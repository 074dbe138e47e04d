//! Callers: every public way to an id, but for those that block.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::node::{Life, Node, Waiting};
use crate::error::{IdError, IdErrorKind};
use crate::sync::lock;
use crate::{Order, Run};

/// Runs that a drain takes at most: the newest are those that may be elsewhere, too, and all would take too long.
const DRAINED: usize = 1_500;

impl Node {
    fn issued(&mut self, first: u64, len: u32) {
        lock(&self.exchange.oracle).issued(self.number, first, len, self.most);
    }

    fn note(&mut self, life: &mut Life, order: Order, above: u64, result: Result<Vec<Run>, IdError>) -> u64 {
        self.look_at(life);
        let runs = match result {
            Ok(runs) => runs,
            Err(error) => return self.refused(error),
        };
        let (mut ids, mut above) = (0, above);
        for run in runs {
            if order == Order::Ordered {
                if run.raw() <= above && above > 0 {
                    let node = self.number;
                    lock(&self.exchange.oracle)
                        .wrong(|| format!("node {node} issued the ordered id {} after {above}", run.raw()));
                }
                above = run.raw() + u64::from(run.len()) - 1;
                life.last_ordered = life.last_ordered.max(above);
            }
            ids += u64::from(run.len());
            self.issued(run.raw(), run.len());
        }
        ids
    }

    fn refused(&mut self, error: IdError) -> u64 {
        let refusals = &mut self.refusals;
        match error.kind() {
            IdErrorKind::ClockBehind => refusals.clock_behind += 1,
            IdErrorKind::NotReady => refusals.not_ready += 1,
            IdErrorKind::Overloaded => refusals.overloaded += 1,
            IdErrorKind::WindowLost => refusals.window_lost += 1,
            IdErrorKind::Exhausted => refusals.exhausted += 1,
            IdErrorKind::ShuttingDown | IdErrorKind::Forked => {
                if !self.closing {
                    lock(&self.exchange.oracle).wrong(|| format!("a running node said {error}"));
                }
            }
        }
        0
    }

    /// A few calls of any kind.
    pub(super) fn call(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        let sequences = u64::from(life.shared.layout.sequences());
        let count = self.chance.magnitude(1, (3 * sequences).max(32)) as u32;
        let order = self.chance.pick(&[Order::Any, Order::Any, Order::Fresh, Order::Ordered]);
        match self.chance.below(8) {
            0 | 1 => self.singles(&mut life, count.min(64)),
            2 => self.handle(&mut life, count.min(64)),
            3 | 4 => self.runs(&mut life, count, order),
            5 | 6 => self.wait(&mut life, count, order),
            _ => {
                // Somebody who waited goes away.
                let left = life.waiting.len() as u64;
                if left > 0 {
                    drop(life.waiting.swap_remove(self.chance.below(left) as usize));
                }
            }
        }
        self.poll_all(&mut life);
        self.look_at(&mut life);
        self.life = Some(life);
    }

    fn singles(&mut self, life: &mut Life, count: u32) {
        for _ in 0..count {
            match life.engine.try_next_id() {
                Ok(id) => {
                    self.look_at(life);
                    self.issued(id.raw(), 1);
                }
                Err(error) => {
                    self.refused(error);
                    return;
                }
            }
        }
    }

    fn handle(&mut self, life: &mut Life, count: u32) {
        let at = self.chance.below(life.handles.len() as u64) as usize;
        for _ in 0..count {
            match life.handles[at].next_id() {
                Ok(id) => {
                    self.look_at(life);
                    self.issued(id.raw(), 1);
                }
                Err(error) => {
                    self.refused(error);
                    return;
                }
            }
        }
    }

    fn runs(&mut self, life: &mut Life, count: u32, order: Order) {
        let (mut runs, above) = (Vec::new(), life.last_ordered);
        let result = life.engine.try_runs(count, order, &mut runs).map(|()| runs);
        if let (Order::Fresh, Ok(runs)) = (order, &result) {
            let (layout, e) = (life.shared.layout, lock(&life.shared.gate).minter.engine_clock());
            let least = layout.tick_at_ns(e.saturating_sub(10_000_000)).unwrap_or(0);
            if let Some(old) = runs.iter().find(|run| layout.tick_of(run.raw()) < least) {
                let old = layout.decode(old.first());
                lock(&self.exchange.oracle).wrong(|| format!("a fresh id is of {old:?}, E is {e}"));
            }
        }
        self.note(life, order, above, result);
    }

    fn wait(&mut self, life: &mut Life, count: u32, order: Order) {
        let wait = Duration::from_nanos(self.chance.magnitude(1_000_000, 2_000_000_000));
        let pending = Box::pin(life.engine.request(count, order, wait));
        life.waiting.push(Waiting { pending, order, above: life.last_ordered });
    }

    pub(super) fn poll_all(&mut self, life: &mut Life) {
        for mut waiting in std::mem::take(&mut life.waiting) {
            match waiting.pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => life.waiting.push(waiting),
                Poll::Ready(result) => {
                    self.note(life, waiting.order, waiting.above, result);
                }
            }
        }
    }

    /// Asks for so many ids of an order, now; says how many came.
    pub(super) fn ask(&mut self, count: u32, order: Order) -> Result<u64, IdError> {
        let Some(mut life) = self.life.take() else { return Ok(0) };
        let (mut runs, above) = (Vec::new(), life.last_ordered);
        let result = life.engine.try_runs(count, order, &mut runs).map(|()| runs);
        let error = result.as_ref().err().copied();
        self.drained += result.as_ref().map_or(0, Vec::len);
        let ids = self.note(&mut life, order, above, result);
        self.life = Some(life);
        error.map_or(Ok(ids), Err)
    }

    /// Spends what there is at hand, or much of it, so that an id that is in two places comes out of both.
    pub(super) fn drain(&mut self) {
        let Some(layout) = self.life.as_ref().map(|life| life.shared.layout) else { return };
        let most = layout.sequences().min(1024) * 64;
        for _ in 0..4 {
            let mut count = most;
            while count > 0 {
                // Asking for more than there is brings nothing.
                if self.ask(count, Order::Any).is_err() {
                    count /= 4;
                }
                if self.drained > DRAINED {
                    self.drained = 0;
                    return;
                }
            }
            self.act();
        }
    }
}
