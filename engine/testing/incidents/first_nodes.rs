//! Two first nodes with one worker.
//!
//! Services that hand worker ids out by reading what there is and then writing: the highest so far plus one, the first
//! folder that does not exist, a row that is made if a query found none. Two nodes of a new cluster, started in the
//! same moment by the same script, both find nothing, and both are worker 0.

use std::collections::HashSet;
use std::sync::{Arc, Barrier, Mutex};

use xuid_id::Id;
use xuid_spill::SpillId;

use crate::clock::SystemClock;
use crate::mint::worker::HeldWorker;
use crate::registry::local::{CreateOptions, FileIdentity, LocalRegistry, MemoryDisk};
use crate::registry::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Versioned, WorkerEntry, WorkerRecord,
};
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::testing::incidents::{FLOOR, Ledger, genesis, memory, process, request, small};

const NODES: u8 = 4;
const TICKS: u64 = 3;

/// A registry whose openings have all read before one of them writes: the moment that first nodes meet in.
struct Meeting<R> {
    registry: R,
    read: Arc<Barrier>,
}

impl<R: Registry> Registry for Meeting<R> {
    fn genesis(&self) -> &Genesis {
        self.registry.genesis()
    }
    fn describe(&self) -> String {
        self.registry.describe()
    }
    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        let entries = self.registry.workers();
        self.read.wait();
        entries
    }
    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.registry.worker(worker)
    }
    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.registry.claim(worker, expected, record)
    }
    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.registry.swap_worker(worker, expected, record)
    }
    fn leave(&mut self, worker: u32) {
        self.registry.leave(worker);
    }
    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        self.registry.mark(spill)
    }
    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.registry.create_mark(spill, record)
    }
    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        self.registry.swap_mark(spill, expected, record)
    }
    fn close(&mut self) {
        self.registry.close();
    }
}

/// Nodes of a cluster that nobody has used yet, all started at once; each mints everything it thinks it owns. `open` is
/// called by each in its own thread. Says how many got a worker.
fn start_together<R: Registry + 'static>(out: &[Guard], open: impl Fn() -> R + Sync) -> (Ledger, usize) {
    let (begin, read) = (Barrier::new(NODES.into()), Arc::new(Barrier::new(NODES.into())));
    let node = |number: u8| {
        begin.wait();
        let registry = Meeting { registry: open(), read: Arc::clone(&read) };
        let layout = registry.genesis().layout;
        let window = process(registry, number + 1).take(&request(FLOOR, TICKS)).ok()?;
        let mut held = HeldWorker::new(window, TICKS);
        let cut = || held.cut(&layout, FLOOR + TICKS, 5);
        Some(std::iter::from_fn(cut).flatten().map(Id::raw).collect::<Vec<_>>())
    };
    let (mut ledger, mut started) = (Ledger::default(), 0);
    std::thread::scope(|scope| {
        let node = &node;
        let start = |number| scope.spawn(move || Guard::without(out, || node(number)));
        let nodes: Vec<_> = (0..NODES).map(start).collect();
        for ids in nodes.into_iter().filter_map(|node| node.join().unwrap()) {
            started += 1;
            ledger.add(ids);
        }
    });
    (ledger, started)
}

/// One worker for all, so that they must meet, and one for each, so that each finds another.
fn each_has_a_worker_of_its_own<R: Registry + 'static>(
    rounds: u32,
    make: impl Fn(u32) -> Box<dyn Fn() -> R + Sync>,
) {
    let plots = TICKS as usize * small().sequences() as usize;
    for _ in 0..rounds {
        for workers in [1, u32::from(NODES)] {
            let (ledger, started) = start_together(&[], make(workers));
            ledger.check(plots * workers as usize);
            assert_eq!(started, workers as usize, "nodes with a worker");
        }
    }
}

#[test]
fn nodes_started_at_once_on_a_new_registry_in_memory_never_share_a_worker() {
    each_has_a_worker_of_its_own(300, |workers| {
        let registry = memory(small(), workers);
        Box::new(move || registry.clone())
    });
}

#[test]
fn nodes_started_at_once_on_a_new_local_registry_never_share_a_worker() {
    let identity = FileIdentity { inode: 1, born_ns: 2, device: 3, machine: 4 };
    each_has_a_worker_of_its_own(100, |workers| {
        let disk = Mutex::new(MemoryDisk::with_registry(&genesis(small(), workers), identity));
        Box::new(move || LocalRegistry::on(lock(&disk).open_again(), Arc::new(SystemClock)).unwrap())
    });
}

/// The registry itself is made by whoever comes first.
#[test]
fn nodes_started_at_once_in_an_empty_folder_make_one_registry_and_never_share_a_worker() {
    each_has_a_worker_of_its_own(5, |workers| {
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions { layout: small(), floor: FLOOR, workers };
        Box::new(move || LocalRegistry::open_or_create(folder.path(), &options).unwrap())
    });
}

#[test]
fn negative_control_a_worker_that_is_written_whatever_was_read_belongs_to_all_who_read_it() {
    let registry = memory(small(), 1);
    let (ledger, started) = start_together(&[Guard::VersionCompared], || registry.clone());
    assert_eq!(started, usize::from(NODES), "all think that they have it");
    let twice: HashSet<u64> = ledger.again.iter().copied().collect();
    assert_eq!(twice, ledger.seen, "every id of the worker came again");
}
