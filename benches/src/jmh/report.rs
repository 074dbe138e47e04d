//! Results as text: one benchmark's as JMH prints it, and the final table.
//!
//! Burst and sustained stand in sections of their own and are never compared. The ratio says how many times better the
//! section's reference (`xuid/next_id`, or its sustained form) did than the row, at the same number of threads.

use indicatif::HumanCount;

use super::entry::Entry;
use super::plan::Mode;
use super::section::{Section, sections};
use super::stats::SURE;
use crate::subject::Kind;

/// What the others are compared with; in a section without it, the subject of ours whose name begins so.
const REFERENCE: &str = "xuid/next_id";
/// The percentiles of timed calls that are printed, and how JMH labels them.
const PRINTED: [(f64, &str); 8] = [
    (0.0, "p0.00"),
    (50.0, "p0.50"),
    (90.0, "p0.90"),
    (95.0, "p0.95"),
    (99.0, "p0.99"),
    (99.9, "p0.999"),
    (99.99, "p0.9999"),
    (100.0, "p1.00"),
];
const HEADS: [&str; 9] =
    ["Benchmark", "(threads)", "Mode", "Cnt", "Score", "Error", "Units", "Duplicates", "Ratio"];
/// The column of errors.
const ERROR: usize = 5;
/// Columns whose text begins at the left.
const LEFT: [usize; 2] = [0, 6];

/// One benchmark's result.
pub(super) fn result(entry: &Entry) -> String {
    let (sample, mode) = (&entry.sample, entry.mode);
    let number = |value| number_text(mode, value);
    let interval = |confidence| {
        let [low, high] = sample.interval(confidence);
        format!("[{}, {}]", number(low), number(high))
    };
    let mut lines = vec![
        format!("Result \"{}\":", entry.benchmark()),
        format!(
            "  {} \u{b1}(99.9%) {} {} [Average]",
            number(sample.mean),
            number(sample.error(SURE)),
            unit(mode)
        ),
        format!(
            "  (min, avg, max) = ({}, {}, {}), median = {}, stdev = {}",
            number(sample.percentile(0.0)),
            number(sample.mean),
            number(sample.percentile(100.0)),
            number(sample.percentile(50.0)),
            number(sample.stdev)
        ),
        format!("  CI (95%): {}", interval(0.95)),
        format!("  CI (99.9%): {} (assumes normal distribution)", interval(SURE)),
    ];
    if mode == Mode::Sample {
        lines.extend(timed(entry));
    }
    lines.push(format!("  Duplicates: {}", duplicates_text(entry)));
    lines.extend(entry.subject.objections.iter().map(|reason| format!("  VOID: {reason}")));
    lines.join("\n")
}

/// What is told of timed calls besides.
fn timed(entry: &Entry) -> Vec<String> {
    let sample = &entry.sample;
    let mut lines = vec![format!("  Samples, N = {}", sample.count)];
    lines.extend(PRINTED.iter().map(|(level, _)| {
        let label = format!("p({level:.4})");
        format!("  {label:>12} = {:>12} ns/op", number_text(Mode::Sample, sample.percentile(*level)))
    }));
    lines.push(format!("  p99.9 is {:.1} x the median", sample.percentile(99.9) / sample.percentile(50.0)));
    lines.extend(clock_text(entry).map(|text| format!("  {text}")));
    lines
}

/// What the clock cost in an entry of timed calls.
fn clock_text(entry: &Entry) -> Option<String> {
    entry.subject.clock.map(|clock| {
        format!(
            "Reading the clock is in each time of an op: median {:.1}, mean {:.1} ns/op",
            clock.p50_ns, clock.mean_ns
        )
    })
}

/// The final table, in sections.
pub(super) fn table(entries: &[Entry]) -> String {
    let sections = sections(entries).into_iter().map(|(shared, entries)| section(&shared, &entries));
    sections.collect::<Vec<_>>().join("\n\n")
}

fn section(shared: &Section, entries: &[&Entry]) -> String {
    let reference = reference(entries);
    let mut lines = vec![format!("# {}", shared.title())];
    lines.push(match reference {
        Some(name) => format!("# Ratio: how many times better {name} is than the row, at as many threads"),
        None => "# Ratio: none, as nothing of ours was measured with these".to_owned(),
    });
    let mut rows = vec![HEADS.map(str::to_owned)];
    for entry in entries {
        let ours = entries
            .iter()
            .find(|other| Some(other.subject.name.as_str()) == reference && other.threads == entry.threads);
        rows.extend(table_rows(entry, ours.copied()));
    }
    let error = |row: &[String; HEADS.len()]| row[ERROR].chars().count();
    let widest = rows[1..].iter().map(error).max().unwrap_or(0);
    for row in rows[1..].iter_mut().filter(|row| !row[ERROR].is_empty()) {
        row[ERROR] = format!("\u{b1} {:>widest$}", row[ERROR]);
    }
    lines.extend(aligned(&rows));
    for entry in entries {
        let of = format!("{} at {} thread(s)", entry.benchmark(), entry.threads);
        lines.extend(entry.subject.objections.iter().map(|reason| format!("VOID {of}: {reason}")));
        if entry.is_broken() {
            lines.push(format!("BROKEN {of}: {} duplicates", HumanCount(entry.subject.duplicates)));
        }
    }
    let dearest = entries.iter().filter(|entry| entry.subject.clock.is_some());
    let cost = |entry: &&&Entry| entry.subject.clock.map_or(0.0, |clock| clock.mean_ns);
    lines.extend(
        dearest
            .max_by(|a, b| cost(a).total_cmp(&cost(b)))
            .and_then(|entry| clock_text(entry))
            .map(|text| format!("# {text}")),
    );
    lines.join("\n")
}

