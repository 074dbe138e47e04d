//! The settings of [`Sequences`](super::Sequences), checked.

use std::path::PathBuf;
use std::time::Duration;

use super::pattern::NamePattern;
use super::store::{MOST_STEP, SequenceSettings};

/// What can be configured.
#[derive(Clone, Debug)]
pub(crate) struct SequenceConfig {
    pub(crate) witness: bool,
    /// `None`: by the kind of its records.
    pub(crate) is_witness_shared: Option<bool>,
    pub(crate) lossless: bool,
    pub(crate) wait: Duration,
    pub(crate) hold: Duration,
    pub(crate) step_max: u64,
    /// Of names that are created by a pattern.
    pub(crate) step: u64,
    pub(crate) idle: Duration,
    pub(crate) create: Vec<NamePattern>,
    pub(crate) strict: Vec<NamePattern>,
    pub(crate) limit: usize,
}

impl Default for SequenceConfig {
    fn default() -> Self {
        Self {
            witness: true,
            is_witness_shared: None,
            lossless: false,
            wait: Duration::from_millis(50),
            hold: Duration::from_mins(10),
            step_max: MOST_STEP,
            step: SequenceSettings::default().step,
            idle: Duration::from_mins(15),
            create: Vec::new(),
            strict: Vec::new(),
            limit: 1_000_000,
        }
    }
}

/// Why sequences could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildSequencesError {
    /// A setting is impossible.
    #[error("{setting} is {found}, and {allowed} is allowed")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The range.
        allowed: &'static str,
    },
    /// The data folder cannot be used.
    #[error("failed to {action} {}", path.display())]
    Folder {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A thread could not be started, or a page not be mapped.
    #[error("failed to {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl SequenceConfig {
    /// Checks every range.
    pub(crate) fn check(&self) -> Result<(), BuildSequencesError> {
        let second = Duration::from_secs(1);
        let ranges = [
            ("wait", self.wait, Duration::ZERO, 60 * second, "0 to 60 s"),
            ("hold", self.hold, second, 86_400 * second, "1 s to a day"),
            ("idle", self.idle, second, 86_400 * second, "1 s to a day"),
        ];
        let fail = |setting, found, allowed| Err(BuildSequencesError::Setting { setting, found, allowed });
        for (setting, value, least, most, allowed) in ranges {
            if value < least || value > most {
                return fail(setting, format!("{value:?}"), allowed);
            }
        }
        for (setting, step) in [("step_max", self.step_max), ("step", self.step)] {
            if step == 0 || step > MOST_STEP {
                return fail(setting, step.to_string(), "1 to 4,294,967,296");
            }
        }
        if self.limit == 0 {
            return fail("limit", "0".to_owned(), "1 and more");
        }
        Ok(())
    }
}
