//! Panels as SVG text. All lengths are in pixels of a picture [`WIDTH`] wide.

use std::fmt::Write;

use super::panel::{Group, Panel, Row};
use super::scale::Scale;
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

/// A whole picture.
pub(super) fn document(panels: &[Panel]) -> String {
    let heights = panels.iter().map(height).sum::<f64>() + BETWEEN * panels.len().saturating_sub(1) as f64;
    let total = MARGIN + LEGEND + heights.max(ROW) + MARGIN;
    let mut body = Body(String::new());
    body.legend(MARGIN);
    let mut top = MARGIN + LEGEND;
    for panel in panels {
        body.panel(panel, top);
        top += height(panel) + BETWEEN;
    }
    if panels.is_empty() {
        body.text(MARGIN, top + 14.0, "faint", "start", "Nothing was measured.");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" width=\"{WIDTH}\" \
         height=\"{total}\" role=\"img\">\n<title>Ways to get ids, measured</title>\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{total}\" rx=\"8\"/>\n{}</svg>\n",
        body.0
    )
}

fn height(panel: &Panel) -> f64 {
    let rows: usize = panel.groups.iter().map(|group| group.rows.len()).sum();
    TITLE + AXIS + HEADING * panel.groups.len() as f64 + ROW * rows as f64
}

struct Body(String);

impl Body {
    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string has no way to fail.
        let _ = self.0.write_fmt(element);
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    fn legend(&mut self, top: f64) {
        let mut x = MARGIN;
        for (kind, what) in [
            (Kind::Ours, "this engine"),
            (Kind::Peer, "other generators"),
            (Kind::Limit, "what bounds any generator"),
        ] {
            let class = class(kind);
            self.put(format_args!(
                "<rect class=\"{class} key\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{BAR}\" height=\"{BAR}\"/>"
            ));
            self.text(x + BAR + 6.0, top + 10.0, "faint", "start", what);
            x += 170.0;
        }
    }

    fn panel(&mut self, panel: &Panel, top: f64) {
        let rows = || panel.groups.iter().flat_map(|group| &group.rows);
        let scale = Scale::around(rows().flat_map(|row| [row.value, row.whisker.1]));
        let bottom = top + height(panel) - AXIS;
        self.text(MARGIN, top + 18.0, "title", "start", &panel.title);
        for decade in scale.decades() {
            let x = across(scale, decade);
            self.line("line", (x, top + TITLE), (x, bottom));
            self.text(x, bottom + 14.0, "faint", "middle", &(panel.unit)(decade));
        }
        self.text(f64::midpoint(LEFT, RIGHT), bottom + 29.0, "faint", "middle", panel.axis);
        let mut y = top + TITLE;
        for group in &panel.groups {
            self.group(group, scale, y);
            y += HEADING + ROW * group.rows.len() as f64;
        }
    }

    fn group(&mut self, group: &Group, scale: Scale, top: f64) {
        self.text(MARGIN, top + 16.0, "heading", "start", &group.heading);
        for (place, row) in group.rows.iter().enumerate() {
            self.row(row, scale, top + HEADING + ROW * place as f64);
        }
    }

    fn row(&mut self, row: &Row, scale: Scale, top: f64) {
        let end = across(scale, row.value);
        let (class, void) = (class(row.kind), if row.void { " void" } else { "" });
        let (y, middle, base) = (top + (ROW - BAR) / 2.0, top + ROW / 2.0, top + ROW / 2.0 + 4.0);
        self.text(LEFT - 8.0, base, "name", "end", &row.name);
        self.put(format_args!(
            "<rect class=\"bar {class}{void}\" x=\"{LEFT:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
            end - LEFT
        ));
        let (low, high) = (across(scale, row.whisker.0), across(scale, row.whisker.1));
        // Under two pixels it is no more than a smudge.
        if high - low >= 2.0 {
            self.line("whisker", (low, middle), (high, middle));
            for x in [low, high] {
                self.line("whisker", (x, middle - 3.0), (x, middle + 3.0));
            }
        }
        self.text(end.max(high) + 8.0, base, "value", "start", &row.label);
    }
}

fn across(scale: Scale, value: f64) -> f64 {
    LEFT + scale.place(value) * (RIGHT - LEFT)
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => "ours",
        Kind::Peer => "peer",
        Kind::Limit => "limit",
    }
}

/// As the text of an element or the value of an attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
