//! Means with their errors, the way JMH states them: Student's t over all iterations of all forks.

/// How sure the error of a score is.
pub(crate) const SURE: f64 = 0.999;
/// Degrees of freedom above which the quantile is taken as of so many: it differs by less than 1 in 10^4 from the
/// normal distribution's there, and timed calls come by the million.
const MOST_DEGREES: u64 = 100_000;
/// Halvings of the bracket: more than a double's 52 bits of precision.
const HALVINGS: usize = 80;

/// What some figures come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    /// Of the sample (over `count - 1`); not a number for a single figure.
    pub(crate) stdev: f64,
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Summary {
    /// Of single figures, in any order.
    pub(crate) fn of(figures: &[f64]) -> Self {
        let sorted = sorted(figures);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|figure| (figure - mean).powi(2)).sum();
        Self {
            count: sorted.len() as u64,
            mean,
            stdev: deviation(squares, count),
            least: percentile(&sorted, 0.0),
            median: percentile(&sorted, 50.0),
            most: percentile(&sorted, 100.0),
        }
    }

    /// Of `(value, how often)`, ascending by value.
    pub(crate) fn of_counted(pairs: &[(u64, u64)]) -> Self {
        let count: u64 = pairs.iter().map(|pair| pair.1).sum();
        let sum: f64 = pairs.iter().map(|&(value, times)| value as f64 * times as f64).sum();
        let mean = sum / count as f64;
        let squares: f64 =
            pairs.iter().map(|&(value, times)| (value as f64 - mean).powi(2) * times as f64).sum();
        Self {
            count,
            mean,
            stdev: deviation(squares, count as f64),
            least: counted_percentile(pairs, 0.0),
            median: counted_percentile(pairs, 50.0),
            most: counted_percentile(pairs, 100.0),
        }
    }

    /// Half the width of the interval that holds the true mean with that confidence, were the figures normally
    /// distributed. Not a number for fewer than three figures, as in JMH.
    pub(crate) fn error(&self, confidence: f64) -> f64 {
        if self.count < 3 {
            return f64::NAN;
        }
        student_t(confidence, self.count - 1) * self.stdev / (self.count as f64).sqrt()
    }

    /// The interval itself.
    pub(crate) fn interval(&self, confidence: f64) -> [f64; 2] {
        let error = self.error(confidence);
        [self.mean - error, self.mean + error]
    }
}

fn deviation(squares: f64, count: f64) -> f64 {
    if count < 2.0 { f64::NAN } else { (squares / (count - 1.0)).sqrt() }
}

/// The figures in ascending order.
pub(crate) fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The `percent` percentile of ascending figures, at rank `percent / 100 * (n + 1)` with linear interpolation: the
/// definition that JMH's statistics use (Hyndman and Fan, 1996, type 6).
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return f64::NAN };
    let rank = percent / 100.0 * (sorted.len() as f64 + 1.0);
    if rank < 1.0 {
        return *first;
    }
    if rank >= sorted.len() as f64 {
        return *last;
    }
    #[expect(clippy::cast_sign_loss, reason = "a rank of at least 1")]
    let below = rank as usize;
    let (low, high) = (sorted[below - 1], sorted[below]);
    low + rank.fract() * (high - low)
}

/// The smallest value that at least `percent` of the counted values do not exceed.
pub(crate) fn counted_percentile(pairs: &[(u64, u64)], percent: f64) -> f64 {
    let count: u64 = pairs.iter().map(|pair| pair.1).sum();
    // 99.9 % of 1,000 is 999 and a hair in binary; the hair is not a rank.
    let rank = (percent / 100.0 * count as f64 - 1e-6).ceil().max(1.0);
    let mut seen = 0;
    for &(value, times) in pairs {
        seen += times;
        if seen as f64 >= rank {
            return value as f64;
        }
    }
    pairs.last().map_or(f64::NAN, |pair| pair.0 as f64)
}

