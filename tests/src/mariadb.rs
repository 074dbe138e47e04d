//! A private MariaDB server in a temporary folder, on a port of its own.
//!
//! The package `mariadb-server` of Debian is needed; `tests/run` installs it.

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

/// It starts in 0.3 s; after a kill it reads its log first, and a busy machine takes longer.
const START_LIMIT: Duration = Duration::from_secs(30);

static TEMPLATE: Template = Template::new();

/// Small files: each server has its own. Those of the start must be those of the template.
const SMALL: [&str; 4] = [
    "--innodb-log-file-size=8M",
    "--innodb-autoextend-increment=1",
    "--innodb-buffer-pool-size=16M",
    "--innodb-temp-data-file-path=ibtmp1:1M:autoextend",
];

/// The server. It keeps its folder and its port over all its lives, and ends with this process.
#[derive(Debug)]
pub struct MariaDb {
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
    // Last, so that the process is gone before its folder is.
    home: TempDir,
}

impl MariaDb {
    /// Starts one with these options, `--log-bin=bin` say, and waits until it serves. It has a database `test`.
    pub fn start(options: &[&str]) -> Result<Self> {
        let home = TempDir::new()?;
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Self { port: ports::free()?, options, child: None, home };
        TEMPLATE.copy_to(&server.data(), make_template)?;
        server.restart()?;
        Sql::mysql(&format!("mysql://root@{}/mysql", server.addr()))?
            .exec("CREATE DATABASE IF NOT EXISTS test CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")?;
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The URL of its database `test`.
    pub fn url(&self) -> String {
        format!("mysql://root@{}/test", self.addr())
    }

    /// A session.
    pub fn sql(&self) -> Result<Sql> {
        Sql::mysql(&self.url())
    }

    /// Starts it again, in the same folder, on the same port; it serves when this returns.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(self.home.path().join("log"))?;
        let mut command = spawner::mortal("mariadbd");
        command.arg("--no-defaults").arg(format!("--datadir={}", self.data().display()));
        // A server that starts removes temporary tables of others from a folder that they share.
        command.arg(format!("--tmpdir={}", self.data().display()));
        command.args(["--bind-address=127.0.0.1", &format!("--port={}", self.port)]);
        // The path of a socket has 107 bytes at most, and the folder's is short.
        command.arg(format!("--socket={}", self.home.path().join("socket").display()));
        command.args(SMALL).args(&self.options);
        if geteuid().is_root() {
            command.arg("--user=root");
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(spawner::start(command)?);
        let url = format!("mysql://root@{}/mysql", self.addr());
        clock::wait_until("MariaDB serves", START_LIMIT, || {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().transpose()) {
                bail!("it ended with {:?}: {}", status?, self.log());
            }
            Ok(Sql::mysql(&url).is_ok())
        })
        .with_context(|| self.log())?;
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops it where it stands.
    pub fn freeze(&self) -> Result<()> {
        process::freeze(self.child.as_ref().context("it does not run")?)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<()> {
        process::thaw(self.child.as_ref().context("it does not run")?)
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // Fails only for a process that has ended already.
        let _ = self.kill();
    }
}

fn make_template(dir: &Path) -> Result<()> {
    let mut command = Command::new("mariadb-install-db");
    command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    command.arg(format!("--datadir={}", dir.display())).args(SMALL);
    if geteuid().is_root() {
        command.arg("--user=root");
    }
    run(command)
}
