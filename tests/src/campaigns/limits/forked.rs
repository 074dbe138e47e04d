//! A process that forks under load: the child can't use its parent's engine, and has one of its own on the same folder.
//!
//! The program is an example of the engine, `forked`: parent and child write the ids they were given to a file each,
//! and the parent may be killed in the middle.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::super::Tally;
use super::life;
use crate::{Ledger, Rng, binary, clock, process, read_issued};

/// Names the program; else it is looked for beside the binary under test.
const VARIABLE: &str = "XUID_FORKED";
const LIMIT: Duration = Duration::from_secs(30);

/// Forks on one folder, one after the other, and a server on it at the end.
pub(super) fn trial(home: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let data = home.join("data");
    for round in 0..=rng.below(3) {
        let out = home.join(format!("out-{round}"));
        fs::create_dir(&out)?;
        let mut command = Command::new(program()?);
        let (before, after) = (rng.below(60), 20 + rng.below(300));
        command.arg(&data).arg(&out).args([before.to_string(), after.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if rng.below(3) == 0 {
            cut(command, &out, rng)?;
            tally.note("forking parents killed", 1);
        } else {
            let (code, said, wrong) = process::run(command, LIMIT)?;
            ensure!(code == Some(0), "the program that forks ended with {code:?}:\n{said}\n{wrong}");
            ensure!(ids(&out.join("child"), &mut Ledger::default())? > 0, "the child has no id");
        }
        for name in ["parent", "child"] {
            let taken = ids(&out.join(name), ledger)?;
            tally.note(&format!("ids of {name}"), taken);
        }
        tally.note("forks", 1);
        ledger.check()?;
    }
    life::enough(&data, rng, ledger, tally)
}

/// Kills the parent at a random moment; the child ends by itself, and is waited for.
fn cut(mut command: Command, out: &Path, rng: &mut Rng) -> Result<()> {
    // Nobody reads what is said, and a pipe that is gone would end the child.
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    clock::idle(rng.millis(20, 300));
    child.kill()?;
    child.wait()?;
    let begun = out.join("child.pid");
    if let Ok(pid) = fs::read_to_string(begun) {
        let folder = PathBuf::from(format!("/proc/{}", pid.trim()));
        clock::wait_until("the child ends", LIMIT, || Ok(!folder.exists() || is_zombie(&folder)))?;
    }
    Ok(())
}

fn is_zombie(folder: &Path) -> bool {
    fs::read_to_string(folder.join("stat")).is_ok_and(|stat| stat.contains(") Z "))
}

/// Records what one of the two wrote, which is what a server logs; a record that a kill cut off was not finished.
fn ids(file: &Path, ledger: &mut Ledger) -> Result<u64> {
    let runs = read_issued(file)?;
    let ids = runs.iter().map(|run| u64::from(run.count)).sum();
    ledger.extend(runs);
    Ok(ids)
}

fn program() -> Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    let beside = binary()?.parent().context("the binary has no folder")?.join("examples/forked");
    if !beside.exists() {
        bail!("there is no {}: cargo build --release -p xuid-engine --example forked", beside.display());
    }
    Ok(beside)
}
