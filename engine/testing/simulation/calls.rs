//! Callers: every public way to an id, but for those that block.

use std::future::Future;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::id::error::{IdError, IdErrorKind};
use crate::sys::atomics::lock;
use crate::testing::simulation::node::Node;
use crate::testing::simulation::process::{Process, Waiting};
use crate::{Id, Order, Run};

/// Runs that a drain takes at most: the newest are those that may be elsewhere, too, and all would take too long. With
/// 1,500 of them no mutant was caught earlier.
const DRAINED: usize = 400;

impl Node {
    fn issued(&mut self, process: &mut Process, first: u64, len: u32) {
        process.got += u64::from(len);
        lock(&self.exchange.oracle).issued(self.number, first, len, self.most);
    }

    fn note(
        &mut self,
        process: &mut Process,
        order: Order,
        above: u64,
        result: Result<Vec<Run>, IdError>,
    ) -> u64 {
        self.look_at(process);
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
                process.last_ordered = process.last_ordered.max(above);
            }
            ids += u64::from(run.len());
            self.issued(process, run.raw(), run.len());
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
            IdErrorKind::ShuttingDown | IdErrorKind::Forked | IdErrorKind::NoOrder => {
                if !self.closing {
                    lock(&self.exchange.oracle).wrong(|| format!("a running node said {error}"));
                }
                "SHUTTING_DOWN"
            }
        };
        *self.tally.refusals.entry(code.into()).or_default() += 1;
        0
    }

    /// A few calls of any kind.
    pub(crate) fn call(&mut self) {
        self.within("kills in a call", |node, process| {
            let sequences = u64::from(process.shared.layout.sequences());
            let count = node.rng.magnitude(1, (3 * sequences).max(32)) as u32;
            let order = node.rng.pick(&[Order::Any, Order::Any, Order::Fresh, Order::Ordered]);
            match node.rng.below(64) {
                0..16 => node.singles(process, count.min(64), |process| process.engine.try_next_id()),
                16..30 => {
                    let at = node.rng.below(process.handles.len() as u64) as usize;
                    node.singles(process, count.min(64), |process| process.handles[at].next_id());
                }
                30 => node.thread(process, count.min(64)),
                31 => node.handles(process),
                32..48 => node.runs(process, count, order),
                48..60 => node.wait(process, count, order),
                _ => {
                    // Somebody who waited goes away.
                    let left = process.waiting.len() as u64;
                    if left > 0 {
                        drop(process.waiting.swap_remove(node.rng.below(left) as usize));
                    }
                }
            }
            node.poll_all(process);
            node.look_at(process);
        });
    }

    /// Ids one by one, until one is refused.
    fn singles(
        &mut self,
        process: &mut Process,
        count: u32,
        mut next: impl FnMut(&mut Process) -> Result<Id, IdError>,
    ) {
        for _ in 0..count {
            match next(process) {
                Ok(id) => {
                    self.look_at(process);
                    self.issued(process, id.raw(), 1);
                }
                Err(error) => {
                    self.refused(error);
                    return;
                }
            }
        }
    }

    /// Handles come and go; what one that goes had in hand is waste.
    fn handles(&mut self, process: &mut Process) {
        if process.handles.len() > 1 && self.rng.chance(50) {
            drop(process.handles.swap_remove(self.rng.below(process.handles.len() as u64) as usize));
        } else if process.handles.len() < 6 {
            process.handles.push(process.engine.handle());
            self.tally.trouble("handles made", 1);
        }
    }

    /// A thread comes, takes a few ids, and ends.
    fn thread(&mut self, process: &mut Process, count: u32) {
        let (engine, got) = (&process.engine, Mutex::new(Vec::new()));
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
        self.tally.trouble("threads", 1);
        self.look_at(process);
        for id in lock(&got).drain(..) {
            self.issued(process, id, 1);
        }
        match ended {
            Ok(error) => {
                error.map(|error| self.refused(error));
            }
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    fn runs(&mut self, process: &mut Process, count: u32, order: Order) {
        let (mut runs, above) = (Vec::new(), process.last_ordered);
        let result = process.engine.try_runs(count, order, &mut runs).map(|()| runs);
        if let (Order::Fresh, Ok(runs)) = (order, &result) {
            let (layout, e) = (process.shared.layout, lock(&process.shared.gate).clock.last());
            let least = layout.tick_at_ns(e.saturating_sub(10_000_000)).unwrap_or(0);
            if let Some(old) = runs.iter().find(|run| layout.tick_of(run.raw()) < least) {
                let old = layout.decode(old.first());
                lock(&self.exchange.oracle).wrong(|| format!("a fresh id is of {old:?}, E is {e}"));
            }
        }
        self.note(process, order, above, result);
    }

    fn wait(&mut self, process: &mut Process, count: u32, order: Order) {
        let wait = Duration::from_nanos(self.rng.magnitude(1_000_000, 2_000_000_000));
        let pending = Box::pin(process.engine.request(count, order, wait));
        process.waiting.push(Waiting { pending, order, above: process.last_ordered });
    }

    /// A call of each order begins to wait for so many nanoseconds, instead of whoever waited.
    pub(crate) fn wait_for_each_order(&mut self, ns: u64) {
        self.within("kills in a call", |node, process| {
            process.waiting.clear();
            for order in [Order::Any, Order::Fresh, Order::Ordered] {
                let pending = Box::pin(process.engine.request(3, order, Duration::from_nanos(ns)));
                process.waiting.push(Waiting { pending, order, above: process.last_ordered });
            }
            node.poll_all(process);
        });
    }

    /// Calls that wait and have no answer.
    pub(crate) fn still_waiting(&mut self) -> usize {
        let waiting = self.within("kills in a call", |node, process| {
            node.poll_all(process);
            process.waiting.len()
        });
        waiting.unwrap_or(0)
    }

    pub(crate) fn poll_all(&mut self, process: &mut Process) {
        for mut waiting in std::mem::take(&mut process.waiting) {
            match waiting.pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => process.waiting.push(waiting),
                Poll::Ready(result) => {
                    self.note(process, waiting.order, waiting.above, result);
                }
            }
        }
    }

    /// Asks for so many ids of an order, now; says how many came.
    pub(crate) fn ask(&mut self, count: u32, order: Order) -> Result<u64, IdError> {
        let asked = self.within("kills in a call", |node, process| {
            let (mut runs, above) = (Vec::new(), process.last_ordered);
            let result = process.engine.try_runs(count, order, &mut runs).map(|()| runs);
            let error = result.as_ref().err().copied();
            node.drained += result.as_ref().map_or(0, Vec::len);
            let ids = node.note(process, order, above, result);
            error.map_or(Ok(ids), Err)
        });
        asked.unwrap_or(Ok(0))
    }

    /// Spends what there is at hand, or much of it, so that an id that is in two places comes out of both.
    pub(crate) fn drain(&mut self) {
        let Some(layout) = self.process.as_ref().map(|process| process.shared.layout) else { return };
        let most = layout.sequences().min(1024) * 64;
        for _ in 0..4 {
            let mut count = most;
            while count > 0 {
                // Asking for more than there is brings nothing.
                if self.ask(count, Order::Any).is_err() {
                    count /= 4;
                }
                // It may be killed in the middle of that.
                if self.drained > DRAINED || self.process.is_none() {
                    self.drained = 0;
                    return;
                }
            }
            self.act();
        }
    }
}
