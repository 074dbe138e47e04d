//! Connections that no client would make: silent, slow, or saying what is not true. Thousands of them, on one thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{interval, sleep, timeout};

use super::words::Port;
use crate::load::driver::greeting;
use crate::measure::now;

/// They come within this time. All at once they would fill the kernel's own queue, and what comes then waits a second for
/// its second try, whatever the server does.
const ARRIVAL: Duration = Duration::from_secs(2);

/// One that was closed comes again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// From one byte to the next of those that are slow: neither a greeting nor a frame is whole within its deadline.
const SLOW: Duration = Duration::from_secs(3);

/// One that lied and is not closed goes after this.
const LIE: Duration = Duration::from_secs(2);

/// How they behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Connects.
    Silent,
    /// Says what a client says first, a byte at a time.
    Slow,
    /// Asks for a page, a byte at a time.
    SlowHttp,
    /// Says that as a client does, and then a request, a byte at a time.
    Half,
    /// Says something that is not true.
    Lying,
    /// Says HELLO with a token that is not the server's, and reads what that is answered.
    Stranger,
}

/// All of them. They go when it is dropped.
#[derive(Debug)]
pub(super) struct Crowd {
    open: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Crowd {
    /// So many of each manner, from these addresses in turn, who come again whenever they are closed.
    pub(super) fn gather(
        (server, port): (SocketAddr, Port),
        manners: &[(usize, Manner)],
        from: &'static [Ipv4Addr],
    ) -> Result<Self> {
        let all: Vec<Manner> =
            manners.iter().flat_map(|(count, manner)| std::iter::repeat_n(*manner, *count)).collect();
        let pause = ARRIVAL / all.len().max(1) as u32;
        Self::start(move |visits| async move {
            let mut arrivals = interval(pause);
            for (number, manner) in all.into_iter().enumerate() {
                arrivals.tick().await;
                let visits = visits.clone();
                tokio::spawn(async move {
                    loop {
                        visits.visit((server, port), from[number % from.len()], manner, number).await;
                        sleep(AGAIN).await;
                    }
                });
            }
            std::future::pending::<()>().await;
        })
    }

    /// So many a second, each of which comes once.
    pub(super) fn stream(
        server: SocketAddr,
        a_second: u32,
        manner: Manner,
        from: &'static [Ipv4Addr],
    ) -> Result<Self> {
        Self::start(move |visits| async move {
            let mut arrivals = interval(Duration::from_secs(1) / a_second);
            for number in 0.. {
                arrivals.tick().await;
                let visits = visits.clone();
                tokio::spawn(async move {
                    visits.visit((server, Port::Binary), from[number % from.len()], manner, number).await;
                });
            }
        })
    }

    fn start<F: Future<Output = ()>>(work: impl FnOnce(Visits) -> F + Send + 'static) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let visits = Visits::default();
        let (open, closed) = (Arc::clone(&visits.open), Arc::clone(&visits.closed));
        let thread = std::thread::Builder::new().name("crowd".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = work(visits) => {}
                }
            });
        })?;
        Ok(Self { open, closed, stop: Some(stop), thread: Some(thread) })
    }

    /// How many are connected now.
    pub(super) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// How many visits are over.
    pub(super) fn closed(&self) -> usize {
        self.closed.load(Relaxed)
    }

    /// Waits until so many are connected at a time.
    pub(super) fn wait_for(&self, count: usize) -> Result<()> {
        let begun = now();
        while self.open() < count {
            ensure!(begun.elapsed() < 20 * ARRIVAL, "only {} of {count} connected", self.open());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Counts them.
#[derive(Debug, Clone, Default)]
struct Visits {
    open: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Visits {
    /// From connecting to the end, be it the server's or its own.
    async fn visit(&self, (server, port): (SocketAddr, Port), from: Ipv4Addr, manner: Manner, number: usize) {
        let Ok(mut stream) = connect(server, from).await else { return };
        self.open.fetch_add(1, Relaxed);
        // Whatever ends it is its end.
        let _ = behave(&mut stream, port, manner, number).await;
        self.open.fetch_sub(1, Relaxed);
        self.closed.fetch_add(1, Relaxed);
    }
}

async fn connect(server: SocketAddr, from: Ipv4Addr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    Ok(socket.connect(server).await?)
}

async fn behave(stream: &mut TcpStream, port: Port, manner: Manner, number: usize) -> Result<()> {
    match manner {
        Manner::Silent => until_closed(stream).await,
        Manner::Slow => slowly(stream, &port.greeting()?).await,
        Manner::SlowHttp => slowly(stream, b"GET /readyz HTTP/1.1\r\nHost: somewhere\r\n").await,
        Manner::Half => {
            stream.write_all(&port.greeting()?).await?;
            slowly(stream, &port.request()).await
        }
        Manner::Lying => {
            stream.write_all(&port.lie(number)?).await?;
            timeout(LIE, until_closed(stream)).await?
        }
        Manner::Stranger => {
            stream.write_all(&greeting(b"none of this server's")?).await?;
            until_closed(stream).await
        }
    }
}

/// A byte at a time, for as long as the server listens.
async fn slowly(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    for byte in bytes.iter().cycle() {
        stream.write_all(&[*byte]).await?;
        if let Ok(closed) = timeout(SLOW, until_closed(stream)).await {
            return closed;
        }
    }
    Ok(())
}

async fn until_closed(stream: &mut TcpStream) -> Result<()> {
    let mut piece = [0; 512];
    while stream.read(&mut piece).await? > 0 {}
    Ok(())
}
