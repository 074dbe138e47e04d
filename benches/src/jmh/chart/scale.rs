//! The logarithmic scale, and numbers as its labels have them.

/// Whole decades that hold all values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    /// Powers of ten.
    low: i32,
    high: i32,
}

impl Scale {
    /// Around positive values; the smallest is above the scale's beginning, so that its bar can be seen.
    pub(super) fn around(values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (least, most) = (least.min(value), most.max(value));
        }
        if least > most {
            return Self { low: 0, high: 1 };
        }
        let low = (least * 0.8).log10().floor() as i32;
        Self { low, high: (most.log10().ceil() as i32).max(low + 1) }
    }

    /// Where a value lies: 0 at the scale's beginning, 1 at its end.
    pub(super) fn place(self, value: f64) -> f64 {
        let place = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        place.clamp(0.0, 1.0)
    }

    /// The values that get a line.
    pub(super) fn decades(self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10f64.powi(power))
    }
}

/// `1.05 G`, `744 M`, `4.10 M`, `12.3 k` ids a second.
pub(super) fn rate_text(rate: f64) -> String {
    prefixed(rate, &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]).trim_end().to_owned()
}

/// `23.0 ns`, `1.20 us`, `3.40 ms`.
pub(super) fn time_text(nanoseconds: f64) -> String {
    prefixed(nanoseconds, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")])
}

/// Three digits and the prefix that leaves at least one before the point.
fn prefixed(value: f64, prefixes: &[(f64, &str)]) -> String {
    // 999.9 of a prefix would be printed as 1000 of it.
    let fits = prefixes.iter().find(|(size, _)| value >= size * 0.999_5);
    let (size, prefix) = fits.or(prefixes.last()).copied().unwrap_or((1.0, ""));
    let scaled = value / size;
    match scaled {
        ..9.995 => format!("{scaled:.2} {prefix}"),
        9.995..99.95 => format!("{scaled:.1} {prefix}"),
        _ => format!("{scaled:.0} {prefix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_of_whole_decades_around_its_values() {
        let scale = Scale::around([4e6, 1.1e9].into_iter());
        assert_eq!(scale, Scale { low: 6, high: 10 });
        assert_eq!(scale.decades().count(), 5);
        assert!((scale.place(1e8) - 0.5).abs() < 1e-12);
        assert_eq!((scale.place(1.0), scale.place(1e30)), (0.0, 1.0));
    }

    #[test]
    fn the_smallest_bar_can_be_seen() {
        let scale = Scale::around([1e6].into_iter());
        assert!(scale.place(1e6) > 0.0 && scale.place(1e6) <= 1.0);
        assert_eq!(Scale::around([f64::NAN, 0.0].into_iter()), Scale { low: 0, high: 1 });
    }

    #[test]
    fn labels_have_three_digits_and_a_prefix() {
        let rates = [1_053e6, 744.2e6, 4.096e6, 12_345.0, 999_999.0, 3.0].map(rate_text);
        assert_eq!(rates, ["1.05 G", "744 M", "4.10 M", "12.3 k", "1.00 M", "3.00"].map(str::to_owned));
        let times = [0.5, 23.0, 1_200.0, 3.4e6].map(time_text);
        assert_eq!(times, ["0.50 ns", "23.0 ns", "1.20 us", "3.40 ms"].map(str::to_owned));
    }
}
