//! An unversioned delete by a recycler.
//!
//! Services whose worker ids lie in a shared store with a note of when each was last alive, and a job that frees those
//! of the dead: it reads the notes, sees an old one, and deletes it, or sets it back, without saying which one it had
//! read. If a new process took the worker in between, its note goes, and the next process is given what that one uses.
//! The same happens to a process that hands back late what is not its own any more.

use std::sync::{Arc, Mutex};

use xuid_id::Id;

use crate::clock::SystemClock;
use crate::mint::worker::HeldWorker;
use crate::registry::local::{FileIdentity, LocalRegistry, MemoryDisk};
use crate::registry::ownership::Ownership;
use crate::registry::{Registry, SwapError, WorkerRecord};
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::testing::incidents::{FLOOR, Ledger, genesis, memory, process, request, small};
use crate::testing::support::rng::Rng;

const TICKS: u64 = 8;

fn mint(held: &mut HeldWorker, upto: u64, most: usize) -> Vec<u64> {
    let cut = || held.cut(&small(), upto, 3);
    std::iter::from_fn(cut).take(most).flatten().map(Id::raw).collect()
}

/// Three processes after each other on one worker. The first is thought to be dead: it hands back, late, what the
/// second has taken meanwhile. The third comes then.
fn hand_back_late<R: Registry + 'static>(open: impl Fn() -> R) -> Ledger {
    let mut ledger = Ledger::default();
    let mut first = process(open(), 1);
    let mut its = HeldWorker::new(first.take(&request(FLOOR, TICKS)).unwrap(), TICKS);
    ledger.add(mint(&mut its, FLOOR, 2));

    let now = FLOOR + TICKS;
    let mut second = process(open(), 2);
    let mut seconds = HeldWorker::new(second.take(&request(now, TICKS)).unwrap(), TICKS);
    ledger.add(mint(&mut seconds, now + 2, 100));
    // Whether it is refused is not what is judged.
    let _ = first.release(0, its.untouched());

    let mut third = process(open(), 3);
    if let Ok(window) = third.take(&request(now, TICKS)) {
        ledger.add(mint(&mut HeldWorker::new(window, TICKS), now + TICKS, 100));
    }
    ledger.add(mint(&mut seconds, now + TICKS, 100));
    ledger
}

/// Processes that come, mint, and go, some with a hand-back, some late and some never, over one worker that they all
/// want at all times.
fn come_and_go<R: Registry + 'static>(seed: u64, out: &[Guard], open: impl Fn() -> R + Sync) -> Ledger {
    let ledger = Mutex::new(Ledger::default());
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (ledger, open) = (&ledger, &open);
            scope.spawn(move || Guard::without(out, || live(seed, thread, ledger, open)));
        }
    });
    ledger.into_inner().unwrap()
}

/// Twenty lives after each other.
fn live<R: Registry + 'static>(seed: u64, thread: u8, ledger: &Mutex<Ledger>, open: &impl Fn() -> R) {
    let mut dice = Rng::new(seed ^ u64::from(thread) << 32);
    let mut overdue: Option<(Ownership, u64)> = None;
    for life in 0..20 {
        let now = FLOOR + u64::from(life) * 3 + dice.below(3);
        let mut ownership = process(open(), 1 + thread * 32 + life);
        let Ok(window) = ownership.take(&request(now, TICKS)) else { continue };
        let mut held = HeldWorker::new(window, TICKS);
        let ids = mint(&mut held, now + dice.below(TICKS), dice.below(9) as usize);
        lock(ledger).add(ids);
        if let Some((mut old, from)) = overdue.take() {
            let _ = old.release(0, from);
        }
        match dice.below(3) {
            0 => drop(ownership.release(0, held.untouched())),
            1 => overdue = Some((ownership, held.untouched())),
            _ => {}
        }
    }
}

fn disk() -> MemoryDisk {
    let identity = FileIdentity { inode: 1, born_ns: 2, device: 3, machine: 4 };
    MemoryDisk::with_registry(&genesis(small(), 1), identity)
}

fn local(disk: &Mutex<MemoryDisk>) -> LocalRegistry<MemoryDisk> {
    LocalRegistry::on(lock(disk).open_again(), Arc::new(SystemClock)).unwrap()
}

#[test]
fn what_is_handed_back_late_takes_nothing_from_who_came_after() {
    let registry = memory(small(), 1);
    hand_back_late(|| registry.clone()).check(24);
    let disk = Mutex::new(disk());
    hand_back_late(|| local(&disk)).check(24);
}

#[test]
fn processes_that_come_and_go_on_one_worker_never_free_what_is_used() {
    let mut ids = 0;
    for seed in 0..100 {
        println!("seed {seed}");
        let registry = memory(small(), 1);
        let ledger = come_and_go(seed, &[], || registry.clone());
        ledger.check(1);
        ids += ledger.seen.len();
    }
    // A local registry is opened and read anew by each of sixty lives.
    for seed in 0..5 {
        println!("seed {seed}, local");
        let disk = Mutex::new(disk());
        come_and_go(seed, &[], || local(&disk)).check(1);
    }
    assert!(ids > 1_000, "{ids} ids are too few to show anything");
}

#[test]
fn nobody_is_left_that_could_delete_a_record() {
    // Leaving takes an announcement back, and that is all: the record stays, and says what it said.
    for mut registry in
        [Box::new(memory(small(), 1)) as Box<dyn Registry>, Box::new(local(&Mutex::new(disk())))]
    {
        let before = registry.worker(0).unwrap();
        let record = WorkerRecord { reserved_until: FLOOR + TICKS, ..before.record };
        registry.claim(0, before.version, &record).unwrap();
        let claimed = registry.worker(0).unwrap();
        registry.leave(0);
        registry.close();
        assert_eq!(registry.worker(0).unwrap(), claimed);
        let stale = registry.swap_worker(0, before.version, &record);
        assert!(matches!(stale, Err(SwapError::Conflict)), "{stale:?}");
    }
}

#[test]
fn negative_control_a_hand_back_that_names_no_version_frees_what_is_used() {
    let registry = memory(small(), 1);
    let ledger = Guard::without(&[Guard::VersionCompared], || hand_back_late(|| registry.clone()));
    assert!(!ledger.again.is_empty(), "the second's land was not given to the third");
    // And in threads, within a few rounds.
    let repeats = |seed| {
        let registry = memory(small(), 1);
        !come_and_go(seed, &[Guard::VersionCompared], || registry.clone()).again.is_empty()
    };
    assert!((0..100).any(repeats), "a hundred rounds found nothing");
}
