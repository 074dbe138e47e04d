//! What the engine is held to, measured: each row is a ratio inside one run, of medians, with a baseline beside it.
//!
//! Burst figures are of land declared unused; a subject that is refused or runs out of it makes its rows void.

pub mod ablation;
mod bulk;
mod field;
mod hot;
mod idle;
mod land;
mod served;
mod spill;
mod steady;

use anyhow::Result;

use crate::measure::{Row, spread};

/// Rounds of each figure: medians are of so many.
pub const ROUNDS: usize = 5;

/// Rounds of figures that are measured in a moment. Short and many rather than long and few: whoever shares the machine
/// disturbs it for seconds at a time.
const SHORT_ROUNDS: usize = 15;

/// A group of rows by name, and what measures it.
pub type Group = (&'static str, fn() -> Result<Vec<Row>>);

/// All groups, in the order of the table.
pub const GROUPS: [Group; 9] = [
    // First: some peers leave threads of their own behind, which tick.
    ("idle", idle::rows),
    ("hot", hot::rows),
    ("steady", steady::rows),
    ("bulk", bulk::rows),
    ("sustained", land::sustained),
    ("burst", land::burst),
    ("spill", spill::rows),
    ("tcp", served::tcp),
    ("client", served::client),
];

/// `median [least..most] unit`.
fn figure(figures: &[f64], unit: &str) -> String {
    let (least, median, most) = spread(figures.to_vec());
    format!("{} [{}..{}] {unit}", short(median), short(least), short(most))
}

fn median(figures: &[f64]) -> f64 {
    spread(figures.to_vec()).1
}

/// Three digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A row that must reach at least so much.
fn at_least(path: &str, figures: String, ratio: f64, bound: f64, of: &str) -> Row {
    let target = format!("at least {bound} {of}");
    Row { path: path.to_owned(), figures, ratio, target, met: ratio >= bound }
}

/// A row that may reach at most so much.
fn at_most(path: &str, figures: String, ratio: f64, bound: f64, of: &str) -> Row {
    let target = format!("at most {bound} {of}");
    Row { path: path.to_owned(), figures, ratio, target, met: ratio <= bound }
}