/// The `t` that a value of Student's distribution stays within, on both sides, with that probability.
pub(crate) fn student_t(confidence: f64, degrees: u64) -> f64 {
    assert!(confidence > 0.0 && confidence < 1.0, "a probability between 0 and 1, not {confidence}");
    assert!(degrees > 0, "at least one degree of freedom");
    let degrees = degrees.min(MOST_DEGREES);
    let (mut low, mut high) = (0.0, 1.0);
    while within(high, degrees) < confidence {
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if within(middle, degrees) < confidence {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The probability that a value of Student's distribution lies between `-t` and `t`: the finite sums for whole
/// degrees of freedom (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
fn within(t: f64, degrees: u64) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    let (mut term, first) = if odd { (cosine, 3) } else { (1.0, 2) };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    for power in (first..degrees.saturating_sub(1)).step_by(2) {
        term *= cosine * cosine * (power - 1) as f64 / power as f64;
        sum += term;
        if term < f64::EPSILON * sum / 1e3 {
            break;
        }
    }
    if odd { std::f64::consts::FRAC_2_PI * (angle + sine * sum) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, published: f64, unit: f64) {
        assert!((found - published).abs() <= unit, "{found} is not {published} within {unit}");
    }

    #[test]
    fn students_quantiles_are_the_published_ones() {
        // Abramowitz and Stegun, table 26.10: (degrees, two-sided 95 %, two-sided 99.9 %).
        let table = [
            (1, 12.706, 636.619),
            (2, 4.303, 31.599),
            (3, 3.182, 12.924),
            (4, 2.776, 8.610),
            (5, 2.571, 6.869),
            (9, 2.262, 4.781),
            (10, 2.228, 4.587),
            (19, 2.093, 3.883),
            (30, 2.042, 3.646),
            (60, 2.000, 3.460),
            (120, 1.980, 3.373),
        ];
        for (degrees, usual, sure) in table {
            near(student_t(0.95, degrees), usual, 6e-4);
            near(student_t(SURE, degrees), sure, 6e-4);
        }
    }

    #[test]
    fn with_many_degrees_student_is_normal() {
        near(student_t(0.95, u64::MAX), 1.959_964, 1e-4);
        near(student_t(SURE, 40_000_000), 3.290_527, 2e-4);
    }

    #[test]
    fn a_mean_has_the_error_that_a_hand_calculation_gives() {
        // 1..=10: mean 5.5, variance 55/6; t of 9 degrees at 99.9 % is 4.7809.
        let figures: Vec<f64> = (1..=10).map(f64::from).collect();
        let summary = Summary::of(&figures);
        near(summary.mean, 5.5, 1e-12);
        near(summary.stdev, (55.0f64 / 6.0).sqrt(), 1e-12);
        near(summary.median, 5.5, 1e-12);
        near(summary.error(SURE), 4.780_9 * summary.stdev / 10f64.sqrt(), 1e-3);
        let [low, high] = summary.interval(SURE);
        near(high - low, 2.0 * summary.error(SURE), 1e-12);
        assert_eq!((summary.least, summary.most), (1.0, 10.0));
    }

    #[test]
    fn two_figures_have_no_error() {
        assert!(Summary::of(&[1.0, 2.0]).error(SURE).is_nan());
        assert!(Summary::of(&[1.0]).stdev.is_nan());
    }

    #[test]
    fn percentiles_interpolate_as_jmh_does() {
        let figures = [15.0, 20.0, 35.0, 40.0, 50.0];
        near(percentile(&figures, 40.0), 26.0, 1e-12);
        near(percentile(&figures, 0.0), 15.0, 0.0);
        near(percentile(&figures, 99.0), 50.0, 0.0);
        near(percentile(&[7.0], 50.0), 7.0, 0.0);
    }

    #[test]
    fn counted_values_give_what_single_ones_do() {
        let pairs = [(10, 3), (20, 1), (40, 4), (1_000, 2)];
        let single: Vec<f64> =
            pairs.iter().flat_map(|&(value, times)| vec![value as f64; times as usize]).collect();
        let (counted, single) = (Summary::of_counted(&pairs), Summary::of(&single));
        assert_eq!(counted.count, single.count);
        near(counted.mean, single.mean, 1e-9);
        near(counted.stdev, single.stdev, 1e-9);
        let at = |percent| counted_percentile(&pairs, percent);
        for (percent, value) in [(30.0, 10.0), (31.0, 20.0), (80.0, 40.0), (100.0, 1_000.0)] {
            near(at(percent), value, 0.0);
        }
        near(counted_percentile(&[(1, 999), (2, 1)], 99.9), 1.0, 0.0);
    }
}
