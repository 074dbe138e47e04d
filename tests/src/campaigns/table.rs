//! What joined parts say: a table in Markdown, and whether it is clean.
//!
//! Made from a [`Record`]; depends on no campaign having run here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::progress::{coarse, grouped};
use super::record::{Line, Record, parts_of};
use super::{Campaign, Machine, Mutant, Size, Tally};

/// Recoveries from which on a 99th percentile says something; below, one slow moment of the machine would be all of it.
const ENOUGH_RECOVERIES: u64 = 100;
/// Seeds of failures in the table itself; all of them follow below it.
const SEEDS: usize = 3;
/// Failures told in full for each campaign: the first ones are the ones to work on.
const TOLD: usize = 50;

const HEAD: [&str; 11] = [
    "campaign",
    "trials",
    "ids",
    "duplicates",
    "wasted by cause",
    "refusals by code",
    "longest without an answer",
    "recovery p50",
    "p99",
    "max",
    "seeds of failures",
];

/// A table, and what it comes to.
#[derive(Debug)]
pub struct Table {
    /// Markdown.
    pub text: String,
    /// Whether something went wrong: a failure, a duplicate, a bound exceeded, a mutant that nobody caught, or a part
    /// that was tried and never could be run.
    pub failed: bool,
}

/// One campaign, joined.
struct Joined<'a> {
    campaign: &'a dyn Campaign,
    tally: Tally,
    lines: Vec<&'a Line>,
    parts: usize,
    left_out: Vec<&'a Line>,
    problems: Vec<String>,
}

/// The table of one size, over these campaigns as far as they are recorded; none if nothing is.
pub fn of(campaigns: &[&dyn Campaign], size: Size, record: &Record, revision: &str) -> Option<Table> {
    let joined: Vec<Joined<'_>> =
        campaigns.iter().filter_map(|campaign| join(*campaign, size, record)).collect();
    if joined.is_empty() {
        return None;
    }
    let mut text = format!("{size}, revision {revision}\n\n");
    let rows: Vec<Vec<String>> = joined.iter().map(row).collect();
    text.push_str(&aligned(&HEAD, &rows));
    text.push_str(&mutants(&joined));
    text.push_str(&notes(&joined));
    text.push_str(&origin(&joined));
    let missing: Vec<&str> = campaigns.iter().map(|campaign| campaign.name()).collect();
    let missing: Vec<&str> =
        missing.into_iter().filter(|name| joined.iter().all(|one| one.campaign.name() != *name)).collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot run: {}.", missing.join(", "));
    }
    let failed = joined.iter().any(|one| !one.problems.is_empty());
    let planned: usize = campaigns.iter().map(|campaign| parts_of(*campaign, size).len()).sum();
    text.push_str(&verdict(&joined, planned, failed));
    Some(Table { text, failed })
}

/// Whether these tables are good news: at least one says anything at all, and none says that something failed.
pub fn are_clean(tables: &[Option<Table>]) -> bool {
    let mut told = tables.iter().flatten().peekable();
    told.peek().is_some() && told.all(|table| !table.failed)
}

fn join<'a>(campaign: &'a dyn Campaign, size: Size, record: &'a Record) -> Option<Joined<'a>> {
    let (counted, left_out) = record.parts(campaign, size);
    let parts = counted.len();
    let unmade: BTreeSet<u64> =
        left_out.iter().filter(|line| line.error.is_some()).map(|line| line.part).collect();
    let lines: Vec<&Line> = counted.iter().copied().flatten().collect();
    if lines.is_empty() && left_out.is_empty() {
        return None;
    }
    let mut tally = Tally::new(campaign.name());
    for part in lines.iter().filter_map(|line| line.tally.as_ref()) {
        tally += part;
    }
    let mut problems = tally.failures.clone();
    if tally.duplicates > 0 {
        problems.insert(0, format!("{} ids came more than once", grouped(tally.duplicates)));
    }
    for part in unmade.into_iter().filter(|part| counted.get(*part as usize).is_some_and(Option::is_none)) {
        problems.push(format!("part {} could not be run, and was not since", part + 1));
    }
    for mutant in tally.mutants.iter().filter(|mutant| mutant.caught_by.is_empty()) {
        problems.push(format!("nobody caught the mutant {}: a test is missing", mutant.name));
    }
    problems.extend(too_slow(campaign, &tally));
    if lines.len() == parts {
        problems.extend(campaign.missed(size, &tally));
    }
    Some(Joined { campaign, tally, lines, parts, left_out, problems })
}

