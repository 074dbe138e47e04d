//! The adaptor on a real server, with a guard taken out: tests on whole servers cannot do that.

mod ensemble;
mod fences;
mod sequences;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use xuid_id::{Layout, Veil};

use super::genesis::{Plan, init};
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use super::znode::{ERA, encode_era, era_path, worker_path};
use super::{ZooKeeperError, ZooKeeperRegistry, adopt, fence};
use crate::id::key_error::OpaqueKeyError;
use crate::registry::Floor;
use crate::registry::ownership::{Identity, Ownership};
use crate::registry::record::{Place, Row};
use crate::registry::{Registry, SwapError, Token, WorkerRecord, Workers};
use crate::sys::guards::Guard;
use crate::tiers::reserve;
use ensemble::{Ensemble, Recorder};

const WORKER: u32 = 3;

fn options() -> ZooKeeperOptions {
    ZooKeeperOptions { session: Duration::from_secs(10), ..ZooKeeperOptions::default() }
}

fn made(url: &ZooKeeperUrl) {
    let (layout, floor) = (Layout::default(), Some(Floor::default()));
    let plan = Plan { layout, floor, workers: 8, key_check: None, first_worker: 0, closed: Workers::NONE };
    init(url, &options(), &plan).unwrap();
}

#[test]
fn an_opaque_registry_keeps_its_key_through_a_fence_and_an_adoption() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    let (layout, floor) = (Layout::default().opaque().unwrap(), Some(Floor::default()));
    let [ours, other] = [7, 8].map(|byte| Veil::new([byte; 16]));
    let plan = Plan { layout, floor, workers: 8, key_check: None, first_worker: 0, closed: Workers::NONE };
    let refused = init(&url, &options(), &plan);
    assert!(matches!(refused, Err(ZooKeeperError::Key(OpaqueKeyError::Absent))), "{refused:?}");
    let keyed = Plan { key_check: Some(ours.check()), ..plan };
    let refused = init(&url, &options(), &Plan { layout: Layout::default(), ..keyed });
    assert!(matches!(refused, Err(ZooKeeperError::Key(OpaqueKeyError::Unwanted))), "{refused:?}");
    init(&url, &options(), &keyed).unwrap();
    let is_sealed = || {
        let genesis = *ZooKeeperRegistry::open(&url, &options()).unwrap().genesis();
        assert_eq!(genesis.layout, layout);
        assert_eq!(genesis.check_veil(Some(&ours)), Ok(()));
        assert_eq!(genesis.check_veil(Some(&other)), Err(OpaqueKeyError::Other));
        assert_eq!(genesis.check_veil(None), Err(OpaqueKeyError::Absent));
    };
    is_sealed();
    fence(&url, &options()).unwrap();
    is_sealed();
    adopt(&url, &options()).unwrap();
    is_sealed();
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

/// The clock of whoever reserved it was days ahead.
#[test]
fn a_fence_goes_above_the_highest_record_whatever_the_ensemble_s_clock_says() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut registry = ZooKeeperRegistry::open(&url, &options()).unwrap();
    let found = registry.worker(WORKER).unwrap();
    let far = found.record.reserved_until + 7 * 86_400_000;
    let record =
        WorkerRecord { reserved_until: far, token: Token([7; 16]), operation: 1, owner: "far".into() };
    registry.swap_worker(WORKER, found.version, &record).unwrap();
    assert_eq!(fence(&url, &options()).unwrap().reserved_until, far);
}

