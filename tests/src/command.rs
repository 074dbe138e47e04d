//! The binary under test, and calls of its commands.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::process;

/// No command may take longer: one that hangs is a failure.
const LIMIT: Duration = Duration::from_secs(30);

/// The binary: `XUID_BIN`, else the release build of this workspace, brought up to date once.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| find_binary().map_err(|error| format!("{error:#}")));
    found.as_deref().map_err(|error| anyhow!("no binary to test: {error}"))
}

fn find_binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("XUID_BIN") {
        return PathBuf::from(&path).canonicalize().with_context(|| format!("XUID_BIN={}", path.display()));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace around this crate")?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "-p", "xuid-server"]).current_dir(root);
    let (code, _, stderr) = process::run(cargo, Duration::from_mins(20))?;
    ensure!(code == Some(0), "cargo build failed:\n{stderr}");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let path = target.join("release").join("xuid");
    path.canonicalize().with_context(|| format!("the build made no {}", path.display()))
}

/// A command for the binary under test.
pub(crate) fn bare() -> Result<Command> {
    Ok(clean(binary()?))
}

/// The crash-point build: `XUID_CRASH_POINTS_BIN`.
pub(crate) fn crash_points_binary() -> Result<&'static Path> {
    static BINARY: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| {
        let path = env::var_os("XUID_CRASH_POINTS_BIN")
            .ok_or("XUID_CRASH_POINTS_BIN is not set; tests/campaign builds it")?;
        PathBuf::from(&path)
            .canonicalize()
            .map_err(|error| format!("XUID_CRASH_POINTS_BIN={}: {error}", path.display()))
    });
    found.as_deref().map_err(|error| anyhow!("no crash-point build to test: {error}"))
}

/// A command for a binary, without the `XUID_*` variables of the test run itself.
pub(crate) fn clean(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("XUID_") {
            command.env_remove(name);
        }
    }
    command
}

/// What a command did.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Standard output of a command that must succeed.
    pub fn ok(&self) -> Result<&str> {
        ensure!(self.code == Some(0), "exit code {:?}\n{}\n{}", self.code, self.stdout, self.stderr);
        Ok(&self.stdout)
    }

    /// Everything a command that must fail said: exit code `code`, some text, and no panic.
    pub fn refused(&self, code: i32) -> Result<String> {
        let said = format!("{}{}", self.stdout, self.stderr);
        ensure!(self.code == Some(code), "exit code {:?} instead of {code}\n{said}", self.code);
        ensure!(!said.trim().is_empty(), "failed without a word");
        ensure!(!said.contains("panicked"), "a panic:\n{said}");
        Ok(said)
    }

    /// Standard output as one JSON value.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(self.ok()?).with_context(|| format!("not JSON: {}", self.stdout))
    }
}

/// One call of `xuid`.
#[derive(Debug)]
#[must_use]
pub struct Xuid {
    command: Command,
    limit: Duration,
}

impl Xuid {
    /// `xuid` with these arguments.
    pub fn new<I, S>(args: I) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = bare()?;
        command.args(args);
        Ok(Self { command, limit: LIMIT })
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it in this folder.
    pub fn cwd(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Runs it to its end, with that file on its standard input.
    pub fn fed(self, input: &Path) -> Result<Output> {
        let input = File::open(input).with_context(|| format!("opening {}", input.display()))?;
        let (code, stdout, stderr) = process::run_fed(self.command, input.into(), self.limit)?;
        Ok(Output { code, stdout, stderr })
    }

    /// Runs it to its end.
    pub fn run(self) -> Result<Output> {
        let (code, stdout, stderr) = process::run(self.command, self.limit)?;
        Ok(Output { code, stdout, stderr })
    }

    /// Runs it for `life`, then kills it; whether it had ended by itself.
    pub fn cut(mut self, life: Duration) -> Result<bool> {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = self.command.spawn().with_context(|| format!("starting {:?}", self.command))?;
        thread::sleep(life);
        let ended = child.try_wait()?.is_some();
        child.kill()?;
        child.wait()?;
        Ok(ended)
    }
}
