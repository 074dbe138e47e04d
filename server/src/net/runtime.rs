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

/// Runs `work` on a runtime of its own, to its end and no longer. A runtime that is dropped waits for what blocks beside the
/// work; this one leaves it behind.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = runtime(1)?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn what_hangs_beside_the_work_is_not_waited_for() {
        let (release, hang) = mpsc::channel();
        let (begun, has_begun) = oneshot::channel();
        let work = async {
            spawn_blocking(move || {
                let _ = begun.send(());
                hang.recv_timeout(Duration::from_secs(20))
            });
            has_begun.await
        };
        run(work).unwrap().unwrap();
        assert!(release.send(()).is_ok(), "it was waited for to its end");
    }
}