/// The name of the subject that the others of a section are compared with.
pub(super) fn reference<'a>(entries: &[&'a Entry]) -> Option<&'a str> {
    let ours =
        || entries.iter().filter(|entry| entry.subject.kind == Kind::Ours).map(|entry| &*entry.subject.name);
    let exact = ours().find(|name| *name == REFERENCE);
    exact.or_else(|| ours().find(|name| name.starts_with(REFERENCE))).or_else(|| ours().next())
}

/// How many times better the reference's figure is; nothing where either is void or no number.
pub(super) fn ratio(mode: Mode, ours: f64, theirs: f64) -> Option<f64> {
    let ratio = match mode {
        Mode::Throughput => ours / theirs,
        Mode::Sample => theirs / ours,
    };
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

fn table_rows(entry: &Entry, ours: Option<&Entry>) -> Vec<[String; HEADS.len()]> {
    let (mode, sample) = (entry.mode, &entry.sample);
    let compared = |figure: &dyn Fn(&Entry) -> f64| match ours {
        _ if entry.is_void() => "VOID".to_owned(),
        Some(ours) if ours.is_void() => "-".to_owned(),
        // Times of calls that bring different numbers of ids say nothing about each other.
        Some(ours) if mode == Mode::Sample && ours.subject.ids_per_call != entry.subject.ids_per_call => {
            "-".to_owned()
        }
        Some(ours) => ratio(mode, figure(ours), figure(entry)).map_or("-".to_owned(), ratio_text),
        None => "-".to_owned(),
    };
    let row = |name: String, count: String, score: f64, error: f64, duplicates: String, ratio: String| {
        let error = if error.is_nan() { String::new() } else { number_text(mode, error) };
        let (threads, short) = (entry.threads.to_string(), short_text(mode).to_owned());
        let score = number_text(mode, score);
        [name, threads, short, count, score, error, unit(mode).to_owned(), duplicates, ratio]
    };
    let name = entry.benchmark();
    let count = sample.count.to_string();
    let duplicates = duplicates_text(entry);
    let score = compared(&|entry| entry.sample.mean);
    let mut rows = vec![row(name, count, sample.mean, sample.error(SURE), duplicates, score)];
    if mode == Mode::Sample {
        rows.extend(PRINTED.iter().map(|&(level, label)| {
            let at = |entry: &Entry| entry.sample.percentile(level);
            let name = format!("{}:{label}", entry.benchmark());
            row(name, String::new(), at(entry), f64::NAN, String::new(), compared(&at))
        }));
    }
    rows
}

/// Columns two blanks apart, each as wide as its widest cell.
fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let cell = |column: usize, text: &str| {
        let width = widths[column];
        if LEFT.contains(&column) { format!("{text:<width$}") } else { format!("{text:>width$}") }
    };
    let line = |row: &[String; COLUMNS]| {
        let cells: Vec<String> = row.iter().enumerate().map(|(column, text)| cell(column, text)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn duplicates_text(entry: &Entry) -> String {
    format!("{} of {}", HumanCount(entry.subject.duplicates), HumanCount(entry.subject.checked_ids))
}

/// As JMH names a mode.
pub(super) fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Throughput => "Throughput, ids/time",
        Mode::Sample => "Sampling time",
    }
}

fn short_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Throughput => "thrpt",
        Mode::Sample => "sample",
    }
}

/// Rates are printed in millions.
fn unit(mode: Mode) -> &'static str {
    match mode {
        Mode::Throughput => "M ids/s",
        Mode::Sample => "ns/op",
    }
}

fn number_text(mode: Mode, value: f64) -> String {
    match mode {
        Mode::Throughput => format!("{:.3}", value / 1e6),
        Mode::Sample => format!("{value:.3}"),
    }
}

/// A score with its unit.
pub(super) fn score_text(mode: Mode, value: f64) -> String {
    format!("{} {}", number_text(mode, value), unit(mode))
}

/// Three digits of a ratio, all of a large one.
fn ratio_text(ratio: f64) -> String {
    match ratio {
        0.0..10.0 => format!("{ratio:.2}"),
        10.0..100.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

#[cfg(test)]
mod tests;
