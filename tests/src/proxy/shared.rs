//! What the threads of a proxy share: the way, the armed fault, and the counts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::zookeeper::wire;

/// What happens to everything that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Nothing.
    Pass,
    /// Each frame is held this long first, in both directions.
    Delay(Duration),
    /// Frames wait until the way changes, and go on then: a partition that heals.
    Hold,
    /// Requests arrive, replies are lost: writes land, and nobody is told.
    LoseReplies,
    /// Requests are lost.
    LoseRequests,
    /// Both are lost, and new connections are accepted and hear nothing.
    BlackHole,
    /// New connections are closed at once.
    Refuse,
}

/// Which request an armed fault waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Any that changes the tree.
    Write,
    /// A transaction of several changes.
    Multi,
}

/// What happens to that request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is forwarded; when the reply comes back, that is lost and the connection cut: the write has landed.
    LoseReply,
    /// It is lost and the connection cut: the write never happens.
    LoseRequest,
    /// It is forwarded and the connection cut at once: anything may happen.
    Cut,
    /// As [`Fault::Cut`], with a reset to both sides.
    Reset,
    /// It is forwarded, and its reply, and all that follows, held this long; then the connection is cut.
    Stall(Duration),
}

impl Fault {
    /// Its kind, for counting.
    pub fn name(self) -> &'static str {
        match self {
            Self::LoseReply => "lost replies",
            Self::LoseRequest => "lost requests",
            Self::Cut => "cuts",
            Self::Reset => "resets",
            Self::Stall(_) => "stalls",
        }
    }
}

/// What a proxy has done so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicU64,
    /// Connections that it ended.
    pub(super) cuts: AtomicU64,
    /// Of these, with a request that had no reply.
    pub(super) cuts_in_flight: AtomicU64,
    /// Writes whose reply was read from the server, said success, and was not passed on.
    pub(super) landed_unheard: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the threads of a proxy look at.
#[derive(Debug)]
pub(super) struct State {
    pub(super) way: Way,
    pub(super) armed: Option<(Fault, Target)>,
    pub(super) closing: bool,
}

/// What the threads of a proxy have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) upstream: SocketAddr,
    pub(super) state: Mutex<State>,
    /// Of `way`, `armed` and `closing`.
    pub(super) changed: Condvar,
    pub(super) counts: Counts,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn way(&self) -> Way {
        self.state().way
    }

    /// Takes the armed fault, if this write is what it waits for (I3).
    pub(super) fn strike(&self, write: &[u8]) -> Option<Fault> {
        let mut state = self.state();
        let (fault, _) =
            state.armed.take_if(|(_, target)| *target == Target::Write || wire::is_multi(write))?;
        self.changed.notify_all();
        Some(fault)
    }

    /// Waits while the way is [`Way::Hold`]; returns what it is then.
    pub(super) fn wait_released(&self) -> Way {
        let mut state = self.state();
        while state.way == Way::Hold && !state.closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.way
    }
}
