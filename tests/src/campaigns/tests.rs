//! The machinery itself, on small campaigns whose outcome is known.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use tempfile::TempDir;

use super::*;

/// Five parts of up to ten trials: each trial is an id, and recovers in as many milliseconds as its number.
#[derive(Debug, Default)]
struct Fake {
    bad: Option<u64>,
    mutant: Option<&'static str>,
    bound: Option<Duration>,
    /// What it should have met in a whole night.
    missed: Option<&'static str>,
    /// Trials that can't be made while they stand here.
    broken: Mutex<Option<u64>>,
    panics: bool,
    forgets: bool,
    ran: Mutex<Vec<Range<u64>>>,
}

impl Fake {
    fn ran(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.ran.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Campaign for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn what(&self) -> &'static str {
        "nothing"
    }

    fn trials(&self, size: Size) -> u64 {
        if size == Size::Quick { 5 } else { 47 }
    }

    fn part(&self, _: Size) -> u64 {
        10
    }

    fn expected(&self, _: Size) -> Duration {
        Duration::from_mins(1)
    }

    fn recovery_bound(&self) -> Option<Duration> {
        self.bound
    }

    fn missed(&self, size: Size, tally: &Tally) -> Vec<String> {
        assert_eq!((size, tally.ids), (Size::Night, 47), "asked of a campaign that is not complete");
        self.missed.map(str::to_owned).into_iter().collect()
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        self.ran.lock().unwrap().push(trials.clone());
        let mut tally = Tally::default();
        for trial in trials.clone() {
            if *self.broken.lock().unwrap() == Some(trial) {
                assert!(!self.panics, "no such luck");
                bail!("no ZooKeeper");
            }
            tally.trials += u64::from(!self.forgets || trial != 0);
            tally.ids += 1;
            tally.recovered(trial);
            tally.waste("crash", 2);
            tally.note("steps", 3);
            tally.note("max_rss_kib", trial);
            if self.bad == Some(trial) {
                tally.fail(format!("seed {trial}: {trial} came back"));
            }
            progress.tell(&tally);
        }
        if let Some(caught_by) = self.mutant {
            let mutant = Mutant { name: "floor".into(), caught_by: caught_by.into(), ..Mutant::default() };
            tally.mutants.push(mutant);
        }
        Ok(tally)
    }
}

/// A record of a made-up revision.
struct Place {
    dir: TempDir,
    revision: Revision,
}

impl Place {
    fn new() -> Self {
        let revision = Revision { name: "abc123".into(), dirty: false };
        Self { dir: TempDir::new().unwrap(), revision }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("deep/fake.jsonl")
    }

    fn runs(&self, fake: &Fake, minutes: Option<u64>) -> Ending {
        let runner = Runner::new(self.revision.clone(), false, minutes.map(Duration::from_mins));
        runner.run(fake, Size::Night, &self.path()).unwrap()
    }

    fn record(&self) -> Record {
        Record::read(&[self.path()], &self.revision.name).unwrap()
    }

    fn table(&self, fake: &Fake) -> table::Table {
        table::of(&[fake], Size::Night, &self.record(), &self.revision.name).unwrap()
    }

    /// Keeps the first `lines` of the record, and `rest` of what follows.
    fn cut(&self, lines: usize, rest: usize) {
        let text = fs::read_to_string(self.path()).unwrap();
        let end: usize = text.split_inclusive('\n').take(lines).map(str::len).sum();
        fs::write(self.path(), &text[..end + rest]).unwrap();
    }
}

fn sum(place: &Place) -> Tally {
    let mut sum = Tally::default();
    for line in &place.record().lines {
        sum += line.tally.as_ref().unwrap();
    }
    sum
}

