//! One session after another with an ensemble, used from one thread that waits for each answer.
//!
//! The client is asynchronous and keeps its session alive by itself, on the one thread of a runtime that belongs to
//! this link; whoever asks blocks until there is an answer, or until too long.
//!
//! # Invariants
//! - I1 nothing is asked while the session is known to be disconnected: what the client queues then lands seconds
//!   later, though nobody waits for it any more;
//! - I2 an answer that is certain (`Said`) is told from silence (`Lost`), after which the request may have been done
//!   or may still be;
//! - I3 every wait ends: a request's after [`Link::limit`], a leave-taking's after [`LEAVE`].

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, Error, SessionState, StateWatcher};

use super::error::ZooKeeperError;
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use crate::clock::boot_ns;
use crate::registry::Contact;
use crate::registry::contact::News;

/// How long a clean leave may take: the ensemble answers in milliseconds, or is away and ends the session itself.
const LEAVE: Duration = Duration::from_secs(1);

/// A session that was disconnected for so long is given up for a new one: the client waits ever longer between its own
/// tries to resume, up to many seconds, and what is held is announced anew anyway.
const GIVE_UP_NS: u64 = 2_000_000_000;

/// After a failure to connect it is not tried again for so long: a try may take seconds, and a clean stop, which has
/// something to hand back for each worker, must not take one for each.
const PATIENCE_NS: u64 = 500_000_000;

/// Why there is no answer.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// Nothing was sent.
    Away(String),
    /// It was sent and nobody knows what became of it.
    Lost(String),
    /// The ensemble said no, and did nothing.
    Said(Error),
}

impl Failure {
    pub(super) fn why(&self) -> String {
        match self {
            Self::Away(why) | Self::Lost(why) => why.clone(),
            Self::Said(error) => error.to_string(),
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
    // The client before the runtime, which it needs to end.
    session: Option<Session>,
    runtime: Option<Runtime>,
    url: ZooKeeperUrl,
    options: ZooKeeperOptions,
    contact: Arc<Contact>,
    /// Boot time of the last failure to connect.
    failed_at: Option<u64>,
}

struct Session {
    /// Of the whole ensemble.
    root: Client,
    /// Of what is below the registry's path.
    client: Client,
    watch: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Link {
    /// A link that has no session yet.
    pub(super) fn new(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Self, ZooKeeperError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("xuid-zookeeper")
            .enable_time()
            .build()
            .map_err(|source| ZooKeeperError::System { action: "start a thread for ZooKeeper", source })?;
        Ok(Self {
            session: None,
            runtime: Some(runtime),
            url: url.clone(),
            options: options.clone(),
            contact: Arc::default(),
            failed_at: None,
        })
    }

    pub(super) fn url(&self) -> &ZooKeeperUrl {
        &self.url
    }

    pub(super) fn contact(&self) -> &Arc<Contact> {
        &self.contact
    }

    /// The rights of nodes that are made.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.options.credentials.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// How long an answer may take. Within its session a client finds out by itself that nobody is there; the bounds
    /// are for sessions that are very short or very long.
    fn limit(&self) -> Duration {
        self.options.session.clamp(Duration::from_secs(1), Duration::from_secs(10))
    }

    /// The client of a session that is connected now: the one there is, or a new one.
    pub(super) fn client(&mut self) -> Result<Client, Failure> {
        if let Some(session) = &self.session {
            match session.client.state() {
                SessionState::SyncConnected => return Ok(session.client.clone()),
                SessionState::Disconnected if !self.is_given_up() => {
                    return Err(Failure::Away(
                        self.contact.problem().unwrap_or_else(|| "disconnected".into()),
                    ));
                }
                _ => {}
            }
        }
        self.connect()
    }

    /// The client of a session that is connected now, if there is one.
    pub(super) fn connected(&self) -> Option<Client> {
        let session = self.session.as_ref()?;
        (session.client.state() == SessionState::SyncConnected).then(|| session.client.clone())
    }

    /// The client of the whole ensemble, above the registry's path, of the session that there is.
    pub(super) fn root(&self) -> Option<Client> {
        self.session.as_ref().map(|session| session.root.clone())
    }

    fn is_given_up(&self) -> bool {
        self.contact.away_since().is_some_and(|since| boot_ns().saturating_sub(since) > GIVE_UP_NS)
    }

    fn connect(&mut self) -> Result<Client, Failure> {
        if self.failed_at.is_some_and(|at| boot_ns().saturating_sub(at) < PATIENCE_NS) {
            let why = self.contact.problem().unwrap_or_else(|| "it was not reached a moment ago".into());
            return Err(Failure::Away(why));
        }
        let mut connector =
            Client::connector().with_session_timeout(self.options.session).with_fail_eagerly();
        if let Some(credentials) = &self.options.credentials {
            connector = connector.with_auth("digest", credentials.bytes());
        }
        let hosts = self.url.hosts().to_owned();
        let connected = self.ask(async move { connector.connect(&hosts).await }).map_err(|failure| {
            self.contact.told(&News::Lost(&failure.why()));
            self.failed_at = Some(boot_ns());
            Failure::Away(failure.why())
        })?;
        let client = connected.clone().chroot(self.url.path().to_owned());
        let Ok(client) = client else { return Err(Failure::Away("the path is impossible".into())) };
        // The old session goes first: its watcher must not speak of this one.
        self.session = None;
        let states = client.state_watcher();
        let number = self.contact.begun();
        let watch = self.runtime().spawn(watch(states, self.contact.clone(), number));
        self.session = Some(Session { root: connected, client: client.clone(), watch });
        crash_point!(SessionNew);
        Ok(client)
    }

    /// Waits for an answer.
    pub(super) fn ask<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        let limit = self.limit();
        match self.runtime().block_on(async { timeout(limit, request).await }) {
            Ok(answer) => answer.map_err(Failure::of),
            Err(_) => Err(Failure::Lost(format!("no answer within {limit:?}"))),
        }
    }

    fn runtime(&self) -> &Runtime {
        let Some(runtime) = &self.runtime else { unreachable!("it is taken in drop only") };
        runtime
    }

    /// Ends the session and waits until the ensemble knows: what was announced is gone then.
    pub(super) fn leave(&mut self) {
        let Some(session) = self.session.take() else { return };
        let mut states = session.client.state_watcher();
        let connected = states.state() == SessionState::SyncConnected;
        drop(session);
        if connected {
            let closed = async { while !states.changed().await.is_terminated() {} };
            let _ = self.runtime().block_on(async { timeout(LEAVE, closed).await });
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.leave();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Tells what becomes of a session, until it ends.
async fn watch(mut states: StateWatcher, contact: Arc<Contact>, session: u64) {
    loop {
        let state = states.changed().await;
        let news = match state {
            SessionState::SyncConnected => News::Resumed,
            SessionState::Disconnected => News::Lost("the connection to ZooKeeper was lost"),
            SessionState::ConnectedReadOnly => {
                News::Lost("the ZooKeeper server is read-only: it has no quorum")
            }
            SessionState::AuthFailed => News::Refused("ZooKeeper does not accept the credentials"),
            SessionState::Expired => News::Expired,
            SessionState::Closed => return,
        };
        if !matches!(news, News::Resumed) {
            crash_point!(SessionLost);
        }
        contact.told_of(session, &news);
        if state.is_terminated() {
            return;
        }
    }
}
