//! What a caller may choose.

use std::time::Duration;

use tokio::time::Instant;
use xuid_protocol::{ClusterId, Hello, request_hello};

use crate::error::ClientError;
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// How a client connects, waits and tries again. Checked by [`Client::connect`](crate::Client::connect).
///
/// ```
/// use std::time::Duration;
/// use xuid_client::Options;
/// let options = Options::new().client_name("billing").max_in_flight(256).retry_for(Duration::from_secs(2));
/// # drop(options);
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) client_name: String,
    pub(crate) token: Vec<u8>,
    pub(crate) cluster: ClusterId,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    pub(crate) max_in_flight: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) rounds: u32,
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) retry_for: Duration,
    pub(crate) return_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_name: concat!("xuid-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            token: Vec::new(),
            cluster: ClusterId::ANY,
            #[cfg(feature = "tls")]
            tls: None,
            max_in_flight: 1_024,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            rounds: 6,
            first_pause: Duration::from_millis(20),
            longest_pause: Duration::from_secs(2),
            retry_for: Duration::ZERO,
            return_after: Duration::from_mins(3),
        }
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What this client calls itself in the server's logs, at most 255 bytes. Defaults to the crate's name and version.
    #[must_use]
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = name.into();
        self
    }

    /// What proves this client's right, at most 255 bytes. Defaults to nothing.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = token.into();
        self
    }

    /// Talks TLS to all servers. Defaults to plain TCP.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The cluster that the servers must be of. Worth setting wherever it is known: it turns a wrong address into an
    /// error instead of ids of another namespace. Defaults to the cluster of the first server that answers.
    #[must_use]
    pub fn cluster(mut self, cluster: ClusterId) -> Self {
        self.cluster = cluster;
        self
    }

    /// Requests in flight at once; further calls wait. Too small, and the connection idles between replies; too large
    /// only costs memory. The server's own limit holds too. Defaults to 1,024.
    #[must_use]
    pub fn max_in_flight(mut self, requests: u32) -> Self {
        self.max_in_flight = requests;
        self
    }

    /// How long connecting and HELLO may take, for each server. Too short, and a busy server is given up; too long, and
    /// a dead one is waited for. Defaults to 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a reply may take beyond the wait that the request itself allows. A call that gives up ends alone. A
    /// NEXT has no wait of its own: give it more than the server's `--wait`. When nothing at all came for so long,
    /// though a reply was due, and a PING sent after half of it was not answered either, the connection ends, and with
    /// it what else is in flight. Too short, and a pause of the server ends connections; too long, and a server that is
    /// gone without a word is waited for. Defaults to 10 s.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How often all servers are tried before a call that needs a connection fails. The next call tries again. Only the
    /// first connection is tried just once, so that a wrong address is an error at once. Defaults to 6.
    #[must_use]
    pub fn reconnect_rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// The pause after a failure: from `first`, doubled each time, up to `longest`; half of it is random. Too short,
    /// and a thousand clients meet a restarted server at once. Defaults to 20 ms and 2 s.
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.first_pause = first;
        self.longest_pause = longest;
        self
    }

    /// How long a call goes on trying after errors that are worth it: refusals with a retryable status, lost
    /// connections. It never repeats an id. Defaults to zero: the caller sees every error.
    #[must_use]
    pub fn retry_for(mut self, limit: Duration) -> Self {
        self.retry_for = limit;
        self
    }

    /// When a client of several servers that had to leave the one it began at tries that one again: after half of this,
    /// and a random part of this besides. New requests then go there, and those in flight are finished where they are.
    /// Too short, and a server that comes and goes is followed; too long, and load stays uneven after a fail-over. 1 ms
    /// or more; defaults to 3 min.
    #[must_use]
    pub fn return_after(mut self, span: Duration) -> Self {
        self.return_after = span;
        self
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let invalid = |name, found, allowed| Err(ClientError::Invalid { name, found, allowed });
        if let Err(long) = request_hello(&mut Vec::new(), 0, &self.hello()) {
            return invalid(long.field, long.len as u64, "a length of at most 255 bytes");
        }
        match (self.max_in_flight, self.rounds) {
            (0, _) => invalid("max_in_flight", 0, "1 or more"),
            (_, 0) => invalid("reconnect_rounds", 0, "1 or more"),
            _ if self.timeout.is_zero() => invalid("timeout", 0, "more than nothing"),
            _ if self.connect_timeout.is_zero() => invalid("connect_timeout", 0, "more than nothing"),
            _ if self.return_after < Duration::from_millis(1) => {
                invalid("return_after (in milliseconds)", 0, "1 or more")
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn hello(&self) -> Hello<'_> {
        Hello { cluster: self.cluster, token: &self.token, ..Hello::new(&self.client_name) }
    }
}

/// So long after `time`; "for ever" is far away.
pub(crate) fn later(time: Instant, span: Duration) -> Instant {
    time.checked_add(span).unwrap_or_else(|| time + Duration::from_hours(24 * 365 * 30))
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Everything but the token, which is a secret.
        f.debug_struct("Options")
            .field("client_name", &self.client_name)
            .field("cluster", &self.cluster)
            .field("max_in_flight", &self.max_in_flight)
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .field("rounds", &self.rounds)
            .field("first_pause", &self.first_pause)
            .field("longest_pause", &self.longest_pause)
            .field("retry_for", &self.retry_for)
            .field("return_after", &self.return_after)
            .finish_non_exhaustive()
    }
}
