//! Rows of a table of targets, and how they are made of figures.

/// One row of a table of targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was measured.
    pub path: String,
    /// For people: median, least and most of ours and of the baseline, and the unit.
    pub figures: String,
    /// What the target speaks of.
    pub ratio: f64,
    /// For people: what the ratio must be.
    pub target: String,
    /// Whether it is.
    pub met: bool,
}

/// The smallest, the middle and the largest of some figures.
pub(crate) fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().saturating_sub(1);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    (at(0), at(last / 2), at(last))
}

/// Rounds of each figure: medians are of so many.
pub const ROUNDS: usize = 5;

/// Rounds of figures that are measured in a moment. Short and many rather than long and few: whoever shares the machine
/// disturbs it for seconds at a time.
pub(crate) const SHORT_ROUNDS: usize = 15;

/// `median [least..most] unit`.
pub(crate) fn figure(figures: &[f64], unit: &str) -> String {
    let (least, median, most) = spread(figures.to_vec());
    format!("{} [{}..{}] {unit}", short(median), short(least), short(most))
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    spread(figures.to_vec()).1
}

/// What one figure is of another, which were measured in turn: the middle of what it was in each round. What disturbs the machine
/// for a round disturbs both.
pub(crate) fn ratio_in_turn(ours: &[f64], theirs: &[f64]) -> f64 {
    median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
}

/// Three digits or so.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A row that must reach at least so much.
pub(crate) fn at_least(path: &str, figures: String, ratio: f64, bound: f64, of: &str) -> Row {
    let target = format!("at least {bound} {of}");
    Row { path: path.to_owned(), figures, ratio, target, met: ratio >= bound }
}

/// A row that may reach at most so much.
pub(crate) fn at_most(path: &str, figures: String, ratio: f64, bound: f64, of: &str) -> Row {
    let target = format!("at most {bound} {of}");
    Row { path: path.to_owned(), figures, ratio, target, met: ratio <= bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
    }

    #[test]
    fn a_round_in_which_the_machine_is_slow_changes_no_ratio() {
        let (ours, theirs) = ([9.0, 90.0, 4.5, 45.0, 90.0], [10.0, 100.0, 5.0, 50.0, 100.0]);
        assert!((ratio_in_turn(&ours, &theirs) - 0.9).abs() < 1e-9);
    }
}
