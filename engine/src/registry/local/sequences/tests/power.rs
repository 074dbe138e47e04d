//! Power cuts and killed processes at every write and sync of grants, creations and growth, against a model that knows
//! what was confirmed.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::registry::local::simulated::MemoryHints;
use crate::sys::guards::Guard;
use crate::testing::support::rng::Rng;

/// Names that are there from the beginning: the file is nearly full, so that it grows early.
const OLD: u32 = GROWTH_SLOTS - 12;

/// What one step does: an action, and random bits.
type Act = (u8, u64);

/// What is known of a name.
#[derive(Debug, Default)]
struct Known {
    /// The end of the last grant that was confirmed; `None`: the name's making never was.
    confirmed: Option<u64>,
    /// Ends of changes since, of unknown outcome.
    attempts: Vec<u64>,
}

impl Known {
    fn check(&self, name: &str, found: Option<u64>) -> Result<(), String> {
        let is_known = found == self.confirmed || found.is_some_and(|found| self.attempts.contains(&found));
        if is_known { Ok(()) } else { Err(format!("{name}: found {found:?} after {self:?}")) }
    }
}

struct World {
    disk: MemoryDisk,
    /// What the folder knew must refuse no file that only met power cuts and kills.
    hints: MemoryHints,
    processes: [Option<LocalSequences<MemoryDisk>>; 2],
    names: BTreeMap<String, Known>,
    made: u32,
    cut: bool,
    bits: Rng,
}

fn image() -> Vec<u8> {
    static IMAGE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let made = || {
        let disk = memory();
        make_names(&mut on(&disk), "old", 0..OLD);
        disk.bytes()
    };
    IMAGE.get_or_init(made).clone()
}

impl World {
    fn new() -> Self {
        let names =
            (0..4).map(|n| (format!("old{n:06}"), Known { confirmed: Some(1), attempts: Vec::new() }));
        Self {
            disk: MemoryDisk::new(image(), some_identity()),
            hints: MemoryHints::default(),
            processes: [None, None],
            names: names.collect(),
            made: 0,
            cut: false,
            bits: Rng::new(0),
        }
    }

    fn start(&mut self, process: usize) -> Result<(), LocalError> {
        self.processes[process] = None;
        let hints = Some(self.hints.process());
        let opened = LocalSequences::on_with(self.disk.open_again(), hints, Arc::new(Still))?;
        self.processes[process] = Some(opened);
        Ok(())
    }

    /// Every name is what was confirmed or tried, and what is read after a start is durable.
    fn survey(&mut self, process: usize) -> Result<(), String> {
        let records = self.processes[process].as_mut().unwrap();
        for (name, known) in &mut self.names {
            let found = found(records, name)?;
            known.check(name, found)?;
            *known = Known { confirmed: found, attempts: Vec::new() };
        }
        Ok(())
    }

    /// After a failure: the process is gone, and with a power cut everybody and what was not synced.
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

    fn act(&mut self, (action, bits): Act) -> Result<(), String> {
        self.bits = Rng::new(bits);
        let process = self.bits.below(2) as usize;
        if self.processes[process].is_none() {
            match self.start(process) {
                Ok(()) => self.survey(process)?,
                Err(_) => return self.recover(process),
            }
        }
        match action % 8 {
            0..=2 => self.grant(process),
            3 | 4 => self.make(process),
            5 | 6 => {
                self.cut = bits & 1 == 0;
                self.disk.stop_after(Some(self.bits.below(16) as u32));
                Ok(())
            }
            _ => match self.start(process) {
                Ok(()) => self.survey(process),
                Err(_) => self.recover(process),
            },
        }
    }

    /// Moves the marks of some names together.
    fn grant(&mut self, process: usize) -> Result<(), String> {
        let Self { processes, names, bits, .. } = self;
        let records = processes[process].as_mut().unwrap();
        let chosen: Vec<String> = names.keys().filter(|_| bits.below(3) == 0).take(8).cloned().collect();
        let mut changes = Vec::new();
        for name in &chosen {
            let found = read(records, name);
            let value = found.as_ref().ok().map(|found| found.record.value);
            names[name].check(name, value)?;
            // A name whose making failed may not be there.
            if let Ok(found) = found {
                changes.push(change(name, Some(found.version), found.record.value + 1 + bits.below(1_000)));
            }
        }
        self.swap(process, &changes)
    }

    /// Makes some names together, or none where they failed to be made before.
    fn make(&mut self, process: usize) -> Result<(), String> {
        let count = 1 + self.bits.below(8) as u32;
        let names: Vec<String> = (self.made..self.made + count).map(|n| format!("new{n}")).collect();
        self.made += count;
        for name in &names {
            self.names.insert(name.clone(), Known::default());
        }
        let changes: Vec<_> = names.iter().map(|name| change(name, None, 1)).collect();
        self.swap(process, &changes)
    }

