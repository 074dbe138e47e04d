//! Ids asked for ahead of need.
//!
//! ```text
//!   server --- RUNS, several in flight ---> refiller (a task)
//!                                             |  dates what came, sizes the next refill
//!                                           pool: runs, oldest first, behind a lock   <--- ager (a thread): calls off
//!                                             |  a run is taken: one lock                    what grew old, here and
//!                                           Ids: the rest of a run, owned by one thread      in handles
//!                                             |  or task, opened a piece at a time: one look at clock and process
//!                                             |  a hit: one load, two comparisons
//!                                           caller
//! ```
//!
//! # Invariants
//! - P1 an id is in one place: in flight, in the pool, in one handle, issued or wasted. Runs are moved, by a type
//!   that cannot be copied, and never given back but by the handle that held them;
//! - P2 nothing is taken from the pool, and no piece of a run is opened, at `max_age` or later after it was asked for;
//!   what is open in a handle then is voided by the ager, which aims a few milliseconds before that;
//! - P3 received = issued + wasted by age + wasted at the end + held by pool and handles;
//! - P4 no thread takes from a pool of another process;
//! - P5 what is held, and what is on its way, is void when a server turns out to be of another cluster, and when the client
//!   is closed.

mod age;
mod ager;
mod held;
mod ids;
mod options;
mod piece;
mod pool;
mod refill_size;
mod refiller;
mod state;
mod stats;

use std::sync::Arc;

use tokio::task::AbortHandle;

pub use ids::Ids;
pub use options::PrefetchOptions;
pub use stats::PrefetchStats;

use crate::client::Client;
use crate::error::ClientError;
use refiller::Refiller;
use state::PrefetchState;

/// A source of ids that are there before they are asked for, made by [`Client::prefetch`]. Each thread or task takes
/// an [`Ids`] of its own from it. Dropping it ends the refilling, and all its handles; closing its client does the same.
///
/// The ids are of [`Order::Any`](crate::Order::Any), and there is no way to ask for another: an id that was fetched
/// ahead is not fresh when it is handed out, and two handles that hold different runs cannot keep an order.
///
/// How many are held follows the use: 16 at first, up to a million in a hot loop; whoever asks for nothing is not
/// refilled once what was held grew old. So a quiet user wastes few ids, and its first id after a pause of
/// [`max_age`](PrefetchOptions::max_age) takes a round trip.
///
/// What is held is dropped when a server turns out to be of another cluster, and counted as wasted by age.
///
/// # Fork
/// A child process would hold the same ids as its parent, so handles refuse with [`ClientError::Forked`] there. A
/// handle does not look at its process for every id. After a hot loop it looks once in up to 1,024 ids: the ids up to
/// its next look come out of it in the child as in the parent, however slowly and however late they are taken there.
/// Only a caller that took its time before the fork, 50 us and more an id, gets one id a look. A look also tells a
/// child that has its parent's process id, as far as [`Client`] says. **Do not use a handle made before a fork in the
/// child**: exec, or leave it alone, and connect again.
///
/// # Snapshots of memory
/// An application that is resumed twice from one snapshot of its memory (a virtual machine's, a checkpoint's) gives out
/// the ids that it held in both copies: drop the source before the snapshot is made, and make another one after it.
#[derive(Debug)]
#[must_use = "dropping the source ends its handles"]
pub struct Prefetch {
    state: Arc<PrefetchState>,
    refiller: AbortHandle,
}

impl Client {
    /// A source of ids that asks for them ahead of need, in the background: for callers that cannot wait for a round
    /// trip, and for hot loops.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for an option out of range; [`ClientError::NoThread`]. That no server answers is told
    /// by the first [`Ids::next`](crate::Ids::next).
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time and I/O, as connecting does.
    pub fn prefetch(&self, options: PrefetchOptions) -> Result<Prefetch, ClientError> {
        self.check_process()?;
        Prefetch::start(self.clone(), options)
    }
}

impl Prefetch {
    pub(crate) fn start(client: Client, options: PrefetchOptions) -> Result<Self, ClientError> {
        options.check()?;
        let state = Arc::new(PrefetchState::new(options));
        ager::start(&state).map_err(|source| ClientError::NoThread { source: Arc::new(source) })?;
        let weak = Arc::downgrade(&state);
        client.add_holder(weak);
        let refiller = Refiller::new(Arc::clone(&state), client);
        let refiller = tokio::spawn(refiller.run()).abort_handle();
        Ok(Self { state, refiller })
    }

    /// A handle of its own for a thread or a task. Any number may be made; they share what is held.
    #[must_use]
    pub fn ids(&self) -> Ids {
        Ids::new(Arc::clone(&self.state))
    }

    /// What was counted so far; nothing in a forked child.
    #[must_use]
    pub fn stats(&self) -> PrefetchStats {
        self.state.process.check().map_or_else(|_| PrefetchStats::default(), |()| self.state.lock().stats())
    }

    /// Why the last refill failed, if none succeeded since; [`ClientError::Forked`] in a forked child.
    #[must_use]
    pub fn failure(&self) -> Option<ClientError> {
        self.state.process.check().map_or_else(Some, |()| self.state.lock().failure())
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        // A copy dropped in a forked child ends nothing.
        if self.state.process.check().is_ok() {
            self.state.close();
            self.refiller.abort();
        }
    }
}
