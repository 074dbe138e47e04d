//! A server that answers RUNS by itself until it is told to behave otherwise. It never has a fresh id for a NEXT.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;
use xuid_protocol::{Order, Refusal, Status, goaway, reply_error};

use crate::fake::{Asked, Fake, Peer, soon};

/// What a mill does with the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    Serves,
    /// Keeps connection and request, and says nothing.
    Silent,
    NotReady,
    /// Says GOAWAY, answers this request, and waits for the client to go.
    GoesAway,
}

const MOODS: [Mood; 4] = [Mood::Serves, Mood::Silent, Mood::NotReady, Mood::GoesAway];

/// Never gives an id twice. Two mills have land of their own.
#[derive(Debug)]
pub(crate) struct Mill {
    pub(crate) addr: SocketAddr,
    land: u64,
    state: Arc<State>,
    task: AbortHandle,
}

#[derive(Debug)]
struct State {
    mood: AtomicU8,
    next: AtomicU64,
    /// The count of each RUNS.
    asked: Mutex<Vec<u32>>,
    connections: AtomicU64,
    refused: AtomicU64,
}

impl Mill {
    /// A server of cluster 1 with the ids from `land << 48`.
    pub(crate) async fn start(land: u64) -> Self {
        let fake = Fake::start(1).await;
        let addr = fake.addr;
        let next = AtomicU64::new(land << 48);
        let state = Arc::new(State {
            mood: AtomicU8::new(Mood::Serves as u8),
            next,
            asked: Mutex::default(),
            connections: AtomicU64::default(),
            refused: AtomicU64::default(),
        });
        let task = tokio::spawn(serve(fake, Arc::clone(&state))).abort_handle();
        Self { addr, land: land << 48, state, task }
    }

    /// Its first id; it has 2^48.
    pub(crate) fn land(&self) -> u64 {
        self.land
    }

    pub(crate) fn mood(&self, mood: Mood) {
        self.state.mood.store(mood as u8, Ordering::SeqCst);
    }

    /// The counts of all RUNS so far.
    pub(crate) fn asked(&self) -> Vec<u32> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Ids given so far.
    pub(crate) fn given(&self) -> u64 {
        self.state.next.load(Ordering::SeqCst) & ((1 << 48) - 1)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Requests refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::SeqCst)
    }

    /// As a process that is killed: connections and port are gone.
    pub(crate) fn kill(&self) {
        self.task.abort();
    }
}

impl Drop for Mill {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Greets whoever comes. A client that compares clusters comes and goes, so each has a task.
async fn serve(fake: Fake, state: Arc<State>) {
    let mut peers = tokio::task::JoinSet::new();
    loop {
        let Ok(mut peer) = fake.try_accept().await else { continue };
        state.connections.fetch_add(1, Ordering::SeqCst);
        let (state, cluster, limits) = (Arc::clone(&state), fake.cluster, fake.limits);
        peers.spawn(async move {
            let Some((request_id, _)) = peer.try_hello().await else { return };
            if peer.try_welcome(request_id, cluster, limits).await.is_ok() {
                // An error: the client left before its answer.
                let _ = work(peer, &state).await;
            }
        });
    }
}

async fn work(mut peer: Peer, state: &State) -> std::io::Result<()> {
    while let Some((request_id, asked)) = peer.ask().await {
        let bulk = match asked {
            Asked::Runs(bulk) => bulk,
            Asked::Next(Order::Fresh) => {
                refuse(&mut peer, state, request_id, 0x10).await?;
                continue;
            }
            _ => panic!("{asked:?} instead of RUNS"),
        };
        state.asked.lock().unwrap().push(bulk.count);
        let mood = MOODS[state.mood.load(Ordering::SeqCst) as usize];
        match mood {
            Mood::Serves => {}
            Mood::Silent => std::future::pending().await,
            Mood::NotReady => {
                refuse(&mut peer, state, request_id, 0x12).await?;
                continue;
            }
            Mood::GoesAway => peer.try_send(goaway).await?,
        }
        let first = state.next.fetch_add(u64::from(bulk.count), Ordering::SeqCst);
        peer.send_runs(request_id, first, bulk.count).await?;
    }
    Ok(())
}

async fn refuse(peer: &mut Peer, state: &State, request_id: u64, op: u8) -> std::io::Result<()> {
    state.refused.fetch_add(1, Ordering::SeqCst);
    let refusal =
        Refusal::new(Status::NOT_READY, "no window yet").retry_after(std::time::Duration::from_hours(1));
    peer.try_send(|out| reply_error(out, request_id, op, &refusal)).await
}

/// Waits until something is so.
pub(crate) async fn until(what: impl Fn() -> bool) {
    soon(async {
        while !what() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
}
