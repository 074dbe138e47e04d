//! One session after another with an ensemble, used from one thread that waits for each answer.
//!
//! The client is asynchronous and keeps its session alive by itself, on a thread that belongs to this link
//! ([`ClientThread`]); the thread that asks blocks until there is an answer, or until too long. The client says lines on
//! that thread, and a subscriber of the log may stand still there.
//!
//! # Invariants
//! - I1 nothing is asked while the session is known to be disconnected: what the client queues then lands seconds
//!   later, though no call waits for it any more;
//! - I2 an answer that is certain (`Said`) is told from silence (`Lost`), after which the request may have been done
//!   or may still be;
//! - I3 every wait ends, whatever the client's thread does: a request's after [`Link::limit`], a leave-taking's after
//!   [`LEAVE`]. An answer that comes later is dropped, as the request is gone;
//! - I4 a session whose client ended without a word, or does not understand its server, is followed by another, like
//!   one that expired;
//! - I5 where a login by SASL is wanted, [`Link::client`] looks once at each connection that it knows of, and gives out
//!   no client of one on which the ensemble knows nobody.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode, Error, SessionState, StateWatcher};

use super::error::{LoginError, ZooKeeperError};
use super::target::{AuthScheme, Credentials, ZooKeeperOptions, ZooKeeperUrl};
use crate::clock::boot_ns;
use crate::registry::Connection;
use crate::registry::connection::News;
use crate::sys::client_thread::ClientThread;
use crate::sys::deferred_log;

/// How long a clean leave may take: the ensemble answers in milliseconds, or is away and ends the session itself.
const LEAVE: Duration = Duration::from_secs(1);

/// A session that was disconnected for so long is given up for a new one: the client waits ever longer between its own
/// tries to resume, up to many seconds, and what is held is announced anew anyway.
const GIVE_UP_NS: u64 = 2_000_000_000;

/// After a failure to connect it is not tried again for so long: a try may take seconds, and a clean stop, which has
/// something to hand back for each worker, must not take one for each.
const PATIENCE_NS: u64 = 500_000_000;

/// A node that is in every ensemble.
const EVER_THERE: &str = "/zookeeper";

const DISCONNECTED: News<'static> = News::Lost("the connection to ZooKeeper was lost");

/// Why there is no answer.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// Nothing was sent.
    Away(String),
    /// It was sent, and what became of it is not known.
    Lost(String),
    /// The ensemble said no, and did nothing.
    Said(Error),
    /// Nothing was sent, as the ensemble does not let this process in.
    Refused(LoginError),
}

impl Failure {
    pub(super) fn why(&self) -> String {
        match self {
            Self::Away(why) | Self::Lost(why) => why.clone(),
            Self::Said(error) => error.to_string(),
            Self::Refused(why) => format!("the ensemble {why}"),
        }
    }

    /// After an answer that is an error; everything that is not certainly "not done" is silence.
    pub(super) fn of(error: Error) -> Self {
        match error {
            Error::NoNode
            | Error::NoAuth
            | Error::BadVersion
            | Error::NodeExists
            | Error::NotEmpty
            | Error::InvalidAcl
            | Error::BadArguments(_)
            | Error::NoChildrenForEphemerals
            | Error::QuotaExceeded
            | Error::NotReadOnly
            | Error::Unimplemented => Self::Said(error),
            silence => Self::Lost(silence.to_string()),
        }
    }
}

/// The link.
pub(super) struct Link {
    // The client before its thread, which it needs to end.
    session: Option<Session>,
    client_thread: ClientThread,
    url: ZooKeeperUrl,
    options: ZooKeeperOptions,
    connection: Arc<Connection>,
    /// The last failure to connect, and its boot time.
    failed: Option<(u64, Failure)>,
}

struct Session {
    /// Given up (I4): if the client's own task for it ended, its state stays what it was last, and nothing is answered.
    is_dead: Cell<bool>,
    /// Of the whole ensemble.
    root: Client,
    /// Of what is below the registry's path.
    client: Client,
    /// The connection's disconnections when it was seen that the ensemble knows the user (I5).
    known_at: u64,
    watch: JoinHandle<()>,
}