fn too_slow(campaign: &dyn Campaign, tally: &Tally) -> Option<String> {
    let (bound, p99) = (campaign.recovery_bound()?, tally.recovery_percentile(99)?);
    let over = tally.recoveries() >= ENOUGH_RECOVERIES && u128::from(p99) > bound.as_millis();
    over.then(|| format!("recovery p99 is {}, over its bound of {bound:?}", millis(p99)))
}

fn row(joined: &Joined<'_>) -> Vec<String> {
    let tally = &joined.tally;
    let trials = grouped(tally.trials);
    let (done, parts) = (joined.lines.len(), joined.parts);
    let trials = if done == parts { trials } else { format!("{trials} ({done} of {parts} parts)") };
    let recovery = |percent| tally.recovery_percentile(percent).map_or_else(nothing, millis);
    let longest = tally.longest_without_answer_ms;
    vec![
        tally.campaign.clone(),
        trials,
        grouped(tally.ids),
        grouped(tally.duplicates),
        counts(&tally.wasted),
        counts(&tally.refusals),
        if longest == 0 { nothing() } else { millis(longest) },
        recovery(50),
        recovery(99),
        recovery(100),
        seeds(&joined.problems),
    ]
}

fn nothing() -> String {
    "-".to_owned()
}

fn seeds(problems: &[String]) -> String {
    let mut heads: Vec<&str> =
        problems.iter().take(SEEDS).map(|problem| problem.split(": ").next().unwrap_or(problem)).collect();
    let more = format!("and {} more", problems.len().saturating_sub(SEEDS));
    if problems.len() > SEEDS {
        heads.push(&more);
    }
    if heads.is_empty() { "none".to_owned() } else { heads.join("; ") }
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let told: Vec<String> =
        counts.iter().filter(|(_, n)| **n > 0).map(|(what, n)| format!("{what} {}", grouped(*n))).collect();
    if told.is_empty() { nothing() } else { told.join(", ") }
}

/// Milliseconds up to ten seconds, then seconds.
fn millis(ms: u64) -> String {
    if ms < 10_000 { format!("{} ms", grouped(ms)) } else { format!("{:.1} s", ms as f64 / 1_000.0) }
}

/// A Markdown table whose columns stand below each other; the first one to the left, numbers to the right.
fn aligned(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    // What begins with a digit in every row that has anything is a number or a measure.
    let is_number = |column: usize| {
        let mut cells = rows.iter().map(|row| row[column].as_str()).filter(|cell| *cell != "-").peekable();
        cells.peek().is_some() && cells.all(|cell| cell.starts_with(|first: char| first.is_ascii_digit()))
    };
    let right: Vec<bool> = (0..head.len()).map(is_number).collect();
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    let padded = |cell: &str, column: usize| {
        let (cell, width) = (cell.replace('|', "/").replace('\n', " "), widths[column]);
        if right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    };
    line(head.iter().enumerate().map(|(column, cell)| padded(cell, column)).collect());
    line(
        widths
            .iter()
            .zip(&right)
            .map(|(width, right)| {
                let dashes = "-".repeat(width - 1);
                if *right { format!("{dashes}:") } else { format!("{dashes}-") }
            })
            .collect(),
    );
    for row in rows {
        line(row.iter().enumerate().map(|(column, cell)| padded(cell, column)).collect());
    }
    text
}

