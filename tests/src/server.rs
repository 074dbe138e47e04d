//! One `xuid serve` process: started on free ports, watched, stopped or killed.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::{NamedTempFile, TempDir};

use crate::command::{Output, bare, binary, clean, crash_points_binary};
use crate::http::{self, Metrics};
use crate::{Client, Ledger, Order, clock, process};

/// No start may take longer than this, with half a million extents to verify and a busy machine.
const START_LIMIT: Duration = Duration::from_secs(20);
/// A clean stop has 5 s to drain; then it has to write and sync.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Ids of one request of [`Server::drain`]; below the default limit of 131,072.
const DRAIN_COUNT: u32 = 100_000;

/// How to start a server.
#[derive(Debug)]
#[must_use]
pub struct Serve {
    command: Command,
    /// Where its log goes, if not into a file.
    log: Option<Stdio>,
    /// A folder that goes with it.
    home: Option<TempDir>,
}

impl Serve {
    /// On this data folder, on any two free ports.
    pub fn new(data_dir: &Path) -> Result<Self> {
        Ok(Self::bare()?.arg("--data-dir").arg(data_dir))
    }

    /// On a new data folder, which goes with the server.
    pub fn fresh() -> Result<Self> {
        let home = TempDir::new()?;
        let serve = Self::new(&home.path().join("data"))?;
        Ok(Self { home: Some(home), ..serve })
    }

    /// On the default data folder, below the current one.
    pub fn bare() -> Result<Self> {
        Ok(Self::with(bare()?))
    }

    /// The crash-point build, which dies where it is told and logs what it issues, on this data folder.
    pub fn with_crash_points(data_dir: &Path) -> Result<Self> {
        let command = clean(crash_points_binary()?);
        Ok(Self::with(command).arg("--data-dir").arg(data_dir))
    }

    /// By these arguments and no others: they, or variables, say that it is to listen on any two free ports.
    pub fn exactly<I, S>(arguments: I) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        Ok(Self::by(binary()?, arguments))
    }

    /// The same by a copy of the binary at another place.
    pub fn by<I, S>(program: &Path, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = clean(program);
        command.args(arguments);
        Self { command, log: None, home: None }
    }

    fn with(mut command: Command) -> Self {
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        Self { command, log: None, home: None }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it by another program, which gets these arguments and then the whole command: `prlimit --nofile=20`.
    pub fn under(self, program: &str, arguments: &[String]) -> Self {
        let inner = self.command;
        let mut command = Command::new(program);
        command.args(arguments).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = inner.get_current_dir() {
            command.current_dir(dir);
        }
        Self { command, ..self }
    }

    /// Sends its log there, and [`Server::log`] stays empty.
    pub fn log_into(mut self, log: Stdio) -> Self {
        self.log = Some(log);
        self
    }

    /// Runs it in this folder.
    pub fn cwd(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Starts it and waits until its banner has told both addresses.
    pub fn start(self) -> Result<Server> {
        let mut server = self.spawn()?;
        while !server.is_announced()? {
            ensure!(server.born.elapsed() < START_LIMIT, "no two addresses within {START_LIMIT:?}\n{server}");
            thread::sleep(Duration::from_micros(500));
        }
        Ok(server)
    }

    /// Starts it as [`Self::start`] does, or returns what it said when it refused as it should: with 1, and no panic.
    pub fn start_or_refuse(self) -> Result<std::result::Result<Server, String>> {
        self.start().map_or_else(
            |error| {
                let said = format!("{error:#}");
                ensure!(!said.contains("panicked"), "a panic: {said}");
                ensure!(said.contains("ended with Some(1)"), "neither served nor refused: {said}");
                Ok(Err(said))
            },
            |server| Ok(Ok(server)),
        )
    }

    /// Starts it and lets it live for `life` from exec on, served or not, then kills it.
    pub fn stillborn(self, life: Duration) -> Result<()> {
        let server = self.spawn()?;
        thread::sleep(life.saturating_sub(server.born.elapsed()));
        server.kill().map(drop)
    }

    /// Starts it and waits for its end, which must come by itself.
    pub fn run_to_exit(self) -> Result<Output> {
        let mut server = self.spawn()?;
        let status = process::wait_exit(&mut server.child, START_LIMIT)
            .with_context(|| format!("it should have refused to serve\n{server}"))?;
        // The reader of standard output ends with the process; its last lines are awaited, not guessed.
        let reader = server.reader.take();
        ensure!(reader.is_none_or(|thread| thread.join().is_ok()), "the banner's reader failed");
        Ok(Output { code: status.code(), stdout: server.banner(), stderr: server.log() })
    }

    /// Starts it and waits for nothing: its addresses are known when [`Server::is_announced`] says so.
    pub fn spawn(mut self) -> Result<Server> {
        let log = NamedTempFile::new()?;
        let stderr = match self.log.take() {
            Some(elsewhere) => elsewhere,
            None => log.reopen()?.into(),
        };
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let born = clock::now();
        let mut child = self.command.spawn().with_context(|| format!("starting {:?}", self.command))?;
        // The command has its own copies of what the child got: a pipe that only the child holds ends with it.
        drop(self.command);
        let banner = Arc::new(Mutex::new(String::new()));
        let reader = child.stdout.take().map(|pipe| collect(pipe, Arc::clone(&banner)));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Server { child, born, addr: nowhere, admin: nowhere, banner, reader, log, _home: self.home })
    }
}

