//! From the first signal to the exit.
//!
//! In this order: unready and GOAWAY, no new connections, what is in flight, the engine's clean stop, exit 0. The
//! registry gets the rest of the window back only in the engine's own stop, after every caller was refused.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};
use xuid_engine::Engine;
use xuid_engine::stats::Stats;

use crate::net::runtime::runtime;
use crate::state::server::Server;

/// How long requests in flight may take.
const DRAIN: Duration = Duration::from_secs(5);

/// How long connections may take to write what the engine's stop answered them.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// From now on a file that may not grow any further (`ulimit -f`) is an error that is told, as a full disk is. By
/// default the kernel's signal ends the process without a word.
pub(crate) fn outlive_long_files() -> Result<()> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // Nobody waits for it: what counts is that somebody listens, from now on and for good.
    signal(kind).map(drop).context("failed to listen to signals")
}

/// SIGTERM and SIGINT: the first one asks for an end, the second one is one.
#[derive(Debug)]
pub(crate) struct Signals(oneshot::Receiver<&'static str>);

impl Signals {
    /// From now on the first signal is told, and does not end the process by itself.
    ///
    /// They have a thread of their own. Whatever the others wait for, the second signal ends the process at once: it
    /// asks for nothing, logs nothing and waits for nothing. Nothing can repeat by it: it is a crash.
    pub(crate) fn new() -> Result<Self> {
        let runtime = runtime(1)?;
        let listen = |kind| {
            let _in = runtime.enter();
            signal(kind).context("failed to listen to signals")
        };
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let (tell, first) = oneshot::channel();
        let listening = async move {
            // The receiver is gone only if everything ends by itself.
            let _ = tell.send(next(&mut terminate, &mut interrupt).await);
            next(&mut terminate, &mut interrupt).await;
            std::process::exit(1)
        };
        let thread = std::thread::Builder::new().name("xuid-signals".to_owned());
        thread.spawn(move || runtime.block_on(listening)).context("failed to start a thread")?;
        Ok(Self(first))
    }

    /// The name of the first one. It comes once.
    pub(crate) async fn first(&mut self) -> &'static str {
        match (&mut self.0).await {
            Ok(name) => name,
            // Its thread ends with the process only.
            Err(_) => std::future::pending().await,
        }
    }
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

/// Lets connections finish, then stops the engine. `permits` has `connections` of them when none is open.
pub(crate) async fn stop(server: &Arc<Server>, permits: &Semaphore, connections: usize) -> Result<()> {
    server.begin_draining();
    let all = u32::try_from(connections).unwrap_or(u32::MAX);
    let gone = || permits.acquire_many(all);
    if timeout(DRAIN, gone()).await.is_err() {
        warn!(
            open = server.traffic.open(),
            "some connections did not finish within {DRAIN:?}: their requests are refused"
        );
    }
    stop_engine(&server.engine).await?;
    // Those that still waited were refused by that, and are told so.
    let _ = timeout(LAST_WORDS, gone()).await;
    Ok(())
}

/// The engine's clean stop, beside the connections that it answers.
async fn stop_engine(engine: &Engine) -> Result<()> {
    let (done, stopped) = oneshot::channel();
    let beside = engine.clone();
    let thread = std::thread::Builder::new().name("xuid-stop".to_owned());
    let begun = thread.spawn(move || {
        // The receiver waits for it; it is gone only if everything ends at once.
        beside.shutdown();
        let _ = done.send(());
    });
    match begun {
        Ok(_) => stopped.await.context("the engine's stop failed"),
        // Out of memory or threads: what is unused must not be lost for that.
        Err(error) => {
            warn!(%error, "no thread for the engine's stop: connections wait for it");
            engine.shutdown();
            Ok(())
        }
    }
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
