//! Each client as its users get it: packed, installed in a folder where nothing else is, and the programs of its README run there as
//! they stand.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Serve, Server, process};

use crate::languages::{package, run, with};

/// No program of a README takes longer, the compiler's time included.
const LIMIT: Duration = Duration::from_mins(2);

/// A checkout with a copy of a client's package alone, so that nothing is built among the sources, and an empty folder.
struct Away {
    home: TempDir,
    readme: String,
}

impl Away {
    fn new(client: &str) -> Result<Self> {
        let home = TempDir::new()?;
        let clients = home.path().join("checkout/server/clients");
        fs::create_dir_all(&clients)?;
        let mut copy = with("cp", ["-R"]);
        copy.arg(package(client)).arg(&clients);
        run(copy, home.path())?;
        fs::create_dir(home.path().join("empty"))?;
        let readme = fs::read_to_string(clients.join(client).join("README.md"))?;
        Ok(Self { home, readme })
    }

    fn checkout(&self) -> PathBuf {
        self.home.path().join("checkout")
    }

    fn empty(&self) -> PathBuf {
        self.home.path().join("empty")
    }

    /// The blocks of a language in the README that are whole programs: they begin so.
    fn programs(&self, language: &str, begin: &[&str]) -> Vec<String> {
        let fence = format!("```{language}\n");
        let blocks = self.readme.split(&fence).skip(1).filter_map(|rest| rest.split("```").next());
        let is_whole = |block: &&str| begin.iter().any(|begin| block.starts_with(begin));
        blocks.filter(is_whole).map(str::to_owned).collect()
    }

    /// The README's block of commands of this place among those that name the checkout.
    fn command(&self, at: usize) -> Result<Command> {
        let mut blocks = self.programs("sh", &[""]).into_iter().filter(|block| block.contains("$CHECKOUT"));
        let block = blocks.nth(at).with_context(|| format!("{at} blocks name the checkout"))?;
        let mut shell = with("sh", ["-ec", &block]);
        shell.env("CHECKOUT", self.checkout());
        Ok(shell)
    }

    /// What the README says of how the package is installed.
    fn install(&self) -> Result<Command> {
        self.command(0)
    }
}

/// The variable PATH, with this folder before all others.
fn first_in_path(dir: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").context("there is no PATH")?;
    let dirs = [dir.to_owned()].into_iter().chain(env::split_paths(&path));
    Ok(env::join_paths(dirs)?)
}

fn server() -> Result<Server> {
    Serve::fresh()?.arg("--sequence-create").arg("orders").start()
}

/// Runs a program where nothing but what was installed is; what it printed, which has an id in it.
fn prints_ids(mut command: Command, server: &Server, dir: &Path) -> Result<()> {
    command.env("XUID_SERVER", server.addr.to_string()).current_dir(dir);
    let text = format!("{command:?}");
    let (code, stdout, stderr) = process::run(command, LIMIT)?;
    ensure!(code == Some(0), "{text} ended with {code:?}:\n{stdout}{stderr}");
    let numbers = stdout.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
    ensure!(numbers.count() > 0, "{text} printed no number: {stdout}");
    Ok(())
}

#[test]
fn a_wheel_runs_the_programs_of_its_readme() -> Result<()> {
    let (away, server) = (Away::new("python")?, server()?);
    let empty = away.empty();
    run(with("python3", ["-m", "venv", "."]), &empty)?;
    // Of a folder pip builds the wheel, and installs that.
    let mut install = away.install()?;
    install.env("PATH", first_in_path(&empty.join("bin"))?);
    run(install, &empty)?;
    let programs = away.programs("python", &["from ", "import "]);
    ensure!(programs.len() >= 5, "{} programs", programs.len());
    for program in programs {
        fs::write(empty.join("program.py"), program)?;
        prints_ids(with(empty.join("bin/python"), ["program.py"]), &server, &empty)?;
    }
    let types = with(empty.join("bin/python"), ["-c", TYPES]);
    run(types, &empty)?;
    server.stop().map(drop)
}

/// What a type checker looks for in a package that has types.
const TYPES: &str = "import importlib.resources as r; assert (r.files('xuid_client') / 'py.typed').is_file()";

#[test]
fn an_npm_package_runs_the_programs_of_its_readme() -> Result<()> {
    let (away, server) = (Away::new("node")?, server()?);
    let empty = away.empty();
    let mut install = away.install()?;
    // What npm would ask its registry: nothing that is installed comes from there.
    install.env("npm_config_audit", "false").env("npm_config_offline", "true");
    run(install, &empty)?;
    let programs = away.programs("js", &["import "]);
    ensure!(!programs.is_empty(), "no program");
    for program in programs {
        fs::write(empty.join("program.mjs"), program)?;
        prints_ids(with("node", ["program.mjs"]), &server, &empty)?;
    }
    ensure!(empty.join("node_modules/xuid-client/index.d.ts").is_file(), "the package has no types");
    server.stop().map(drop)
}

#[test]
fn a_module_of_go_runs_the_program_of_its_readme() -> Result<()> {
    let (away, server) = (Away::new("go")?, server()?);
    let empty = away.empty();
    run(with("go", ["mod", "init", "example.com/program"]), &empty)?;
    run(away.install()?, &empty)?;
    let programs = away.programs("go", &["package main"]);
    ensure!(!programs.is_empty(), "no program");
    for program in programs {
        fs::write(empty.join("main.go"), program)?;
        prints_ids(with("go", ["run", "."]), &server, &empty)?;
    }
    server.stop().map(drop)
}

#[test]
fn a_jar_runs_the_program_of_its_readme() -> Result<()> {
    let (away, server) = (Away::new("java")?, server()?);
    let empty = away.empty();
    run(away.install()?, &empty)?;
    let programs = away.programs("java", &["import org.xuid.client.XuidClient;"]);
    ensure!(!programs.is_empty(), "no program");
    for program in programs {
        fs::write(empty.join("QuickStart.java"), program)?;
        prints_ids(away.command(1)?, &server, &empty)?;
    }
    server.stop().map(drop)
}
