//! A private PostgreSQL server in a temporary folder, on a port of its own.
//!
//! PostgreSQL refuses to run as root, so root starts it as the user `postgres`. The package `postgresql` of Debian is
//! needed; `tests/run` installs it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::template::{Template, run};
use crate::zookeeper::{ports, spawner};
use crate::{Sql, clock, process};

/// It starts in 0.1 s; after a kill it reads its log first, and a busy machine takes longer.
const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(10);

static TEMPLATE: Template = Template::new();

/// The server. It keeps its folder and its port over all its lives, and ends with this process.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
    // Last, so that the process is gone before its folder is.
    home: TempDir,
}

impl Postgres {
    /// Starts one with these settings, `fsync=off` say, and waits until it serves.
    pub fn start(settings: &[&str]) -> Result<Self> {
        let mut server = Self::in_folder(settings)?;
        TEMPLATE.copy_to(&server.data(), make_template)?;
        server.restart()?;
        Ok(server)
    }

    fn in_folder(settings: &[&str]) -> Result<Self> {
        let home = TempDir::new()?;
        process::open_to_all(home.path())?;
        let port = ports::free()?;
        let options = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Ok(Self { port, options, child: None, home })
    }

    /// A standby that follows this server.
    pub fn standby(&self) -> Result<Self> {
        let mut server = Self::in_folder(&[])?;
        let mut command = as_postgres(&bin("pg_basebackup"));
        command
            .args(["-c", "fast", "-R", "-h", "127.0.0.1", "-U", "postgres", "-p"])
            .arg(self.port.to_string());
        command.arg("-D").arg(server.data());
        own(server.home.path())?;
        run(command)?;
        server.restart()?;
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The URL of its database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.addr())
    }

    /// A session.
    pub fn sql(&self) -> Result<Sql> {
        Sql::postgres(&self.url())
    }

    /// Starts it again, in the same folder, on the same port; it serves when this returns.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(self.home.path().join("log"))?;
        let mut command = as_postgres_command(spawner::mortal("setpriv"), &bin("postgres"));
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=40",
            "shared_buffers=8MB",
        ]
        .into_iter()
        .chain(self.options.iter().map(String::as_str))
        {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(spawner::start(command)?);
        clock::wait_until("PostgreSQL serves", START_LIMIT, || {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().transpose()) {
                bail!("it ended with {:?}: {}", status?, self.log());
            }
            Ok(is_served(&self.sql()))
        })
        .with_context(|| self.log())?;
        Ok(())
    }

    /// SIGKILL to it and to all its processes.
    pub fn kill(&mut self) -> Result<()> {
        self.child.take().map_or(Ok(()), |mut child| process::kill_family(&mut child))
    }

    /// Stops all its processes where they stand.
    pub fn freeze(&self) -> Result<()> {
        process::freeze_family(self.child.as_ref().context("it does not run")?)
    }

    /// Lets them go on.
    pub fn thaw(&self) -> Result<()> {
        process::thaw_family(self.child.as_ref().context("it does not run")?)
    }

    /// Makes a standby a primary; it is one when this returns.
    pub fn promote(&self) -> Result<()> {
        self.sql()?.exec("SELECT pg_promote()")
    }

    /// A clean stop: what it committed is in its standbys then.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        // Its word for "now, but properly".
        process::interrupt(&child)?;
        process::wait_exit(&mut child, STOP_LIMIT)?;
        Ok(())
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Fails only for a process that has ended already.
        let _ = self.kill();
    }
}

/// Whether a session was had. Until then the server is left alone for a moment: each try costs it a process.
fn is_served(session: &Result<Sql>) -> bool {
    if session.is_err() {
        clock::idle(Duration::from_millis(20));
    }
    session.is_ok()
}

/// Where Debian's packages put a program that is in nobody's path, else its name alone.
fn bin(name: &str) -> PathBuf {
    let mut versions: Vec<PathBuf> = match fs::read_dir("/usr/lib/postgresql") {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path().join("bin").join(name))).collect(),
        Err(_) => Vec::new(),
    };
    versions.retain(|path| path.exists());
    versions.sort();
    versions.pop().unwrap_or_else(|| PathBuf::from(name))
}

/// The user that root becomes.
const USER: &str = "postgres";

fn as_postgres(program: &Path) -> Command {
    as_postgres_command(Command::new("setpriv"), program)
}

/// Lets `setpriv`, which `command` begins with, change the user if that is root.
fn as_postgres_command(mut command: Command, program: &Path) -> Command {
    if geteuid().is_root() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    command.arg("--").arg(program);
    command
}

/// Gives a folder to the user that the server runs as.
fn own(dir: &Path) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let mut command = Command::new("chown");
    command.arg(format!("{USER}:{USER}")).arg(dir);
    run(command)
}

fn make_template(dir: &Path) -> Result<()> {
    own(dir.parent().context("a template without a parent")?)?;
    let mut command = as_postgres(&bin("initdb"));
    command.args([
        "-A",
        "trust",
        "--no-sync",
        "-U",
        "postgres",
        "-E",
        "UTF8",
        "--locale=C",
        "--wal-segsize=1",
    ]);
    command.arg("-D").arg(dir);
    run(command)?;
    // A server syncs all its files when it starts after a kill: those of databases that nobody uses are dropped.
    let mut command = as_postgres(Path::new("sh"));
    command.args(["-c", "printf '%s\\n' \"$3\" | \"$1\" --single -F -D \"$2\" postgres >/dev/null", "sh"]);
    command.arg(bin("postgres")).arg(dir).arg(
        "UPDATE pg_database SET datistemplate = false, datallowconn = true;\n\
         DROP DATABASE template0;\nDROP DATABASE template1;",
    );
    run(command)
}
