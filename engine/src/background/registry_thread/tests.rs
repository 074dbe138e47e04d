//! Panics over jobs: of the registry's adaptor, after its write has landed, and of the clock, before anything was done.

use std::sync::mpsc::channel;

use xuid_id::Layout;
use xuid_spill::SpillId;

use super::*;
use crate::clock::SystemClock;
use crate::registry::health::Monitored;
use crate::registry::local::{FileIdentity, LocalRegistry, MemoryDisk};
use crate::registry::memory::{Fault, MemoryRegistry};
use crate::registry::ownership::Identity;
use crate::registry::provenance::{Evidence, Verdict};
use crate::registry::{ClusterId, Genesis, Registry, Token};
use crate::testing::support::clock::{SimClock, Time};
use crate::testing::support::faults::{Armed, Faults, FaultyClock};

const SPILL: SpillId = SpillId::from_bytes([2; 16]);

fn registry_thread() -> (RegistryThread, MemoryRegistry, Arc<Faults>) {
    let cluster = ClusterId::from_bytes([1; 16]);
    let genesis = Genesis::new(cluster, Layout::default(), 1_000, 4);
    let registry = MemoryRegistry::new(genesis);
    let (tally, time) = (Arc::<Mutex<Tally>>::default(), Time::new(0));
    let faults = Faults::new(time.clone(), None);
    faults.set_working(true);
    let clock = Arc::new(FaultyClock { clock: SimClock::new(time, 1), faults: faults.clone() });
    let watched = Monitored::new(Box::new(registry.clone()), tally.clone(), clock.clone());
    let mut ownership = Ownership::new(Box::new(watched), Identity::new(Token([1; 16]), "a test".into()));
    assert_eq!(ownership.mark(SPILL, true).unwrap(), 0);
    (RegistryThread::new(ownership, tally, clock), registry, faults)
}

fn take() -> Job {
    let request = WorkerRequest { now: 2_000, start: 2_000, end: 2_100, pinned: None, except: Vec::new() };
    Job::Take { request, reach: 100, cause: Cause::Missing }
}

fn extend(worker: u32, end: u64) -> Job {
    Job::Extend { worker, start: 2_000, end, reach: 100 }
}

fn taken(done: Done) -> Result<Window, TakeError> {
    let Done::Taken { result, reach: 100, cause: Cause::Missing } = done else { panic!("{done:?}") };
    result
}

fn extended(done: Done) -> Result<Window, ExtendError> {
    let Done::Extended { result, .. } = done else { panic!("{done:?}") };
    result
}

#[test]
fn whatever_panics_every_job_is_answered_and_what_landed_unheard_is_given_to_nobody_twice() {
    let (registry_thread, registry, _) = registry_thread();
    let tally = registry_thread.tally.clone();
    let (jobs, todo) = channel();
    let (out, done) = channel();
    let generation = GenerationWord::new().unwrap();
    let thread =
        std::thread::spawn(move || registry_thread.serve(&todo, &out, &Wake::default(), &generation));
    let ask = |job, panics: bool| {
        if panics {
            registry.fail(Fault::LandsAndPanics);
        }
        jobs.send(job).unwrap();
        let done = done.recv_timeout(Duration::from_mins(1)).expect("an answer");
        let outage = lock(&tally).health.outage(SystemClock.read().boot);
        assert_eq!(outage.is_some_and(|outage| outage.why == PANICKED), panics, "{done:?}");
        done
    };

    assert!(matches!(taken(ask(take(), true)), Err(TakeError::InDoubt { .. })));
    // The worker whose window landed is nobody's; this is another one.
    let (worker, span) = taken(ask(take(), false)).unwrap().into_parts();
    assert_eq!(span, 2_000..2_100);
    assert_eq!(
        (0..4).filter(|n| registry.clone().worker(*n).unwrap().record.reserved_until == 2_100).count(),
        2
    );

    assert!(matches!(extended(ask(extend(worker, 2_200), true)), Err(ExtendError::Later { .. })));
    let (_, span) = extended(ask(extend(worker, 2_300), false)).unwrap().into_parts();
    assert_eq!(span, 2_100..2_200, "it landed, and was told to nobody before");
    let (_, span) = extended(ask(extend(worker, 2_300), false)).unwrap().into_parts();
    assert_eq!(span, 2_200..2_300);

    let grant =
        |from, upto| Job::Grant(GrantRequest { spill: SPILL, from, upto, gives_up: false, is_erased: false });
    let Done::Granted { from: 0, result: Err(GrantError::Later { .. }) } = ask(grant(0, 10), true) else {
        panic!("granted")
    };
    let Done::Granted { result: Err(GrantError::Moved { granted_upto: 10 }), .. } = ask(grant(0, 10), false)
    else {
        panic!("the ten are lost: nobody knows who has them")
    };
    let Done::Granted { result: Ok(20), .. } = ask(grant(10, 20), false) else { panic!("not granted") };

    let Done::Released { problem: Some(_), .. } = ask(Job::Release { worker, from: 2_250 }, true) else {
        panic!("released")
    };
    let Done::Looked = ask(Job::Look, false) else { panic!("no answer") };
    assert!(matches!(extended(ask(extend(worker, 2_400), false)), Err(ExtendError::Lost { .. })));
    assert_eq!(lock(&tally).panics, 4);
    drop(jobs);
    thread.join().unwrap();
}

