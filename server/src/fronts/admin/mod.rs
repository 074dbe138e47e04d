//! HTTP for probes, Prometheus and people.

mod status;

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::ServerConfig;
use xuid_engine::Order;
use xuid_engine::stats::Status;

use crate::config::is_exposed;
use crate::fronts::farewell::farewell;
use crate::fronts::tls::handshake::{self, NoTls};
use crate::state::access::REJECTION_PAUSE;
use crate::state::address_limits::customer;
use crate::state::beside::beside;
use crate::state::metrics::Page;
use crate::state::server::Server;
use crate::state::traffic::FrontName;

/// The media type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a page waits for what the engine says, and how many threads may wait at a time: a server whose locks stand
/// still says so, and collects no threads over it.
const PATIENCE: Duration = Duration::from_secs(3);
const ASKING: usize = 2;

/// How long a connection may take to ask for its first page, and how long it may say nothing after a reply: longer than
/// probes are apart that keep one open.
const LIMITS: Limits =
    Limits { first: Duration::from_secs(10), idle: Duration::from_secs(30), connections: 64 };

/// How long a producer that seems to stand still has to turn after all, before a probe is told.
const SECOND_LOOK: Duration = Duration::from_millis(300);

/// What a client that speaks plain HTTP to a port of HTTPS is told.
const PLAIN: &str = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port speaks HTTPS \
                     only: ask for https://\r\n";

/// What is told in place of a page that waited too long.
const NO_ANSWER: &str =
    "the engine has not answered for 3 s: one of its threads holds a lock and stands still";

#[derive(Clone)]
struct AdminState {
    server: Arc<Server>,
    page: Arc<Page>,
    asking: Arc<Semaphore>,
    /// Whether other machines reach it.
    is_exposed: bool,
}

/// Whose connection it is.
#[derive(Clone)]
struct Peer {
    addr: SocketAddr,
    /// It showed a certificate of a CA that we trust.
    has_certificate: bool,
    doing: Arc<AtomicU8>,
}

impl AdminState {
    /// Asks something that takes the engine's locks: beside this thread, which accepts connections and serves `/livez`.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Server, &Page) -> T + Send + 'static,
    ) -> Result<T, (StatusCode, String)> {
        let Self { server, page, asking, .. } = self.clone();
        let answer = async {
            // The permit goes with the question: one that is not answered keeps it. The semaphore is never closed.
            let permit = asking.acquire_owned().await;
            let asked = beside("xuid-page", move || {
                let _permit = permit;
                question(&server, &page)
            });
            asked.map_err(|error| error.to_string())?.await.map_err(|_| NO_ANSWER.to_owned())
        };
        let answer = timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(NO_ANSWER.to_owned()));
        answer.map_err(|why| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")))
    }
}

/// Serves until the process ends, so that a probe can see a server that drains.
pub(crate) async fn run(listener: TcpListener, server: Arc<Server>, connections: usize) {
    let page = Arc::new(Page::new(Arc::clone(&server)));
    let is_exposed = server.places.admin.is_some_and(is_exposed);
    let asking = Arc::new(Semaphore::new(ASKING));
    let state = AdminState { server: Arc::clone(&server), page, asking, is_exposed };
    let router = Router::new()
        .route("/", get(people))
        .route("/status.json", get(figures))
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(state.clone(), guard))
        // Probes have no secrets.
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(state);
    serve(listener, router, Limits { connections, ..LIMITS }, Some(server)).await;
}

/// Lets those through who may see more than a probe: all where only this machine gets to, else those with a token or a
/// certificate, if the server can ask for one.
async fn guard(
    State(AdminState { server, is_exposed, .. }): State<AdminState>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let access = &server.access;
    // As bytes: a token may be any text.
    let given = request.headers().get(header::AUTHORIZATION);
    let token = given.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if !is_exposed
        || peer.has_certificate
        || !access.can_ask()
        || token.is_some_and(|token| access.knows(token))
    {
        return next.run(request).await;
    }
    server.reject(|| Some(peer.addr));
    // A stranger's wait keeps no newcomer off, and its next request needs a connection of its own.
    peer.doing.store(Doing::Refused as u8, Ordering::Relaxed);
    sleep(REJECTION_PAUSE).await;
    let text = "this page is for those with a token of this server (Authorization: Bearer TOKEN) or a client certificate\n";
    let head = [(header::WWW_AUTHENTICATE, "Bearer"), (header::CONNECTION, "close")];
    (StatusCode::UNAUTHORIZED, head, text).into_response()
}

