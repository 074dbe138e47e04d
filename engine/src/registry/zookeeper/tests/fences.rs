//! What a fence and an adoption leave, and trees that were made again by hand.

use xuid_spill::SpillId;

use super::*;
use crate::registry::zookeeper::znode::{GENESIS, encode_genesis};
use crate::registry::zookeeper::{ZooKeeperError, adopt};
use crate::registry::{ClusterId, Genesis, MarkRecord, open};

/// The operation code of a transaction.
const MULTI: i32 = 14;

fn spill() -> SpillId {
    SpillId::from_bytes([9; 16])
}

fn reserve(registry: &mut ZooKeeperRegistry, ticks: u64) -> u64 {
    let found = registry.worker(WORKER).unwrap();
    let reserved_until = found.record.reserved_until + ticks;
    let record = WorkerRecord { reserved_until, token: Token([7; 16]), operation: 1, owner: "far".into() };
    registry.swap_worker(WORKER, found.version, &record).unwrap();
    reserved_until
}

#[test]
fn a_fence_gives_up_every_spill_for_those_that_run_and_those_that_start() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut runs = ZooKeeperRegistry::open(&url, &options()).unwrap();
    let mark = |granted_upto| MarkRecord { granted_upto, token: Token([7; 16]), operation: granted_upto };
    runs.create_mark(spill(), &mark(0)).unwrap();
    let found = runs.mark(spill()).unwrap();
    assert_eq!(fence(&url, &options()).unwrap().marks, 1);
    // The first of them hears of the fence.
    for _ in 0..2 {
        assert!(runs.swap_mark(spill(), found.version, &mark(5)).is_err());
    }
    let mut starts = ZooKeeperRegistry::open(&url, &options()).unwrap();
    for registry in [&mut runs, &mut starts] {
        assert_eq!(registry.mark(spill()).unwrap().record.granted_upto, u64::MAX);
    }
}

#[test]
fn a_fence_keeps_workers_closed_that_are_or_were_at_genesis_and_cannot_be_read_and_they_open_above_it() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    let closed = Workers { from: 4, until: 8 };
    let (layout, floor) = (Layout::default(), Some(Floor::default()));
    let plan = Plan { layout, floor, workers: 8, key_check: None, first_worker: 0, closed };
    init(&url, &options(), &plan).unwrap();
    let mut registry = ZooKeeperRegistry::open(&url, &options()).unwrap();
    open(&mut registry, Workers { from: 6, until: 8 }, 7, 0).unwrap();
    // A clock was far ahead when this one was granted.
    let far = reserve(&mut registry, 7 * 86_400_000);
    // One that is open cannot be read, and one that is closed is gone.
    ensemble.replace(&worker_path(7), b"rubbish");
    ensemble.delete(&worker_path(4));
    assert_eq!(fence(&url, &options()).unwrap().reserved_until, far);
    ensemble::until("it hears of the fence", || registry.workers().is_ok());
    let record = |registry: &mut ZooKeeperRegistry, worker| registry.worker(worker).unwrap().record;
    let is_closed = |worker| record(&mut registry, worker).is_closed();
    assert_eq!(
        (0..8).map(is_closed).collect::<Vec<_>>(),
        [false, false, false, false, true, true, false, true]
    );
    assert_eq!(record(&mut registry, 6).reserved_until, far);
    assert_eq!(open(&mut registry, Workers { from: 7, until: 8 }, 7, 0).unwrap().from, far);
}

/// Each would begin an era, and a registry of two is closed.
#[test]
fn a_registry_that_is_being_made_is_not_fenced_meanwhile() {
    let ensemble = Ensemble::start();
    let recorder = Recorder::before(&ensemble);
    // All workers are made in one, and after it only the era is missing.
    recorder.hold_after(MULTI);
    let url = recorder.url();
    let making = std::thread::spawn(move || made(&url));
    ensemble::until("all but the era", || recorder.is_held());
    let refused = fence(&ensemble.url(), &options());
    recorder.hold_after(0);
    making.join().unwrap();
    assert_eq!(ensemble.children(ERA).len(), 1);
    assert!(matches!(refused, Err(ZooKeeperError::Busy { .. })), "{refused:?}");
    fence(&ensemble.url(), &options()).unwrap();
}

/// Cut off when the genesis names the new cluster: no record can be read then, since each is of the old one.
#[test]
fn an_adoption_that_is_cut_off_and_done_again_goes_above_what_the_first_one_read() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let far = reserve(&mut ZooKeeperRegistry::open(&url, &options()).unwrap(), 7 * 86_400_000);
    let first = adopt(&url, &options()).unwrap();
    assert_eq!(first.fenced.unwrap().reserved_until, far);
    for worker in 0..8 {
        let row = Row::genesis(Place::worker(worker), 0);
        ensemble.replace(&worker_path(worker), &row.encode(first.before));
    }
    assert_eq!(adopt(&url, &options()).unwrap().fenced.unwrap().reserved_until, far);
}

#[test]
fn a_tree_whose_genesis_or_era_was_made_again_by_hand_is_closed() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let folder = tempfile::tempdir().unwrap();
    let options = ZooKeeperOptions { folder: Some(folder.path().to_owned()), ..options() };
    reserve(&mut ZooKeeperRegistry::open(&url, &options).unwrap(), 1_000);
    let era = era_path(&ensemble.children(ERA).pop().unwrap());
    let remake = |path: &str| {
        let data = ensemble.data(path);
        ensemble.replace(path, &data);
    };
    remake(&era);
    let refused = ZooKeeperRegistry::open(&url, &options).map(drop).unwrap_err().to_string();
    assert!(refused.contains("deleted and made again by hand"), "{refused}");
    fence(&url, &options).unwrap();
    drop(ZooKeeperRegistry::open(&url, &options).unwrap());
    remake(GENESIS);
    let refused = ZooKeeperRegistry::open(&url, &options).map(drop);
    assert!(matches!(refused, Err(ZooKeeperError::Closed { .. })), "{refused:?}");
    fence(&url, &options).unwrap();
    drop(ZooKeeperRegistry::open(&url, &options).unwrap());
    // Of another cluster.
    let genesis = Genesis::new(ClusterId::from_bytes([1; 16]), Layout::default(), 0, 8);
    ensemble.replace(GENESIS, &encode_genesis(&genesis));
    assert!(ZooKeeperRegistry::open(&url, &options).is_err());
}