impl Session {
    fn is_connected(&self) -> bool {
        !self.is_dead.get() && self.client.state() == SessionState::SyncConnected
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Link {
    /// A link that has no session yet.
    pub(super) fn new(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Self, ZooKeeperError> {
        let connection = Arc::new(Connection::default());
        let client = ClientThread::start("xuid-zookeeper")
            .map_err(|source| ZooKeeperError::System { action: "start a thread for ZooKeeper", source })?;
        connection.thread_begins(client.id());
        let (url, options) = (url.clone(), options.clone());
        Ok(Self { session: None, client_thread: client, url, options, connection, failed: None })
    }

    pub(super) fn url(&self) -> &ZooKeeperUrl {
        &self.url
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The rights of nodes that are made.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.options.credentials.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// How long an answer may take. Within its session a client finds out by itself that no server is there; the bounds
    /// are for sessions that are very short or very long.
    fn limit(&self) -> Duration {
        self.options.session.clamp(Duration::from_secs(1), Duration::from_secs(10))
    }

    /// The client of a session that is connected now: the one there is, or a new one.
    pub(super) fn client(&mut self) -> Result<Client, Failure> {
        if let Some(session) = self.session.as_ref().filter(|session| !session.is_dead.get()) {
            match session.client.state() {
                SessionState::SyncConnected => {
                    let client = session.client.clone();
                    return self.still_known().map(|()| client);
                }
                SessionState::Disconnected if !self.is_given_up() => {
                    return Err(Failure::Away(
                        self.connection.problem().unwrap_or_else(|| "disconnected".into()),
                    ));
                }
                _ => {}
            }
        }
        let failure = match self.connect() {
            Ok(client) => return Ok(client),
            Err(failure) => failure,
        };
        // The session before came back while another one was tried.
        let client = self.connected().filter(|_| !matches!(failure, Failure::Refused(_))).ok_or(failure)?;
        self.failed = None;
        self.still_known().map(|()| client)
    }

    /// The client of a session that is connected now, if there is one.
    pub(super) fn connected(&self) -> Option<Client> {
        let session = self.session.as_ref()?;
        session.is_connected().then(|| session.client.clone())
    }

    /// The client of the whole ensemble, above the registry's path, of the session that there is.
    pub(super) fn root(&self) -> Option<Client> {
        self.session.as_ref().map(|session| session.root.clone())
    }

    fn is_given_up(&self) -> bool {
        self.connection.away_since().is_some_and(|since| boot_ns().saturating_sub(since) > GIVE_UP_NS)
    }

    fn connect(&mut self) -> Result<Client, Failure> {
        if let Some((at, failure)) = &self.failed
            && boot_ns().saturating_sub(*at) < PATIENCE_NS
        {
            return Err(failure.clone());
        }
        let mut connector =
            Client::connector().with_session_timeout(self.options.session).with_fail_eagerly();
        if self.options.session > self.limit() {
            // Of each host, as of a session of that length: at least two are tried, however long it is.
            connector = connector.with_connection_timeout(self.limit() * 2 / 5);
        }
        if let Some(credentials) = &self.options.credentials {
            connector = credentials.add_to(connector);
        }
        let hosts = self.url.hosts().to_owned();
        let connected = match self.ask(async move { Ok(connector.connect(&hosts).await) }) {
            Ok(Ok(connected)) => connected,
            Ok(Err(Error::AuthFailed)) => return Err(self.not_connected(&Failure::Refused(self.denial()))),
            Ok(Err(error)) => return Err(self.not_connected(&self.failure(error))),
            Err(failure) => return Err(self.not_connected(&failure)),
        };
        let known_at = self.connection.disconnects();
        self.is_known(&connected).map_err(|failure| self.not_connected(&failure))?;
        let client = connected.clone().chroot(self.url.path().to_owned());
        let Ok(client) = client else { return Err(Failure::Away("the path is impossible".into())) };
        // The old session goes first: its watcher must not speak of this one.
        self.session = None;
        let states = client.state_watcher();
        let number = self.connection.begun();
        // What was lost before the watcher was there is not told by it.
        if client.state() == SessionState::Disconnected {
            self.connection.told(&DISCONNECTED);
        }
        let watch = self.client_thread.spawn(watch(states, self.connection.clone(), number, self.denial()));
        let is_dead = Cell::new(false);
        self.session = Some(Session { is_dead, root: connected, client: client.clone(), known_at, watch });
        crash_point!(SessionNew);
        Ok(client)
    }

    /// Tells that there is no session, and why.
    fn not_connected(&mut self, why: &Failure) -> Failure {
        let failure = match why {
            Failure::Refused(why) => Failure::Refused(*why),
            other => Failure::Away(other.why()),
        };
        let why = failure.why();
        let is_refused = matches!(failure, Failure::Refused(_));
        self.connection.told(&if is_refused { News::Refused(&why) } else { News::NotMade(&why) });
        self.failed = Some((boot_ns(), failure.clone()));
        failure
    }

    fn is_sasl(&self) -> bool {
        self.options.credentials.as_ref().map(Credentials::scheme) == Some(AuthScheme::Sasl)
    }

    /// What it means that the ensemble ends a session because of who uses it.
    fn denial(&self) -> LoginError {
        if self.is_sasl() { LoginError::Rejected } else { LoginError::Wanted }
    }

    /// Whether the ensemble knows the user of the session that there is, asked after each time that it was disconnected:
    /// the server that it has come to may have no SASL. Another session is then begun, perhaps with another server.
    fn still_known(&mut self) -> Result<(), Failure> {
        let disconnects = self.connection.disconnects();
        let Some(session) = self.session.as_ref().filter(|session| session.known_at != disconnects) else {
            return Ok(());
        };
        match self.is_known(&session.root) {
            Ok(()) => {}
            Err(failure @ Failure::Refused(_)) => {
                self.session = None;
                return Err(self.not_connected(&failure));
            }
            Err(failure) => return Err(Failure::Away(failure.why())),
        }
        if let Some(session) = &mut self.session {
            session.known_at = disconnects;
        }
        Ok(())
    }

    /// Whether the ensemble knows the user that it was to be logged in to by SASL (I5). A server without SASL says yes
    /// to every login, and so does one that keeps clients whose login failed.
    ///
    /// Asks to make a node that is there, with the rights of the user: whether there is one is looked at first.
    fn is_known(&self, root: &Client) -> Result<(), Failure> {
        if !self.is_sasl() {
            return Ok(());
        }
        let options = CreateMode::Persistent.with_acls(Acls::creator_all());
        match self.ask(root.create(EVER_THERE, b"", &options)) {
            Err(Failure::Said(Error::InvalidAcl)) => Err(Failure::Refused(LoginError::Ignored)),
            Ok(_) | Err(Failure::Said(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Keeps the client busy for so long, from now on, so that it notices nothing meanwhile.
    #[cfg(test)]
    pub(super) fn hold_up(&self, time: Duration) {
        let (begun, begins) = std::sync::mpsc::channel();
        self.client_thread.spawn(async move {
            let _ = begun.send(());
            std::thread::sleep(time);
        });
        let _ = begins.recv();
    }

    /// Waits for an answer, but no longer than an answer may take (I3).
    pub(super) fn ask<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        let limit = self.limit();
        match self.client_thread.wait(limit, request) {
            Some(answer) => answer.map_err(|error| self.failure(error)),
            None => Err(Failure::Lost(format!("no answer within {limit:?}"))),
        }
    }

    /// What an answer that is an error means, for the thread that asked and for the session.
    pub(super) fn failure(&self, error: Error) -> Failure {
        // What the client answers in the name of a task that is gone, and to what it cannot read (I4).
        if let (Error::UnexpectedError(why), Some(session)) = (&error, &self.session) {
            let reason = why.clone();
            deferred_log::log(move || {
                tracing::error!(why = reason, "the ZooKeeper client failed; another session is begun");
            });
            session.is_dead.set(true);
            // It is not to be called well by its own client, which may go on.
            session.watch.abort();
            self.connection.told(&News::Lost(&format!("the ZooKeeper client failed: {why}")));
        }
        Failure::of(error)
    }

    /// Ends the session and waits until the ensemble knows: what was announced is gone then.
    pub(super) fn leave(&mut self) {
        let Some(session) = self.session.take() else { return };
        let mut states = session.client.state_watcher();
        let connected = session.is_connected();
        drop(session);
        if connected {
            let closed = async { while !states.changed().await.is_terminated() {} };
            let _ = self.client_thread.wait(LEAVE, closed);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.leave();
        self.connection.thread_ends(self.client_thread.id());
    }
}

/// Tells what becomes of a session, until it ends.
async fn watch(mut states: StateWatcher, connection: Arc<Connection>, session: u64, denial: LoginError) {
    let denial = Failure::Refused(denial).why();
    loop {
        let state = states.changed().await;
        let news = match state {
            SessionState::SyncConnected => News::Resumed,
            SessionState::Disconnected => DISCONNECTED,
            SessionState::ConnectedReadOnly => {
                News::Lost("the ZooKeeper server is read-only: it has no quorum")
            }
            SessionState::AuthFailed => News::Refused(&denial),
            SessionState::Expired => News::Expired,
            SessionState::Closed => return,
        };
        if !matches!(news, News::Resumed) {
            crash_point!(SessionLost);
        }
        connection.told_of(session, &news);
        if state.is_terminated() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::stats::ConnectionState;

    const PING: i32 = -2;
    const SASL: i32 = 102;
    const CREATE: i32 = 15;
    const NO_NODE: i32 = -101;
    const NODE_EXISTS: i32 = -110;
    const INVALID_ACL: i32 = -114;
    const LONG: Duration = Duration::from_secs(30);

    fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
        let mut len = [0; 4];
        stream.read_exact(&mut len)?;
        let mut body = vec![0; u32::from_be_bytes(len) as usize];
        stream.read_exact(&mut body)?;
        Ok(body)
    }

    fn send(stream: &mut TcpStream, parts: &[&[u8]]) -> std::io::Result<()> {
        let body = parts.concat();
        stream.write_all(&[&(body.len() as u32).to_be_bytes(), &body[..]].concat())
    }

    /// Grants every connection a session of its own; no node is there. Says yes to every login, and to nodes that are to
    /// be a user's that there is one, or none.
    fn serve(mut stream: TcpStream, session: i64, knows: &AtomicBool) -> std::io::Result<()> {
        let (protocol, timeout, password_len, is_read_only) = (0i32, 4_000i32, 16i32, 0);
        receive(&mut stream)?;
        let granted = [&protocol.to_be_bytes()[..], &timeout.to_be_bytes(), &session.to_be_bytes()];
        send(&mut stream, &[&granted.concat(), &password_len.to_be_bytes(), &[0; 16], &[is_read_only]])?;
        loop {
            let request = receive(&mut stream)?;
            let number = |at: usize| i32::from_be_bytes([0, 1, 2, 3].map(|byte| request[at + byte]));
            let (xid, zxid) = (&request[..4], 1i64.to_be_bytes());
            let answer = match (number(0), number(4)) {
                (PING, _) | (_, SASL) => 0,
                (_, CREATE) if knows.load(Ordering::Relaxed) => NODE_EXISTS,
                (_, CREATE) => INVALID_ACL,
                _ => NO_NODE,
            };
            let no_challenge: &[u8] = if number(4) == SASL { &(-1i32).to_be_bytes() } else { &[] };
            send(&mut stream, &[xid, &zxid, &answer.to_be_bytes(), no_challenge])?;
        }
    }

    fn ensemble() -> ZooKeeperUrl {
        ensemble_that(&Arc::default(), &Arc::default())
    }

    /// `streams` are its connections.
    fn ensemble_that(knows: &Arc<AtomicBool>, streams: &Arc<Mutex<Vec<TcpStream>>>) -> ZooKeeperUrl {
        let (knows, streams) = (knows.clone(), streams.clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("zookeeper://{}/xuid", listener.local_addr().unwrap());
        thread::spawn(move || {
            for (stream, session) in listener.incoming().zip(1..) {
                let (stream, knows) = (stream.unwrap(), knows.clone());
                let other = stream.try_clone().unwrap();
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                thread::spawn(move || {
                    // The client went, which is the end of its connection only.
                    drop(serve(stream, session, &knows));
                    drop(other.shutdown(Shutdown::Both));
                });
            }
        });
        url.parse().unwrap()
    }

    fn look(link: &mut Link) -> Failure {
        let client = link.client().unwrap();
        link.ask(client.get_data("/genesis")).unwrap_err()
    }

    /// The thread's end takes the client's task away as a panic of it would.
    #[test]
    fn a_session_whose_client_ended_without_a_word_is_followed_by_another() {
        let mut link = Link::new(&ensemble(), &ZooKeeperOptions::default()).unwrap();
        assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));
        drop(std::mem::replace(&mut link.client_thread, ClientThread::start("spare").unwrap()));
        // It looks connected until a request is lost.
        assert_eq!(link.session.as_ref().unwrap().client.state(), SessionState::SyncConnected);
        assert!(matches!(look(&mut link), Failure::Lost(_)));
        assert!(link.connected().is_none());
        assert!(link.connection().problem().unwrap().contains("the ZooKeeper client failed"));
        assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));
        assert_eq!((link.connection().sessions(), link.connection().problem()), (2, None));
    }

    #[test]
    fn the_client_s_thread_is_known_as_one_that_a_stop_cannot_wait_on() {
        let link = Link::new(&ensemble(), &ZooKeeperOptions::default()).unwrap();
        let (connection, (told, tells)) = (link.connection().clone(), std::sync::mpsc::channel());
        link.client_thread.spawn(async move { told.send(connection.is_on_own_thread()) });
        assert!(tells.recv().unwrap());
        assert!(!link.connection().is_on_own_thread());
    }

    #[test]
    fn a_session_that_comes_back_to_a_server_without_sasl_is_used_no_more() {
        let (knows, streams) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let url = ensemble_that(&knows, &streams);
        let credentials = Credentials::new("a:b").and_then(|found| found.with_scheme(AuthScheme::Sasl));
        let mut link = Link::new(&url, &ZooKeeperOptions { credentials, ..Default::default() }).unwrap();
        assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));

        knows.store(false, Ordering::Relaxed);
        streams.lock().unwrap().iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        let begun = boot_ns();
        while link.connection().disconnects() == 0 || link.connected().is_none() {
            assert!(boot_ns() - begun < LONG.as_nanos() as u64, "it does not come back");
            thread::yield_now();
        }
        let ignored =
            |found: Result<Client, Failure>| matches!(found, Err(Failure::Refused(LoginError::Ignored)));
        assert!(ignored(link.client()) && link.connected().is_none());
        assert_eq!(link.connection().state(), ConnectionState::Refused);
        // And so is a new one.
        link.failed = None;
        assert!(ignored(link.client()));
        assert_eq!((link.connection().state(), link.connection().sessions()), (ConnectionState::Refused, 1));

        knows.store(true, Ordering::Relaxed);
        link.failed = None;
        assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));
        assert_eq!(
            (link.connection().state(), link.connection().sessions()),
            (ConnectionState::Connected, 2)
        );
    }

    /// While another one was tried, which cannot be made. Its next loss is one, behind which all is looked at again.
    #[test]
    fn a_session_that_came_back_meanwhile_is_well_and_is_gone_on_with() {
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let mut link =
            Link::new(&ensemble_that(&Arc::default(), &streams), &ZooKeeperOptions::default()).unwrap();
        assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));
        let connection = link.connection().clone();
        let failure = link.not_connected(&Failure::Away("no available hosts".into()));
        assert!(matches!(failure, Failure::Away(_)));
        assert_eq!((connection.state(), connection.problem()), (ConnectionState::Connected, None));
        assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));
        streams.lock().unwrap().iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        let begun = boot_ns();
        while connection.disconnects() == 0 {
            assert!(boot_ns() - begun < LONG.as_nanos() as u64, "its loss is not told");
            thread::yield_now();
        }
        assert_eq!(connection.sessions(), 1);
    }

    /// One that is frozen, say, which is tried first as often as the other.
    #[test]
    fn a_host_that_is_silent_keeps_none_from_another_one_however_long_the_session_is() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = ensemble().to_string();
        let (host, path) = url.strip_prefix("zookeeper://").unwrap().split_once('/').unwrap();
        let url: ZooKeeperUrl =
            format!("zookeeper://{},{host}/{path}", silent.local_addr().unwrap()).parse().unwrap();
        let options = ZooKeeperOptions { session: Duration::from_secs(30), ..Default::default() };
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let mut link = Link::new(&url, &options).unwrap();
                    assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));
                });
            }
        });
    }

    /// A subscriber of the log that stands still, say: the client writes lines on its own thread.
    #[test]
    fn a_wait_ends_while_the_client_s_thread_stands_still() {
        let mut link = Link::new(&ensemble(), &ZooKeeperOptions::default()).unwrap();
        assert!(matches!(look(&mut link), Failure::Said(Error::NoNode)));
        let client = link.connected().unwrap();
        let limit = link.limit();
        link.hold_up(4 * limit);
        let begun = boot_ns();
        let answer = link.ask(client.get_data("/genesis"));
        let took = Duration::from_nanos(boot_ns() - begun);
        assert!(took < 2 * limit, "{took:?} instead of {limit:?}: {:?}", answer.map(drop));
    }
}
