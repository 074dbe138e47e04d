//! The threads that serve connections.
//!
//! Each has a runtime of its own, and a connection stays with the thread that it was given to: what belongs to it is
//! never fetched from another core, and no thread is woken to look for work of others. Where there is to be one thread
//! only, it is the one that accepts, with a task in the place of the other threads.
//!
//! # Invariants
//! - I1 a new connection goes to a thread that has the fewest;
//! - I2 when `IoThreads` is dropped its threads end, and with them the connections that are still open; those of the
//!   accepting thread end with [`IoThreads::end`], or with its runtime.

use std::net;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task;
use tokio::task::JoinSet;
use tracing::debug;

use crate::fronts::Front;
use crate::net::connection;
use crate::net::newcomers::Newcomer;
use crate::net::runtime::runtime;
use crate::state::server::Server;

/// The threads, or the accepting thread's task.
#[derive(Debug)]
pub(crate) struct IoThreads(Vec<IoThread>);

#[derive(Debug)]
struct IoThread {
    post: Option<UnboundedSender<NewConnection>>,
    /// One reference each connection, besides this one.
    load: Arc<()>,
    work: Work,
}

/// Where the connections are served. Taken when their end is awaited.
#[derive(Debug)]
enum Work {
    Thread(Option<thread::JoinHandle<()>>),
    Task(Option<task::JoinHandle<()>>),
}

/// A connection on its way to its thread.
#[derive(Debug)]
struct NewConnection {
    stream: net::TcpStream,
    front: Front,
    server: Arc<Server>,
    newcomer: Arc<Newcomer>,
    permit: OwnedSemaphorePermit,
    load: Arc<()>,
}

impl IoThreads {
    /// Starts `threads` threads, if it is more than one; else a task of `accepting`, the runtime that accepts.
    pub(crate) fn new(threads: usize, accepting: &Runtime) -> Result<Self> {
        if threads > 1 {
            return (0..threads).map(IoThread::new).collect::<Result<_>>().map(Self);
        }
        let (post, new_connections) = unbounded_channel();
        let work = Work::Task(Some(accepting.spawn(work(new_connections))));
        Ok(Self(vec![IoThread { post: Some(post), load: Arc::default(), work }]))
    }

    /// Serves a connection of a front to its end, on some thread; `permit` is held until then.
    pub(crate) fn serve(
        &self,
        stream: TcpStream,
        front: Front,
        server: Arc<Server>,
        newcomer: Arc<Newcomer>,
        permit: OwnedSemaphorePermit,
    ) {
        let Some(io_thread) = self.0.iter().min_by_key(|io_thread| Arc::strong_count(&io_thread.load)) else {
            return;
        };
        // Out of this thread's epoll, and into the other's.
        let Ok(stream) = stream.into_std() else { return };
        let new_connection =
            NewConnection { stream, front, server, newcomer, permit, load: Arc::clone(&io_thread.load) };
        if let Some(post) = &io_thread.post {
            // It fails only while everything ends.
            let _ = post.send(new_connection);
        }
    }

    /// Ends the connections that are still open. What they had in hand is counted when it returns.
    pub(crate) async fn end(mut self) {
        for io_thread in &mut self.0 {
            drop(io_thread.post.take());
            if let Work::Task(task) = &mut io_thread.work
                && let Some(task) = task.take()
            {
                // A panic in there was told by itself.
                let _ = task.await;
            }
        }
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        for io_thread in &mut self.0 {
            drop(io_thread.post.take());
        }
        for io_thread in &mut self.0 {
            if let Work::Thread(thread) = &mut io_thread.work
                && let Some(thread) = thread.take()
            {
                // A panic in there was told by its own thread.
                let _ = thread.join();
            }
        }
    }
}

impl IoThread {
    fn new(index: usize) -> Result<Self> {
        let (post, new_connections) = unbounded_channel();
        let runtime = runtime(1)?;
        let thread = thread::Builder::new().name(format!("xuid-io-{index}"));
        let thread = thread.spawn(move || runtime.block_on(work(new_connections)));
        let thread = thread.context("failed to start a thread")?;
        Ok(Self { post: Some(post), load: Arc::default(), work: Work::Thread(Some(thread)) })
    }
}

/// What a thread does: it takes connections until no more can come, and ends those that are left then.
async fn work(mut new_connections: UnboundedReceiver<NewConnection>) {
    let mut open = JoinSet::new();
    loop {
        let new_connection = tokio::select! {
            new_connection = new_connections.recv() => new_connection,
            Some(_) = open.join_next() => continue,
        };
        let Some(NewConnection { stream, front, server, newcomer, permit, load }) = new_connection else {
            break;
        };
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                open.spawn(async move {
                    connection::serve(stream, front, server, newcomer).await;
                    drop((permit, load));
                });
            }
            Err(error) => debug!(%error, "a connection could not be watched"),
        }
    }
    open.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, mpsc};

    use serde_json::Value;
    use tokio::sync::Semaphore;
    use xuid_engine::Engine;
    use xuid_protocol::{Hello, PREFACE, request_hello, request_provenance};

    use super::*;
    use crate::config::Tokens;
    use crate::fronts::fixture::{Home, PATIENCE};
    use crate::net::newcomers::Newcomers;
    use crate::state::server::Origins;

    #[test]
    fn a_question_about_an_id_that_hangs_is_not_waited_for_at_the_end() {
        let (release, hang) = mpsc::channel::<()>();
        let (tell, has_begun) = mpsc::channel();
        let channels = Mutex::new((tell, hang));
        let was_waited_for = Arc::new(AtomicBool::new(false));
        let waited_for = Arc::clone(&was_waited_for);
        let origins = Origins(Box::new(move |_: &Engine, _: &str, _| {
            let (tell, hang) = &*channels.lock().unwrap();
            tell.send(()).unwrap();
            waited_for.store(hang.recv_timeout(PATIENCE).is_err(), Ordering::SeqCst);
            Value::Null
        }));
        let home = Home::new(Tokens::default());
        let server = Arc::into_inner(home.server).unwrap().with_origins(origins);

        let accepting = runtime(1).unwrap();
        let io_threads = IoThreads::new(2, &accepting).unwrap();
        let port = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = net::TcpStream::connect(port.local_addr().unwrap()).unwrap();
        let (stream, peer) = port.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        {
            let _in = accepting.enter();
            let stream = TcpStream::from_std(stream).unwrap();
            let newcomer = Newcomers::new(4).welcome(peer.ip());
            let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            io_threads.serve(stream, Front::Xuid, Arc::new(server), newcomer, permit);
        }
        let mut asked = PREFACE.to_vec();
        request_hello(&mut asked, 1, &Hello::new("test")).unwrap();
        request_provenance(&mut asked, 2, 7);
        client.write_all(&asked).unwrap();
        has_begun.recv_timeout(PATIENCE).unwrap();
        drop(io_threads);
        assert!(!was_waited_for.load(Ordering::SeqCst), "it was waited for to its end");
        release.send(()).unwrap();
    }
}
