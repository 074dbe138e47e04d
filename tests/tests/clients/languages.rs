//! How the program of each client is built, once for all tests, and started.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use xuid_tests::process;

/// No build may take longer; that of the Rust client may have to wait for another one.
const BUILD_LIMIT: Duration = Duration::from_mins(10);

/// A client by its language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Go,
    Java,
    Node,
    Rust,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder of a client's package.
pub(crate) fn package(name: &str) -> PathBuf {
    root().join("server/clients").join(name)
}

/// Where what is built goes.
fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

impl Language {
    /// The command of its program, which is built first if it has to be.
    pub(crate) fn command(self) -> Result<Command> {
        Ok(match self {
            Self::Python => with("python3", [package("python").join("tests/conform.py")]),
            Self::Node => with("node", [package("node").join("test/conform.js")]),
            Self::Go => Command::new(built(&GO, go)?),
            Self::Rust => Command::new(built(&RUST, rust)?),
            Self::Java => {
                let mut java = with("java", ["-cp"]);
                java.arg(built(&JAVA, java_classes)?).arg("org.xuid.client.Conform");
                java
            }
        })
    }
}

pub(crate) fn with<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

type Built = OnceLock<std::result::Result<PathBuf, String>>;

static GO: Built = OnceLock::new();
static JAVA: Built = OnceLock::new();
static RUST: Built = OnceLock::new();

fn built(once: &'static Built, build: fn() -> Result<PathBuf>) -> Result<&'static Path> {
    let outcome = once.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    outcome.as_deref().map_err(|error| anyhow!("{error}"))
}

pub(crate) fn run(mut command: Command, dir: &Path) -> Result<()> {
    command.current_dir(dir);
    let text = format!("{command:?} in {}", dir.display());
    let (code, stdout, stderr) = process::run(command, BUILD_LIMIT)?;
    ensure!(code == Some(0), "{text} ended with {code:?}:\n{stdout}{stderr}");
    Ok(())
}

fn go() -> Result<PathBuf> {
    let program = target().join("clients/go-conform");
    let mut go = with("go", ["build", "-o"]);
    go.arg(&program).arg("./conform");
    run(go, &package("go"))?;
    Ok(program)
}

/// By the compiler alone, which finds what the program uses: the tests beside it want a library.
fn java_classes() -> Result<PathBuf> {
    let classes = target().join("clients/java");
    // The compiler takes classes that it finds there, although their source has changed.
    if classes.exists() {
        fs::remove_dir_all(&classes)?;
    }
    fs::create_dir_all(&classes)?;
    let mut javac = with("javac", ["-sourcepath", "src/main/java:src/test/java", "-d"]);
    javac.arg(&classes).arg("src/test/java/org/xuid/client/Conform.java");
    run(javac, &package("java"))?;
    Ok(classes)
}

/// `XUID_RUST_CONFORM`, else the example of the client's crate, brought up to date.
fn rust() -> Result<PathBuf> {
    if let Some(path) = env::var_os("XUID_RUST_CONFORM") {
        return PathBuf::from(&path)
            .canonicalize()
            .with_context(|| format!("XUID_RUST_CONFORM={}", path.display()));
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "-p", "xuid-client", "--example", "conform"]);
    run(build, &root())?;
    Ok(target().join("release/examples/conform"))
}