fn mutants(joined: &[Joined<'_>]) -> String {
    let mutants: Vec<&Mutant> = joined.iter().flat_map(|one| &one.tally.mutants).collect();
    if mutants.is_empty() {
        return String::new();
    }
    let row = |mutant: &&Mutant| {
        let caught = if mutant.caught_by.is_empty() { "NOBODY" } else { &mutant.caught_by };
        let histories = if mutant.histories == 0 { nothing() } else { grouped(mutant.histories) };
        vec![
            mutant.name.clone(),
            mutant.invariant.clone(),
            caught.to_owned(),
            histories,
            mutant.found.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = mutants.iter().map(row).collect();
    let head = ["guard taken out", "of", "caught by", "histories until then", "finding"];
    format!("\n{}", aligned(&head, &rows))
}

fn notes(joined: &[Joined<'_>]) -> String {
    let mut text = String::new();
    for one in joined.iter().filter(|one| !one.tally.notes.is_empty()) {
        let notes: Vec<String> = one
            .tally
            .notes
            .iter()
            .map(|(name, figure)| match name.strip_prefix("max_") {
                Some(name) => format!("{} at most {}", name.replace('_', " "), grouped(*figure)),
                None => format!("{} {}", name.replace('_', " "), grouped(*figure)),
            })
            .collect();
        let _ = writeln!(text, "- {}: {}.", one.campaign.name(), notes.join(", "));
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// Where the figures are from: each machine with the time it spent.
fn origin(joined: &[Joined<'_>]) -> String {
    let mut machines: BTreeMap<&Machine, (usize, f64)> = BTreeMap::new();
    for line in joined.iter().flat_map(|one| &one.lines) {
        let (parts, seconds) = machines.entry(&line.machine).or_default();
        *parts += 1;
        *seconds += line.seconds;
    }
    let mut text = String::from("\n");
    for (machine, (parts, seconds)) in machines {
        let (cpu, cores, kernel) = (&machine.cpu, machine.cores, &machine.kernel);
        let parts = if parts == 1 { "1 part".to_owned() } else { format!("{parts} parts") };
        let _ = writeln!(text, "{parts} in {} on {cpu}, {cores} cores, Linux {kernel}.", coarse(seconds));
    }
    text
}

/// `planned`: the parts of all campaigns that were asked for, those of which nothing is recorded as well.
fn verdict(joined: &[Joined<'_>], planned: usize, failed: bool) -> String {
    let mut text = String::new();
    for one in joined {
        let name = one.campaign.name();
        for line in &one.left_out {
            let part = line.part + 1;
            let _ = match &line.error {
                Some(error) => {
                    writeln!(text, "- {name}: an attempt at part {part} could not be made: {error}")
                }
                None => writeln!(text, "- {name}: part {part} is of another plan, and is not counted"),
            };
        }
        for problem in one.problems.iter().take(TOLD) {
            let _ = writeln!(text, "- {name} FAILED: {problem}");
        }
        let more = one.problems.len().saturating_sub(TOLD);
        if more > 0 {
            let _ = writeln!(text, "- {name} FAILED: {more} times more, see the record");
        }
    }
    let ids: u64 = joined.iter().map(|one| one.tally.ids).sum();
    let trials: u64 = joined.iter().map(|one| one.tally.trials).sum();
    let (ids, trials) = (grouped(ids), grouped(trials));
    let made: usize = joined.iter().map(|one| one.lines.len()).sum();
    let end = match (failed, made == planned) {
        (true, _) => "FAILED",
        (false, true) => "Nothing failed, and no id came twice",
        (false, false) => "Nothing failed so far, and no id came twice",
    };
    let gap = if text.is_empty() { "" } else { "\n" };
    let parts = if made == planned { String::new() } else { format!(", {made} of {planned} parts") };
    format!("{gap}{text}\n{end}: {trials} trials, {ids} ids{parts}.\n")
}
