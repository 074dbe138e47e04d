//! From the first signal to the exit.
//!
//! In this order: unready, the lame duck's time, no new connections and GOAWAY, what is in flight, the engine's clean
//! stop, exit 0. The registry gets the rest of the window back only in the engine's own stop, after every caller was
//! refused.
//!
//! # Invariants
//! - I1 by [`StopTimes::whole`] after the first signal the process has called exit, whatever its threads wait for. The
//!   thread that serves gives an engine up that does not stop, [`CLOSING`] before that, so that sockets are closed and
//!   the log is written. If that thread stands still as well, the thread of the signals ends the process;
//! - I2 exit 0 means that the engine has stopped by itself: where there is a spill, what was unused is in it, and where
//!   the registry answers, it has the window back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{info, warn};
use xuid_engine::Engine;
use xuid_engine::stats::Stats;

use crate::net::runtime::runtime;
use crate::state::beside::beside;
use crate::state::server::Server;
use crate::text::logs;

/// What the engine's stop has at least: to write and sync some kilobytes, and to wait for a grant that is under way.
const LAST_SECOND: Duration = Duration::from_secs(1);

/// How long connections may take to write what the engine's stop answered them.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The end of the whole time, in which the serving thread asks for a figure, closes every socket and says its last line.
const CLOSING: Duration = Duration::from_millis(300);

/// How long an engine that does not stop may take to say how much it holds.
const QUESTION: Duration = Duration::from_millis(50);

/// How long the engine's stop waits for that of the sequences, whose database may not answer.
const HEAD_START: Duration = Duration::from_millis(200);

/// What a thread of the stop is called.
const STOP: &str = "xuid-stop";

/// The end of [`CLOSING`], for the thread of the signals: then the serving thread stands still, too.
const LAST_LINE: Duration = Duration::from_millis(50);

/// How long a stop may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopTimes {
    /// How long the server serves on as before, unready.
    pub(crate) lame_duck: Duration,
    /// How long requests in flight may take after that.
    pub(crate) drain: Duration,
}

impl StopTimes {
    /// From the first signal to the exit.
    pub(crate) fn whole(self) -> Duration {
        self.lame_duck + self.drain + LAST_SECOND
    }
}

/// The first signal.
#[derive(Debug)]
pub(crate) struct Stop {
    name: &'static str,
    begun: Instant,
    /// The engine has stopped: nothing is lost from here on.
    clean: Arc<AtomicBool>,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// From now on a file that may not grow any further (`ulimit -f`) is an error that is told, as a full disk is. By
/// default the kernel's signal ends the process without a word.
pub(crate) fn outlive_long_files() -> Result<()> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // No task waits for it: what counts is that the process listens, from now on and for good.
    signal(kind).map(drop).context("failed to listen to signals")
}

/// SIGTERM and SIGINT: the first one asks for an end, the second one is one, and so is the end of the time.
#[derive(Debug)]
pub(crate) struct Signals {
    first: oneshot::Receiver<Stop>,
    has_begun: Arc<AtomicBool>,
}

impl Signals {
    /// From now on the first signal is told, and does not end the process by itself.
    ///
    /// They have a thread of their own. Whatever the others wait for, the second signal ends the process at once: it
    /// asks for nothing, logs nothing and waits for nothing. Nothing can repeat by it: it is a crash. The same thread
    /// keeps the time of a server's stop; what is no server may take as long as it likes.
    ///
    /// Until [`begun`](Self::begun) the first one ends the process as well. The kernel would do that by itself, but not for the
    /// first process of a container.
    pub(crate) fn new(times: Option<StopTimes>) -> Result<Self> {
        let runtime = runtime(1)?;
        let listen = |kind| {
            let _in = runtime.enter();
            signal(kind).context("failed to listen to signals")
        };
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let (tell, first) = oneshot::channel();
        let has_begun = Arc::new(AtomicBool::new(false));
        let is_to_stop = Arc::clone(&has_begun);
        let listening = async move {
            let name = next(&mut terminate, &mut interrupt).await;
            // Acquire: pairs with the Release in `begun`.
            if !is_to_stop.load(Ordering::Acquire) {
                std::process::exit(1);
            }
            let (begun, clean) = (Instant::now(), Arc::new(AtomicBool::new(false)));
            // The receiver is gone only if everything ends by itself.
            let _ = tell.send(Stop { name, begun, clean: Arc::clone(&clean) });
            let code = tokio::select! {
                _ = next(&mut terminate, &mut interrupt) => 1,
                code = time_is_over(times, begun, &clean) => code,
            };
            std::process::exit(code)
        };
        let thread = std::thread::Builder::new().name("xuid-signals".to_owned());
        thread.spawn(move || runtime.block_on(listening)).context("failed to start a thread")?;
        Ok(Self { first, has_begun })
    }

