//! Means with their errors, the way JMH states them: Student's t over all iterations of all forks.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::plan::Figure;

/// How sure the error of a score is.
pub(crate) const SURE: f64 = 0.999;
/// Degrees of freedom above which the quantile is taken as of so many: it differs by less than 1 in 10^4 from the
/// normal distribution's there, and timed calls come by the million.
const MOST_DEGREES: u64 = 100_000;

/// Figures, and what they come to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// Ascending, and how often each came.
    figures: Vec<(f64, u64)>,
    /// Whether these are times of calls, so many that a percentile is one of them.
    is_timed: bool,
    pub(crate) count: u64,
    pub(crate) mean: f64,
    /// Of the sample (over `count - 1`); not a number for a single figure.
    pub(crate) stdev: f64,
}

impl Sample {
    /// All of some figures, in any order.
    pub(crate) fn of<'a>(all: impl IntoIterator<Item = &'a Figure>) -> Self {
        let (mut figures, mut is_timed) = (Vec::new(), false);
        for figure in all {
            match figure {
                Figure::Rate(rate) => figures.push((*rate, 1)),
                Figure::Times(times) => {
                    is_timed = true;
                    figures.extend(times.iter().map(|&(value, times)| (value as f64, times)));
                }
            }
        }
        figures.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = figures.iter().map(|figure| figure.1).sum();
        let sum = |of: &dyn Fn(f64) -> f64| -> f64 {
            figures.iter().map(|&(value, times)| of(value) * times as f64).sum()
        };
        let mean = sum(&|value| value) / count as f64;
        let squares = sum(&|value| (value - mean).powi(2));
        let stdev = if count < 2 { f64::NAN } else { (squares / (count - 1) as f64).sqrt() };
        Self { figures, is_timed, count, mean, stdev }
    }

    /// The `percent` percentile. Of times, the smallest that at least `percent` of them do not exceed. Of other
    /// figures, at rank `percent / 100 * (n + 1)` with linear interpolation: the definition that JMH's statistics use
    /// (Hyndman and Fan, 1996, type 6).
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let at = |rank: f64| {
            let mut seen = 0;
            let reaches = |figure: &&(f64, u64)| {
                seen += figure.1;
                seen as f64 >= rank
            };
            self.figures.iter().find(reaches).or(self.figures.last()).map_or(f64::NAN, |figure| figure.0)
        };
        let count = self.count as f64;
        if self.is_timed {
            // 99.9 % of 1,000 is 999 and a hair in binary; the hair is not a rank.
            return at((percent / 100.0 * count - 1e-6).ceil());
        }
        let rank = (percent / 100.0 * (count + 1.0)).min(count).max(1.0);
        let (low, high) = (at(rank.floor()), at(rank.floor() + 1.0));
        low + rank.fract() * (high - low)
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

/// The `t` that a value of Student's distribution stays within, on both sides, with that probability.
fn student_t(confidence: f64, degrees: u64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, degrees.min(MOST_DEGREES) as f64);
    student.map_or(f64::NAN, |student| student.inverse_cdf(f64::midpoint(1.0, confidence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, published: f64, unit: f64) {
        assert!((found - published).abs() <= unit, "{found} is not {published} within {unit}");
    }

    fn sample(figures: impl IntoIterator<Item = f64>) -> Sample {
        Sample::of(&figures.into_iter().map(Figure::Rate).collect::<Vec<_>>())
    }

    #[test]
    fn students_quantiles_are_the_published_ones() {
        // Abramowitz and Stegun, table 26.10: (degrees, two-sided 95 %, two-sided 99.9 %); the last is the normal's.
        let table = [
            (1, 12.706, 636.619),
            (2, 4.303, 31.599),
            (9, 2.262, 4.781),
            (30, 2.042, 3.646),
            (120, 1.980, 3.373),
            (40_000_000, 1.960, 3.291),
        ];
        for (degrees, usual, sure) in table {
            near(student_t(0.95, degrees), usual, 6e-4);
            near(student_t(SURE, degrees), sure, 6e-4);
        }
    }

    #[test]
    fn a_mean_has_the_error_that_a_hand_calculation_gives() {
        // 1..=10: mean 5.5, variance 55/6; t of 9 degrees at 99.9 % is 4.7809.
        let sample = sample((1..=10).map(f64::from));
        near(sample.mean, 5.5, 1e-12);
        near(sample.stdev, (55.0f64 / 6.0).sqrt(), 1e-12);
        near(sample.error(SURE), 4.780_9 * sample.stdev / 10f64.sqrt(), 1e-3);
        let [low, high] = sample.interval(SURE);
        near(high - low, 2.0 * sample.error(SURE), 1e-12);
        for (percent, figure) in [(0.0, 1.0), (50.0, 5.5), (100.0, 10.0)] {
            near(sample.percentile(percent), figure, 1e-12);
        }
    }

    #[test]
    fn two_figures_have_no_error() {
        assert!(sample([1.0, 2.0]).error(SURE).is_nan());
        assert!(sample([1.0]).stdev.is_nan() && sample([]).percentile(50.0).is_nan());
    }

    #[test]
    fn percentiles_interpolate_as_jmh_does() {
        let figures = sample([15.0, 20.0, 35.0, 40.0, 50.0]);
        near(figures.percentile(40.0), 26.0, 1e-12);
        near(figures.percentile(0.0), 15.0, 0.0);
        near(figures.percentile(99.0), 50.0, 0.0);
        near(sample([7.0]).percentile(50.0), 7.0, 0.0);
    }

    #[test]
    fn counted_values_give_what_single_ones_do() {
        let pairs = vec![(10, 3), (20, 1), (40, 4), (1_000, 2)];
        let single = sample(pairs.iter().flat_map(|&(value, times)| vec![value as f64; times as usize]));
        let counted = Sample::of(&[Figure::Times(pairs)]);
        assert_eq!(counted.count, single.count);
        near(counted.mean, single.mean, 1e-9);
        near(counted.stdev, single.stdev, 1e-9);
        for (percent, value) in [(0.0, 10.0), (30.0, 10.0), (31.0, 20.0), (80.0, 40.0), (100.0, 1_000.0)] {
            near(counted.percentile(percent), value, 0.0);
        }
        near(Sample::of(&[Figure::Times(vec![(1, 999), (2, 1)])]).percentile(99.9), 1.0, 0.0);
    }
}
