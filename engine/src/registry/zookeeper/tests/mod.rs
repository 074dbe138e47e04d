//! The adaptor on a real server, with a guard taken out: stories on whole servers cannot do that.

mod ensemble;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::genesis::{Plan, init};
use super::node::{ERA, encode_era, era_path, worker_path};
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use super::{ZooKeeperRegistry, fence};
use crate::builder::Floor;
use crate::guards::Guard;
use crate::layout::Layout;
use crate::registry::record::{Place, Row};
use crate::registry::{Registry, SwapError, Token, WorkerRecord};
use ensemble::{Ensemble, Recorder};

const WORKER: u32 = 3;

fn options() -> ZooKeeperOptions {
    ZooKeeperOptions { session: Duration::from_secs(10), ..ZooKeeperOptions::default() }
}

fn made(url: &ZooKeeperUrl) {
    let plan = Plan { layout: Layout::default(), floor: Some(Floor::default()), workers: 8 };
    init(url, &options(), &plan).unwrap();
}

/// A process reads a record. Then the ensemble is put back and fenced, by which the record's version comes again, and
/// the process writes at that version. Whether the write is stored.
fn stores_after_a_fence_that_repeats_versions() -> bool {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut registry = ZooKeeperRegistry::open(&url, &options()).unwrap();
    let found = registry.worker(WORKER).unwrap();
    let fenced = fence(&url, &options()).unwrap();
    // A fence raises versions; a node of the same version as before is what a restore leaves for it to raise.
    let row = Row {
        version: found.version,
        value: fenced.reserved_until,
        ..Row::genesis(Place::worker(WORKER), fenced.reserved_until)
    };
    ensemble.replace(&worker_path(WORKER), &row.encode(fenced.genesis.cluster));
    let record =
        WorkerRecord { reserved_until: 1_000, token: Token([7; 16]), operation: 1, owner: "late".into() };
    match registry.swap_worker(WORKER, found.version, &record) {
        Ok(()) => true,
        Err(SwapError::Unavailable { why }) => {
            assert!(why.contains("fenced"), "{why}");
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_write_that_was_begun_before_a_fence_is_not_stored_after_it() {
    assert!(!stores_after_a_fence_that_repeats_versions());
}

#[test]
fn without_the_era_in_a_write_one_of_before_a_fence_is_stored_after_it() {
    assert!(Guard::without(&[Guard::EraNamed], stores_after_a_fence_that_repeats_versions));
}

/// What the server is asked first after each of two connections of a registry that is open.
fn first_requests() -> Vec<Vec<i32>> {
    let ensemble = Ensemble::start();
    made(&ensemble.url());
    let recorder = Recorder::before(&ensemble);
    let mut registry = ZooKeeperRegistry::open(&recorder.url(), &options()).unwrap();
    recorder.cut();
    // The client notices and connects again by itself.
    let connected = || recorder.connections.load(SeqCst) > 1 && registry.worker(WORKER).is_ok();
    ensemble::until("another connection that was looked around in", connected);
    recorder.requests()
}

/// Operation codes of ZooKeeper's protocol.
const SYNC: i32 = 9;
const PING: i32 = 11;

fn begin_with_a_sync(connections: &[Vec<i32>]) -> bool {
    connections.iter().all(|asked| asked.iter().find(|code| **code != PING) == Some(&SYNC))
}

/// A server that lags behind looks like one of a restored ensemble, or like one that is open still.
#[test]
fn after_each_connection_a_server_is_asked_to_catch_up_before_anything_else() {
    let asked = first_requests();
    assert!(asked.len() > 1 && begin_with_a_sync(&asked), "{asked:?}");
}

#[test]
fn without_the_sync_a_server_is_believed_that_may_lag_behind() {
    let asked = Guard::without(&[Guard::SyncFirst], first_requests);
    assert!(!begin_with_a_sync(&asked[1..]), "{asked:?}");
}

/// An era in which nothing says when it was begun is one of an earlier program: it can be used, and fenced.
#[test]
fn an_era_of_eight_bytes_is_read() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let name = ensemble.children(ERA).pop().unwrap();
    let data = ensemble.data(&era_path(&name));
    assert_eq!(data[..8], encode_era(i64::from_le_bytes(data[..8].try_into().unwrap()), 0)[..8]);
    ensemble.replace(&era_path(&name), &data[..8]);
    let mut registry = ZooKeeperRegistry::open(&url, &options()).unwrap();
    assert!(registry.worker(WORKER).is_ok());
    fence(&url, &options()).unwrap();
    assert!(registry.workers().is_ok());
}
