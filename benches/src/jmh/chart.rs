//! A chart of results: horizontal bars on a logarithmic scale, one a row, grouped by the number of threads.
//!
//! Each supply and mode has a panel with a scale of its own, so that burst and sustained never stand beside each other.
//! A bar of a rate carries its 99.9 % error as a whisker; a bar of timed calls is the median, its whisker reaches to
//! p99.9. Void figures are drawn hollow. The picture brings its own background and follows the viewer's light or
//! dark scheme. All lengths are in pixels of a picture [`WIDTH`] wide.

use std::fmt::{Arguments, Write};

use super::entry::Entry;
use super::plan::Mode;
use super::section::{Section, sections};
use super::session::threads_text;
use super::stats::SURE;
use crate::subject::Kind;

/// As wide as a page of documentation shows without shrinking.
const WIDTH: f64 = 920.0;
const MARGIN: f64 = 16.0;
/// Where bars begin: names stand before it.
const LEFT: f64 = 230.0;
/// Where the scale ends: values are written after the bars.
const RIGHT: f64 = 740.0;
const TITLE: f64 = 30.0;
const AXIS: f64 = 34.0;
const HEADING: f64 = 24.0;
const ROW: f64 = 20.0;
const BAR: f64 = 12.0;
const BETWEEN: f64 = 18.0;
const LEGEND: f64 = 26.0;

/// Colours of light and dark viewers. Each has at least 4.5 : 1 (text) and 3 : 1 (bars) to its background. Plain rules
/// and no variables: not every viewer of SVG knows those.
const STYLE: &str = "\
text{font:12px sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:bold}.heading{font-weight:bold}\
.faint{fill:#59636e;font-size:11px}.back{fill:#ffffff}.line{stroke:#d1d9e0}\
.whisker{stroke:#1f2328;stroke-width:1.2}.ours{fill:#0969da;stroke:#0969da}\
.peer{fill:#bc4c00;stroke:#bc4c00}.limit{fill:#6e7781;stroke:#6e7781}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9198a1}.back{fill:#0d1117}\
.line{stroke:#3d444d}.whisker{stroke:#e6edf3}.ours{fill:#4493f8;stroke:#4493f8}\
.peer{fill:#e0823d;stroke:#e0823d}.limit{fill:#8b949e;stroke:#8b949e}}\
.void{fill:none;stroke-dasharray:3 2}";

/// One bar.
struct Row<'e> {
    entry: &'e Entry,
    value: f64,
    /// From where to where the whisker goes.
    whisker: (f64, f64),
}

/// The chart as an SVG document; one that says so if there is nothing to draw.
pub(super) fn svg(entries: &[Entry]) -> String {
    let mut body = Body { text: String::new(), y: MARGIN };
    body.legend();
    let empty = body.y;
    for (section, entries) in sections(entries) {
        body.panel(&section, &entries);
    }
    let height = if body.y > empty {
        body.y - BETWEEN + MARGIN
    } else {
        body.label(MARGIN, 14.0, "faint", "start", "Nothing was measured.");
        body.y + ROW + MARGIN
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>Ways to get ids, measured</title>\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n{}</svg>\n",
        body.text
    )
}

impl<'e> Row<'e> {
    /// Nothing for a figure that a logarithmic scale has no place for.
    fn of(entry: &'e Entry) -> Option<Self> {
        let sample = &entry.sample;
        let (value, [low, high]) = match entry.mode {
            Mode::Throughput => (sample.mean, sample.interval(SURE)),
            Mode::Sample => {
                let [median, late] = [50.0, 99.9].map(|level| sample.percentile(level));
                (median, [median, late])
            }
        };
        // An error as large as the score would reach below the scale; so would none at all.
        let whisker =
            (if low > 0.0 { low } else { value }, if high.is_finite() { high.max(value) } else { value });
        (value.is_finite() && value > 0.0).then_some(Self { entry, value, whisker })
    }

    fn label(&self) -> String {
        let mut label = unit_text(self.entry.mode, self.value);
        if self.entry.mode == Mode::Sample {
            label = format!("{label} ... {}", unit_text(Mode::Sample, self.whisker.1));
        }
        let marks =
            [(self.entry.is_void(), " (void)"), (self.entry.subject.duplicates > 0, " (repeats ids)")];
        label.extend(marks.into_iter().filter(|mark| mark.0).map(|mark| mark.1));
        label
    }
}

/// Whole decades that hold all values of a panel, as powers of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    /// Around positive values; the smallest is above the scale's beginning, so that its bar can be seen.
    fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        let low = (least * 0.8).log10().floor() as i32;
        Self { low, high: (most.log10().ceil() as i32).max(low + 1) }
    }

    /// How far to the right a value lies.
    fn across(self, value: f64) -> f64 {
        let place = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + place.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }
}

/// What is drawn so far, from the top, and where the next thing begins.
struct Body {
    text: String,
    y: f64,
}

