//! The threads that sockets are served on.

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

/// A runtime of `threads` threads; one thread is the caller's own.
pub(crate) fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.thread_name("xuid-io").enable_all().build().context("failed to start the runtime")
}
