//! The threads that serve connections.
//!
//! Each has a runtime of its own, and a connection stays with the thread that it was given to: what belongs to it is
//! never fetched from another core, and no thread is woken to look for work of others.
//!
//! # Invariants
//! - I1 a new connection goes to a thread that has the fewest;
//! - I2 when `IoThreads` is dropped its threads end, and with them the connections that are still open.

use std::net;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::debug;

use crate::net::connection;
use crate::net::newcomers::Newcomer;
use crate::net::runtime::runtime;
use crate::state::server::Server;

/// The threads, or none: then connections are served by the thread that accepts them.
#[derive(Debug)]
pub(crate) struct IoThreads(Vec<IoThread>);

#[derive(Debug)]
struct IoThread {
    post: Option<UnboundedSender<NewConnection>>,
    /// One reference each connection, besides this one.
    load: Arc<()>,
    thread: Option<JoinHandle<()>>,
}

/// A connection on its way to its thread.
#[derive(Debug)]
struct NewConnection {
    stream: net::TcpStream,
    server: Arc<Server>,
    newcomer: Arc<Newcomer>,
    permit: OwnedSemaphorePermit,
    load: Arc<()>,
}

impl IoThreads {
    /// Starts `threads` threads, if it is more than one.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        let threads = if threads > 1 { threads } else { 0 };
        (0..threads).map(IoThread::new).collect::<Result<_>>().map(Self)
    }

    /// Serves a connection to its end, on some thread; `permit` is held until then.
    pub(crate) fn serve(
        &self,
        stream: TcpStream,
        server: Arc<Server>,
        newcomer: Arc<Newcomer>,
        permit: OwnedSemaphorePermit,
    ) {
        let Some(io_thread) = self.0.iter().min_by_key(|io_thread| Arc::strong_count(&io_thread.load)) else {
            tokio::spawn(async move {
                connection::serve(stream, server, newcomer).await;
                drop(permit);
            });
            return;
        };
        // Out of this thread's epoll, and into the other's.
        let Ok(stream) = stream.into_std() else { return };
        let new_connection =
            NewConnection { stream, server, newcomer, permit, load: Arc::clone(&io_thread.load) };
        if let Some(post) = &io_thread.post {
            // It fails only while everything ends.
            let _ = post.send(new_connection);
        }
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        for io_thread in &mut self.0 {
            drop(io_thread.post.take());
        }
        for thread in self.0.iter_mut().filter_map(|io_thread| io_thread.thread.take()) {
            // A panic in there was told by its own thread.
            let _ = thread.join();
        }
    }
}

impl IoThread {
    fn new(index: usize) -> Result<Self> {
        let (post, new_connections) = unbounded_channel();
        let runtime = runtime(1)?;
        let thread = std::thread::Builder::new().name(format!("xuid-io-{index}"));
        let thread =
            thread.spawn(move || work(&runtime, new_connections)).context("failed to start a thread")?;
        Ok(Self { post: Some(post), load: Arc::default(), thread: Some(thread) })
    }
}

/// What a thread does: it takes connections until no more can come.
fn work(runtime: &Runtime, mut new_connections: UnboundedReceiver<NewConnection>) {
    runtime.block_on(async {
        while let Some(NewConnection { stream, server, newcomer, permit, load }) =
            new_connections.recv().await
        {
            match TcpStream::from_std(stream) {
                Ok(stream) => {
                    tokio::spawn(async move {
                        connection::serve(stream, server, newcomer).await;
                        drop((permit, load));
                    });
                }
                Err(error) => debug!(%error, "a connection could not be watched"),
            }
        }
    });
}
