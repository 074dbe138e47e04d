//! What every connection and every page of one server shares.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::warn;
use xuid_engine::registry::Genesis;
use xuid_engine::stats::Status;
use xuid_engine::{Engine, Id};

use crate::state::access::AccessRules;
use crate::state::cursors::Cursors;
use crate::state::sequences::ServedSequences;
use crate::state::traffic::Traffic;
use crate::state::unread::Unread;
use crate::text;
pub(crate) use crate::text::version::VERSION;

/// A producer that has not turned for so long will not turn by itself: what it waits for never takes that long.
const STALLED: Duration = Duration::from_secs(5);

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) genesis: Genesis,
    pub(crate) limits: Limits,
    pub(crate) access: AccessRules,
    pub(crate) places: Places,
    pub(crate) traffic: Traffic,
    /// `None`: it has none.
    pub(crate) sequences: Option<ServedSequences>,
    /// Walks over their names.
    pub(crate) cursors: Cursors,
    /// Where it looks for what is known of ids.
    origins: Option<Origins>,
    /// Held by the one request that looks there.
    pub(crate) origins_turn: Arc<Semaphore>,
    /// Replies that clients have not read.
    pub(crate) unread: Arc<Unread>,
    pub(crate) begun: Arc<Unread>,
    /// Requests that wait for ids, of which nobody is closed.
    pub(crate) waits: Arc<Unread>,
    /// Names that are gathered for KEYS.
    pub(crate) gathered: Arc<Unread>,
    /// Held by the one request whose figures are made.
    pub(crate) stats_turn: Arc<Semaphore>,
    started: Instant,
    stopping: AtomicBool,
    draining: watch::Sender<bool>,
}

/// Says what is known of where an id of the engine came from, for the server of that name. It blocks.
pub(crate) struct Origins(pub(crate) Box<Judge>);

type Judge = dyn Fn(&Engine, &str, Id) -> Value + Send + Sync;

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origins").finish_non_exhaustive()
    }
}

/// What a connection is allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long NEXT waits; ARRAY and RUNS say it themselves.
    pub(crate) wait: Duration,
    /// Bytes of replies that clients have not read, of all connections; and how many of those there may be.
    pub(crate) unread: usize,
    pub(crate) connections: usize,
    /// What HELLO's reply says.
    pub(crate) protocol: xuid_protocol::Limits,
}

impl Limits {
    /// A connection that asks for nothing lives this long.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(u64::from(self.protocol.idle_ms))
    }
}

/// Where the server can be reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// XUID/1.
    pub(crate) listen: SocketAddr,
    /// Pages for probes and people.
    pub(crate) admin: Option<SocketAddr>,
    /// The protocol of Redis.
    pub(crate) resp: Option<SocketAddr>,
    /// HTTP.
    pub(crate) http: Option<SocketAddr>,
}

impl Places {
    /// All that the server listens at, each with its key.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let all =
            [("listen", Some(self.listen)), ("admin", self.admin), ("resp", self.resp), ("http", self.http)];
        all.into_iter().filter_map(|(key, place)| Some((key, place?)))
    }
}

impl Server {
    /// A server on this engine.
    pub(crate) fn new(engine: Engine, limits: Limits, access: AccessRules, places: Places) -> Self {
        Self {
            genesis: engine.genesis(),
            engine,
            unread: Arc::new(Unread::up_to(limits.unread, limits.connections)),
            begun: Arc::new(Unread::of_begun(limits.unread, limits.connections)),
            waits: Arc::new(Unread::of_waiting(limits.unread, limits.connections)),
            gathered: Arc::new(Unread::of_gathered(limits.unread, limits.connections)),
            limits,
            access,
            places,
            traffic: Traffic::default(),
            sequences: None,
            cursors: Cursors::default(),
            origins: None,
            origins_turn: Arc::new(Semaphore::new(1)),
            stats_turn: Arc::new(Semaphore::new(1)),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            draining: watch::Sender::new(false),
        }
    }

    /// The same with named sequences.
    pub(crate) fn with_sequences(mut self, sequences: Option<ServedSequences>) -> Self {
        self.sequences = sequences;
        self
    }