/// Who gives a spill up is no holder of what was in it.
#[test]
fn what_is_given_up_was_granted_to_nobody() {
    let event = |gives_up| {
        let job = Job::Grant(GrantRequest { spill: SPILL, from: 9, upto: 10, gives_up, is_erased: false });
        Asked::of(&job).event(&Done::Granted { from: 9, result: Ok(10) })
    };
    assert!(event(false).is_some() && event(true).is_none());
}

#[test]
fn a_look_at_the_connection_that_panics_is_counted_and_not_the_last() {
    let (mut registry_thread, registry, _) = registry_thread();
    for panics in 1..3 {
        registry.fail(Fault::LandsAndPanics);
        registry_thread.maintain_whatever_happens(&Wake::default());
        assert_eq!(lock(&registry_thread.tally).panics, panics);
    }
    assert!(taken(registry_thread.run_whatever_happens(take())).is_ok());
}

#[test]
fn a_renewal_that_panicked_is_one_in_doubt_until_it_is_known() {
    let (mut registry_thread, registry, _) = registry_thread();
    let worker = taken(registry_thread.run_whatever_happens(take())).unwrap().worker();
    let unknown = |registry_thread: &RegistryThread| lock(&registry_thread.tally).stats(0).unknown;
    registry.fail(Fault::LandsAndPanics);
    assert!(extended(registry_thread.run_whatever_happens(extend(worker, 2_200))).is_err());
    registry_thread.run_whatever_happens(Job::Look);
    assert_eq!(unknown(&registry_thread), Unknown { ours: 0, not_ours: 0, doubt: 1 });
    assert!(extended(registry_thread.run_whatever_happens(extend(worker, 2_300))).is_ok());
    assert_eq!(unknown(&registry_thread), Unknown { ours: 1, not_ours: 0, doubt: 0 });
}

/// A process that dies after a hand-back and before it says so must not stay the holder of ticks that another one gets: of
/// those it would be said with certainty to whom they were granted, and wrongly.
#[test]
fn what_is_handed_back_is_noted_before_another_process_can_have_it() {
    let home = tempfile::tempdir().unwrap();
    let genesis = Genesis::new(ClusterId::from_bytes([1; 16]), Layout::default(), 1_000, 1);
    let registry = MemoryRegistry::new(genesis);
    let mut identity = Identity::new(Token([1; 16]), "a host pid 7".into());
    identity.notes = Some(home.path().to_owned());
    let ownership = Ownership::new(Box::new(registry.clone()), identity);
    let mut registry_thread = RegistryThread::new(ownership, Arc::default(), SimClock::new(Time::new(0), 1));
    let (worker, span) = taken(registry_thread.run_whatever_happens(take())).unwrap().into_parts();
    assert_eq!(span, 2_000..2_100);
    registry.fail(Fault::LandsAndPanics);
    registry_thread.run_whatever_happens(Job::Release { worker, from: 2_050 });
    assert_eq!(registry.clone().worker(worker).unwrap().record.reserved_until, 2_050, "it landed");
    // Another process has it from there on, and notes that in a folder that is not at hand.
    let found = registry.clone().worker(worker).unwrap();
    let record = crate::registry::WorkerRecord { reserved_until: 2_200, ..found.record };
    registry.clone().swap_worker(worker, found.version, &record).unwrap();
    let mut evidence = Evidence::new(genesis);
    evidence.add_registry("registry", &registry.clone().workers().unwrap(), &[]);
    evidence.add_folder("folder", home.path());
    let judge = |tick| evidence.judge(genesis.layout.encode(tick, worker, 0), None);
    assert_eq!(judge(2_049).holder.as_deref(), Some("a host pid 7"));
    let found = judge(2_050);
    assert_eq!((found.verdict, found.holder, found.window), (Verdict::Granted, None, None));
}