    fn swap(&mut self, process: usize, changes: &[SequenceChange<'_>]) -> Result<(), String> {
        let outcomes = swap(self.processes[process].as_mut().unwrap(), changes);
        let mut failed = false;
        for (change, outcome) in changes.iter().zip(outcomes) {
            let known = self.names.get_mut(change.name).unwrap();
            match outcome {
                Ok(()) => *known = Known { confirmed: Some(change.record.value), attempts: Vec::new() },
                Err(SwapError::Unknown { .. }) => {
                    known.attempts.push(change.record.value);
                    failed = true;
                }
                Err(SwapError::Unavailable { .. } | SwapError::Full { .. }) => failed = true,
                Err(other) => return Err(format!("an uncontended change of {}: {other}", change.name)),
            }
        }
        if failed { self.recover(process) } else { Ok(()) }
    }
}

fn found(records: &mut LocalSequences<MemoryDisk>, name: &str) -> Result<Option<u64>, String> {
    match read(records, name) {
        Ok(found) => Ok(Some(found.record.value)),
        Err(ReadError::Absent { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn run(acts: &[Act], left_out: Option<Guard>) -> Result<(), String> {
    Guard::without(left_out.as_slice(), || {
        let mut world = World::new();
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
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn what_was_confirmed_survives_power_cuts_and_kills(acts in prop::collection::vec(any::<Act>(), 1..50)) {
        run(&acts, None).map_err(TestCaseError::fail)?;
    }
}

/// The seeds of the negative controls.
const SEEDS: u64 = 8;

fn caught(left_out: Option<Guard>) -> bool {
    (0..SEEDS).any(|seed| {
        let mut bits = Rng::new(seed);
        let acts: Vec<Act> = (0..50).map(|n| (bits.below(256) as u8, seed << 8 | n)).collect();
        run(&acts, left_out).inspect_err(|error| println!("{left_out:?}, seed {seed}: {error}")).is_err()
    })
}

#[test]
fn with_nothing_left_out_the_seeds_of_the_controls_find_nothing() {
    assert!(!caught(None));
}

#[test]
fn without_the_second_copy_the_test_finds_a_confirmed_mark_lost() {
    assert!(caught(Some(Guard::SecondCopy)));
}

#[test]
fn without_the_sync_between_the_copies_the_test_finds_a_record_lost() {
    assert!(caught(Some(Guard::SyncBetween)));
}

#[test]
fn a_hint_that_is_written_before_its_record_refuses_a_file_that_only_met_a_power_cut() {
    assert!(caught(Some(Guard::HintLast)));
}

/// Every image that a cut may leave at each operation of one call, in some ways of tearing it.
fn every_cut(changes: &[SequenceChange<'_>], check: impl Fn(&mut LocalSequences<MemoryDisk>, &str)) -> u32 {
    for stop in 0.. {
        for way in 2..5 {
            let disk = MemoryDisk::new(image(), some_identity());
            let mut records = on(&disk);
            disk.stop_after(Some(stop));
            let outcomes = swap(&mut records, changes);
            if outcomes.iter().all(Result::is_ok) {
                return stop;
            }
            assert!(outcomes.iter().all(Result::is_err), "stop {stop}: {outcomes:?}");
            // The disk has it as it was, whole, torn, or each sector another way.
            let mut bits = Rng::new(u64::from(stop));
            disk.cut_power(|n| match way {
                3 if n == 512 => 300,
                4 => bits.below(n as u64) as usize,
                way => way.min(n - 1),
            });
            check(&mut on(&disk), &format!("stop {stop}, way {way}"));
        }
    }
    unreachable!("a call ends")
}

#[test]
fn every_single_cut_of_a_grant_leaves_the_old_or_the_new_marks() {
    let names = [0, 1, 9, 700].map(|n| format!("old{n:06}"));
    let changes: Vec<_> = names.iter().map(|name| change(name, Some(2), 1_001)).collect();
    let stops = every_cut(&changes, |records, when| {
        for name in &names {
            let found = read(records, name).unwrap();
            assert!([(2, 1), (3, 1_001)].contains(&(found.version, found.record.value)), "{when}: {found:?}");
        }
    });
    assert_eq!(stops, 2 * 4 + 2);
}

#[test]
fn every_single_cut_of_a_growth_leaves_all_names_and_those_that_are_made_are_whole_or_absent() {
    let names: Vec<String> = (0..13).map(|n| format!("new{n}")).collect();
    let changes: Vec<_> = names.iter().map(|name| change(name, None, 1)).collect();
    every_cut(&changes, |records, when| {
        for name in [0, 1_000, OLD - 1].map(|n| format!("old{n:06}")) {
            assert_eq!(read(records, &name).unwrap().record.value, 1, "{when}");
        }
        for name in &names {
            match read(records, name) {
                Ok(found) => assert_eq!(found.record.value, 1, "{when}: {name}"),
                Err(error) => assert!(matches!(error, ReadError::Absent { .. }), "{when}: {error}"),
            }
        }
        // Whatever was left, the file goes on: those that are not there can be made, and more.
        for name in names.iter().map(String::as_str).chain(["another"]) {
            assert!(matches!(swap_one(records, name, None, 1), Ok(()) | Err(SwapError::Conflict)), "{when}");
        }
        assert_eq!(read(records, "another").unwrap().record.value, 1, "{when}");
    });
}