#[derive(Clone, Copy)]
struct Limits {
    first: Duration,
    idle: Duration,
    /// At a time: each takes a descriptor that a client could have. One more ends another ([`spare`]).
    connections: usize,
}

/// What a connection does.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It has asked for nothing yet.
    Silent,
    /// It asked for what it may not see, and is about to be told so.
    Refused,
    Asking,
    /// It had a reply.
    Idle,
}

/// A connection as the accept loop sees it.
struct Open {
    task: AbortHandle,
    doing: Arc<AtomicU8>,
    whose: IpAddr,
    opened: Instant,
}

impl Open {
    fn is(&self, doing: Doing) -> bool {
        self.doing.load(Ordering::Relaxed) == doing as u8
    }
}

/// A connection had the time to ask for something within this: a probe shakes hands in some milliseconds.
const YOUNG: Duration = Duration::from_secs(1);

/// Which one makes room for another, of the customer that has more than a quarter, if one has: the oldest that has not asked
/// for anything that it may see, if that had its time, or if half of all are such; else the oldest that waits for nothing;
/// else the oldest. Strangers can keep all of them busy.
fn spare(open: &[Open]) -> usize {
    let count = |whose: IpAddr| open.iter().filter(|open| open.whose == whose).count();
    let most = open.iter().max_by_key(|open| count(open.whose)).map(|open| open.whose);
    let most = most.filter(|whose| count(*whose) > open.len() / 4);
    let asks_nothing = |open: &Open| open.is(Doing::Silent) || open.is(Doing::Refused);
    let are_many = open.iter().filter(|open| asks_nothing(open)).count() > open.len() / 2;
    let oldest = |which: &dyn Fn(&Open) -> bool| {
        open.iter().position(|open| most.is_none_or(|most| open.whose == most) && which(open))
    };
    oldest(&|open| asks_nothing(open) && (are_many || open.opened.elapsed() >= YOUNG))
        .or_else(|| oldest(&|open| open.is(Doing::Idle)))
        .or_else(|| oldest(&asks_nothing))
        .or_else(|| oldest(&|_| true))
        .unwrap_or_default()
}

/// Notes around each page that it was asked for.
async fn note(State(doing): State<Arc<AtomicU8>>, request: Request, next: Next) -> Response {
    doing.store(Doing::Asking as u8, Ordering::Relaxed);
    let reply = next.run(request).await;
    doing.store(Doing::Idle as u8, Ordering::Relaxed);
    reply
}

/// One connection's pages, over TCP or TLS.
struct Pages {
    router: Router,
    http: auto::Builder<TokioExecutor>,
    doing: Arc<AtomicU8>,
    addr: SocketAddr,
}

impl Pages {
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        has_certificate: bool,
    ) {
        let peer = Extension(Peer { addr: self.addr, has_certificate, doing: self.doing.clone() });
        let router = self.router.layer(from_fn_with_state(self.doing, note)).layer(peer);
        // A connection that fails is its client's affair.
        let _ = self.http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
    }

    async fn serve_tls(self, stream: TcpStream, config: Arc<ServerConfig>, server: &Server) {
        match handshake::accept(stream, config, |_| PLAIN.as_bytes().to_vec()).await {
            Ok(tls) => {
                let has_certificate = tls.get_ref().1.peer_certificates().is_some();
                self.serve(tls, has_certificate).await;
            }
            Err(NoTls::Plain(stream)) => farewell(stream).await,
            Err(NoTls::Failed(error, stream)) => {
                server.handshake_failed(Some(self.addr), &error);
                farewell(stream).await;
            }
        }
    }
}