/// As after such a fence, and the process tries once more, as it does with a renewal that was not sent: by then it
/// knows of the fence.
fn fits_after_a_fence_that_repeats_versions() -> bool {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let mut registry = ZooKeeperRegistry::open(&url, &options()).unwrap();
    let found = registry.worker(WORKER).unwrap();
    let fenced = fence(&url, &options()).unwrap();
    let row = Row {
        version: found.version,
        value: fenced.reserved_until,
        ..Row::genesis(Place::worker(WORKER), fenced.reserved_until)
    };
    ensemble.replace(&worker_path(WORKER), &row.encode(fenced.genesis.cluster));
    let record =
        WorkerRecord { reserved_until: 1_000, token: Token([7; 16]), operation: 1, owner: "late".into() };
    let first = registry.swap_worker(WORKER, found.version, &record);
    assert!(matches!(first, Err(SwapError::Unavailable { .. })), "{first:?}");
    match registry.swap_worker(WORKER, found.version, &record) {
        Ok(()) => true,
        Err(SwapError::Conflict) => false,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_version_of_before_a_fence_fits_nothing_after_it() {
    assert!(!fits_after_a_fence_that_repeats_versions());
}

#[test]
fn without_the_era_in_a_version_one_of_before_a_fence_fits_after_it() {
    assert!(Guard::without(&[Guard::EraTagged], fits_after_a_fence_that_repeats_versions));
}

/// A registry that is open over a recorder, and its ensemble.
fn recorded() -> (Ensemble, Recorder, ZooKeeperRegistry) {
    let ensemble = Ensemble::start();
    made(&ensemble.url());
    let recorder = Recorder::before(&ensemble);
    let registry = ZooKeeperRegistry::open(&recorder.url(), &options()).unwrap();
    (ensemble, recorder, registry)
}

/// What the server is asked over another connection until an answer is believed.
fn asked_until_believed() -> Vec<i32> {
    let (_ensemble, recorder, mut registry) = recorded();
    recorder.cut();
    // The client notices and connects again by itself.
    let connected = || recorder.connections.load(SeqCst) > 1 && registry.worker(WORKER).is_ok();
    ensemble::until("another connection that was looked around in", connected);
    recorder.requests()[1..].concat()
}

/// Operation codes of ZooKeeper's protocol.
const GET_DATA: i32 = 4;
const SYNC: i32 = 9;

/// A server that lags behind looks like one of a restored ensemble, or like one that is open still.
#[test]
fn after_each_connection_a_server_is_asked_to_catch_up_before_it_is_believed() {
    let asked = asked_until_believed();
    assert!(asked.contains(&SYNC), "{asked:?}");
}

#[test]
fn without_the_sync_a_server_is_believed_that_may_lag_behind() {
    let asked = Guard::without(&[Guard::SyncFirst], asked_until_believed);
    assert!(!asked.contains(&SYNC), "{asked:?}");
}

/// A record is asked for while the client has not noticed yet that its connection ended, so that it asks over the next
/// one before anything was looked at there. Whether that answer is believed.
fn believes_an_answer_over_the_next_connection() -> bool {
    let (_ensemble, recorder, _registry) = recorded();
    let mut believed = false;
    ensemble::until("a request that goes over to the next connection", || {
        let mut registry = ZooKeeperRegistry::open(&recorder.url(), &options()).unwrap();
        let before = recorder.connections.load(SeqCst);
        registry.tree.link.hold_up(Duration::from_millis(50));
        recorder.cut();
        // It goes over the old connection or over the next one, as chance has it.
        believed = registry.worker(WORKER).is_ok();
        let asked = recorder.requests().split_off(before).concat();
        let first = |code: i32| asked.iter().position(|asked| *asked == code);
        // Of a look around the sync is the first.
        first(GET_DATA).is_some_and(|read| first(SYNC).is_none_or(|sync| read < sync))
    });
    believed
}

#[test]
fn an_answer_over_a_connection_that_was_not_looked_around_in_is_not_believed() {
    assert!(!believes_an_answer_over_the_next_connection());
}

#[test]
fn without_a_look_at_the_connection_an_answer_over_the_next_one_is_believed() {
    assert!(Guard::without(&[Guard::SameConnection], believes_an_answer_over_the_next_connection));
}

/// A server refuses a registry that was put back, and looks again and again, as others may have put it right. Such a look is
/// broken off half-way, after it found the registry open and before it looked at all nodes: here there is no clock to write
/// to. Whether the server believes the registry at its next need.
fn believes_a_registry_after_half_a_look() -> bool {
    let (ensemble, recorder, mut registry) = recorded();
    let version = registry.worker(WORKER).unwrap().version;
    let record =
        WorkerRecord { reserved_until: 5_000, token: Token([9; 16]), operation: 1, owner: "us".into() };
    registry.claim(WORKER, version, &record).unwrap();
    registry.worker(WORKER).unwrap();
    registry.tree.pretend_inherited(&worker_path(WORKER), 77);
    recorder.cut();
    ensemble::until("it is refused", || {
        registry.worker(WORKER).is_err_and(|error| error.to_string().contains("restored from a backup"))
    });
    ensemble.delete("/clock");
    assert!(registry.worker(WORKER).is_err(), "this one is broken off");
    // Of another node this process knows nothing.
    registry.worker(WORKER + 1).is_ok()
}

#[test]
fn a_look_that_is_broken_off_half_way_shows_nothing() {
    assert!(!believes_a_registry_after_half_a_look());
}

#[test]
fn without_an_end_of_its_look_a_restored_registry_is_believed() {
    assert!(Guard::without(&[Guard::LookToItsEnd], believes_a_registry_after_half_a_look));
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

/// A server comes after a fence. Then the era that the fence ended is there again, as a restore brings it back, and its
/// node is the younger one. What the server says, and whether the registry is open after that.
fn put_back_behind_a_server_that_came_later() -> (Ensemble, ZooKeeperRegistry, String) {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    let first = ensemble.children(ERA).pop().unwrap();
    let data = ensemble.data(&era_path(&first));
    fence(&url, &options()).unwrap();
    let recorder = Recorder::before(&ensemble);
    let mut registry = ZooKeeperRegistry::open(&recorder.url(), &options()).unwrap();
    assert!(registry.worker(WORKER).is_ok());
    for second in ensemble.children(ERA) {
        ensemble.delete(&era_path(&second));
    }
    ensemble.create(&era_path(&first), &data);
    recorder.cut();
    let mut said = String::new();
    ensemble::until("it looks around in another connection", || {
        let read = registry.worker(WORKER);
        said = read.map_or_else(|error| error.to_string(), |_| "it goes on".to_owned());
        recorder.connections.load(SeqCst) > 1
            && (said == "it goes on" || said.contains("xuid registry fence"))
    });
    (ensemble, registry, said)
}

#[test]
fn an_era_that_a_fence_ended_is_over_for_a_server_that_came_after_the_fence() {
    let (ensemble, mut registry, said) = put_back_behind_a_server_that_came_later();
    assert!(said.contains("restored from a backup"), "{said}");
    assert!(ensemble.children(ERA).is_empty(), "it is open for others");
    fence(&ensemble.url(), &options()).unwrap();
    ensemble::until("it goes on after the next fence", || registry.worker(WORKER).is_ok());
}

#[test]
fn without_the_names_of_ended_eras_one_that_is_put_back_is_taken_for_a_fence_s() {
    let (_ensemble, _registry, said) =
        Guard::without(&[Guard::EndedLearnt], put_back_behind_a_server_that_came_later);
    assert_eq!(said, "it goes on");
}

#[test]
fn of_fences_at_once_each_is_whole_or_refused() {
    let ensemble = Ensemble::start();
    let url = ensemble.url();
    made(&url);
    for _ in 0..5 {
        let fences: Vec<_> = (0..3)
            .map(|_| {
                let url = url.clone();
                std::thread::spawn(move || fence(&url, &options()).map(drop))
            })
            .collect();
        let said: Vec<_> = fences.into_iter().map(|fence| fence.join().unwrap()).collect();
        assert!(said.iter().any(Result::is_ok), "{said:?}");
        assert_eq!(ensemble.children(ERA).len(), 1, "{said:?}");
        assert!(ZooKeeperRegistry::open(&url, &options()).unwrap().workers().is_ok());
    }
}

/// A start in the moment in which the session moves to another server.
#[test]
fn a_spill_that_is_new_gets_its_mark_over_a_cut() {
    let (_ensemble, recorder, registry) = recorded();
    let genesis = *registry.genesis();
    let mut ownership = Ownership::new(Box::new(registry), Identity::new(Token([7; 16]), "test".into()));
    for _ in 0..3 {
        recorder.cut();
        let folder = tempfile::tempdir().unwrap();
        let opened = reserve::open::open(folder.path(), &genesis, &mut ownership);
        assert_eq!(opened.log.map(|(_, mark)| mark), Ok(0));
    }
}
