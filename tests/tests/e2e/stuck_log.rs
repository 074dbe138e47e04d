//! A log that is not read: standard error is a full pipe, and the server serves, answers its probes and stops all the
//! same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;
use xuid_tests::{Client, ClientError, FakeClock, LogPipe, Order, Serve, Server, clock, http, op, process};

/// What a request may wait for ids; the server's own for NEXT.
const WAIT: Duration = Duration::from_millis(50);
/// How much later an answer may come on a busy machine. One that waits for the log comes never.
const SLACK: Duration = Duration::from_secs(3);
/// A drain of 5 s, a second for what connections have to say last, and one for the log's last lines.
const STOP: Duration = Duration::from_secs(7);
/// More short connections than the server keeps lines for: each makes two.
const CALLERS: usize = 2_500;

/// How long the log stands still: a minute with `XUID_LONG`.
fn long() -> Duration {
    let long = std::env::var_os("XUID_LONG").is_some();
    Duration::from_secs(if long { 60 } else { 6 })
}

/// Asks all the time, and remembers what took longest.
struct Asker {
    stop: Arc<AtomicBool>,
    asking: JoinHandle<Result<(u64, Duration)>>,
}

impl Asker {
    fn start(mut ask: impl FnMut() -> Result<()> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let asking = thread::spawn(move || {
            let (mut asked, mut longest) = (0, Duration::ZERO);
            while !until.load(Ordering::Relaxed) {
                let begin = clock::now();
                ask()?;
                longest = longest.max(begin.elapsed());
                asked += 1;
            }
            Ok((asked, longest))
        });
        Self { stop, asking }
    }

    /// Ids of this order, answered or refused.
    fn of_ids(server: &Server, order: Order) -> Result<Self> {
        let mut client = server.client()?;
        client.set_read_limit(Duration::from_secs(20))?;
        Ok(Self::start(move || {
            thread::sleep(Duration::from_millis(1));
            let answer = if order == Order::Any {
                client.next(order).map(drop)
            } else {
                client.array(50, WAIT, order).map(drop)
            };
            match answer {
                Ok(()) => Ok(()),
                Err(ClientError::Refused(refusal)) if refusal.is_retryable() => Ok(()),
                Err(error) => Err(error).context("a request without an answer"),
            }
        }))
    }

    /// A page of the admin port.
    fn of_page(server: &Server, path: &'static str, wanted: &'static [u16]) -> Self {
        let admin = server.admin;
        Self::start(move || {
            let (status, text) = http::get(admin, path)?;
            ensure!(wanted.contains(&status), "{path} answers {status}: {text}");
            thread::sleep(Duration::from_millis(20));
            Ok(())
        })
    }

    fn end(self, what: &str) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.asking.join().map_err(|_| anyhow!("{what}: a thread panicked"))?;
        let (asked, longest) = ended.with_context(|| what.to_owned())?;
        println!("stuck log: {what}: {asked} answers, the longest after {longest:?}");
        ensure!(asked > 10, "{what}: {asked} answers");
        ensure!(longest < WAIT + SLACK, "{what}: an answer came after {longest:?}");
        Ok(())
    }
}

/// A server that says much, under a clock of its own, and the pipe that it says it to.
fn start(home: &TempDir, wall: &FakeClock) -> Result<(Server, LogPipe)> {
    let log = LogPipe::new()?;
    let serve = Serve::new(&home.path().join("data"))?.env("XUID_LOG", "debug").log_into(log.end()?);
    Ok((wall.over(serve).start()?, log))
}

/// Many short connections; then lines were dropped, and the metrics say so.
fn fill_its_memory(server: &Server) -> Result<()> {
    for _ in 0..CALLERS {
        Client::connect(server.addr)?;
    }
    let dropped = || -> Result<f64> { Ok(server.metrics()?.sum(&["xuid_log_dropped_lines_total"])) };
    clock::wait_until("lines are dropped, and counted", SLACK, || Ok(dropped()? > 0.0))?;
    println!("stuck log: {} lines dropped", dropped()?);
    Ok(())
}

