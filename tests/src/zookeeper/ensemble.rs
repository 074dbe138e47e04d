//! One or three ZooKeeper servers in a temporary folder, on ports of their own.
//!
//! # Invariants
//! - I1: a node keeps its ports and its data folder over all its lives;
//! - I2: every process ends with the [`Ensemble`], and with the test process even if that is killed.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::java::{self, Sasl};
use super::{ports, spawner};
use crate::{FakeClock, clock, folder, process};

/// A healthy start takes 0.4 s alone and 1.8 s as three; a busy machine takes longer.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A server answers a four-letter word at once, or it is stopped.
const WORD_LIMIT: Duration = Duration::from_secs(1);
/// A ZooKeeper that was asked to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What a node says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The only node.
    Standalone,
    /// Writes go through it.
    Leader,
    /// It follows the leader.
    Follower,
}

/// One server.
#[derive(Debug)]
struct Server {
    dir: PathBuf,
    addr: SocketAddr,
    child: Option<Child>,
}

/// A copy of all data folders, of a moment when every node was down.
#[derive(Debug)]
pub struct Backup {
    home: TempDir,
}

/// The servers. Nodes are counted from 0.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    /// The wall clock of nodes that are started from now on.
    clock: Option<FakeClock>,
    /// Of nodes that are started from now on.
    sasl: Option<Sasl>,
    // Last, so that the processes are gone before their folder is.
    home: TempDir,
}

impl Ensemble {
    /// Starts `nodes` servers, 1 or 3, and waits until all of them serve.
    pub fn start(nodes: usize) -> Result<Self> {
        Self::start_with(nodes, None)
    }

    /// The same, with logins by SASL.
    pub fn start_with(nodes: usize, sasl: Option<Sasl>) -> Result<Self> {
        let mut ensemble = Self::prepare(nodes)?;
        ensemble.sasl = sasl;
        ensemble.start_all()?;
        ensemble.wait_serving(START_LIMIT)?;
        Ok(ensemble)
    }

    /// Folders, ports and configurations; nothing runs yet.
    fn prepare(nodes: usize) -> Result<Self> {
        let home = TempDir::new()?;
        let mut members = String::new();
        if nodes > 1 {
            members.push_str("standaloneEnabled=false\n");
            for number in 1..=nodes {
                let (peers, elections) = (ports::free()?, ports::free()?);
                writeln!(members, "server.{number}=127.0.0.1:{peers}:{elections}")?;
            }
        }
        let mut servers = Vec::new();
        for number in 1..=nodes {
            let dir = home.path().join(format!("node-{number}"));
            let port = ports::free()?;
            java::prepare(&dir, number, port, &members)?;
            servers.push(Server { dir, addr: SocketAddr::from(([127, 0, 0, 1], port)), child: None });
        }
        Ok(Self { servers, clock: None, sasl: None, home })
    }

    /// Nodes that are started from now on have a clock of their own, which this returns.
    pub fn with_clock(&mut self) -> Result<&FakeClock> {
        Ok(self.clock.insert(FakeClock::new()?))
    }

    /// The clock of such nodes.
    pub fn clock(&self) -> Option<&FakeClock> {
        self.clock.as_ref()
    }

    /// How many nodes it has, up or down.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether it has no node: never.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Where clients of this node connect.
    pub fn addr(&self, node: usize) -> SocketAddr {
        self.servers[node].addr
    }

    /// `127.0.0.1:12345,127.0.0.1:23456`, all nodes.
    pub fn connect_string(&self) -> String {
        let addrs: Vec<String> = self.servers.iter().map(|server| server.addr.to_string()).collect();
        addrs.join(",")
    }