fn collect(pipe: ChildStdout, into: Arc<Mutex<String>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(std::result::Result::ok) {
            let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&line);
            text.push('\n');
        }
    })
}

/// The distinct socket addresses of a text, in order of appearance; port 0 is no address.
fn addresses(text: &str) -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = Vec::new();
    for word in text.split(|char: char| !(char.is_ascii_digit() || char == '.' || char == ':')) {
        let word = word.trim_matches(|char| char == '.' || char == ':');
        if let Ok(addr) = word.parse::<SocketAddr>()
            && addr.port() != 0
            && !found.contains(&addr)
        {
            found.push(addr);
        }
    }
    found
}

/// A running server; killed on drop. A panic in its log fails the test that owns it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    born: Instant,
    /// Where it speaks XUID/1.
    pub addr: SocketAddr,
    /// Where it speaks HTTP.
    pub admin: SocketAddr,
    banner: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
    log: NamedTempFile,
    // Goes when the process is gone, which `drop` sees to.
    _home: Option<TempDir>,
}

impl Server {
    /// Starts a server with the defaults on this data folder.
    pub fn start(data_dir: &Path) -> Result<Self> {
        Serve::new(data_dir)?.start()
    }

    /// Whether its banner has told both addresses; they are known from then on.
    pub fn is_announced(&mut self) -> Result<bool> {
        if let [addr, admin, ..] = addresses(&self.banner())[..] {
            (self.addr, self.admin) = (addr, admin);
            return Ok(true);
        }
        if let Some(status) = self.child.try_wait()? {
            bail!("the server ended with {:?} instead of serving\n{self}", status.code());
        }
        Ok(false)
    }

