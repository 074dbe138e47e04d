//! The request that waits, at a front that answers in the order of its requests: it holds up those behind it, so there is
//! one at a time.

use std::fmt;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt;
use tokio::time::Instant;
use xuid_protocol::Op;

use crate::state::id_limit::Charged;

/// How the waiting ended.
#[derive(Debug)]
pub(crate) struct Done<E> {
    pub(crate) op: Op,
    /// What the request was charged for the ids that it may not have got.
    pub(crate) charged: Charged,
    /// When it was read.
    pub(crate) came: Option<Instant>,
    /// `None`: the engine panicked.
    pub(crate) ended: Option<E>,
}

/// A request that waits for ids, or for the store.
type Future<E> = dyn std::future::Future<Output = Done<E>> + Send;

/// The request that waits now, if one does.
pub(crate) struct Waiting<E> {
    // Never locked: a session is looked at by one thread at a time, and this says so.
    request: Option<Mutex<Pin<Box<Future<E>>>>>,
    charged: Charged,
}

impl<E> Default for Waiting<E> {
    fn default() -> Self {
        Self { request: None, charged: Charged::default() }
    }
}

impl<E> fmt::Debug for Waiting<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("is_some", &self.is_some()).finish_non_exhaustive()
    }
}

impl<E> Waiting<E> {
    /// Whether one does.
    pub(crate) fn is_some(&self) -> bool {
        self.request.is_some()
    }

    /// What it was charged.
    pub(crate) fn charged(&self) -> Charged {
        self.charged
    }

    /// The next reply is this one's, as soon as it is there.
    pub(crate) fn begin(
        &mut self,
        op: Op,
        charged: Charged,
        came: Option<Instant>,
        ended: impl std::future::Future<Output = E> + Send + 'static,
    ) {
        debug_assert!(!self.is_some(), "a request while another one waits");
        let request: Pin<Box<Future<E>>> = Box::pin(async move {
            let ended = AssertUnwindSafe(ended).catch_unwind().await.ok();
            Done { op, charged, came, ended }
        });
        (self.request, self.charged) = (Some(Mutex::new(request)), charged);
    }

    /// Its end; never, if there is none. Nothing is lost if it is not awaited to its end.
    pub(crate) async fn ended(&mut self) -> Done<E> {
        match &mut self.request {
            Some(request) => request.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().await,
            None => pending().await,
        }
    }

    /// None waits any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
