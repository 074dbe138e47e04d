//! What an operator sees, seen by the programs that operators use: alert rules and dashboard by a real Prometheus, the
//! status page by a real browser. Where one of them is not installed, its trials are not tried.

mod browser;
mod dashboard;
mod rules;
mod status_page;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use xuid_tests::not_tried;

/// A file of `server/packaging`.
fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/packaging").join(name)
}

/// Whether a program is installed; if not, the trial is counted as not tried.
fn installed(program: &str, trial: &str) -> Result<bool> {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        not_tried(trial, &format!("no {program} here"))?;
    }
    Ok(found)
}
