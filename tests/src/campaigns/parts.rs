//! Runs the parts of a campaign that are not recorded yet, one after the other.
//!
//! Called by the binary `campaign`, from one thread. Ctrl-C ends the process and its children wherever they are: the
//! part under way is lost, the recorded ones stand.
//!
//! # Invariants
//! - No part begins that would, by the longest one so far, not end in the time that is left.
//! - A part whose trials could not be made is recorded as an attempt with its error and ends this run of the campaign;
//!   the next run makes it again.
//! - A part that reports another number of trials than it was given is a failure of the part.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};

use super::progress::{Before, coarse, grouped, shown};
use super::record::{Line, Machine, Record, Writer, parts_of};
use super::trials::caught;
use super::{Campaign, Revision, Size, Tally};
use crate::clock;

/// How the run of a campaign ended.
#[derive(Debug)]
pub enum Ending {
    /// Every part is recorded.
    Complete,
    /// The time was up; so many parts are left.
    OutOfTime(usize),
    /// Trials could not be made.
    Broken(Error),
}

/// Runs campaigns of one revision on this machine.
#[derive(Debug)]
pub struct Runner {
    revision: Revision,
    machine: Machine,
    again: bool,
    until: Option<Instant>,
}

impl Runner {
    /// A runner for this code; `again` forgets what is recorded, `time` bounds the run of all campaigns together.
    pub fn new(revision: Revision, again: bool, time: Option<Duration>) -> Self {
        let until = time.map(|time| clock::now() + time);
        Self { revision, machine: Machine::here(), again, until }
    }

    /// Runs what is left of this campaign, and records each part in this file.
    pub fn run(&self, campaign: &dyn Campaign, size: Size, path: &Path) -> Result<Ending> {
        let mut writer = Writer::open(path)?;
        if self.again {
            writer = writer.forget(campaign, size, &self.revision.name)?;
        }
        let mut record = Record::read(&[path], &self.revision.name)?;
        let plan = parts_of(campaign, size);
        let (counted, _) = record.parts(campaign, size);
        let left: Vec<usize> = (0..plan.len()).filter(|part| counted[*part].is_none()).collect();
        eprintln!("{}", announced(campaign, size, &plan, left.len()));
        for (nth, &part) in left.iter().enumerate() {
            if !self.has_time(campaign, size, &record) {
                return Ok(Ending::OutOfTime(left.len() - nth));
            }
            let before = before(campaign, size, &record, part);
            let line = self.part(campaign, size, part, &plan[part], &before);
            writer.append(&line)?;
            let error = line.error.clone();
            tell(&line);
            record.lines.push(line);
            if let Some(error) = error {
                return Ok(Ending::Broken(anyhow!("{} {size}, part {}: {error}", campaign.name(), part + 1)));
            }
        }
        Ok(Ending::Complete)
    }

    /// Whether a part fits into the time left. The first one of all is begun in any case if nothing says how long it
    /// is.
    fn has_time(&self, campaign: &dyn Campaign, size: Size, record: &Record) -> bool {
        let Some(until) = self.until else { return true };
        let measured = record.lines.iter().filter(|line| line.is_of(campaign, size) && line.tally.is_some());
        let longest = measured.map(|line| line.seconds).reduce(f64::max);
        let expected = longest.map_or_else(|| campaign.expected(size), Duration::from_secs_f64);
        until.checked_duration_since(clock::now()).is_some_and(|left| expected <= left)
    }

    fn part(
        &self,
        campaign: &dyn Campaign,
        size: Size,
        part: usize,
        range: &Range<u64>,
        before: &Before,
    ) -> Line {
        let (unix, begin) = (clock::unix_ms() / 1_000, clock::now());
        let ran = watched(campaign, range, before);
        let (tally, error) = match ran {
            Ok(tally) => (Some(tally), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        Line {
            revision: self.revision.name.clone(),
            campaign: campaign.name().to_owned(),
            size: size.name().to_owned(),
            part: part as u64,
            from: range.start,
            to: range.end,
            machine: self.machine.clone(),
            began: unix,
            seconds: (begin.elapsed().as_secs_f64() * 1_000.0).round() / 1_000.0,
            tally,
            error,
        }
    }
}

/// Runs these trials, and shows how far they are.
pub fn attempt(campaign: &dyn Campaign, range: &Range<u64>) -> Result<Tally> {
    let heading = format!("{} {}..{}", campaign.name(), range.start, range.end);
    watched(campaign, range, &Before { heading, of: range.end - range.start, ..Before::default() })
}

/// A panic of a campaign is an error like others.
fn watched(campaign: &dyn Campaign, range: &Range<u64>, before: &Before) -> Result<Tally> {
    let mut tally = shown(before, |progress| caught(|| campaign.run(range.clone(), progress)))?;
    campaign.name().clone_into(&mut tally.campaign);
    let asked = range.end - range.start;
    if tally.trials != asked {
        tally.fail(format!("trials {}..{}: {} of {asked} were made", range.start, range.end, tally.trials));
    }
    Ok(tally)
}

fn before(campaign: &dyn Campaign, size: Size, record: &Record, part: usize) -> Before {
    let (counted, _) = record.parts(campaign, size);
    let heading = format!("{} {size}, part {} of {}", campaign.name(), part + 1, counted.len());
    let mut before = Before { heading, of: campaign.trials(size), ..Before::default() };
    for line in counted.into_iter().flatten() {
        before.seconds += line.seconds;
        line.tally.iter().for_each(|tally| before.tally += tally);
    }
    before
}

fn announced(campaign: &dyn Campaign, size: Size, plan: &[Range<u64>], left: usize) -> String {
    let trials = grouped(campaign.trials(size));
    let (name, parts) = (campaign.name(), plan.len());
    match left {
        0 => format!("{name} {size}: all {trials} trials are recorded (--again forgets them)"),
        _ if left == parts => format!("{name} {size}: {trials} trials in {parts} parts"),
        _ => format!("{name} {size}: {trials} trials, goes on with {left} of {parts} parts"),
    }
}

/// One line for each part that ended, and one for each thing that went wrong in it.
fn tell(line: &Line) {
    let head = format!("{} {}, part {}", line.campaign, line.size, line.part + 1);
    if let Some(error) = &line.error {
        eprintln!("{head}: its trials could not be made: {error}");
    }
    if let Some(tally) = &line.tally {
        let (trials, ids) = (grouped(tally.trials), grouped(tally.ids));
        eprintln!("{head}: {trials} trials, {ids} ids, {}", coarse(line.seconds));
        if tally.duplicates > 0 {
            eprintln!("{head}: {} DUPLICATES", grouped(tally.duplicates));
        }
        for failure in &tally.failures {
            eprintln!("{head}: FAILED: {failure}");
        }
    }
}
