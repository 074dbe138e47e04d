//! Whether the registry can be reached, as its adaptor knows it; read by statistics and readiness at any moment.

use std::fmt;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

#[cfg(any(test, feature = "zookeeper"))]
use crate::clock::boot_ns;
use crate::stats::ConnectionState;
use crate::sys::atomics::lock;

/// What an adaptor over a network knows of its connection. One writer, the adaptor; any number of readers.
#[derive(Default)]
pub struct Connection(Mutex<Inner>);

/// By hand: a writer is a stranger's code, and gets nothing under a lock.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Inner {
    state: ConnectionState,
    away_since: Option<u64>,
    problem: Option<String>,
    sessions: u64,
    expirations: u64,
    disconnects: u64,
    threads: Vec<ThreadId>,
}

impl Connection {
    /// How it stands now.
    pub fn state(&self) -> ConnectionState {
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

    /// Whether this is a thread of the adaptor, or of its client: where a stop is asked for on one (by a subscriber of
    /// the log, say), it cannot be waited for, since the stop waits for the adaptor.
    pub(crate) fn is_on_own_thread(&self) -> bool {
        lock(&self.0).threads.contains(&thread::current().id())
    }

    /// A thread of the adaptor began.
    #[cfg(any(all(test, not(loom)), feature = "zookeeper"))]
    pub(crate) fn thread_begins(&self, thread: ThreadId) {
        lock(&self.0).threads.push(thread);
    }

    /// A thread of the adaptor ends.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn thread_ends(&self, thread: ThreadId) {
        lock(&self.0).threads.retain(|known| *known != thread);
    }

    /// A new session was made. Returns its number: a task that watches an older one says nothing any more.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn begun(&self) -> u64 {
        let mut inner = lock(&self.0);
        inner.sessions += 1;
        inner.well();
        inner.sessions
    }

    /// What became of a session, if it is still the one that counts.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn told_of(&self, session: u64, news: &News<'_>) {
        let mut inner = lock(&self.0);
        if inner.sessions == session {
            inner.learn(news);
        }
    }

    /// Something became of the registry.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn told(&self, news: &News<'_>) {
        lock(&self.0).learn(news);
    }
}

/// What becomes of a connection.
#[cfg(any(test, feature = "zookeeper"))]
#[derive(Debug, Clone, Copy)]
pub(crate) enum News<'a> {
    /// It is back, the session is the same.
    Resumed,
    /// It was lost.
    Lost(&'a str),
    /// Another one cannot be made. The one before may have come back meanwhile, which was told then and is not told again.
    #[cfg(feature = "zookeeper")]
    NotMade(&'a str),
    /// The session ended.
    Expired,
    /// The registry answers, and cannot be used.
    Refused(&'a str),
    /// It can be used again.
    #[cfg(feature = "zookeeper")]
    Accepted,
}

#[cfg(any(test, feature = "zookeeper"))]
impl Inner {
    fn learn(&mut self, news: &News<'_>) {
        match *news {
            News::Resumed => self.well(),
            News::Lost(why) => {
                // One that was refused was there: where it goes on, its user is to be looked at again.
                let was_there = self.away_since.is_none() || self.state == ConnectionState::Refused;
                self.disconnects += u64::from(was_there);
                if self.state != ConnectionState::Expired {
                    self.state = ConnectionState::Away;
                }
                self.ill(why);
            }
            #[cfg(feature = "zookeeper")]
            News::NotMade(_) if self.away_since.is_none() && self.sessions > 0 => {}
            #[cfg(feature = "zookeeper")]
            News::NotMade(why) => self.learn(&News::Lost(why)),
            News::Expired => {
                self.expirations += 1;
                self.state = ConnectionState::Expired;
                self.ill("the session expired");
            }
            News::Refused(why) => {
                self.state = ConnectionState::Refused;
                self.ill(why);
            }
            #[cfg(feature = "zookeeper")]
            News::Accepted if self.state == ConnectionState::Refused => self.well(),
            #[cfg(feature = "zookeeper")]
            News::Accepted => {}
        }
    }

    fn well(&mut self) {
        (self.state, self.away_since, self.problem) = (ConnectionState::Connected, None, None);
    }

    fn ill(&mut self, why: &str) {
        self.away_since.get_or_insert_with(boot_ns);
        self.problem = Some(why.to_owned());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What a connection has to be looked at again for: it goes on at another server, perhaps.
    #[test]
    fn a_connection_that_is_lost_while_its_registry_is_refused_is_one_that_was_lost() {
        let connection = Connection::default();
        let told = |news: &News<'_>| {
            connection.told(news);
            connection.disconnects()
        };
        assert_eq!(told(&News::Resumed), 0);
        assert_eq!(told(&News::Refused("it was closed")), 0);
        assert_eq!(told(&News::Lost("the server went away")), 1);
        assert_eq!(told(&News::Lost("it is away still")), 1);
        assert_eq!(told(&News::Refused("it is closed still")), 1);
        assert_eq!(told(&News::Resumed), 1);
        assert_eq!(told(&News::Lost("the server went away")), 2);
    }
}
