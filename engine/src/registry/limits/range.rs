//! A range of workers.

use std::fmt;
use std::num::ParseIntError;
use std::ops::Range;
use std::str::FromStr;

/// Some workers: from one until before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Workers {
    /// The first of them.
    pub from: u32,
    /// The one behind the last.
    pub until: u32,
}

/// The text is no range of workers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no range of workers: allowed is A..B, which ends before B, as in 0..512")]
pub struct ParseWorkersError {
    text: String,
}

impl Workers {
    /// None.
    pub const NONE: Self = Self { from: 0, until: 0 };

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from >= self.until
    }

    /// The same; none, where there is none.
    pub(crate) const fn or_none(self) -> Self {
        if self.is_empty() { Self::NONE } else { self }
    }

    /// How many.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.until.saturating_sub(self.from)
    }

    /// Whether this is one of them.
    #[must_use]
    pub const fn contains(&self, worker: u32) -> bool {
        self.from <= worker && worker < self.until
    }

    /// Whether all of them are among the others.
    #[must_use]
    pub const fn are_among(&self, others: &Self) -> bool {
        self.is_empty() || (others.from <= self.from && self.until <= others.until)
    }

    /// Their numbers.
    #[must_use]
    pub const fn numbers(&self) -> Range<u32> {
        self.from..self.until
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from, self.until)
    }
}

impl FromStr for Workers {
    type Err = ParseWorkersError;

    fn from_str(text: &str) -> Result<Self, ParseWorkersError> {
        let wrong = || ParseWorkersError { text: text.to_owned() };
        let number = |text: &str| -> Result<u32, ParseIntError> { text.parse() };
        let (from, until) = text.split_once("..").ok_or_else(wrong)?;
        let (from, until) = (number(from).map_err(|_| wrong())?, number(until).map_err(|_| wrong())?);
        let workers = Self { from, until };
        if workers.is_empty() { Err(wrong()) } else { Ok(workers) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_what_is_none_is_refused() {
        assert_eq!("0..512".parse(), Ok(Workers { from: 0, until: 512 }));
        assert_eq!(Workers { from: 7, until: 9 }.to_string().parse(), Ok(Workers { from: 7, until: 9 }));
        for text in ["", "5", "5..5", "6..5", "0..", "..5", "0...5", "-1..5", "0..4294967296", "0..=5"] {
            assert!(text.parse::<Workers>().unwrap_err().to_string().contains("0..512"), "{text}");
        }
    }
}
