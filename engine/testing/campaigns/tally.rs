//! What a part of a campaign reports: figures that can be summed over parts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Most failures that a report names one by one; further ones are counted in its last line.
const NAMED: usize = 200;

/// What became of trials. Fields that mean nothing to a campaign stay empty.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub(crate) campaign: &'static str,
    /// Trials made; the frame counts them, a trial leaves this at 0.
    pub(crate) trials: u64,
    /// Ids that the oracle saw.
    pub(crate) ids: u64,
    /// Ids that came twice.
    pub(crate) duplicates: u64,
    /// Ids wasted, by cause.
    pub(crate) wasted: BTreeMap<String, u64>,
    /// Calls refused, by the name of the status code.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// The longest time without an answer once faults had stopped.
    pub(crate) longest_without_answer_ms: u64,
    /// Times to recover in whole milliseconds, and how many trials took each.
    pub(crate) recovery_ms: BTreeMap<u64, u64>,
    /// What failed, with the seed that shows it again.
    pub(crate) failures: Vec<String>,
    /// Other figures: summed, except that of keys which begin with `max_` the highest is kept.
    pub(crate) notes: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn new(campaign: &'static str) -> Self {
        Self { campaign, ..Self::default() }
    }

    /// Adds to a figure, or raises it if its name begins with `max_`.
    pub(crate) fn note(&mut self, name: &str, figure: u64) {
        let slot = self.notes.entry(name.to_owned()).or_default();
        *slot = if name.starts_with("max_") { (*slot).max(figure) } else { *slot + figure };
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
            self.note(name, *figure);
        }
    }

    /// One line of JSON.
    pub(crate) fn to_json(&self) -> Value {
        let mut failures = self.failures.clone();
        if failures.len() > NAMED {
            let more = failures.len() - NAMED;
            failures.truncate(NAMED);
            failures.push(format!("and {more} more"));
        }
        let recovery: BTreeMap<String, u64> =
            self.recovery_ms.iter().map(|(ms, trials)| (ms.to_string(), *trials)).collect();
        json!({
            "campaign": self.campaign,
            "trials": self.trials,
            "ids": self.ids,
            "duplicates": self.duplicates,
            "wasted": self.wasted,
            "refusals": self.refusals,
            "longest_without_answer_ms": self.longest_without_answer_ms,
            "recovery_ms": recovery,
            "failures": failures,
            "notes": self.notes,
        })
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