    /// The same with a place to look for what is known of ids.
    pub(crate) fn with_origins(mut self, origins: Origins) -> Self {
        self.origins = Some(origins);
        self
    }

    /// What is known of where an id came from; `None` where nothing was given that could say it. Blocks.
    pub(crate) fn provenance(&self, id: Id) -> Option<Value> {
        let Origins(judge) = self.origins.as_ref()?;
        Some(judge(&self.engine, &format!("server {}", self.places.listen), id))
    }

    /// Becomes true, once, when the server begins to drain.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// From now on it is unready. It serves as before until it drains.
    pub(crate) fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// From now on no connection is accepted, and every one is told to leave.
    pub(crate) fn begin_draining(&self) {
        self.draining.send_replace(true);
    }

    /// Counts a token that is none of ours, and logs whose it was: the first, and then ever fewer, so that somebody who
    /// guesses does not fill the disk.
    pub(crate) fn reject(&self, peer: impl FnOnce() -> Option<SocketAddr>) {
        let rejected = self.traffic.token_rejected();
        if rejected.is_power_of_two()
            && let Some(peer) = peer()
        {
            warn!(%peer, rejected, "a token is missing or wrong: refused");
        }
    }

    /// The same of a handshake that failed for what one side said.
    pub(crate) fn handshake_failed(&self, peer: Option<SocketAddr>, error: &io::Error) {
        if error.kind() != io::ErrorKind::InvalidData {
            // It is gone: a probe that only connects, mostly.
            return;
        }
        let failed = self.traffic.handshake_failed();
        if failed.is_power_of_two()
            && let Some(peer) = peer
        {
            warn!(%peer, failed, %error, "no TLS with a client");
        }
    }

    /// How long it has been serving.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Why the engine is as good as dead, if it is. It takes no lock, so that it can be asked then, too.
    pub(crate) fn stalled(&self) -> Option<String> {
        stall(self.engine.producer_silent())
    }

    /// Which orders it serves, and a sentence about each thing that is not as it should be.
    pub(crate) fn readiness(&self) -> Status {
        let mut status = self.engine.status();
        if self.is_stopping() {
            (status.ready, status.fresh, status.ordered) = (false, false, false);
            status.notes.insert(0, "the server is shutting down".to_owned());
        }
        // Callers mint by themselves as long as windows last: that ends by itself, and is noted before it does.
        status.notes.extend(self.stalled());
        status.notes.extend(self.sequences.iter().flat_map(ServedSequences::notes));
        status
    }

    /// What INFO answers. Ids are strings; nothing else here is one.
    pub(crate) fn info(&self) -> Value {
        let Status { ready, fresh, ordered, notes, .. } = self.readiness();
        let layout = self.genesis.layout;
        json!({
            "version": VERSION,
            "cluster": self.genesis.cluster.to_string(),
            "layout": text::json::layout(&layout),
            "floor_ms": layout.tick_to_ms(self.genesis.floor),
            "registry_workers": self.genesis.workers,
            "registry_first_worker": self.genesis.first_worker,
            "workers": self.engine.workers(),
            "registry": self.engine.registry(),
            "sequences": self.sequences.as_ref().map(ServedSequences::info),
            "max_age_ms": self.engine.max_age().as_millis() as u64,
            "uptime_ms": self.uptime().as_millis() as u64,
            "ready": ready,
            "serves": { "any": ready, "fresh": fresh, "ordered": ordered },
            "notes": notes,
        })
    }
}

/// The reason that a probe is told, if `silent` is too long.
fn stall(silent: Duration) -> Option<String> {
    let seconds = silent.as_secs();
    (silent >= STALLED).then(|| {
        format!(
            "the engine's producer has not turned for {seconds} s: it waits for a disk that does not answer, gets no \
             processor, or hangs; ids run out if it does not go on"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_is_stalled_after_some_seconds_and_the_reason_says_how_many() {
        assert_eq!(stall(Duration::ZERO), None);
        assert_eq!(stall(Duration::from_millis(4_999)), None);
        let why = stall(Duration::from_secs(17));
        assert!(why.is_some_and(|why| why.contains("not turned for 17 s")));
    }
}
