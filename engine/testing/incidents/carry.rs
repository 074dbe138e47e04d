//! A sequence carried into the worker bits.
//!
//! Generators that keep their state as one packed word of `time | worker | sequence`, and add one to it, or that mask a
//! wider counter in one place and not in another: in a tick in which the sequence is used up, the carry goes into the
//! worker's bits, and what comes next is the first id of the neighbour. Nobody sees it until a burst meets a neighbour
//! that is numbered one higher.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use xuid_id::{Id, Layout};

use crate::id::run::Run;
use crate::mint::worker::HeldWorker;
use crate::registry::ownership::Window;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::testing::incidents::{Ledger, small};

const TICKS: u64 = 500;
const FIRST: u64 = 7;
const THREADS: u32 = 2;

/// All workers of a layout side by side, each used by several threads at once until it has nothing more to give in
/// these ticks; `mint` takes a worker and how many ids are wanted at most.
fn neighbours(layout: &Layout, mint: impl Fn(u32, u32) -> Vec<u64> + Sync) -> Ledger {
    let ledger = Mutex::new(Ledger::default());
    std::thread::scope(|scope| {
        for (worker, thread) in
            (0..layout.workers()).flat_map(|worker| (0..THREADS).map(move |n| (worker, n)))
        {
            let (mint, ledger) = (&mint, &ledger);
            scope.spawn(move || {
                // From one id to more than a tick has.
                for most in (1..=19).cycle().skip(thread as usize * 5) {
                    let ids = mint(worker, most);
                    if ids.is_empty() {
                        return;
                    }
                    lock(ledger).add(ids);
                }
            });
        }
    });
    ledger.into_inner().unwrap()
}

#[test]
fn a_tick_that_is_used_up_never_carries_into_the_next_worker() {
    let layout = small();
    let whole = TICKS as usize * layout.sequences() as usize * layout.workers() as usize;
    for _ in 0..20 {
        let window = |worker| Mutex::new(HeldWorker::new(Window::new(worker, FIRST..FIRST + TICKS), 1));
        let workers: Vec<_> = (0..layout.workers()).map(window).collect();
        let ledger = neighbours(&layout, |worker, most| {
            let mut held = lock(&workers[worker as usize]);
            let Some(mut run) = held.cut(&layout, FIRST + TICKS, most) else { return Vec::new() };
            // As a caller's runs are joined, which must not reach over the end of a tick either.
            if let Some(next) = held.cut(&layout, FIRST + TICKS, most) {
                if run.continues_with(&next, layout.sequences()) {
                    run.join(next);
                    return raw(run);
                }
                return raw(run).into_iter().chain(raw(next)).collect();
            }
            raw(run)
        });
        ledger.check(whole);
        assert_eq!(ledger.seen.len(), whole, "each plot once, and none of another window");
        let inside = |id: &u64| (FIRST..FIRST + TICKS).contains(&layout.tick_of(*id));
        assert!(ledger.seen.iter().all(inside));
    }
}

fn raw(run: Run) -> Vec<u64> {
    run.into_iter().map(Id::raw).collect()
}

#[test]
fn negative_control_a_packed_word_that_is_added_to_repeats_ids() {
    let layout = small();
    let begin = |worker| AtomicU64::new(layout.encode(FIRST, worker, 0).raw());
    let words: Vec<_> = (0..layout.workers()).map(begin).collect();
    let ledger = neighbours(&layout, |worker, most| {
        // One tick and a bit of a burst: more than the sequence holds.
        let first = words[worker as usize].fetch_add(u64::from(most), Ordering::Relaxed);
        let end = layout.encode(FIRST, worker, 0).raw() + u64::from(2 * layout.sequences());
        (first..first + u64::from(most)).filter(|id| *id < end).collect()
    });
    assert!(!ledger.again.is_empty(), "the carry was not noticed");
    let neighbour = |id: &u64| layout.decode(Id::new(*id)).worker > 0;
    assert!(ledger.again.iter().all(neighbour), "what comes twice is a neighbour's: {:?}", ledger.again);
}

#[test]
fn negative_control_a_run_that_does_not_end_with_its_tick_repeats_ids() {
    let layout = small();
    let window = |worker| Mutex::new(HeldWorker::new(Window::new(worker, FIRST..FIRST + TICKS), 1));
    let workers: Vec<_> = (0..layout.workers()).map(window).collect();
    let ledger = neighbours(&layout, |worker, most| {
        let cut = || lock(&workers[worker as usize]).cut(&layout, FIRST + TICKS, most);
        Guard::without(&[Guard::SequenceEnd], cut).map_or_else(Vec::new, raw)
    });
    assert!(!ledger.again.is_empty(), "the carry was not noticed");
}