#[test]
fn a_process_that_may_have_a_copy_is_somebody_else_also_after_a_panic() {
    let (mut registry_thread, mut registry, faults) = registry_thread();
    let worker = taken(registry_thread.run_whatever_happens(take())).unwrap().worker();
    let before = registry.worker(worker).unwrap().record.token;
    for job in [Job::Look, Job::Forget { worker: 3 }, Job::ResetIdentity] {
        faults.arm(Some(Armed::NEXT_READING_PANICS));
        registry_thread.run_whatever_happens(job);
        assert!(!faults.take_injected().is_empty(), "it did panic");
    }
    let worker = taken(registry_thread.run_whatever_happens(take())).unwrap().worker();
    assert_ne!(registry.worker(worker).unwrap().record.token, before);
}

/// Over a registry on a disk, which is tried because it has no connection.
fn over_a_disk() -> (RegistryThread, MemoryDisk) {
    let cluster = ClusterId::from_bytes([1; 16]);
    let genesis = Genesis::new(cluster, Layout::default(), 1_000, 4);
    let disk = MemoryDisk::with_registry(&genesis, FileIdentity::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let registry = LocalRegistry::on(disk.open_again(), clock.clone()).unwrap();
    let tally = Arc::<Mutex<Tally>>::default();
    let watched = Monitored::new(Box::new(registry), tally.clone(), clock.clone());
    let ownership = Ownership::new(Box::new(watched), Identity::new(Token([1; 16]), "a test".into()));
    (RegistryThread::new(ownership, tally, clock), disk)
}

#[test]
fn a_registry_is_tried_however_many_jobs_come_that_ask_it_nothing() {
    let (registry_thread, disk) = over_a_disk();
    let tally = registry_thread.tally.clone();
    let (jobs, todo) = channel();
    let (out, done) = channel();
    let generation = GenerationWord::new().unwrap();
    let thread =
        std::thread::spawn(move || registry_thread.serve(&todo, &out, &Wake::default(), &generation));
    disk.set_in_place(false);
    let begun = SystemClock.read().boot;
    // One job after the other, each long before a trial would come by itself.
    while lock(&tally).health.outage(SystemClock.read().boot).is_none() {
        assert!(SystemClock.read().boot - begun < 20_000_000_000, "it was not tried");
        jobs.send(Job::Forget { worker: 3 }).unwrap();
        done.recv().unwrap();
    }
    drop(jobs);
    thread.join().unwrap();
}

#[test]
fn a_trial_wakes_the_producer_when_an_outage_begins_and_when_it_ends() {
    let (mut registry_thread, disk) = over_a_disk();
    let wake = Wake::default();
    let mut wakes_of_a_trial = |in_place: bool| {
        disk.set_in_place(in_place);
        let before = wake.calls.load(std::sync::atomic::Ordering::Relaxed);
        assert!(registry_thread.probe(&wake));
        wake.calls.load(std::sync::atomic::Ordering::Relaxed) - before
    };
    let wakes = [true, false, false, true, true].map(&mut wakes_of_a_trial);
    assert_eq!(wakes, [0, 1, 0, 1, 0]);
}
