//! The campaign that takes guards out: each loss must be noticed, by histories or by a named test.
//!
//! The engine's test executable does most of it. Some guards are caught by a model of loom or by a test of another
//! package, which are other executables; it only names those, and they are run here, in the same part.
//!
//! # Invariants
//! - A named test counts when it ran and passed: one that is gone or renamed catches nothing.
//! - Every guard is taken out: the engine says how many there are, and another number than the plan's is a failure.

use std::env;
use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Campaign, EngineCampaign, Mutant, Need, Progress, Size, Tally};
use crate::process;

/// Where the engine notes how many guards can be taken out.
const KNOWN: &str = "max_mutants";
/// How it names models of loom, and tests of other packages: as commands for people.
const MODEL: &str = "RUSTFLAGS=--cfg=loom cargo test -p xuid-engine --release --lib ";
const OTHER: &str = "cargo test -p ";
/// The longest a named test may take; a model of loom takes seconds.
const LIMIT: Duration = Duration::from_mins(10);

/// Guards taken out in turn.
#[derive(Debug)]
pub struct Mutants {
    engine: EngineCampaign,
}

impl Default for Mutants {
    fn default() -> Self {
        let what = "every guard of the engine taken out in turn, which histories or a named test must notice";
        Self { engine: EngineCampaign::new("mutants", "mutants", what) }
    }
}

impl Campaign for Mutants {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn what(&self) -> &'static str {
        self.engine.what()
    }

    fn needs(&self) -> &'static [Need] {
        &[
            Need::Installed("setpriv"),
            Need::Installed("java"),
            Need::Installed("zookeeper"),
            Need::EngineTests,
            Need::LoomTests,
            Need::SpillTests,
        ]
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        let mut tally = self.engine.run(trials, progress)?;
        let planned = self.trials(Size::Night);
        let known = tally.notes.remove(KNOWN).unwrap_or(0);
        if known != planned {
            tally.fail(format!(
                "the engine knows {known} mutants, the plan has {planned}: mend the table of sizes"
            ));
        }
        let mut failures = Vec::new();
        for mutant in &mut tally.mutants {
            if let Err(why) = elsewhere(mutant)? {
                mutant.caught_by.clear();
                failures.push(format!("mutant {} lives: {why}", mutant.name));
            }
        }
        tally.failures.append(&mut failures);
        progress.tell(&tally);
        Ok(tally)
    }
}

/// Runs the test that is to catch this mutant if it is in another executable; what is wrong if it does not.
fn elsewhere(mutant: &mut Mutant) -> Result<std::result::Result<(), String>> {
    let by = mutant.caught_by.clone();
    let (variable, test, build) = if let Some(test) = by.strip_prefix(MODEL) {
        ("XUID_LOOM_TESTS", test, "loom")
    } else if let Some((package, test)) = by.strip_prefix(OTHER).and_then(|rest| rest.split_once(' ')) {
        match package {
            "xuid-spill" => ("XUID_SPILL_TESTS", test, package),
            _ => bail!("{}: no executable of the package {package} is built for this campaign", mutant.name),
        }
    } else {
        return Ok(Ok(()));
    };
    let tests = env::var_os(variable);
    let tests =
        tests.with_context(|| format!("{variable} names no executable: start me by tests/campaign"))?;
    let mut command = Command::new(tests);
    command.args(["--exact", test]);
    let (code, stdout, stderr) = process::run(command, LIMIT)?;
    if code == Some(0) && stdout.contains("1 passed") {
        mutant.caught_by = format!("{test} ({build})");
        "the test finds it".clone_into(&mut mutant.found);
        return Ok(Ok(()));
    }
    Ok(Err(format!("{test} ({build}) says {} {}", stdout.trim(), stderr.trim())))
}
