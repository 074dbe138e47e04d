//! What can go wrong between a caller and its ids.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use xuid_protocol::{BadReply, ClusterId, ErrorReply, NameError, Op, Status, printable};

/// A clock that is behind by less than this is waited for; ticks last a millisecond.
const CLOCK_PATIENCE: Duration = Duration::from_millis(100);

/// Why a call failed. Cheap to clone: one loss can be the end of many requests.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server answered with an error.
    #[error("{server} refused: {status}: {text}")]
    Refused {
        /// Who refused.
        server: Arc<str>,
        /// Its kind.
        status: Status,
        /// When to come back, if the status says so at all.
        retry_after: Duration,
        /// What the server says about it, without control characters: it stands in one line.
        text: Arc<str>,
    },
    /// The connection ended with the request in flight. If ids were on their way, they are wasted and come to nobody.
    #[error("the connection to {server} ended before its reply: ask again")]
    Lost {
        /// Whose connection.
        server: Arc<str>,
        /// How it ended, if not by an orderly close.
        source: Option<Arc<io::Error>>,
    },
    /// No reply in time.
    #[error("{server} did not answer within {limit:?}: ask again, or allow more with Options::timeout")]
    Timeout {
        /// Who did not answer.
        server: Arc<str>,
        /// How long it had.
        limit: Duration,
    },
    /// A server could not be connected to.
    #[error("{server} cannot be reached: check the address, and that the server runs")]
    Unreachable {
        /// Which one; the last tried if there are several.
        server: Arc<str>,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// A server with which there is no TLS ([`Options::tls`](crate::Options)).
    #[error(
        "no TLS with {server}: check that it speaks TLS, who vouches for it under that name, and what it asks of clients"
    )]
    Tls {
        /// Which one.
        server: Arc<str>,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// Servers of different clusters, which could issue the same ids.
    #[error(
        "{server} is of cluster {found}, and {other} of {expected}: two clusters can issue the same id, so give only \
         servers of one"
    )]
    ClustersDiffer {
        /// The server that is refused.
        server: Arc<str>,
        /// Its cluster.
        found: ClusterId,
        /// The server that this client was connected to.
        other: Arc<str>,
        /// That one's cluster.
        expected: ClusterId,
    },
    /// A server of another cluster than [`Options::cluster`](crate::Options::cluster), which did not refuse by itself.
    #[error("{server} is of cluster {found}, and Options::cluster asks for {expected}: check the address")]
    WrongCluster {
        /// The server that is refused.
        server: Arc<str>,
        /// Its cluster.
        found: ClusterId,
        /// The one that was asked for.
        expected: ClusterId,
    },
    /// The server is not what it should be.
    #[error("{server} does not speak XUID/1 as it should: check the address and the versions")]
    Protocol {
        /// Which one.
        server: Arc<str>,
        /// How it broke the protocol.
        source: Breach,
    },
    /// An option, or an argument, that no server would take.
    #[error("{name} is {found}, and {allowed} is allowed")]
    Invalid {
        /// Which one.
        name: &'static str,
        /// Its value or length.
        found: u64,
        /// What it may be.
        allowed: &'static str,
    },
    /// A text that no sequence can be called.
    #[error("that is no name of a sequence")]
    Name {
        /// Why not.
        source: NameError,
    },
    /// [`Client::close`](crate::Client::close) was called, or the [`Prefetch`](crate::Prefetch) of these ids is gone.
    #[error("this client was closed: connect another one")]
    Closed,
    /// Nothing prefetched came in time, and no server refused either.
    #[error("no id came within {limit:?}: ask again, or allow more with PrefetchOptions::wait")]
    NotYet {
        /// How long it had.
        limit: Duration,
    },
    /// The client, or the prefetched ids, are of the process that this one is a fork of.
    #[error(
        "this belongs to process {owner}, and this process ({found}) is a fork of it: connect again after a fork"
    )]
    Forked {
        /// The process that connected.
        owner: u32,
        /// The process that asked; the same number, if it has its parent's id.
        found: u32,
    },
    /// The thread that ends the ids that grew old could not be started.
    #[error("no thread can be started for prefetching: raise the limit of processes")]
    NoThread {
        /// Why not.
        source: Arc<io::Error>,
    },
}

/// How a server broke the protocol.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// Bytes that are no reply.
    #[error(transparent)]
    Bytes(#[from] BadReply),
    /// A text instead of a reply: the port speaks another protocol.
    #[error("it says {0:?}")]
    Words(Box<str>),
    /// A reply to no request in flight.
    #[error("a reply to request {0:016x}, which is not in flight")]
    UnknownRequest(u64),
    /// The reply belongs to another op.
    #[error("a request of {asked} was answered with op {answered:02x}")]
    OtherOp {
        /// What was asked.
        asked: Op,
        /// What was answered.
        answered: u8,
    },
    /// More or fewer ids than asked for.
    #[error("{asked} ids were asked for, and {answered} came: it is all or nothing")]
    Count {
        /// What was asked.
        asked: u32,
        /// What came.
        answered: u32,
    },
    /// More runs than the one that was asked for.
    #[error("one run was asked for, and {0} came")]
    Seams(u32),
    /// PING came back changed.
    #[error("a PING came back with other bytes")]
    Echo,
    /// A version that was not offered.
    #[error("version {0} was picked, and only version 1 was offered")]
    Version(u16),
}

impl ClientError {
    /// Whether the same call may succeed later, or at another server. Repeating it never brings an id twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { status, .. } => status.is_retryable(),
            Self::Lost { .. } | Self::Timeout { .. } | Self::Unreachable { .. } | Self::NotYet { .. } => true,
            Self::ClustersDiffer { .. }
            | Self::WrongCluster { .. }
            | Self::Tls { .. }
            | Self::Protocol { .. }
            | Self::Invalid { .. }
            | Self::Name { .. }
            | Self::Closed
            | Self::Forked { .. }
            | Self::NoThread { .. } => false,
        }
    }

    /// When the server says it is worth trying again; zero: it does not say.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => Duration::ZERO,
        }
    }

    /// Whether another server, if there is one, is the next to be asked: the connection is gone, or what the server
    /// lacks is its own and may take long. A server that is merely busy, or waits for its clock, is stayed with: all
    /// its clients moving on would only carry the load to the next one.
    pub(crate) fn leads_elsewhere(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                matches!(
                    *status,
                    Status::NOT_READY
                        | Status::WINDOW_LOST
                        | Status::SHUTTING_DOWN
                        | Status::INTERNAL
                        // Another server may hold numbers of that name.
                        | Status::STORE_AWAY
                        | Status::STORE_BEHIND
                ) || (*status == Status::CLOCK_BEHIND && self.retry_after() > CLOCK_PATIENCE)
            }
            Self::Lost { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn refused(server: &Arc<str>, error: &ErrorReply<'_>) -> Self {
        Self::Refused {
            server: Arc::clone(server),
            status: error.status,
            retry_after: error.retry_after(),
            text: printable(&error.text).into(),
        }
    }

    pub(crate) fn lost(server: &Arc<str>, source: Option<io::Error>) -> Self {
        Self::Lost { server: Arc::clone(server), source: source.map(Arc::new) }
    }

    pub(crate) fn protocol(server: &Arc<str>, source: impl Into<Breach>) -> Self {
        Self::Protocol { server: Arc::clone(server), source: source.into() }
    }
}
