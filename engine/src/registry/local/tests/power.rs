//! Power cuts and killed processes at every write and sync, against a model that knows what was confirmed.

use proptest::prelude::*;

use super::*;
use crate::registry::local::format::Side;
use crate::registry::local::simulated::MemoryHints;
use crate::registry::ownership::{Identity, Ownership, WorkerRequest};
use crate::sys::guards::Guard;
use crate::testing::support::rng::Rng;

const WORKERS: u32 = 2;
const SPILLS: u8 = 2;

/// What one step does: an action, who and what it is about, and random bits.
type Act = (u8, u8, u64);

/// A record's value and who wrote it, as far as anybody was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    version: u64,
    value: u64,
    operation: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// `None`: there is no such mark.
    confirmed: Option<Said>,
    /// Begun since then, with an unknown outcome.
    attempts: Vec<Said>,
}

impl Known {
    fn check(&self, what: &str, found: Option<Said>) -> Result<(), String> {
        let allowed = found == self.confirmed || found.is_some_and(|found| self.attempts.contains(&found));
        if allowed { Ok(()) } else { Err(format!("{what}: found {found:?} after {self:?}")) }
    }
}

struct World {
    disk: MemoryDisk,
    /// What the folder knew must refuse no registry that only met power cuts and kills.
    hints: MemoryHints,
    processes: [Option<LocalRegistry<MemoryDisk>>; 2],
    workers: Vec<Known>,
    marks: Vec<Known>,
    left_out: Option<Guard>,
    operation: u64,
    /// Whether the next failure is a power cut, or only kills the process it meets.
    cut: bool,
    bits: Rng,
}

impl World {
    fn new(left_out: Option<Guard>) -> Self {
        let first = Said { version: 1, value: 1_000, operation: 0 };
        let known = || Known { confirmed: Some(first), attempts: Vec::new() };
        Self {
            disk: memory(WORKERS),
            hints: MemoryHints::default(),
            processes: [None, None],
            workers: (0..WORKERS).map(|_| known()).collect(),
            marks: (0..SPILLS).map(|_| Known::default()).collect(),
            left_out,
            operation: 0,
            cut: false,
            bits: Rng::new(0),
        }
    }

    fn start(&mut self, process: usize) -> Result<(), LocalError> {
        self.processes[process] = None;
        let hints = Some(self.hints.process());
        self.processes[process] = Some(LocalRegistry::on_with(self.disk.open_again(), hints, clock())?);
        Ok(())
    }

    /// Everything must be readable and be what was confirmed, or an attempt; what is read after a start is durable.
    fn survey(&mut self, process: usize) -> Result<(), String> {
        let registry = self.processes[process].as_mut().unwrap();
        for (worker, known) in (0..).zip(&mut self.workers) {
            let found = read_worker(registry, worker)?;
            known.check(&format!("worker {worker}"), Some(found))?;
            *known = Known { confirmed: Some(found), attempts: Vec::new() };
        }
        for (n, known) in (0..).zip(&mut self.marks) {
            let found = read_mark(registry, n)?;
            known.check(&format!("mark {n}"), found)?;
            *known = Known { confirmed: found, attempts: Vec::new() };
        }
        Ok(())
    }

    /// After a failure: the process is gone, and with a power cut everybody and what was not synced. A killed
    /// process stays away for now, and what it wrote stays unsynced until somebody syncs.
    fn recover(&mut self, process: usize) -> Result<(), String> {
        self.disk.stop_after(None);
        if !self.cut {
            self.processes[process] = None;
            return Ok(());
        }
        self.processes = [None, None];
        let Self { disk, hints, bits, .. } = self;
        disk.cut_power(|n| bits.below(n as u64) as usize);
        *hints = MemoryHints::of(&hints.image(|n| bits.below(n as u64) as usize));
        self.start(process).map_err(|error| format!("a start after a failure: {error}"))?;
        self.survey(process)
    }

    fn act(&mut self, (action, who, bits): Act) -> Result<(), String> {
        self.bits = Rng::new(bits);
        let process = usize::from(who & 1);
        if self.processes[process].is_none() {
            match self.start(process) {
                Ok(()) => self.survey(process)?,
                Err(_) => return self.recover(process),
            }
        }
        match action % 8 {
            0..=2 => self.swap_worker(process, u32::from(who >> 1) % WORKERS, true),
            3 => self.swap_worker(process, u32::from(who >> 1) % WORKERS, false),
            4 => self.raise_mark(process, (who >> 1) % SPILLS),
            5 | 6 => {
                self.cut = bits & 1 == 0;
                self.disk.stop_after(Some(self.bits.below(7) as u32));
                Ok(())
            }
            _ => self.restart(process, who),
        }
    }