#[test]
fn a_server_whose_log_is_not_read_answers_in_time_and_stops() -> Result<()> {
    let (home, wall) = (TempDir::new()?, FakeClock::new()?);
    let (mut server, log) = start(&home, &wall)?;
    let mut askers = Vec::new();
    for order in Order::ALL {
        askers.push((format!("{order:?}"), Asker::of_ids(&server, order)?));
    }
    for (path, wanted) in
        [("/livez", &[200][..]), ("/readyz", &[200, 503]), ("/metrics", &[200]), ("/", &[200])]
    {
        askers.push((path.to_owned(), Asker::of_page(&server, path, wanted)));
    }
    println!("stuck log: {} bytes fill the pipe", log.fill()?);
    let begin = clock::now();
    fill_its_memory(&server)?;
    while begin.elapsed() < long() {
        // The producer tells of each step, and of what it does about it.
        for shift in [-800, 0] {
            wall.shift(shift)?;
            clock::idle(Duration::from_millis(500));
        }
    }
    for (what, asker) in askers {
        asker.end(&what)?;
    }
    clock::wait_until("it is ready", SLACK, || Ok(http::get(server.admin, "/readyz")?.0 == 200))?;
    ensure!(log.fill()? < 4_096, "the pipe was read");
    process::terminate(server.child())?;
    let status = process::wait_exit(server.child_mut(), STOP)?;
    ensure!(status.code() == Some(0), "a clean stop ended with {status:?}");
    Ok(())
}

#[test]
fn a_log_that_is_read_again_says_how_many_lines_are_missing_and_ends_with_the_last() -> Result<()> {
    let (home, wall) = (TempDir::new()?, FakeClock::new()?);
    let (mut server, log) = start(&home, &wall)?;
    log.fill()?;
    fill_its_memory(&server)?;
    let reading = log.read_on();
    let (calls, mut last) = (100, server.client()?);
    for _ in 0..calls {
        last.call(op::PING, b"")?;
    }
    process::terminate(server.child())?;
    ensure!(process::wait_exit(server.child_mut(), STOP)?.code() == Some(0));
    let text = reading.join().map_err(|_| anyhow!("the reader panicked"))?;
    let gaps: Vec<&str> = text.lines().filter(|line| line.contains("lines are missing here")).collect();
    ensure!(!gaps.is_empty(), "no gap is told");
    let end = text.lines().last().unwrap_or_default();
    ensure!(end.contains("stopped"), "the last line is {end:?}");
    println!("stuck log: {}", gaps.join("\n"));
    Ok(())
}

#[test]
fn a_second_signal_ends_a_server_whose_log_is_not_read() -> Result<()> {
    let (home, wall) = (TempDir::new()?, FakeClock::new()?);
    let (mut server, log) = start(&home, &wall)?;
    log.fill()?;
    let mut client = server.client()?;
    // Many times what is minted while it drains.
    for _ in 0..400 {
        client.push(
            op::RUNS,
            &[&131_072_u32.to_le_bytes()[..], &60_000_u32.to_le_bytes(), &[1, 0, 0, 0]].concat(),
        );
    }
    client.flush()?;
    client.recv()?;
    process::terminate(server.child())?;
    clock::wait_until("it drains", SLACK, || Ok(http::get(server.admin, "/readyz")?.0 == 503))?;
    ensure!(server.is_alive()?, "it ended by itself, so this shows nothing");
    process::terminate(server.child())?;
    let status = process::wait_exit(server.child_mut(), Duration::from_secs(2))?;
    ensure!(status.code() == Some(1), "a second signal ended it with {status:?}");
    Ok(())
}

#[test]
fn a_server_that_was_stopped_for_long_is_alive_when_it_goes_on() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    ensure!(http::get(server.admin, "/livez")? == (200, "alive\n".to_owned()));
    process::freeze(server.child())?;
    let admin = server.admin;
    let probe = thread::spawn(move || http::get(admin, "/livez"));
    // Longer than a producer may stand still.
    clock::idle(Duration::from_secs(7));
    process::thaw(server.child())?;
    let (status, text) = probe.join().map_err(|_| anyhow!("the probe panicked"))??;
    ensure!(status == 200, "{status}: {text}");
    Ok(())
}
