//! Whether the registry can be reached, as its adaptor knows it; read by statistics and readiness at any moment.

use std::sync::Mutex;

#[cfg(any(test, feature = "zookeeper"))]
use crate::clock::boot_ns;
use crate::sync::lock;

/// What an adaptor over a network knows of its connection. One writer, the adaptor; any number of readers.
#[derive(Debug, Default)]
pub struct Contact(Mutex<Inner>);

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ContactState {
    /// Requests are answered.
    #[default]
    Connected,
    /// The connection is lost; the session may go on.
    Away,
    /// The session ended; another one is being made.
    Expired,
    /// It answers, and may not be used: restored and not fenced, fenced just now, another cluster, no rights.
    Refused,
}

#[derive(Debug, Default)]
struct Inner {
    state: ContactState,
    away_since: Option<u64>,
    problem: Option<String>,
    sessions: u64,
    expirations: u64,
    disconnects: u64,
}

impl Contact {
    /// How it stands now.
    pub fn state(&self) -> ContactState {
        lock(&self.0).state
    }

    /// Since when nothing was answered, in nanoseconds of boot time; `None` while it answers.
    pub fn away_since(&self) -> Option<u64> {
        lock(&self.0).away_since
    }

    /// What the last failure was; `None` while all is well.
    pub fn problem(&self) -> Option<String> {
        lock(&self.0).problem.clone()
    }

    /// Sessions made so far.
    pub fn sessions(&self) -> u64 {
        lock(&self.0).sessions
    }

    /// Sessions that ended against our will.
    pub fn expirations(&self) -> u64 {
        lock(&self.0).expirations
    }

    /// Times the connection was lost.
    pub fn disconnects(&self) -> u64 {
        lock(&self.0).disconnects
    }

    /// A new session was made. Returns its number: whoever watches an older one says nothing any more.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn begun(&self) -> u64 {
        let mut inner = lock(&self.0);
        inner.sessions += 1;
        (inner.state, inner.away_since, inner.problem) = (ContactState::Connected, None, None);
        inner.sessions
    }

    /// What became of a session, if it is still the one that counts.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn told_of(&self, session: u64, tell: impl FnOnce(&Self)) {
        // The one writer besides is the thread that makes sessions, which ends the watcher of an old one first.
        if self.sessions() == session {
            tell(self);
        }
    }

    /// The connection is back, the session is the same.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn resumed(&self) {
        let mut inner = lock(&self.0);
        (inner.state, inner.away_since, inner.problem) = (ContactState::Connected, None, None);
    }

    /// The connection was lost, or cannot be made.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn lost(&self, why: &str) {
        let mut inner = lock(&self.0);
        if inner.away_since.is_none() {
            inner.disconnects += 1;
        }
        if inner.state != ContactState::Expired {
            inner.state = ContactState::Away;
        }
        inner.away_since.get_or_insert_with(boot_ns);
        inner.problem = Some(why.to_owned());
    }

    /// The session ended.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn expired(&self) {
        let mut inner = lock(&self.0);
        inner.expirations += 1;
        inner.state = ContactState::Expired;
        inner.away_since.get_or_insert_with(boot_ns);
        inner.problem = Some("the session expired".to_owned());
    }

    /// It answers, and cannot be used.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn refused(&self, why: &str) {
        let mut inner = lock(&self.0);
        inner.state = ContactState::Refused;
        inner.away_since.get_or_insert_with(boot_ns);
        inner.problem = Some(why.to_owned());
    }

    /// It can be used again.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn accepted(&self) {
        let mut inner = lock(&self.0);
        if inner.state == ContactState::Refused {
            (inner.state, inner.away_since, inner.problem) = (ContactState::Connected, None, None);
        }
    }
}