    fn swap_worker(&mut self, process: usize, worker: u32, forward: bool) -> Result<(), String> {
        let registry = self.processes[process].as_mut().unwrap();
        let known = &mut self.workers[worker as usize];
        let found = read_worker(registry, worker)?;
        known.check(&format!("worker {worker} while running"), Some(found))?;
        self.operation += 1;
        let by = 1 + self.bits.below(1_000);
        let value = if forward { found.value + by } else { found.value.saturating_sub(by) };
        let record = claim_of(value, self.operation);
        let said = Said { version: found.version + 1, value, operation: self.operation };
        let outcome = registry.swap_worker(worker, found.version, &record);
        if note(known, said, outcome)? { Ok(()) } else { self.recover(process) }
    }

    fn raise_mark(&mut self, process: usize, n: u8) -> Result<(), String> {
        let registry = self.processes[process].as_mut().unwrap();
        let known = &mut self.marks[usize::from(n)];
        let found = read_mark(registry, n)?;
        known.check(&format!("mark {n} while running"), found)?;
        self.operation += 1;
        let value = found.map_or(0, |found| found.value + 1 + self.bits.below(64));
        let record = mark_of(value, self.operation);
        // Slots are used for the first time here, so a mark that is made has the version after genesis.
        let version = found.map_or(1, |found| found.version);
        let outcome = match found {
            Some(_) => registry.swap_mark(spill(n + 1), version, &record),
            None => registry.create_mark(spill(n + 1), &record),
        };
        let said = Said { version: version + 1, value, operation: self.operation };
        if note(known, said, outcome)? { Ok(()) } else { self.recover(process) }
    }

    /// A clean start, or one that meets a failure, or a rotten copy, which the next start has to make good.
    fn restart(&mut self, process: usize, who: u8) -> Result<(), String> {
        if self.start(process).is_err() {
            return self.recover(process);
        }
        self.survey(process)?;
        self.disk.stop_after(None);
        if who & 2 == 0 && self.left_out.is_none() {
            self.processes = [None, None];
            self.start(process).map_err(|error| error.to_string())?;
            let copy = if who & 4 == 0 { Side::A } else { Side::B };
            let place = Place::worker(u32::from(who >> 3) % WORKERS);
            let bit = self.bits.below(512 * 8) as usize;
            let offset = offset_of(WORKERS, place, copy);
            self.disk.tamper(offset, |sector| sector[bit / 8] ^= 1 << (bit % 8));
            self.start(process).map_err(|error| error.to_string())?;
            self.survey(process)?;
            let [a, b] = Side::BOTH.map(|copy| offset_of(WORKERS, place, copy));
            let bytes = self.disk.bytes();
            if bytes[a..a + 512] != bytes[b..b + 512] {
                return Err(format!("a rotten copy of {place} was not made good"));
            }
        }
        Ok(())
    }
}

/// What the model learns; `false` if the disk failed.
fn note(known: &mut Known, said: Said, outcome: Result<(), SwapError>) -> Result<bool, String> {
    match outcome {
        Ok(()) => {
            *known = Known { confirmed: Some(said), attempts: Vec::new() };
            Ok(true)
        }
        Err(SwapError::Unknown { .. }) => {
            known.attempts.push(said);
            Ok(false)
        }
        Err(SwapError::Unavailable { .. }) => Ok(false),
        Err(other) => Err(format!("an uncontended change: {other}")),
    }
}

fn read_worker(registry: &mut LocalRegistry<MemoryDisk>, worker: u32) -> Result<Said, String> {
    let found = registry.worker(worker).map_err(|error| error.to_string())?;
    let WorkerRecord { reserved_until, operation, .. } = found.record;
    Ok(Said { version: found.version, value: reserved_until, operation })
}