    /// From now on there is something to stop: the first signal asks for that.
    pub(crate) fn begun(self) -> Self {
        // Release: pairs with the Acquire in `new`.
        self.has_begun.store(true, Ordering::Release);
        self
    }

    /// The first one. It comes once.
    pub(crate) async fn first(&mut self) -> Stop {
        match (&mut self.first).await {
            Ok(stop) => stop,
            // Its thread ends with the process only.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Waits for the end of the time, if there is one, and returns the exit code.
async fn time_is_over(times: Option<StopTimes>, begun: Instant, clean: &AtomicBool) -> i32 {
    let Some(times) = times else { return std::future::pending().await };
    sleep_until(begun + times.whole() - LAST_LINE).await;
    overdue(times, clean)
}

/// The time is over and the process still runs: its exit code.
fn overdue(times: StopTimes, clean: &AtomicBool) -> i32 {
    // Acquire: pairs with the Release in `stop`.
    if clean.load(Ordering::Acquire) {
        // What is left to do has nothing to save.
        return 0;
    }
    logs::last_line_within(&format!("xuid: {}", unfinished(times, None)), LAST_LINE);
    1
}

/// The last line of a stop that did not finish, with the ids in memory if the engine still said how many they are.
fn unfinished(times: StopTimes, held: Option<u64>) -> String {
    let whole = times.whole();
    let held = held.map_or("what lay in memory".to_owned(), |held| format!("the {held} ids in memory"));
    format!(
        "the engine did not stop within {whole:?} of the signal (lame_duck, drain and a second): a disk or the registry \
         does not answer; {held} and the rest of the window may be lost, and no id repeats"
    )
}

/// The same where the sequences did not stop, and the engine did.
fn unfinished_names(times: StopTimes) -> String {
    format!(
        "the named sequences did not stop within {:?} of the signal (lame_duck, drain and a second): their store does not \
         answer; the numbers held of them are lost, and none repeats. All else stopped cleanly",
        times.whole()
    )
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

/// Serves on for the lame duck's time, lets connections finish, then stops the engine. `permits` has `connections` of
/// them when none is open; `accepted` ends when no more come, which is soon after the drain has begun.
///
/// # Errors
/// The engine did not stop in time.
pub(crate) async fn stop(
    server: &Arc<Server>,
    permits: &Semaphore,
    connections: usize,
    times: StopTimes,
    stop: &Stop,
    accepted: impl Future<Output = ()>,
) -> Result<()> {
    let StopTimes { lame_duck, drain } = times;
    server.begin_stopping();
    if !lame_duck.is_zero() {
        info!("unready, and serving for {lame_duck:?} more");
        sleep(lame_duck).await;
    }
    server.begin_draining();
    let all = u32::try_from(connections).unwrap_or(u32::MAX);
    let gone = || permits.acquire_many(all);
    let all_gone = async {
        accepted.await;
        gone().await
    };
    if timeout(drain, all_gone).await.is_err() {
        warn!(
            open = server.traffic.open(),
            "some connections did not finish within {drain:?}: their requests are refused"
        );
    }
    let by = stop.begun + times.whole() - CLOSING;
    // Those of the sequences first: what is held of them is saved while the registry is still ours. But a database that does not
    // answer must not cost the ids in memory.
    let sequences = server.sequences.as_ref().map(|sequences| sequences.all.clone());
    let mut of_names = sequences.map(|sequences| stop_beside(move || _ = sequences.shutdown()));
    let early = match &mut of_names {
        Some(told) => timeout_at(by.min(Instant::now() + HEAD_START), told).await.ok(),
        None => None,
    };
    let engine = server.engine.clone();
    if !is_done(stop_beside(move || _ = engine.shutdown()), by).await? {
        bail!(unfinished(times, held(&server.engine).await));
    }
    match (early, of_names) {
        (Some(told), _) => told.context("the stop of the sequences failed")?,
        (None, Some(told)) => ensure!(is_done(told, by).await?, unfinished_names(times)),
        (None, None) => {}
    }
    // Release: pairs with the Acquire in `overdue`.
    stop.clean.store(true, Ordering::Release);
    // Those that still waited were refused by that, and are told so.
    let _ = timeout_at(by.min(Instant::now() + LAST_WORDS), gone()).await;
    Ok(())
}

/// A stop on a thread of its own, beside the connections that it answers.
fn stop_beside(work: impl Fn() + Clone + Send + 'static) -> oneshot::Receiver<()> {
    beside(STOP, work.clone()).unwrap_or_else(|error| {
        // Out of memory or threads: what is unused must not be lost for that.
        warn!(%error, "no thread for the engine's stop: connections wait for it");
        work();
        let (done, told) = oneshot::channel();
        let _ = done.send(());
        told
    })
}

async fn is_done(told: oneshot::Receiver<()>, by: Instant) -> Result<bool> {
    match timeout_at(by, told).await {
        Ok(told) => told.map(|()| true).context("the engine's stop failed"),
        Err(_) => Ok(false),
    }
}

/// What an engine that does not stop still holds, if it says so soon.
async fn held(engine: &Engine) -> Option<u64> {
    let engine = engine.clone();
    // It takes locks that may never be given back.
    let asked = beside(STOP, move || engine.stats().held.total()).ok()?;
    timeout(QUESTION, asked).await.ok()?.ok()
}

/// The last line, after every thread that served has ended: each counted what it had in hand.
pub(crate) fn say(stats: &Stats) {
    info!(
        issued = stats.issued,
        minted = stats.minted,
        replayed = stats.replayed,
        spilled = stats.spilled,
        wasted = stats.wasted.total(),
        held = stats.held.total(),
        left_for_the_next_start = stats.spill.ids,
        "stopped"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::config::Tokens;
    use crate::fronts::fixture::{Home, PATIENCE};

    const TIMES: StopTimes = StopTimes { lame_duck: Duration::from_secs(2), drain: Duration::from_secs(5) };

    #[tokio::test]
    async fn a_stop_that_hangs_is_given_up_in_time_and_one_that_ends_is_not() {
        let soon = || Instant::now() + Duration::from_millis(50);
        let (never, hangs) = mpsc::channel::<()>();
        let stopping = beside(STOP, move || _ = hangs.recv()).unwrap();
        assert!(!is_done(stopping, soon()).await.unwrap(), "it hangs");
        drop(never);
        let late = Instant::now() + Duration::from_secs(20);
        assert!(is_done(beside(STOP, || ()).unwrap(), late).await.unwrap());
        let failed = is_done(beside(STOP, || panic!("it fails")).unwrap(), late).await;
        assert!(failed.is_err(), "a stop that failed is no clean one");
    }

    /// Else the exit code says that ids may be lost.
    #[tokio::test]
    async fn a_stop_is_clean_once_the_engine_has_stopped_though_a_connection_stays() {
        let home = Home::new(Tokens::default());
        // With time for a busy machine.
        let begun = Instant::now() + PATIENCE;
        let by = Stop { name: "SIGTERM", begun, clean: Arc::default() };
        let times = StopTimes { lame_duck: Duration::ZERO, drain: Duration::ZERO };
        stop(&home.server, &Semaphore::new(0), 1, times, &by, std::future::ready(())).await.unwrap();
        assert!(by.clean.load(Ordering::Acquire));
    }

    #[test]
    fn a_process_that_outlives_its_time_ends_with_1_unless_the_engine_has_stopped() {
        assert_eq!(overdue(TIMES, &AtomicBool::new(true)), 0);
        assert_eq!(overdue(TIMES, &AtomicBool::new(false)), 1);
    }

    #[test]
    fn the_last_line_says_how_long_it_took_and_what_may_be_lost() {
        assert!(unfinished(TIMES, Some(7)).contains("within 8s of the signal"));
        assert!(
            unfinished(TIMES, Some(7)).contains("the 7 ids in memory and the rest of the window may be lost")
        );
        assert!(
            unfinished(TIMES, None).contains("what lay in memory and the rest of the window may be lost")
        );
    }
}