#[test]
fn tallies_add_up_and_maxima_stay_maxima() {
    let json = r#"{"campaign":"x","trials":10,"ids":123,"duplicates":1,"wasted":{"crash":5},
        "refusals":{"NOT_READY":3},"longest_without_answer_ms":12,"recovery_ms":{"12":3,"15":7},
        "failures":["seed 123: why"],"notes":{"steps":20000,"max_rss_kib":3}}"#;
    let one: Tally = serde_json::from_str(json).unwrap();
    let mut two = one.clone();
    (two.longest_without_answer_ms, two.failures) = (99, vec!["seed 7: how".into()]);
    two.note("max_rss_kib", 2);
    two.refuse("INTERNAL", 1);
    let mut sum = Tally::default();
    sum += &one;
    sum += &two;
    assert_eq!((sum.campaign.as_str(), sum.trials, sum.ids, sum.duplicates), ("x", 20, 246, 2));
    assert_eq!((sum.wasted["crash"], sum.refusals["NOT_READY"], sum.refusals["INTERNAL"]), (10, 6, 1));
    assert_eq!((sum.longest_without_answer_ms, sum.recovery_ms[&12], sum.recovery_ms[&15]), (99, 6, 14));
    assert_eq!((sum.notes["steps"], sum.notes["max_rss_kib"]), (40_000, 3));
    assert_eq!(sum.failures, ["seed 123: why", "seed 7: how"]);
    let read: Tally = serde_json::from_str(&serde_json::to_string(&sum).unwrap()).unwrap();
    assert_eq!(read, sum, "what is written is read again");
}

#[test]
fn percentiles_are_times_that_were_measured() {
    let mut tally = Tally::default();
    assert_eq!(tally.recovery_percentile(99), None);
    tally.recovered(7);
    assert_eq!([0, 50, 99, 100].map(|percent| tally.recovery_percentile(percent)), [Some(7); 4]);
    let mut tally = Tally::default();
    (1..=1_000).for_each(|ms| tally.recovered(ms));
    tally.recovered(5_000);
    // 1,001 of them: 50 % are 500.5 and 99 % are 990.99, so the 501st and the 991st.
    let found = [50, 99, 100].map(|percent| tally.recovery_percentile(percent));
    assert_eq!(found, [Some(501), Some(991), Some(5_000)]);
}

#[test]
fn a_stopped_campaign_goes_on_with_the_first_part_that_is_not_recorded() {
    let (place, fake) = (Place::new(), Fake::default());
    assert!(matches!(place.runs(&fake, None), Ending::Complete));
    assert_eq!(fake.ran(), [0..10, 10..20, 20..30, 30..40, 40..47]);
    let whole = sum(&place);
    assert_eq!(
        (whole.trials, whole.ids, whole.notes["max_rss_kib"], whole.wasted["crash"]),
        (47, 47, 46, 94)
    );
    assert!(matches!(place.runs(&fake, None), Ending::Complete));
    assert!(fake.ran().is_empty(), "recorded parts are not run again");

    // Killed while it wrote the third line: that part is lost, and nothing else.
    place.cut(2, 25);
    assert_eq!(place.record().lines.len(), 2);
    assert!(matches!(place.runs(&fake, None), Ending::Complete));
    assert_eq!(fake.ran(), [20..30, 30..40, 40..47]);
    assert_eq!(sum(&place), whole);

    // Another revision, and another size, have parts of their own.
    let other = Revision { name: "def456".into(), dirty: false };
    let runner = Runner::new(other.clone(), false, None);
    runner.run(&fake, Size::Night, &place.path()).unwrap();
    runner.run(&fake, Size::Quick, &place.path()).unwrap();
    assert_eq!(fake.ran().len(), 6);
    assert_eq!((place.record().foreign, place.record().lines.len()), (6, 5));

    // Forgetting is of one campaign, one size and one revision.
    Runner::new(other, true, None).run(&fake, Size::Quick, &place.path()).unwrap();
    assert_eq!(fake.ran(), std::iter::once(0..5).collect::<Vec<_>>());
    assert_eq!((place.record().foreign, place.record().lines.len()), (6, 5));
}

