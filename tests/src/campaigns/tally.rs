//! What a campaign brought home, as figures that add up: a part is the sum of its trials, the table that of its parts.
//!
//! Made by the campaigns of this crate and by the engine's test executable, which prints the same fields as one line of
//! JSON. Adding never loses a failure or a duplicate, and the order of adding changes no figure.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The figures of some trials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tally {
    /// The campaign's name.
    pub campaign: String,
    /// Trials that came to their end, failed ones too.
    pub trials: u64,
    /// Ids checked against each other.
    pub ids: u64,
    /// Ids that came more than once: each repetition counts.
    pub duplicates: u64,
    /// Ids that nobody will ever get, by cause.
    pub wasted: BTreeMap<String, u64>,
    /// Refusals, by the name of their status code.
    pub refusals: BTreeMap<String, u64>,
    /// The longest time in which a caller that asked got no answer.
    pub longest_without_answer_ms: u64,
    /// How many recoveries took this many whole milliseconds.
    pub recovery_ms: BTreeMap<u64, u64>,
    /// What went wrong: the seed first, then why.
    pub failures: Vec<String>,
    /// Guards that were taken out, and who noticed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mutants: Vec<Mutant>,
    /// Other figures: sums, but those whose name begins with `max_` are maxima.
    pub notes: BTreeMap<String, u64>,
}

/// A guard that was taken out on purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutant {
    /// The guard's name.
    pub name: String,
    /// The invariant that it keeps, and the guards: `U4 [MarkFirst]`.
    #[serde(default)]
    pub invariant: String,
    /// What caught it: histories, or the name of a model or a unit test; empty if nothing did.
    #[serde(default)]
    pub caught_by: String,
    /// Histories until then; 0 where a named test caught it.
    #[serde(default)]
    pub histories: u64,
    /// The finding, with its seed.
    #[serde(default)]
    pub found: String,
}

impl Tally {
    /// Nothing yet of this campaign.
    pub fn new(campaign: &str) -> Self {
        Self { campaign: campaign.to_owned(), ..Self::default() }
    }

    /// Counts ids that nobody will get.
    pub fn waste(&mut self, cause: &str, ids: u64) {
        *self.wasted.entry(cause.to_owned()).or_default() += ids;
    }

    /// Counts refusals with this status code's name.
    pub fn refuse(&mut self, code: &str, count: u64) {
        *self.refusals.entry(code.to_owned()).or_default() += count;
    }

    /// Somebody waited this long for an answer.
    pub fn unanswered(&mut self, ms: u64) {
        self.longest_without_answer_ms = self.longest_without_answer_ms.max(ms);
    }

    /// A recovery took this long.
    pub fn recovered(&mut self, ms: u64) {
        *self.recovery_ms.entry(ms).or_default() += 1;
    }

    /// Something went wrong: `seed 123: why`.
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    /// Adds to a figure of its own; a name that begins with `max_` keeps the greater one.
    pub fn note(&mut self, name: &str, figure: u64) {
        let mine = self.notes.entry(name.to_owned()).or_default();
        *mine = if name.starts_with("max_") { figure.max(*mine) } else { *mine + figure };
    }

    /// Whether nothing went wrong: no failure, no duplicate.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.duplicates == 0
    }

    /// How many recoveries were measured.
    pub fn recoveries(&self) -> u64 {
        self.recovery_ms.values().sum()
    }

    /// The least whole millisecond that `percent` of the recoveries did not exceed; none if there was no recovery.
    /// Of 100 percent it is the longest.
    pub fn recovery_percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.recoveries() * percent.min(100)).div_ceil(100).max(1);
        let mut counted = 0;
        for (ms, count) in &self.recovery_ms {
            counted += count;
            if counted >= rank {
                return Some(*ms);
            }
        }
        None
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        if self.campaign.is_empty() {
            self.campaign.clone_from(&other.campaign);
        }
        self.trials += other.trials;
        self.ids += other.ids;
        self.duplicates += other.duplicates;
        for (cause, ids) in &other.wasted {
            self.waste(cause, *ids);
        }
        for (code, count) in &other.refusals {
            self.refuse(code, *count);
        }
        self.unanswered(other.longest_without_answer_ms);
        for (ms, count) in &other.recovery_ms {
            *self.recovery_ms.entry(*ms).or_default() += count;
        }
        self.failures.extend_from_slice(&other.failures);
        self.mutants.extend_from_slice(&other.mutants);
        for (name, figure) in &other.notes {
            self.note(name, *figure);
        }
    }
}
