//! The servers that are measured, each a process of its own on the core that the driver is not on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use super::child::{Role, VARIABLE};
use crate::measure::now;

/// No server takes longer to start.
const START: Duration = Duration::from_secs(20);

/// Land a burst spends: three hours of one worker are 44 G ids.
const LAND: [&str; 6] = ["--floor", "-3h", "--backfill", "3h", "--max-age", "3h"];

/// A running server, killed when dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it serves HTTP, if it does.
    pub(super) admin: Option<SocketAddr>,
    child: Child,
    folder: Option<TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The cores this process may use: the driver's, and the servers'. One and the same where there is only one.
fn cores() -> Result<(usize, usize)> {
    // Read before anything is pinned.
    static CORES: std::sync::OnceLock<Option<(usize, usize)>> = std::sync::OnceLock::new();
    let cores = CORES.get_or_init(|| {
        let allowed = sched_getaffinity(None).ok()?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let first = allowed.next()?;
        Some((first, allowed.next().unwrap_or(first)))
    });
    cores.context("the kernel does not say which cores there are")
}

fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).context("failed to pin a thread")
}

/// Pins the calling thread to the driver's core.
fn pin_client() -> Result<()> {
    pin(cores()?.0)
}

/// Starts a command on the servers' core; this thread is pinned to the driver's from then on.
fn spawn(command: &mut Command) -> Result<Child> {
    let (_, servers) = cores()?;
    // A process begins with the affinity of the thread that makes it.
    pin(servers)?;
    let child = command.spawn();
    pin_client()?;
    child.with_context(|| format!("failed to start {}", command.get_program().display()))
}

/// What a command of the driver prints, on the driver's core.
pub(super) fn output(command: &mut Command) -> Result<String> {
    pin_client()?;
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("failed to start {name}"))?;
    ensure!(output.status.success(), "{name} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The binary: `XUID_BIN`, else the release build of this workspace with jemalloc, brought up to date.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("XUID_BIN") {
        return Ok(path.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace around this crate")?;
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "-p", "xuid-server", "--features", "jemalloc"])
        .current_dir(root)
        .status()?;
    ensure!(built.success(), "cargo build failed");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok(target.join("release").join("xuid"))
}

/// The addresses that a server tells on its standard output: where it listens, and where it serves HTTP.
fn announced(child: &mut Child) -> Result<(SocketAddr, Option<SocketAddr>)> {
    let stdout = child.stdout.as_mut().context("its output is not piped")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let words = line.split(|char: char| char.is_whitespace() || char == ',' || char == '/');
    let mut found = words.filter_map(|word| word.parse().ok());
    let address = found.next().with_context(|| format!("the server told no address: {line:?}"))?;
    Ok((address, found.next()))
}

/// An address for a port that a server does not announce. It is taken and given back: a server that another process forestalls
/// fails to start, and says so.
pub(super) fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A command of the binary, without a setting of ours.
pub(super) fn xuid() -> Result<Command> {
    static BINARY: std::sync::OnceLock<std::result::Result<PathBuf, String>> = std::sync::OnceLock::new();
    let binary = BINARY.get_or_init(|| binary().map_err(|error| format!("{error:#}")));
    let binary = binary.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("XUID_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// `xuid serve` on a folder, on ports of its own.
fn serve(folder: &Path) -> Result<Command> {
    let mut command = xuid()?;
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--data-dir"]).arg(folder);
    // For trying settings: words for `xuid serve`.
    if let Ok(more) = std::env::var("XUID_BENCH_SERVE") {
        command.args(more.split_whitespace());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

impl Server {
    /// `xuid serve` on declared land in a temporary folder.
    ///
    /// # Errors
    /// It can't be built or started.
    pub fn xuid() -> Result<Self> {
        Self::on_land(&[])
    }

    /// The same with more words for `xuid serve`.
    pub(super) fn on_land(words: &[&str]) -> Result<Self> {
        let folder = TempDir::new()?;
        let mut command = serve(&folder.path().join("data"))?;
        command.args(["--admin", "off"]).args(LAND).args(words);
        let child = spawn(&mut command)?;
        Self::of(child, folder)
    }

    /// `xuid serve` as it is by default, with an admin port and a new folder, on any core: what it can issue is what it
    /// mints. This thread stays where it is, too.
    pub(super) fn by_default(words: &[&str], variables: &[(&str, &str)]) -> Result<Self> {
        Self::in_folder(TempDir::new()?, words, variables)
    }

    /// The same in a folder, whose `data` may be one of a server already.
    pub(super) fn in_folder(folder: TempDir, words: &[&str], variables: &[(&str, &str)]) -> Result<Self> {
        let mut command = serve(&folder.path().join("data"))?;
        command.args(["--admin", "127.0.0.1:0"]).args(words).envs(variables.iter().copied());
        let child = command.spawn().context("failed to start the server")?;
        Self::of(child, folder)
    }

    /// Kills it; what it leaves.
    pub(super) fn kill(mut self) -> Result<TempDir> {
        self.folder.take().context("it has no folder")
    }

    fn of(child: Child, folder: TempDir) -> Result<Self> {
        let address = ([127, 0, 0, 1], 0).into();
        let mut server = Self { address, admin: None, child, folder: Some(folder) };
        (server.address, server.admin) = announced(&mut server.child)?;
        Ok(server)
    }

    /// Bytes of memory that no file backs, as the kernel counts them.
    pub(super) fn anonymous_memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("no RssAnon in its status")?;
        Ok(kib.parse::<u64>()? << 10)
    }

    /// What it used of the processors so far, in user and kernel mode.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, behind_name) = stat.rsplit_once(')').context("no name in its stat")?;
        let mut words = behind_name.split_whitespace().skip(11).map(str::parse::<u64>);
        let ticks = words.next().context("no user time")?? + words.next().context("no kernel time")??;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// `redis-server` that keeps nothing, or (`durable`) one that syncs its log before each answer. None if it is not
    /// installed.
    ///
    /// # Errors
    /// It is there and does not start.
    pub fn redis(durable: bool) -> Result<Option<Self>> {
        let folder = TempDir::new()?;
        let address = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port"]).arg(address.port().to_string());
        if durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        } else {
            command.args(["--appendonly", "no"]);
        }
        command.arg("--dir").arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if found.is_err() {
            return Ok(None);
        }
        let child = spawn(&mut command)?;
        let mut server = Self { address, admin: None, child, folder: Some(folder) };
        let begun = now();
        while !answers_ping(address) {
            if let Some(status) = server.child.try_wait()? {
                bail!("redis-server ended with {status} instead of serving");
            }
            ensure!(begun.elapsed() < START, "redis-server does not answer within {START:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(server))
    }

    /// This program again, in another role.
    pub(super) fn own(role: Role) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        // Its standard input ends when we do, and it with that.
        command.env(VARIABLE, role.name()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let (address, child) = (([127, 0, 0, 1], 0).into(), spawn(&mut command)?);
        let mut server = Self { address, admin: None, child, folder: None };
        (server.address, _) = announced(&mut server.child)
            .context("does this program begin with xuid_benches::load::serve_if_asked()?")?;
        Ok(server)
    }
}

fn answers_ping(address: SocketAddr) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"PING\r\n")?;
        let mut pong = [0; 7];
        stream.read_exact(&mut pong)?;
        Ok(pong == *b"+PONG\r\n")
    };
    ping().unwrap_or(false)
}
