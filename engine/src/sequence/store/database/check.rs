//! What a database must be before ids are taken from it, as a table of settings.

use std::fmt;

use crate::sequence::store::Identity;

/// One setting of a database, and whether commits are durable with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The database's name for it.
    pub setting: &'static str,
    /// What was found.
    pub value: String,
    /// Whether that will do.
    pub is_fit: bool,
    /// What would do.
    pub wanted: &'static str,
    /// What happens otherwise.
    pub otherwise: &'static str,
    /// How to change it.
    pub remedy: &'static str,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.setting, self.value)?;
        if self.is_fit {
            return Ok(());
        }
        write!(f, " and must be {}: otherwise {} ({})", self.wanted, self.otherwise, self.remedy)
    }
}

/// What was found of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The host that answered and can be written to.
    pub host: String,
    /// What the server says it is.
    pub version: String,
    /// Which store it is.
    pub identity: Identity,
    /// The table that is used.
    pub table: String,
    /// Each setting that matters.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether ids may be taken from it.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.checks.iter().all(|check| check.is_fit)
    }

    /// What is wrong with it, in a sentence; `None` if nothing is.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let unfit: Vec<String> =
            self.checks.iter().filter(|check| !check.is_fit).map(Check::to_string).collect();
        let host = &self.host;
        (!unfit.is_empty()).then(|| format!("{host} can lose commits: {}", unfit.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_each_unfit_setting_with_its_value_and_its_remedy() {
        let check = |is_fit| Check {
            setting: "sync_binlog",
            value: "0".into(),
            is_fit,
            wanted: "1",
            otherwise: "a power cut takes commits back",
            remedy: "SET GLOBAL sync_binlog = 1",
        };
        let identity = Identity { current: "x".into(), recorded: None, fenced: None };
        let mut report = Report {
            host: "db1".into(),
            version: "10".into(),
            identity,
            table: "t".into(),
            checks: vec![check(true)],
        };
        assert_eq!((report.is_fit(), report.problem()), (true, None));
        report.checks.push(check(false));
        assert!(!report.is_fit());
        let said = report.problem().unwrap();
        for part in ["db1", "sync_binlog is 0", "must be 1", "power cut", "SET GLOBAL sync_binlog = 1"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
