//! What a part of a campaign reports: figures that can be summed over parts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

/// Most failures that a report names one by one; further ones are counted in its last line.
const NAMED: usize = 200;

/// Figures by name.
type Counts = BTreeMap<Cow<'static, str>, u64>;

/// What became of trials. Fields that mean nothing to a campaign stay empty.
#[derive(Debug, Default, Clone, Serialize)]
pub(crate) struct Tally {
    pub(crate) campaign: &'static str,
    /// Trials made; the frame counts them, a trial leaves this at 0.
    pub(crate) trials: u64,
    /// Ids that the oracle saw.
    pub(crate) ids: u64,
    /// Ids that came twice.
    pub(crate) duplicates: u64,
    /// Ids wasted, by cause.
    pub(crate) wasted: Counts,
    /// Calls refused, by the name of the status code.
    pub(crate) refusals: Counts,
    /// The longest time without an answer once faults had stopped.
    pub(crate) longest_without_answer_ms: u64,
    /// Times to recover in whole milliseconds, and how many trials took each.
    pub(crate) recovery_ms: BTreeMap<u64, u64>,
    /// What failed, with the seed that shows it again.
    pub(crate) failures: Vec<String>,
    /// Other figures: summed, except that of keys which begin with `max_` the highest is kept.
    pub(crate) notes: Counts,
    /// Of all that one history issued, in its order.
    #[serde(skip)]
    pub(crate) digest: u64,
}

impl Tally {
    pub(crate) fn new(campaign: &'static str) -> Self {
        Self { campaign, ..Self::default() }
    }

    /// Adds to a figure, or raises it if its name begins with `max_`.
    pub(crate) fn note(&mut self, name: impl Into<Cow<'static, str>>, figure: u64) {
        let name = name.into();
        let is_max = name.starts_with("max_");
        let slot = self.notes.entry(name).or_default();
        *slot = if is_max { (*slot).max(figure) } else { *slot + figure };
    }

    /// Something happened so many times; what never did is no figure.
    pub(crate) fn trouble(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            self.note(what, times);
        }
    }

    /// Counts ids that nobody will get.
    pub(crate) fn waste(&mut self, cause: &'static str, ids: u64) {
        *self.wasted.entry(cause.into()).or_default() += ids;
    }

    /// A recovery took so many milliseconds.
    pub(crate) fn recovered(&mut self, ms: u64) {
        *self.recovery_ms.entry(ms).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.trials += other.trials;
        self.ids += other.ids;
        self.duplicates += other.duplicates;
        for (cause, ids) in &other.wasted {
            *self.wasted.entry(cause.clone()).or_default() += ids;
        }
        for (code, calls) in &other.refusals {
            *self.refusals.entry(code.clone()).or_default() += calls;
        }
        self.longest_without_answer_ms = self.longest_without_answer_ms.max(other.longest_without_answer_ms);
        for (ms, trials) in &other.recovery_ms {
            *self.recovery_ms.entry(*ms).or_default() += trials;
        }
        self.failures.extend_from_slice(&other.failures);
        for (name, figure) in &other.notes {
            self.note(name.clone(), *figure);
        }
    }

    /// One line of JSON.
    pub(crate) fn to_json(&self) -> Value {
        let mut json = json!(self);
        if let Some(failures) = json["failures"].as_array_mut().filter(|failures| failures.len() > NAMED) {
            let more = failures.len() - NAMED;
            failures.truncate(NAMED);
            failures.push(format!("and {more} more").into());
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up_and_highest_figures_stay() {
        let mut one = Tally { trials: 2, ids: 5, ..Tally::new("x") };
        one.note("steps", 3);
        one.note("max_rss_kib", 7);
        one.recovery_ms.insert(12, 1);
        let mut sum = one.clone();
        sum.add(&one);
        sum.failures.extend((0..NAMED + 5).map(|n| n.to_string()));
        let json = sum.to_json();
        assert_eq!((json["trials"].as_u64(), json["ids"].as_u64()), (Some(4), Some(10)));
        assert_eq!(
            (json["notes"]["steps"].as_u64(), json["notes"]["max_rss_kib"].as_u64()),
            (Some(6), Some(7))
        );
        assert_eq!(json["recovery_ms"]["12"].as_u64(), Some(2));
        assert_eq!(json["failures"][NAMED], "and 5 more");
    }
}
