//! A chart of results: horizontal bars on a logarithmic scale, one a row, grouped by the number of threads.
//!
//! Each supply and mode has a panel with a scale of its own, so that burst and sustained never stand beside each other.
//! A bar of a rate carries its 99.9 % error as a whisker; a bar of timed calls is the median, its whisker reaches to
//! p99.9. Void figures are drawn hollow. The picture brings its own background and follows the viewer's light or
//! dark scheme.

mod drawing;
mod panel;
mod scale;

use std::cmp::Ordering;

use self::panel::{Group, Panel, Row};
use super::entry::Entry;
use super::plan::Mode;
use super::section::{Section, sections};

/// The chart as an SVG document; one that says so if there is nothing to draw.
#[must_use]
pub fn svg(entries: &[Entry]) -> String {
    drawing::document(&panels(entries))
}

fn panels(entries: &[Entry]) -> Vec<Panel> {
    let panel = |(section, entries): (Section, Vec<&Entry>)| {
        let (axis, unit): (_, fn(f64) -> String) = match section.mode {
            Mode::Throughput => ("ids/s, logarithmic; whiskers: 99.9 % error of the mean", scale::rate_text),
            Mode::Sample => {
                ("time of an operation, logarithmic; bars: median, whiskers: to p99.9", scale::time_text)
            }
        };
        Panel { title: section.title(), axis, unit, groups: groups(&entries, unit) }
    };
    let drawable = |panel: &Panel| panel.groups.iter().any(|group| !group.rows.is_empty());
    sections(entries).into_iter().map(panel).filter(drawable).collect()
}

fn groups(entries: &[&Entry], unit: fn(f64) -> String) -> Vec<Group> {
    let mut threads: Vec<usize> = entries.iter().map(|entry| entry.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let group = |threads: usize| {
        let chosen = entries.iter().filter(|entry| entry.threads == threads);
        let mut rows: Vec<(Mode, Row)> =
            chosen.filter_map(|entry| Some((entry.mode, row(entry, unit)?))).collect();
        rows.sort_by(|a, b| better(a.0, &a.1, &b.1));
        let heading = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        Group { heading, rows: rows.into_iter().map(|(_, row)| row).collect() }
    };
    threads.into_iter().map(group).collect()
}

/// The best first.
fn better(mode: Mode, a: &Row, b: &Row) -> Ordering {
    match mode {
        Mode::Throughput => b.value.total_cmp(&a.value),
        Mode::Sample => a.value.total_cmp(&b.value),
    }
}

/// Nothing for a figure that a logarithmic scale has no place for.
fn row(entry: &Entry, unit: fn(f64) -> String) -> Option<Row> {
    let metric = &entry.primary_metric;
    let (value, whisker) = match entry.mode {
        Mode::Throughput => {
            let [low, high] = metric.score_confidence;
            (metric.score, (low, high))
        }
        Mode::Sample => {
            let (median, late) = (metric.score_percentiles.at(50.0), metric.score_percentiles.at(99.9));
            (median, (median, late))
        }
    };
    if !(value.is_finite() && value > 0.0) {
        return None;
    }
    let void = entry.is_void();
    let mut label = unit(value);
    if entry.mode == Mode::Sample {
        label = format!("{label} ... {}", unit(whisker.1));
    }
    if void {
        label.push_str(" (void)");
    }
    if entry.subject.duplicates > 0 {
        label.push_str(" (repeats ids)");
    }
    // An error as large as the score would reach below the scale; so would none at all.
    let low = if whisker.0 > 0.0 { whisker.0 } else { value };
    let high = if whisker.1.is_finite() { whisker.1.max(value) } else { value };
    let name = entry.subject.name.clone();
    Some(Row { name, kind: entry.subject.kind, value, whisker: (low, high), label, void })
}

#[cfg(test)]
mod tests;