    /// `zookeeper://` with all nodes and this path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("zookeeper://{}{path}", self.connect_string())
    }

    /// SIGKILL. A node that is down stays down.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        if let Some(mut child) = self.servers[node].child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts a node that is down: the same data, the same ports. It serves a moment later.
    pub fn restart(&mut self, node: usize) -> Result<()> {
        let server = &mut self.servers[node];
        ensure!(server.child.is_none(), "node {node} runs already");
        let mut command = java::command(&server.dir, self.sasl.as_ref())?;
        command.envs(self.clock.iter().flat_map(FakeClock::variables));
        server.child = Some(spawner::start(command)?);
        Ok(())
    }

    /// Stops the process where it stands: its sockets stay open and say nothing.
    pub fn freeze(&self, node: usize) -> Result<()> {
        process::freeze(self.servers[node].child.as_ref().context("it does not run")?)
    }

    /// Lets a stopped process go on.
    pub fn thaw(&self, node: usize) -> Result<()> {
        process::thaw(self.servers[node].child.as_ref().context("it does not run")?)
    }

    /// SIGKILL to all nodes at once.
    pub fn kill_all(&mut self) -> Result<()> {
        for server in &mut self.servers {
            if let Some(child) = &mut server.child {
                child.kill()?;
            }
        }
        (0..self.len()).try_for_each(|node| self.kill(node))
    }

    /// SIGTERM to all nodes, and waits for their ends.
    pub fn stop_all(&mut self) -> Result<()> {
        for server in &self.servers {
            server.child.iter().try_for_each(process::terminate)?;
        }
        for server in &mut self.servers {
            if let Some(mut child) = server.child.take() {
                process::wait_exit(&mut child, STOP_LIMIT)?;
            }
        }
        Ok(())
    }

    /// Starts every node that is down.
    pub fn start_all(&mut self) -> Result<()> {
        for node in 0..self.len() {
            if self.servers[node].child.is_none() {
                self.restart(node)?;
            }
        }
        Ok(())
    }

    /// The answer to `srvr`: version, latencies, mode.
    pub fn srvr(&self, node: usize) -> Result<String> {
        self.word(node, "srvr")
    }

    /// The answer to any four-letter word: `mntr`, `cons`, `dump`, ...
    pub fn word(&self, node: usize, word: &str) -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.servers[node].addr, WORD_LIMIT)?;
        stream.set_read_timeout(Some(WORD_LIMIT))?;
        stream.write_all(word.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// What a node is, or none while it is down or not serving.
    pub fn mode(&self, node: usize) -> Option<Mode> {
        let answer = self.srvr(node).ok()?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "))?;
        match mode.trim() {
            "standalone" => Some(Mode::Standalone),
            "leader" => Some(Mode::Leader),
            "follower" => Some(Mode::Follower),
            _ => None,
        }
    }

    /// The node through which writes go: the leader, or the only one. None while there is none.
    pub fn leader(&self) -> Option<usize> {
        (0..self.len()).find(|node| matches!(self.mode(*node), Some(Mode::Leader | Mode::Standalone)))
    }

    /// Waits for a leader; returns it.
    pub fn wait_leader(&self, limit: Duration) -> Result<usize> {
        let waited = clock::wait_for("a leader", limit, || Ok(self.leader()));
        Ok(waited.with_context(|| format!("{self}"))?.0)
    }

    /// Waits until every node that is up serves, one of them as the leader; returns how long that took.
    pub fn wait_serving(&mut self, limit: Duration) -> Result<Duration> {
        let waited = clock::wait_until("every node serves", limit, || {
            let mut led = false;
            for node in 0..self.len() {
                let Some(child) = &mut self.servers[node].child else { continue };
                if let Some(status) = child.try_wait()? {
                    bail!("node {node} ended with {status:?}");
                }
                match self.mode(node) {
                    None => return Ok(false),
                    Some(mode) => led |= mode != Mode::Follower,
                }
            }
            Ok(led)
        });
        waited.with_context(|| format!("{self}"))
    }

    /// What a node logged so far, over all its lives.
    pub fn log(&self, node: usize) -> String {
        String::from_utf8_lossy(&fs::read(self.servers[node].dir.join("log")).unwrap_or_default())
            .into_owned()
    }

    /// Stops all nodes and starts them with other logins, or none; they serve when it returns.
    pub fn restart_with(&mut self, sasl: Option<Sasl>) -> Result<()> {
        self.stop_all()?;
        self.sasl = sasl;
        self.start_all()?;
        self.wait_serving(START_LIMIT).map(drop)
    }

    /// Copies the data folders of all nodes, which must be down.
    pub fn backup(&self) -> Result<Backup> {
        self.ensure_down()?;
        let home = TempDir::new()?;
        for (number, server) in self.servers.iter().enumerate() {
            folder::copy(&server.dir.join("data"), &home.path().join(number.to_string()))?;
        }
        Ok(Backup { home })
    }

    /// Puts a backup in the place of the data folders of all nodes, which must be down.
    pub fn restore(&self, backup: &Backup) -> Result<()> {
        self.ensure_down()?;
        for (number, server) in self.servers.iter().enumerate() {
            fs::remove_dir_all(server.dir.join("data"))?;
            folder::copy(&backup.home.path().join(number.to_string()), &server.dir.join("data"))?;
        }
        Ok(())
    }

    fn ensure_down(&self) -> Result<()> {
        ensure!(self.servers.iter().all(|server| server.child.is_none()), "stop all nodes first");
        Ok(())
    }
}

impl fmt::Display for Ensemble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in 0..self.len() {
            let log = self.log(node);
            let lines: Vec<&str> = log.lines().collect();
            writeln!(out, "--- node {node} of {}", self.home.path().display())?;
            writeln!(out, "{}", lines[lines.len().saturating_sub(25)..].join("\n"))?;
        }
        Ok(())
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        // Fails only for a process that has ended already.
        let _ = self.kill_all();
    }
}