#[test]
fn no_part_begins_that_would_not_end_in_time() {
    let (place, fake) = (Place::new(), Fake::default());
    // Before anything is measured a part is expected to take a minute.
    assert!(matches!(place.runs(&fake, Some(0)), Ending::OutOfTime(5)));
    assert!(fake.ran().is_empty());
    assert!(matches!(place.runs(&fake, Some(2)), Ending::Complete));
    place.cut(2, 0);
    // A part that took ten minutes leaves no time for the next one in nine.
    let text = fs::read_to_string(place.path()).unwrap();
    let mut lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[0].seconds = 600.0;
    let text: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
    fs::write(place.path(), text.join("\n") + "\n").unwrap();
    assert!(matches!(place.runs(&fake, Some(9)), Ending::OutOfTime(3)));
    assert!(matches!(place.runs(&fake, Some(11)), Ending::Complete));
}

#[test]
fn a_failure_in_any_part_makes_the_table_fail_and_names_its_seed() {
    let (place, good) = (Place::new(), Fake::default());
    place.runs(&good, None);
    let table = place.table(&good);
    assert!(!table.failed, "{}", table.text);
    assert!(table.text.contains("crash 94"), "{}", table.text);
    assert!(table.text.contains("steps 141"), "{}", table.text);

    let (place, bad) = (Place::new(), Fake { bad: Some(23), ..Fake::default() });
    place.runs(&bad, None);
    assert_eq!(bad.ran().len(), 5, "the other parts are run all the same");
    let table = place.table(&bad);
    assert!(table.failed);
    assert!(
        table.text.contains("seed 23 ") && table.text.contains("seed 23: 23 came back"),
        "{}",
        table.text
    );

    // The same part, clean on another day, takes nothing back.
    let twice = [place.path(), place.dir.path().join("other.jsonl")];
    Runner::new(place.revision.clone(), false, None).run(&good, Size::Night, &twice[1]).unwrap();
    for files in [twice.clone(), [twice[1].clone(), twice[0].clone()]] {
        let record = Record::read(&files, &place.revision.name).unwrap();
        let table = table::of(&[&bad], Size::Night, &record, "abc123").unwrap();
        assert!(table.failed && table.text.contains(" 47 |"), "{}", table.text);
    }

    let (place, few) = (Place::new(), Fake { forgets: true, ..Fake::default() });
    place.runs(&few, None);
    let table = place.table(&few);
    assert!(table.failed && table.text.contains("9 of 10 were made"), "{}", table.text);
}

#[test]
fn a_part_whose_trials_cannot_be_made_is_told_and_made_by_the_next_run() {
    for panics in [false, true] {
        let (place, fake) = (Place::new(), Fake { panics, ..Fake::default() });
        *fake.broken.lock().unwrap() = Some(15);
        let Ending::Broken(error) = place.runs(&fake, None) else { panic!("it ended well") };
        let why = if panics { "no such luck" } else { "no ZooKeeper" };
        assert!(format!("{error:#}").contains(why), "{error:#}");
        let table = place.table(&fake);
        assert!(table.failed && table.text.contains(why), "{}", table.text);
        assert!(table.text.contains("10 (1 of 5 parts)"), "{}", table.text);

        *fake.broken.lock().unwrap_or_else(PoisonError::into_inner) = None;
        fake.broken.clear_poison();
        fake.ran();
        assert!(matches!(place.runs(&fake, None), Ending::Complete));
        assert_eq!(fake.ran().first(), Some(&(10..20)));
        let table = place.table(&fake);
        assert!(
            !table.failed && table.text.contains(why),
            "what was tried in vain stays told: {}",
            table.text
        );
    }
}

#[test]
fn bounds_and_mutants_make_the_table_fail_too() {
    // 47 recoveries are too few to judge a 99th percentile by; three times as many are not.
    let bound = Some(Duration::from_millis(40));
    let (place, slow) = (Place::new(), Fake { bound, ..Fake::default() });
    place.runs(&slow, None);
    assert!(!place.table(&slow).failed);
    let mut record = place.record();
    for line in &mut record.lines {
        let counts = line.tally.iter_mut().flat_map(|tally| tally.recovery_ms.values_mut());
        counts.for_each(|count| *count *= 3);
    }
    let table = table::of(&[&slow], Size::Night, &record, "abc123").unwrap();
    assert!(table.failed && table.text.contains("recovery p99 is 46 ms"), "{}", table.text);

    for (caught_by, failed) in [("simulation", false), ("", true)] {
        let (place, fake) = (Place::new(), Fake { mutant: Some(caught_by), ..Fake::default() });
        place.runs(&fake, None);
        let table = place.table(&fake);
        assert_eq!(table.failed, failed, "{}", table.text);
        assert!(table.text.contains("| floor"), "{}", table.text);
    }
}

