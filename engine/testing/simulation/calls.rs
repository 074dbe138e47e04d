//! Callers: every public way to an id, but for those that block.

use std::future::Future;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::id::error::{IdError, IdErrorKind};
use crate::sys::atomics::lock;
use crate::testing::simulation::node::Node;
use crate::testing::simulation::process::{Life, Waiting};
use crate::{Order, Run};

/// Runs that a drain takes at most: the newest are those that may be elsewhere, too, and all would take too long. With
/// 1,500 of them no mutant was caught earlier.
const DRAINED: usize = 400;

impl Node {
    fn issued(&mut self, life: &mut Life, first: u64, len: u32) {
        life.got += u64::from(len);
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
            self.issued(life, run.raw(), run.len());
        }
        ids
    }

    fn refused(&mut self, error: IdError) -> u64 {
        let code = match error.kind() {
            IdErrorKind::ClockBehind => "CLOCK_BEHIND",
            IdErrorKind::NotReady => "NOT_READY",
            IdErrorKind::Overloaded => "OVERLOADED",
            IdErrorKind::WindowLost => "WINDOW_LOST",
            IdErrorKind::Exhausted => "EXHAUSTED",
            IdErrorKind::ShuttingDown | IdErrorKind::Forked => {
                if !self.closing {
                    lock(&self.exchange.oracle).wrong(|| format!("a running node said {error}"));
                }
                "SHUTTING_DOWN"
            }
        };
        self.summary.refuse(code);
        0
    }

    /// A few calls of any kind.
    pub(crate) fn call(&mut self) {
        self.within("kills in a call", |node, life| {
            let sequences = u64::from(life.shared.layout.sequences());
            let count = node.chance.magnitude(1, (3 * sequences).max(32)) as u32;
            let order = node.chance.pick(&[Order::Any, Order::Any, Order::Fresh, Order::Ordered]);
            match node.chance.below(64) {
                0..16 => node.singles(life, count.min(64)),
                16..30 => node.handle(life, count.min(64)),
                30 => node.thread(life, count.min(64)),
                31 => node.handles(life),
                32..48 => node.runs(life, count, order),
                48..60 => node.wait(life, count, order),
                _ => {
                    // Somebody who waited goes away.
                    let left = life.waiting.len() as u64;
                    if left > 0 {
                        drop(life.waiting.swap_remove(node.chance.below(left) as usize));
                    }
                }
            }
            node.poll_all(life);
            node.look_at(life);
        });
    }

    fn singles(&mut self, life: &mut Life, count: u32) {
        for _ in 0..count {
            match life.engine.try_next_id() {
                Ok(id) => {
                    self.look_at(life);
                    self.issued(life, id.raw(), 1);
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
                    self.issued(life, id.raw(), 1);
                }
                Err(error) => {
                    self.refused(error);
                    return;
                }
            }
        }
    }

    /// Handles come and go; what one that goes had in hand is waste.
    fn handles(&mut self, life: &mut Life) {
        if life.handles.len() > 1 && self.chance.chance(50) {
            drop(life.handles.swap_remove(self.chance.below(life.handles.len() as u64) as usize));
        } else if life.handles.len() < 6 {
            life.handles.push(life.engine.handle());
            self.summary.trouble("handles made", 1);
        }
    }

    /// A thread comes, takes a few ids, and ends.
    fn thread(&mut self, life: &mut Life, count: u32) {
        let (engine, got) = (&life.engine, Mutex::new(Vec::new()));
        // Beyond a kill in the middle, the ids that it got before are its own.
        let ended = std::thread::scope(|scope| {
            let body = || {
                for _ in 0..count {
                    match engine.try_next_id() {
                        Ok(id) => lock(&got).push(id.raw()),
                        Err(error) => return Some(error),
                    }
                }
                None
            };
            scope.spawn(body).join()
        });
        self.summary.trouble("threads", 1);
        self.look_at(life);
        for id in lock(&got).drain(..) {
            self.issued(life, id, 1);
        }
        match ended {
            Ok(error) => {
                error.map(|error| self.refused(error));
            }
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    fn runs(&mut self, life: &mut Life, count: u32, order: Order) {
        let (mut runs, above) = (Vec::new(), life.last_ordered);
        let result = life.engine.try_runs(count, order, &mut runs).map(|()| runs);
        if let (Order::Fresh, Ok(runs)) = (order, &result) {
            let (layout, e) = (life.shared.layout, lock(&life.shared.gate).clock.last());
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

    /// A call of each order begins to wait for so many nanoseconds, instead of whoever waited.
    pub(crate) fn wait_for_each_order(&mut self, ns: u64) {
        self.within("kills in a call", |node, life| {
            life.waiting.clear();
            for order in [Order::Any, Order::Fresh, Order::Ordered] {
                let pending = Box::pin(life.engine.request(3, order, Duration::from_nanos(ns)));
                life.waiting.push(Waiting { pending, order, above: life.last_ordered });
            }
            node.poll_all(life);
        });
    }

    /// Calls that wait and have no answer.
    pub(crate) fn still_waiting(&mut self) -> usize {
        let waiting = self.within("kills in a call", |node, life| {
            node.poll_all(life);
            life.waiting.len()
        });
        waiting.unwrap_or(0)
    }

    pub(crate) fn poll_all(&mut self, life: &mut Life) {
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
    pub(crate) fn ask(&mut self, count: u32, order: Order) -> Result<u64, IdError> {
        let asked = self.within("kills in a call", |node, life| {
            let (mut runs, above) = (Vec::new(), life.last_ordered);
            let result = life.engine.try_runs(count, order, &mut runs).map(|()| runs);
            let error = result.as_ref().err().copied();
            node.drained += result.as_ref().map_or(0, Vec::len);
            let ids = node.note(life, order, above, result);
            error.map_or(Ok(ids), Err)
        });
        asked.unwrap_or(Ok(0))
    }

    /// Spends what there is at hand, or much of it, so that an id that is in two places comes out of both.
    pub(crate) fn drain(&mut self) {
        let Some(layout) = self.life.as_ref().map(|life| life.shared.layout) else { return };
        let most = layout.sequences().min(1024) * 64;
        for _ in 0..4 {
            let mut count = most;
            while count > 0 {
                // Asking for more than there is brings nothing.
                if self.ask(count, Order::Any).is_err() {
                    count /= 4;
                }
                // It may be killed in the middle of that.
                if self.drained > DRAINED || self.life.is_none() {
                    self.drained = 0;
                    return;
                }
            }
            self.act();
        }
    }
}