fn read_mark(registry: &mut LocalRegistry<MemoryDisk>, n: u8) -> Result<Option<Said>, String> {
    match registry.mark(spill(n + 1)) {
        Ok(found) => {
            let MarkRecord { granted_upto, operation, .. } = found.record;
            Ok(Some(Said { version: found.version, value: granted_upto, operation }))
        }
        Err(ReadError::Absent { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn run(acts: &[Act], left_out: Option<Guard>) -> Result<(), String> {
    Guard::without(left_out.as_slice(), || {
        let mut world = World::new(left_out);
        for act in acts {
            world.act(*act)?;
        }
        // Whatever is pending, the lights go out at the end.
        world.cut = true;
        world.bits = Rng::new(acts.len() as u64);
        world.recover(0)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_was_confirmed_survives_power_cuts_and_kills(acts in prop::collection::vec(any::<Act>(), 1..60)) {
        run(&acts, None).map_err(TestCaseError::fail)?;
    }
}

/// The seeds of the negative controls. Each control is caught within the first few.
const SEEDS: u64 = 40;

fn caught(left_out: Option<Guard>) -> bool {
    (0..SEEDS).any(|seed| {
        let mut bits = Rng::new(seed);
        let mut byte = || bits.below(256) as u8;
        let acts: Vec<Act> = (0..60).map(|n| (byte(), byte(), seed << 8 | n)).collect();
        run(&acts, left_out).inspect_err(|error| println!("{left_out:?}, seed {seed}: {error}")).is_err()
    })
}

#[test]
fn with_nothing_left_out_the_seeds_of_the_controls_find_nothing() {
    assert!(!caught(None));
}

#[test]
fn without_the_second_copy_the_test_finds_a_confirmed_value_lost() {
    assert!(caught(Some(Guard::SecondCopy)));
}

#[test]
fn without_the_sync_between_the_copies_the_test_finds_a_record_lost() {
    assert!(caught(Some(Guard::SyncBetween)));
}

#[test]
fn a_hint_that_is_written_before_its_record_refuses_a_registry_that_only_met_a_power_cut() {
    assert!(caught(Some(Guard::HintLast)));
}

/// One process is killed after its last write and before the sync of it; another one, at work all the while, then
/// meets a power cut in its first write. Both copies are in the air unless it synced before.
fn killed_then_cut(left_out: Option<Guard>) -> Result<Versioned<WorkerRecord>, ReadError> {
    let disk = memory(WORKERS);
    let (mut killed, mut other) = (on(&disk), on(&disk));
    disk.stop_after(Some(3));
    assert!(killed.swap_worker(0, 1, &claim_of(5_000, 1)).is_err());
    drop(killed);
    disk.stop_after(Some(u32::from(left_out.is_none())));
    let swapped = Guard::without(left_out.as_slice(), || other.swap_worker(0, 2, &claim_of(6_000, 2)));
    assert!(swapped.is_err());
    // Each sector is torn in the middle of its only unsynced content.
    disk.cut_power(|n| if n == 512 { 300 } else { 1 });
    on(&disk).worker(0)
}

#[test]
fn without_the_sync_before_a_change_the_test_finds_a_record_lost() {
    assert_eq!(killed_then_cut(None).unwrap().record.reserved_until, 5_000);
    assert!(matches!(killed_then_cut(Some(Guard::SyncBefore)), Err(ReadError::Damaged { .. })));
}

/// One process is killed after its last write and before the sync of it; the next start reads both copies, and meets a
/// power cut in its first write. Both copies are in the air unless opening synced what it read.
fn killed_then_opened_then_cut(left_out: Option<Guard>) -> Result<Versioned<WorkerRecord>, ReadError> {
    let disk = memory(WORKERS);
    let mut killed = on(&disk);
    disk.stop_after(Some(3));
    assert!(killed.swap_worker(0, 1, &claim_of(5_000, 1)).is_err());
    drop(killed);
    disk.stop_after(None);
    let mut next = Guard::without(left_out.as_slice(), || on(&disk));
    disk.stop_after(Some(0));
    assert!(next.swap_worker(0, 2, &claim_of(6_000, 2)).is_err());
    disk.cut_power(|n| if n == 512 { 300 } else { 1 });
    on(&disk).worker(0)
}

#[test]
fn without_the_sync_at_opening_the_test_finds_a_record_lost() {
    assert_eq!(killed_then_opened_then_cut(None).unwrap().record.reserved_until, 5_000);
    let lost = killed_then_opened_then_cut(Some(Guard::SyncAtOpening));
    assert!(matches!(lost, Err(ReadError::Damaged { .. })), "{lost:?}");
}

#[test]
fn every_single_cut_of_a_change_leaves_the_old_or_the_new_record() {
    // A change of a settled record is four operations: write, sync, write, sync.
    for stop in 0..4 {
        for chosen in 0..3 {
            let disk = memory(WORKERS);
            let mut registry = on(&disk);
            disk.stop_after(Some(stop));
            let outcome = registry.swap_worker(0, 1, &claim_of(5_000, 1));
            assert!(matches!(outcome, Err(SwapError::Unknown { .. })), "stop {stop}: {outcome:?}");
            disk.cut_power(|n| if n == 512 { 300 } else { chosen });
            let found = on(&disk).worker(0).unwrap();
            assert!([(1, 1_000), (2, 5_000)].contains(&(found.version, found.record.reserved_until)));
        }
    }
    let disk = memory(WORKERS);
    let mut registry = on(&disk);
    disk.stop_after(Some(4));
    registry.swap_worker(0, 1, &claim_of(5_000, 1)).unwrap();
}

/// A clock that is moved by hand.
struct Hands(AtomicU64);

impl Hands {
    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn read(&self) -> Reading {
        let now = self.0.load(Ordering::Relaxed);
        Reading { wall: 1_700_000_000_000_000_000 + now, boot: now }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_changed_and_the_own_write_is_not_believed() {
    let (disk, clock) = (memory(WORKERS), Arc::new(Hands(AtomicU64::new(0))));
    let mut registry = LocalRegistry::on(disk.open_again(), clock.clone()).unwrap();
    disk.fail_syncs(1);
    assert!(matches!(registry.swap_worker(0, 1, &claim_of(5_000, 1)), Err(SwapError::Unknown { .. })));
    clock.pass(999);
    let read = registry.worker(0).unwrap_err();
    assert!(
        matches!(&read, ReadError::Unavailable { why } if why.contains("until the disk works again")),
        "{read}"
    );
    let again = registry.swap_worker(1, 1, &claim_of(5_000, 2)).unwrap_err();
    assert!(matches!(&again, SwapError::Unavailable { why } if why.contains("check the disk")), "{again}");
    assert_eq!(registry.worker(1).unwrap().version, 1);
    assert!(registry.workers().unwrap()[0].record.is_err());

    // Another process sees the cached write; the disk has the old one, and either is safe to go on from.
    let mut other = on(&disk);
    let found = other.worker(0).unwrap();
    other.swap_worker(0, found.version, &claim_of(6_000, 3)).unwrap();
    disk.cut_power(|_| 0);
    assert_eq!(on(&disk).worker(0).unwrap().record.reserved_until, 6_000);
}

#[test]
fn a_disk_that_works_again_is_used_again_after_a_second_and_one_that_does_not_after_ever_longer() {
    let (disk, clock) = (memory(WORKERS), Arc::new(Hands(AtomicU64::new(0))));
    let mut registry = LocalRegistry::on(disk.open_again(), clock.clone()).unwrap();
    disk.fail_syncs(3);
    assert!(matches!(registry.swap_worker(0, 1, &claim_of(5_000, 1)), Err(SwapError::Unknown { .. })));
    // Two tries that fail, after 1 s and 2 s more, and one that does not.
    for (pause, works) in [(1_000, false), (2_000, false), (4_000, true)] {
        for (pass, is_tried) in [(pause - 1, false), (1, true)] {
            clock.pass(pass);
            let changed = registry.swap_worker(1, 1, &claim_of(5_000, 2));
            assert_eq!(changed.is_ok(), is_tried && works, "{pause} ms: {changed:?}");
        }
    }
    assert_eq!(registry.worker(0).unwrap().record.reserved_until, 5_000);
    disk.cut_power(|_| 0);
    let mut next = on(&disk);
    assert_eq!([0, 1].map(|worker| next.worker(worker).unwrap().version), [2, 2]);
}

/// The sync of a second copy fails. Then the disk works, the process goes on, and believes its write, which is what it
/// reads; the power is cut in its next change, of the first copy.
fn failed_then_cut(left_out: Option<Guard>) -> Result<u64, ReadError> {
    let (disk, clock) = (memory(WORKERS), Arc::new(Hands(AtomicU64::new(0))));
    let mut registry = LocalRegistry::on(disk.open_again(), clock.clone()).unwrap();
    disk.fail_sync(2);
    assert!(matches!(registry.swap_worker(0, 1, &claim_of(5_000, 1)), Err(SwapError::Unknown { .. })));
    clock.pass(1_000);
    Guard::without(left_out.as_slice(), || registry.swap_worker(1, 1, &claim_of(5_000, 2))).unwrap();
    let found = registry.worker(0).unwrap();
    assert_eq!(found.record.reserved_until, 5_000, "it is ours, and ids are issued from it");
    disk.stop_after(Some(0));
    assert!(registry.swap_worker(0, 2, &claim_of(6_000, 3)).is_err());
    disk.cut_power(|n| if n == 512 { 300 } else { 1 });
    on(&disk).worker(0).map(|found| found.record.reserved_until)
}

#[test]
fn what_is_not_written_again_after_a_failed_sync_goes_back_with_a_power_cut() {
    assert_eq!(failed_then_cut(None).unwrap(), 5_000);
    assert_eq!(failed_then_cut(Some(Guard::WrittenAgain)).unwrap(), 1_000, "5000 was believed");
}

#[test]
fn a_record_that_a_failed_disk_took_back_is_not_believed_after_it_works_again() {
    let (disk, clock) = (memory(WORKERS), Arc::new(Hands(AtomicU64::new(0))));
    let old = disk.bytes();
    let mut registry = LocalRegistry::on(disk.open_again(), clock.clone()).unwrap();
    registry.swap_worker(1, 1, &claim_of(5_000, 1)).unwrap();
    disk.fail_syncs(1);
    assert!(matches!(registry.swap_worker(0, 1, &claim_of(5_000, 2)), Err(SwapError::Unknown { .. })));
    for copy in Side::BOTH {
        let at = offset_of(WORKERS, Place::worker(1), copy);
        disk.tamper(at, |sector| sector.copy_from_slice(&old[at..at + 512]));
    }
    clock.pass(1_000);
    registry.create_mark(spill(1), &mark_of(0, 3)).unwrap();
    // It was durable once, so the file says less than it did: nothing of it is believed.
    let found = registry.worker(1);
    assert!(matches!(found, Err(ReadError::Foreign { .. })), "{found:?}");
}

/// A claim whose first sync failed is in doubt, and there is no worker by which anything would be changed.
#[test]
fn a_claim_in_doubt_is_settled_when_the_disk_works_again() {
    let (disk, clock) = (memory(WORKERS), Arc::new(Hands(AtomicU64::new(0))));
    let registry = LocalRegistry::on(disk.open_again(), clock.clone()).unwrap();
    let mut ownership =
        Ownership::new(Box::new(registry), Identity::new(Token([1; 16]), "host pid 1".into()));
    let request =
        |now: u64| WorkerRequest { now, start: now, end: now + 100, pinned: None, except: Vec::new() };
    disk.fail_sync(1);
    assert!(ownership.take(&request(2_000)).is_err());
    let taken = (0..5).find_map(|second| {
        clock.pass(1_000);
        ownership.take(&request(2_000 + second)).ok()
    });
    assert!(taken.is_some(), "no worker, five seconds after the disk worked again");
}

/// What a process believes once its disk works again is what it issues from, so its folder has to know it as well.
#[test]
fn a_change_that_was_in_doubt_is_known_to_the_folder_once_it_is_believed() {
    let (disk, clock) = (memory(WORKERS), Arc::new(Hands(AtomicU64::new(0))));
    let (hints, backup) = (MemoryHints::default(), disk.bytes());
    let open = |disk: MemoryDisk| LocalRegistry::on_with(disk, Some(hints.process()), clock.clone());
    let mut registry = open(disk.open_again()).unwrap();
    disk.fail_sync(2);
    assert!(matches!(registry.swap_worker(0, 1, &claim_of(5_000, 1)), Err(SwapError::Unknown { .. })));
    clock.pass(1_000);
    assert_eq!(registry.worker(0).unwrap().record.reserved_until, 5_000, "ids are issued from it");
    registry.close();
    drop(registry);
    let restored = open(MemoryDisk::new(backup, some_identity()));
    assert!(matches!(restored.err(), Some(LocalError::Restored { .. })), "5000 is granted once more");
}