/// Serves `router` to so many at a time, and ends those that say nothing. Within TLS, if `server` speaks it.
async fn serve(mut listener: TcpListener, router: Router, limits: Limits, server: Option<Arc<Server>>) {
    // Not `axum::serve`, which gives up a client that has said all it will (`nc -N`) while its page is asked for.
    let mut http = auto::Builder::new(TokioExecutor::new()).http1_only();
    http.http1().half_close(true).timer(TokioTimer::new()).header_read_timeout(limits.idle);
    let mut open: Vec<Open> = Vec::with_capacity(limits.connections);
    loop {
        // It waits by itself where no descriptor is left.
        let (stream, addr) = Listener::accept(&mut listener).await;
        open.retain(|connection| !connection.task.is_finished());
        if open.len() >= limits.connections {
            open.remove(spare(&open)).task.abort();
        }
        let doing = Arc::new(AtomicU8::new(Doing::Silent as u8));
        let pages = Pages { router: router.clone(), http: http.clone(), doing: doing.clone(), addr };
        let (server, asked) = (server.clone(), doing.clone());
        let connection = tokio::spawn(async move {
            let traffic = server.as_ref().map(|server| &server.traffic);
            let _open = traffic.map(|traffic| traffic.connection_opened(FrontName::Admin));
            let mut serving = pin!(async {
                match server.as_ref().and_then(|server| Some((server, server.access.tls_for_admin()?))) {
                    Some((server, config)) => pages.serve_tls(stream, config, server).await,
                    None => pages.serve(stream, false).await,
                }
            });
            if timeout(limits.first, &mut serving).await.is_err()
                && asked.load(Ordering::Relaxed) != Doing::Silent as u8
            {
                serving.await;
            }
        });
        let (whose, opened) = (customer(addr.ip()), Instant::now());
        open.push(Open { task: connection.abort_handle(), doing, whose, opened });
        // What has come with it is read before it can be ended for another.
        yield_now().await;
    }
}

/// 200, or 503 and why nothing but a new process helps. It takes no lock.
async fn livez(State(AdminState { server, .. }): State<AdminState>) -> impl IntoResponse {
    if server.stalled().is_some() {
        // A process that was stopped, or its machine, goes on with the probe and the producer at the same time.
        sleep(SECOND_LOOK).await;
    }
    alive(server.stalled())
}

