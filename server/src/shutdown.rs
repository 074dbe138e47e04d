//! From the first signal to the exit.
//!
//! In this order: unready and GOAWAY, no new connections, what is in flight, the engine's clean stop, exit 0. The registry
//! gets the rest of the window back only in the engine's own stop, after every caller was refused.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};
use xuid_engine::Engine;
use xuid_engine::stats::Stats;

use crate::node::Node;

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

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on they do not end the process by themselves.
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen to signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// From now on a signal ends the process at once. Nothing can repeat by it: it is a crash.
    pub(crate) fn exit_on_the_next(mut self) {
        tokio::spawn(async move {
            let name = self.next().await;
            warn!("{name} again: ending at once; the rest of the window is wasted");
            std::process::exit(1);
        });
    }
}

/// Lets connections finish, then stops the engine. `permits` has `connections` of them when none is open.
pub(crate) async fn stop(node: &Arc<Node>, permits: &Semaphore, connections: usize) -> Result<()> {
    node.begin_draining();
    let all = u32::try_from(connections).unwrap_or(u32::MAX);
    let gone = || permits.acquire_many(all);
    if timeout(DRAIN, gone()).await.is_err() {
        warn!(
            open = node.traffic.open(),
            "some connections did not finish within {DRAIN:?}: their requests are refused"
        );
    }
    stop_engine(&node.engine).await?;
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