    /// When it was started.
    pub fn born(&self) -> Instant {
        self.born
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Its process, to wait for.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// What it printed to standard output so far.
    pub fn banner(&self) -> String {
        self.banner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where clients of Redis connect, if that was asked for.
    pub fn resp(&self) -> Result<SocketAddr> {
        self.place("  clients of Redis (RESP) on ")
    }

    /// Where clients of HTTP connect, if that was asked for.
    pub fn http(&self) -> Result<SocketAddr> {
        self.place("  clients of HTTP on ")
    }

    /// The address that a line of the banner has behind these words. It follows the first two addresses after a moment.
    fn place(&self, words: &str) -> Result<SocketAddr> {
        let mut banner = self.banner();
        while !banner.contains("\n  try:\n") && self.born.elapsed() < START_LIMIT {
            thread::sleep(Duration::from_micros(500));
            banner = self.banner();
        }
        let line = banner.lines().find_map(|line| line.strip_prefix(words));
        let place = line.with_context(|| format!("no line of the banner begins with {words:?}\n{self}"))?;
        Ok(place.trim_start_matches("http://").trim_start_matches("https://").parse()?)
    }

    /// What it logged so far, without colours.
    pub fn log(&self) -> String {
        let text = std::fs::read(self.log.path()).unwrap_or_default();
        without_colours(&String::from_utf8_lossy(&text))
    }

    /// A connection that said HELLO.
    pub fn client(&self) -> Result<Client> {
        Client::connect(self.addr).with_context(|| format!("connecting\n{self}"))
    }

    /// The metrics page.
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::scrape(self.admin).with_context(|| format!("scraping\n{self}"))
    }

    /// Ids that this process took back from its spill so far.
    pub fn replayed(&self) -> Result<f64> {
        Ok(self.metrics()?.sum(&["replayed", "ids"]))
    }

    /// Takes `ids` ids or a few more as runs of `any` order at full speed, records them, and says how long it took.
    pub fn drain(&self, ids: u64, ledger: &mut Ledger) -> Result<Duration> {
        let mut client = self.client()?;
        let (begin, mut taken) = (clock::now(), 0);
        while taken < ids {
            let runs = client.runs(DRAIN_COUNT, Duration::from_secs(5), Order::Any);
            for run in runs.with_context(|| format!("after {taken} ids\n{self}"))? {
                taken += u64::from(run.count);
                ledger.add(run);
            }
        }
        Ok(begin.elapsed())
    }

    /// Waits until `/readyz` answers 200; returns its text.
    pub fn wait_ready(&self, limit: Duration) -> Result<String> {
        self.wait_answered("/readyz", limit)
    }

    /// The same for fresh ids: `/readyz` alone is 200 while ids of any age are served.
    pub fn wait_ready_fresh(&self, limit: Duration) -> Result<String> {
        self.wait_answered("/readyz?order=fresh", limit)
    }

    fn wait_answered(&self, path: &str, limit: Duration) -> Result<String> {
        let mut last = (0, String::new());
        let waited = clock::wait_until(path, limit, || {
            last = http::get(self.admin, path)?;
            Ok(last.0 == 200)
        });
        waited.with_context(|| format!("{path} says {last:?}\n{self}"))?;
        Ok(last.1)
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// SIGTERM, and then its end, however it comes.
    pub fn wind_down(&mut self) -> Result<ExitStatus> {
        if self.ended()?.is_none() {
            process::terminate(&self.child)?;
        }
        process::wait_exit(&mut self.child, STOP_LIMIT).with_context(|| format!("{self}"))
    }

    /// SIGTERM; the exit code must be 0. Returns the log.
    pub fn stop(mut self) -> Result<String> {
        process::terminate(&self.child)?;
        let status = process::wait_exit(&mut self.child, STOP_LIMIT).with_context(|| format!("{self}"))?;
        ensure!(status.code() == Some(0), "a clean stop ended with {status:?}\n{self}");
        Ok(self.log())
    }

    /// SIGTERM or SIGKILL. Returns the log.
    pub fn end(self, cleanly: bool) -> Result<String> {
        if cleanly { self.stop() } else { self.kill() }
    }

    /// SIGKILL. Returns the log.
    pub fn kill(mut self) -> Result<String> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.log())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "--- banner\n{}--- log\n{}---", self.banner(), tail(&self.log(), 60))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        let panicked = log.contains("panicked");
        assert!(!panicked || thread::panicking(), "the server panicked:\n{}", tail(&log, 60));
    }
}

/// The last `count` lines.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().flat_map(|line| [*line, "\n"]).collect()
}

/// Drops escape sequences of the kind `ESC [ ... m`.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(char);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_out_of_any_banner() {
        let banner = "xuid listening on 127.0.0.1:4001, admin on http://127.0.0.1:4002/.\n  xuid next --server 127.0.0.1:4001 (not 127.0.0.1:0)";
        let found: Vec<u16> = addresses(banner).iter().map(SocketAddr::port).collect();
        assert_eq!(found, [4001, 4002]);
        assert!(addresses("version 0.1.0 at 12:30:11").is_empty());
    }

    #[test]
    fn colours_are_dropped_and_tails_are_short() {
        assert_eq!(without_colours("\u{1b}[2mtime\u{1b}[0m WARN"), "time WARN");
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
    }
}
