//! Warnings that the server sends beside its answers.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::AsyncMessage;
use tokio_postgres::error::Severity;

use crate::sys::atomics::lock;

/// How many came, and the latest.
#[derive(Debug, Default)]
pub(super) struct Notices {
    count: AtomicU64,
    latest: Mutex<String>,
}

impl Notices {
    /// How many warnings came so far.
    pub(super) fn warnings(&self) -> u64 {
        // Acquire: pairs with the Release of `add`.
        self.count.load(Ordering::Acquire)
    }

    /// The latest warning, if one came since there were so many.
    pub(super) fn since(&self, warned: u64) -> Option<String> {
        (self.warnings() != warned).then(|| lock(&self.latest).clone())
    }

    fn add(&self, text: &str) {
        text.clone_into(&mut lock(&self.latest));
        // Release: pairs with the Acquire of `warnings`. The answer that follows the warning is handed on after this, so
        // the thread that has the answer finds the warning counted.
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// Moves the bytes of a connection until it ends, and counts the warnings in their place among the answers.
pub(super) async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, notices: Arc<Notices>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message
            && notice.parsed_severity().is_none_or(|severity| severity == Severity::Warning)
        {
            notices.add(notice.message());
        }
    }
}
