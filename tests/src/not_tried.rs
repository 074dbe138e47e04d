//! Trials that this machine does not allow: they are counted, told at the end of `tests/run`, and no success in CI.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, Result, ensure};

/// Names the file that `tests/run` reads at its end: one line for each trial that was not made.
const FILE: &str = "XUID_NOT_TRIED";

/// Says that a trial is not made here, and why.
///
/// Fails if `CI=true` is set: where changes are judged, every trial has to be made.
pub fn not_tried(trial: &str, reason: &str) -> Result<()> {
    ensure!(
        env::var_os("CI").is_none_or(|ci| ci != "true"),
        "not tried, and CI=true is set: {trial}: {reason}"
    );
    println!("NOT TRIED: {trial}: {reason}");
    let Some(file) = env::var_os(FILE) else { return Ok(()) };
    let line = format!("{trial}: {reason}\n");
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        // One write, so that lines of two processes do not mix.
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("telling tests/run in {}", file.display()))
}