fn alive(stalled: Option<String>) -> (StatusCode, String) {
    match stalled {
        None => (StatusCode::OK, "alive\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("stalled\n{why}\n")),
    }
}

/// 200 and what is not as it should be, or 503 and why: for calls of any age or, with `?order=`, of that order.
async fn readyz(State(state): State<AdminState>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let Some(order) = order_of(query.as_deref().unwrap_or_default()) else {
        let allowed = "/readyz, /readyz?order=any, /readyz?order=fresh or /readyz?order=ordered";
        return (
            StatusCode::BAD_REQUEST,
            format!("{:?} is no question here: ask {allowed}\n", query.unwrap_or_default()),
        );
    };
    match state.ask(|server, _| server.readiness()).await {
        Ok(status) => ready(&status, order),
        Err((status, why)) => (status, format!("not ready\n{why}")),
    }
}

/// The order that a query asks about; `None` if it asks for something else.
fn order_of(query: &str) -> Option<Order> {
    if query.is_empty() {
        return Some(Order::Any);
    }
    let name = query.strip_prefix("order=")?;
    Order::ALL.into_iter().find(|order| order.name() == name)
}

fn ready(status: &Status, order: Order) -> (StatusCode, String) {
    let (code, word) = if status.serves(order) {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    let mut text = format!("{word}\n");
    let refused = status::refused(status).join(", ");
    if !refused.is_empty() {
        let _ = writeln!(text, "not served now: {refused}");
    }
    for note in &status.notes {
        let _ = writeln!(text, "{note}");
    }
    (code, text)
}

async fn metrics(State(state): State<AdminState>) -> Result<impl IntoResponse, (StatusCode, String)> {
    let rendered = state.ask(|_, page| page.render()).await?;
    let failed = |error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    rendered.map(|text| ([(header::CONTENT_TYPE, OPEN_METRICS)], text)).map_err(failed)
}

async fn people(State(state): State<AdminState>) -> Result<Response, (StatusCode, String)> {
    state.ask(|server, _| status::page(server)).await
}

async fn figures(State(state): State<AdminState>) -> Result<Response, (StatusCode, String)> {
    state.ask(|server, _| status::figures(server)).await
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::sync::Barrier;
    use tokio::task::JoinHandle;

    use super::*;

    const PAGE: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn pages_that_no_thread_could_be_had_for_are_answered_and_keep_no_later_one_waiting() {
        use tokio::runtime::Builder;

        use crate::config::Tokens;
        use crate::fronts::fixture::{Home, without_threads};

        let home = Home::new(Tokens::default());
        let server = Arc::clone(&home.server);
        let page = Arc::new(Page::new(Arc::clone(&server)));
        let state = AdminState { server, page, asking: Arc::new(Semaphore::new(ASKING)), is_exposed: false };
        let without = without_threads();
        for _ in 0..ASKING {
            let state = state.clone();
            let asked =
                without.block_on(async { tokio::spawn(async move { state.ask(|_, _| ()).await }).await });
            let asked = asked.expect("its connection ends without an answer");
            let (status, why) = asked.unwrap_err();
            assert!(status == StatusCode::SERVICE_UNAVAILABLE && why.contains("no more threads"), "{why}");
        }
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let asked = runtime.block_on(state.ask(|_, _| ()));
        assert!(asked.is_ok(), "{asked:?}, and so is every page from then on");
        drop(without);
    }

    /// A server of one page.
    async fn serving(limits: Limits) -> (SocketAddr, JoinHandle<()>) {
        serving_also(Router::new(), limits).await
    }

    /// The same with other pages beside it.
    async fn serving_also(others: Router, limits: Limits) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = others.route("/", get(async || "page"));
        (addr, tokio::spawn(serve(listener, router, limits, None)))
    }

    async fn said(addr: SocketAddr, words: &str) -> TcpStream {
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(words.as_bytes()).await.unwrap();
        client
    }

    /// A connection from one of this host's addresses.
    async fn connect_from(host: [u8; 4], addr: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((host, 0).into()).unwrap();
        socket.connect(addr).await.unwrap()
    }

    /// One that had its page, and of which the first byte was read.
    async fn idle_from(host: [u8; 4], addr: SocketAddr) -> TcpStream {
        let mut client = connect_from(host, addr).await;
        client.write_all(PAGE.as_bytes()).await.unwrap();
        client.read_exact(&mut [0; 1]).await.unwrap();
        client
    }

    /// Everything it gets until it is closed, with a reset where something of it was not read.
    async fn page(client: &mut TcpStream) -> Vec<u8> {
        let mut page = Vec::new();
        let closed = timeout(Duration::from_secs(20), client.read_to_end(&mut page)).await;
        assert!(closed.is_ok(), "it is kept open");
        page
    }

    #[tokio::test]
    async fn a_connection_without_a_whole_head_is_closed_before_and_after_a_reply() {
        let short = Duration::from_millis(100);
        let (addr, serving) = serving(Limits { first: short, idle: short, ..LIMITS }).await;
        for words in ["", "GET", &PAGE[..20], PAGE] {
            let page = page(&mut said(addr, words).await).await;
            assert_eq!(page.ends_with(b"page"), words == PAGE, "{words:?}");
        }
        serving.abort();
    }

    /// A probe that keeps its connection is not ended before its time, and not for those that say nothing.
    #[tokio::test]
    async fn one_connection_too_many_ends_a_silent_one_and_none_that_asked() {
        let long = Duration::from_mins(1);
        let (addr, serving) = serving(Limits { first: long, idle: long, ..LIMITS }).await;
        let mut probe = said(addr, PAGE).await;
        let mut reply = [0; 1];
        probe.read_exact(&mut reply).await.unwrap();
        let mut silent = Vec::new();
        for _ in 1..LIMITS.connections {
            silent.push(said(addr, "").await);
        }
        let mut late = said(addr, "GET / HTTP/1.0\r\n\r\n").await;
        assert!(page(&mut late).await.ends_with(b"page"), "a new client is served");
        assert!(page(&mut silent[0]).await.is_empty(), "the oldest of the silent ones is ended for it");
        probe.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        assert!(page(&mut probe).await.ends_with(b"page"), "the probe keeps its connection");
        serving.abort();
    }

    /// As within TLS, where it has asked for nothing until it has shaken hands.
    #[tokio::test]
    async fn a_probe_that_asks_some_time_after_it_connected_is_served_whatever_a_stranger_has_open() {
        let long = Duration::from_mins(1);
        for stranger in [[127, 0, 0, 1], [127, 0, 0, 2]] {
            let (addr, serving) = serving(Limits { first: long, idle: long, ..LIMITS }).await;
            let mut open = Vec::new();
            for _ in 0..LIMITS.connections - 2 {
                open.push(idle_from(stranger, addr).await);
            }
            let mut probe = said(addr, "").await;
            for _ in 0..LIMITS.connections / 3 {
                open.push(connect_from(stranger, addr).await);
                yield_now().await;
            }
            probe.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
            assert!(page(&mut probe).await.ends_with(b"page"), "the stranger is {stranger:?}");
            serving.abort();
        }
    }

    #[tokio::test]
    async fn a_stranger_with_most_of_the_connections_makes_room_by_its_own() {
        let long = Duration::from_mins(1);
        let (addr, serving) = serving(Limits { first: long, idle: long, ..LIMITS }).await;
        let mut oldest = idle_from([127, 0, 0, 1], addr).await;
        let mut open = Vec::new();
        for _ in 0..LIMITS.connections + 10 {
            open.push(idle_from([127, 0, 0, 2], addr).await);
        }
        assert!(page(&mut open[0]).await.len() > 1, "the stranger's oldest is ended");
        oldest.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        assert!(page(&mut oldest).await.ends_with(b"page"), "the other one keeps its connection");
        serving.abort();
    }

    #[tokio::test]
    async fn one_connection_too_many_is_served_where_all_others_have_a_page_under_way() {
        let all = Arc::new(Barrier::new(LIMITS.connections + 1));
        let of_page = all.clone();
        let never = async move || {
            of_page.wait().await;
            pending::<&str>().await
        };
        let (addr, serving) = serving_also(Router::new().route("/never", get(never)), LIMITS).await;
        let mut busy = Vec::new();
        for _ in 0..LIMITS.connections {
            busy.push(said(addr, "GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await);
        }
        all.wait().await;
        let mut late = said(addr, "GET / HTTP/1.0\r\n\r\n").await;
        assert!(page(&mut late).await.ends_with(b"page"), "a new client is served");
        assert!(page(&mut busy[0]).await.is_empty(), "the oldest is ended for it");
        serving.abort();
    }

    #[test]
    fn readiness_is_told_by_order_and_anything_else_is_a_bad_question() {
        let orders = ["", "order=any", "order=fresh", "order=ordered", "order=old", "fresh"].map(order_of);
        let (any, fresh, ordered) = (Some(Order::Any), Some(Order::Fresh), Some(Order::Ordered));
        assert_eq!(orders, [any, any, fresh, ordered, None, None]);
        let mut status = Status::default();
        (status.ready, status.notes) = (true, vec!["the registry is away".to_owned()]);
        let told = "ready\nnot served now: fresh, ordered\nthe registry is away\n";
        assert_eq!(ready(&status, Order::Any), (StatusCode::OK, told.to_owned()));
        assert_eq!(ready(&status, Order::Fresh), (StatusCode::SERVICE_UNAVAILABLE, format!("not {told}")));
    }

    #[test]
    fn a_stalled_engine_is_not_alive_and_the_probe_is_told_why() {
        assert_eq!(alive(None), (StatusCode::OK, "alive\n".to_owned()));
        let (status, text) = alive(Some("it stands".to_owned()));
        assert_eq!((status, &*text), (StatusCode::SERVICE_UNAVAILABLE, "stalled\nit stands\n"));
    }
}
