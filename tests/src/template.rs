//! Data folders that are made once a run and copied for each server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::process;

/// Making or copying a data folder takes some seconds at most.
const LIMIT: Duration = Duration::from_mins(1);

/// A folder that is made when it is first wanted, and is gone when this process is, whatever ends it.
#[derive(Debug, Default)]
pub(crate) struct Template(OnceLock<Result<Made, String>>);

#[derive(Debug)]
struct Made {
    dir: PathBuf,
    /// Removes the folder when its standard input ends, which is when this process does.
    _janitor: Child,
}

impl Template {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Copies the folder to `to`, which must not exist. `make` makes it in the folder that it gets.
    pub(crate) fn copy_to(&self, to: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let template = self.0.get_or_init(|| prepare(make).map_err(|error| format!("{error:#}")));
        let template = template.as_ref().map_err(|why| anyhow!("making a template: {why}"))?;
        let mut command = Command::new("cp");
        command.args(["-a", "--reflink=auto"]).arg(&template.dir).arg(to);
        run(command)
    }
}

fn prepare(make: impl FnOnce(&Path) -> Result<()>) -> Result<Made> {
    let home = tempfile::Builder::new().prefix("xuid-template").tempdir()?;
    process::open_to_all(home.path())?;
    let mut janitor = Command::new("sh");
    janitor.args(["-c", "cat >/dev/null; rm -rf \"$1\"", "sh"]).arg(home.path());
    janitor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A signal to the whole group, as Ctrl-C sends it, must not end it before its work.
    std::os::unix::process::CommandExt::process_group(&mut janitor, 0);
    let janitor = janitor.spawn().context("starting the janitor of a template")?;
    let dir = home.keep().join("data");
    make(&dir)?;
    Ok(Made { dir, _janitor: janitor })
}

/// Runs a command that must succeed.
pub(crate) fn run(command: Command) -> Result<()> {
    let text = format!("{command:?}");
    let (code, stdout, stderr) = process::run(command, LIMIT)?;
    ensure!(code == Some(0), "{text} ended with {code:?}:\n{stdout}\n{stderr}");
    Ok(())
}
