//! The thread and the runtime that one store's client lives on.
//!
//! The client of a database is asynchronous. The thread that uses the store polls a request itself and keeps the time,
//! so that no request lasts longer than its limit, whatever the client's own thread does.

use std::pin::pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::clock::boot_ns;
use crate::sys::wake::unpark_current;

/// The runtime.
pub(super) struct ClientRuntime {
    /// Taken in drop only.
    runtime: Option<Runtime>,
}

impl ClientRuntime {
    /// Starts the thread.
    pub(super) fn start(thread_name: &str) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(thread_name)
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Polls a future on this thread until it is ready; `None` after `limit`, and the future is dropped.
    pub(super) fn wait<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let _context = self.runtime.as_ref()?.enter();
        let (mut future, waker, begun) = (pin!(future), unpark_current(), boot_ns());
        loop {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(answer);
            }
            let waited = Duration::from_nanos(boot_ns().saturating_sub(begun));
            let left = limit.checked_sub(waited).filter(|left| !left.is_zero())?;
            thread::park_timeout(left);
        }
    }
}

impl Drop for ClientRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_limit_while_the_client_s_thread_stands_still() {
        let runtime = ClientRuntime::start("test").unwrap();
        let (begun, begins) = std::sync::mpsc::channel();
        runtime.runtime.as_ref().unwrap().spawn(async move {
            let _ = begun.send(());
            thread::sleep(Duration::from_secs(2));
        });
        begins.recv().unwrap();
        let from = boot_ns();
        let answer = runtime.wait(Duration::from_millis(50), std::future::pending::<()>());
        assert_eq!(answer, None);
        assert!(boot_ns() - from < 1_500_000_000);
    }
}