impl Body {
    fn put(&mut self, element: Arguments<'_>) {
        // Writing to a string has no way to fail.
        let _ = writeln!(self.text, "{element}");
    }

    /// A text so far below.
    fn label(&mut self, x: f64, below: f64, class: &str, anchor: &str, text: &str) {
        let (y, text) = (self.y + below, text.replace('&', "&amp;").replace('<', "&lt;"));
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    fn bar(&mut self, class: &str, x: f64, below: f64, width: f64) {
        let y = self.y + below;
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\"/>"
        ));
    }

    fn legend(&mut self) {
        let kinds = [
            (Kind::Ours, "this engine"),
            (Kind::Peer, "other generators"),
            (Kind::Limit, "what bounds any generator"),
        ];
        for (x, (kind, what)) in (0..).map(|place| MARGIN + 170.0 * f64::from(place)).zip(kinds) {
            self.bar(&format!("{} key", class(kind)), x, 0.0, BAR);
            self.label(x + BAR + 6.0, 10.0, "faint", "start", what);
        }
        self.y += LEGEND;
    }

    fn panel(&mut self, section: &Section, entries: &[&Entry]) {
        let mut rows: Vec<Row<'_>> = entries.iter().filter_map(|entry| Row::of(entry)).collect();
        if rows.is_empty() {
            return;
        }
        // The best of a group first.
        rows.sort_by(|a, b| match section.mode {
            Mode::Throughput => b.value.total_cmp(&a.value),
            Mode::Sample => a.value.total_cmp(&b.value),
        });
        rows.sort_by_key(|row| row.entry.threads);
        let groups = || rows.chunk_by(|a, b| a.entry.threads == b.entry.threads);
        let scale = Scale::around(rows.iter().flat_map(|row| [row.value, row.whisker.1]));
        self.label(MARGIN, 18.0, "title", "start", &section.title());
        let height = HEADING * groups().count() as f64 + ROW * rows.len() as f64;
        self.y += TITLE;
        for decade in (scale.low..=scale.high).map(|power| 10f64.powi(power)) {
            let x = scale.across(decade);
            self.line("line", (x, self.y), (x, self.y + height));
            self.label(x, height + 14.0, "faint", "middle", &unit_text(section.mode, decade));
        }
        let axis = match section.mode {
            Mode::Throughput => "ids/s, logarithmic; whiskers: 99.9 % error of the mean",
            Mode::Sample => "time of an operation, logarithmic; bars: median, whiskers: to p99.9",
        };
        self.label(f64::midpoint(LEFT, RIGHT), height + 29.0, "faint", "middle", axis);
        for group in groups() {
            self.label(MARGIN, 16.0, "heading", "start", &threads_text(group[0].entry.threads));
            self.y += HEADING;
            for row in group {
                self.row(row, scale);
            }
        }
        self.y += AXIS + BETWEEN;
    }

    fn row(&mut self, row: &Row<'_>, scale: Scale) {
        let [end, low, high] = [row.value, row.whisker.0, row.whisker.1].map(|value| scale.across(value));
        let void = if row.entry.is_void() { " void" } else { "" };
        let subject = &row.entry.subject;
        self.label(LEFT - 8.0, ROW / 2.0 + 4.0, "name", "end", &subject.name);
        self.bar(&format!("bar {}{void}", class(subject.kind)), LEFT, (ROW - BAR) / 2.0, end - LEFT);
        // Under two pixels it is no more than a smudge.
        if high - low >= 2.0 {
            let middle = self.y + ROW / 2.0;
            self.line("whisker", (low, middle), (high, middle));
            for x in [low, high] {
                self.line("whisker", (x, middle - 3.0), (x, middle + 3.0));
            }
        }
        self.label(end.max(high) + 8.0, ROW / 2.0 + 4.0, "value", "start", &row.label());
        self.y += ROW;
    }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => "ours",
        Kind::Peer => "peer",
        Kind::Limit => "limit",
    }
}

/// `1.05 G`, `744 M`, `12.3 k` ids a second, or `23.0 ns`, `1.20 us`, `3.40 ms`: three digits and the prefix that
/// leaves at least one before the point.
fn unit_text(mode: Mode, value: f64) -> String {
    let prefixes: &[_] = match mode {
        Mode::Throughput => &["", " k", " M", " G", " T"],
        Mode::Sample => &[" ns", " us", " ms", " s"],
    };
    let (mut scaled, mut prefixes) = (value, prefixes.iter());
    let mut prefix = prefixes.next();
    // 999.9 of a prefix would be printed as 1000 of it.
    while scaled >= 999.5
        && let Some(larger) = prefixes.next()
    {
        (scaled, prefix) = (scaled / 1e3, Some(larger));
    }
    let digits = match scaled {
        ..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{}", prefix.unwrap_or(&""))
}

#[cfg(test)]
mod tests;
