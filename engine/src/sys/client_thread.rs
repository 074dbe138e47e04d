//! The thread that an asynchronous client lives on, of an ensemble or of a database.
//!
//! The thread that uses the client polls a request itself and keeps the time, so that no request lasts longer than its
//! limit, whatever the client's own thread does.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
#[cfg(feature = "zookeeper")]
use tokio::task::JoinHandle;
use tokio::task::coop::unconstrained;

use super::boot::boot_ns;
use super::wake::unpark_current;

/// The thread. It ends when this is dropped, and nobody waits for that.
pub(crate) struct ClientThread {
    runtime: Handle,
    #[cfg_attr(
        not(feature = "zookeeper"),
        allow(dead_code, reason = "asked for by the registry's link alone")
    )]
    id: ThreadId,
    /// Nothing is sent: its end is the word.
    _ends: oneshot::Sender<Infallible>,
}

impl ClientThread {
    /// Starts it. An error where the system has no thread left.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        Self::start_by(thread::Builder::new().name(name.to_owned()))
    }

    fn start_by(thread: thread::Builder) -> io::Result<Self> {
        let ((ends, ended), (built, is_built)) = (oneshot::channel(), mpsc::channel());
        // Where there is no thread nothing was made yet: a runtime must not be dropped on one of another runtime's.
        let begun = thread.spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(built.send(Err(error))),
            };
            let _ = built.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(ended);
            // A look-up of a name, which nothing can end, is not waited for.
            runtime.shutdown_background();
        })?;
        let runtime = is_built.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, id: begun.thread().id(), _ends: ends })
    }

    /// Polls a future on the calling thread until it is ready; `None` after `limit`, and the future is dropped.
    pub(crate) fn wait<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let _context = self.runtime.enter();
        // A task of another runtime that waits here would run out of what a task may do before it yields, and never yield.
        let (mut future, waker, begun) = (pin!(unconstrained(future)), unpark_current(), boot_ns());
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

#[cfg(feature = "zookeeper")]
impl ClientThread {
    /// Which thread it is.
    pub(crate) fn id(&self) -> ThreadId {
        self.id
    }

    /// Runs something on it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::time::sleep;

    use super::*;

    #[test]
    fn a_wait_ends_with_its_limit_while_the_client_s_thread_stands_still() {
        let (client, (begun, begins)) = (ClientThread::start("test").unwrap(), channel());
        client.runtime.spawn(async move {
            let _ = begun.send(());
            thread::sleep(Duration::from_secs(2));
        });
        begins.recv().unwrap();
        let from = boot_ns();
        let answer = client.wait(Duration::from_millis(50), std::future::pending::<()>());
        assert_eq!(answer, None);
        assert!(boot_ns() - from < 1_500_000_000);
    }

    #[test]
    fn its_end_takes_what_runs_on_it_along() {
        struct Told(mpsc::Sender<ThreadId>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        let (client, (told, tells)) = (ClientThread::start("test").unwrap(), channel());
        let (id, held) = (client.id, Told(told));
        client.runtime.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(client);
        assert_eq!(tells.recv_timeout(Duration::from_secs(20)), Ok(id));
    }

    #[test]
    fn a_thread_of_another_runtime_may_wait_and_end_it() {
        Builder::new_current_thread().build().unwrap().block_on(async {
            let client = ClientThread::start("test").unwrap();
            // More than a task of that one may do before it yields.
            for _ in 0..200 {
                let slept = async { sleep(Duration::from_millis(1)).await };
                assert_eq!(client.wait(Duration::from_secs(20), slept), Some(()));
            }
        });
    }

    #[test]
    fn a_system_without_a_thread_is_an_error() {
        // A stack larger than all addresses that there are.
        let begun = ClientThread::start_by(thread::Builder::new().stack_size(1 << 47));
        assert_eq!(begun.err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