#[test]
fn what_a_complete_campaign_should_have_met_makes_its_table_fail() {
    let (place, blind) =
        (Place::new(), Fake { missed: Some("the point x was never struck"), ..Fake::default() });
    place.runs(&blind, None);
    let table = place.table(&blind);
    assert!(table.failed && table.text.contains("FAILED: the point x was never struck"), "{}", table.text);
    // Parts that are left may meet it yet.
    place.cut(4, 0);
    let table = place.table(&blind);
    assert!(!table.failed && table.text.contains("failed so far"), "{}", table.text);
}

#[test]
fn a_campaign_that_did_not_run_is_not_counted_as_clean() {
    let (place, fake) = (Place::new(), Fake::default());
    let empty = table::of(&[&fake], Size::Night, &Record::default(), "abc123");
    assert!(!table::are_clean(&[empty]), "nothing ran");
    assert!(!table::are_clean(&[]));
    place.runs(&fake, None);
    let whole = place.table(&fake);
    assert!(whole.text.contains("Nothing failed, and no id came twice: 47 trials"), "{}", whole.text);
    assert!(table::are_clean(&[None, Some(whole)]));

    // Beside it one that did not run at all: what there is is clean, and not all there is.
    let other = Kills::local();
    let some = table::of(&[&fake, &other], Size::Night, &place.record(), "abc123").unwrap();
    assert!(some.text.contains("Not run: kills."), "{}", some.text);
    assert!(some.text.contains("Nothing failed so far, and no id came twice"), "{}", some.text);
    assert!(some.text.contains("5 of 16 parts"), "{}", some.text);
    assert!(table::are_clean(&[Some(some)]));

    let (place, bad) = (Place::new(), Fake { bad: Some(3), ..Fake::default() });
    place.runs(&bad, None);
    assert!(!table::are_clean(&[Some(place.table(&bad))]));
}

#[test]
fn a_record_has_one_writer_and_no_line_that_is_skipped() {
    let (place, fake) = (Place::new(), Fake::default());
    place.runs(&fake, None);
    let writer = record::Writer::open(&place.path()).unwrap();
    let second = record::Writer::open(&place.path()).unwrap_err();
    assert!(format!("{second:#}").contains("another run"), "{second:#}");
    drop(writer);
    let text = fs::read_to_string(place.path()).unwrap();
    fs::write(place.path(), text.replacen("\"part\"", "\"pert\"", 1)).unwrap();
    assert!(Record::read(&[place.path()], "abc123").is_err());
}

#[test]
fn every_campaign_has_a_size_and_its_parts_are_all_of_it() {
    let campaigns = all();
    for campaign in &campaigns {
        for size in Size::ALL {
            let parts = record::parts_of(campaign.as_ref(), size);
            let mut next = 0;
            for part in &parts {
                assert!(part.start == next && part.end > part.start, "{} {size}: {parts:?}", campaign.name());
                next = part.end;
            }
            assert_eq!(next, campaign.trials(size), "{} {size}", campaign.name());
            assert!(campaign.expected(size) <= Duration::from_mins(45), "{} {size}", campaign.name());
        }
    }
    let quick: u64 =
        SIZES.iter().map(|(_, quick, _)| quick.trials.div_ceil(quick.part) * quick.seconds).sum();
    assert!(quick <= 350, "all of quick takes {quick} s");
    for (name, ..) in SIZES {
        assert!(campaigns.iter().any(|campaign| campaign.name() == *name), "no campaign is called {name}");
    }
}
