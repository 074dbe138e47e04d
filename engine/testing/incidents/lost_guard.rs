//! A lost lock that goes on minting.
//!
//! Services that hold a worker by a lease, a lock or a session of a coordinator, and take for granted that they would
//! notice its end. A process that is stopped for longer than the lease lasts (a long collection of garbage, a paused
//! machine, a laptop's lid) goes on where it was stopped: its worker is somebody else's by now, both mint for as long
//! as it takes the first one to hear of it, and a check before each id only makes the gap shorter.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use xuid_id::Id;

use crate::mint::worker::HeldWorker;
use crate::registry::ownership::{ExtendError, Window};
use crate::sys::atomics::lock;
use crate::testing::incidents::{FLOOR, Ledger, memory, process, request, small};
use crate::testing::support::rng::Rng;

const TICKS: u64 = 8;

fn mint(held: &mut HeldWorker, now: u64, most: u32) -> Vec<u64> {
    held.cut(&small(), now, most).into_iter().flatten().map(Id::raw).collect()
}

#[test]
fn who_was_stopped_past_its_window_mints_in_it_and_nowhere_else() {
    let mut ledger = Ledger::default();
    let registry = memory(small(), 1);
    let mut stopped = process(registry.clone(), 1);
    let mut old = HeldWorker::new(stopped.take(&request(FLOOR, TICKS)).unwrap(), TICKS);
    ledger.add(mint(&mut old, FLOOR, 3));
    // Stopped here, for as long as two windows last. Somebody else takes the worker.
    let now = FLOOR + 2 * TICKS;
    let mut next = process(registry, 2);
    let mut new = HeldWorker::new(next.take(&request(now, TICKS)).unwrap(), TICKS);
    ledger.add(mint(&mut new, now, 8));
    // It goes on, and has not looked at anything yet. All it finds is the rest of its own window.
    for _ in 0..100 {
        ledger.add(mint(&mut old, now, 3));
    }
    assert!(ledger.seen.iter().all(|id| small().tick_of(*id) < FLOOR + TICKS || small().tick_of(*id) == now));
    assert!(mint(&mut old, now, 3).is_empty(), "its window is used up");
    assert!(matches!(stopped.extend(0, now, now + TICKS), Err(ExtendError::Lost { worker: 0, .. })));
    ledger.add(mint(&mut new, now + TICKS, 8));
    ledger.check(8 * (TICKS as usize + 1));
}

/// Threads that share one worker and a clock that goes on whatever they do: each is stopped at any point, for longer
/// than a window, and goes on from there. `renew` is asked when a window is used up.
fn stopped_anywhere(seed: u64, believes_its_lock: bool) -> Ledger {
    let registry = memory(small(), 1);
    let (now, ledger) = (AtomicU64::new(FLOOR), Mutex::new(Ledger::default()));
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (registry, now, ledger) = (registry.clone(), &now, &ledger);
            scope.spawn(move || {
                let mut dice = Rng::new(seed ^ u64::from(thread) << 32);
                let mut ownership = process(registry, thread + 1);
                let mut current: Option<HeldWorker> = None;
                for _ in 0..100 {
                    let noticed = now.load(Ordering::Relaxed);
                    // Between what it saw and what it does, time goes by: little, or more than all windows.
                    now.fetch_add([0, 0, 1, 3 * TICKS][dice.below(4) as usize], Ordering::Relaxed);
                    std::thread::yield_now();
                    match &mut current {
                        Some(held) if dice.below(4) > 0 => {
                            let ids = mint(held, noticed, 1 + dice.below(9) as u32);
                            lock(ledger).add(ids);
                        }
                        Some(held) if believes_its_lock => {
                            let end = held.end().unwrap_or(noticed);
                            held.extend(Window::new(0, end.max(noticed)..end.max(noticed) + TICKS));
                        }
                        Some(held) => match ownership.extend(0, noticed, noticed + TICKS) {
                            Ok(window) => held.extend(window),
                            Err(ExtendError::Lost { .. } | ExtendError::Copied { .. }) => current = None,
                            Err(ExtendError::Later { .. }) => {}
                        },
                        None => {
                            let taken = ownership.take(&request(noticed, TICKS));
                            current = taken.ok().map(|window| HeldWorker::new(window, TICKS));
                        }
                    }
                }
            });
        }
    });
    ledger.into_inner().unwrap()
}

#[test]
fn processes_stopped_at_any_point_for_any_time_never_mint_in_each_others_windows() {
    let mut ids = 0;
    for seed in 0..100 {
        println!("seed {seed}");
        let ledger = stopped_anywhere(seed, false);
        ledger.check(0);
        ids += ledger.seen.len();
    }
    assert!(ids > 3_000, "{ids} ids are too few to show anything");
}

#[test]
fn negative_control_who_believes_that_its_lock_is_held_still_repeats_ids() {
    let repeats = |seed| !stopped_anywhere(seed, true).again.is_empty();
    assert!((0..300).any(repeats), "three hundred rounds found nothing");
}
