//! How rows are made of figures.

use crate::measure::{Row, spread};

/// Rounds of each figure: medians are of so many.
pub const ROUNDS: usize = 5;

/// Rounds of figures that are measured in a moment. Short and many rather than long and few: whoever shares the machine
/// disturbs it for seconds at a time.
pub(super) const SHORT_ROUNDS: usize = 15;

/// `median [least..most] unit`.
pub(super) fn figure(figures: &[f64], unit: &str) -> String {
    let (least, median, most) = spread(figures.to_vec());
    format!("{} [{}..{}] {unit}", short(median), short(least), short(most))
}

pub(super) fn median(figures: &[f64]) -> f64 {
    spread(figures.to_vec()).1
}

/// Three digits or so.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A row that must reach at least so much.
pub(super) fn at_least(path: &str, figures: String, ratio: f64, bound: f64, of: &str) -> Row {
    let target = format!("at least {bound} {of}");
    Row { path: path.to_owned(), figures, ratio, target, met: ratio >= bound }
}

/// A row that may reach at most so much.
pub(super) fn at_most(path: &str, figures: String, ratio: f64, bound: f64, of: &str) -> Row {
    let target = format!("at most {bound} {of}");
    Row { path: path.to_owned(), figures, ratio, target, met: ratio <= bound }
}
