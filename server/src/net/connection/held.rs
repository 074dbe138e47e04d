//! What a connection holds of memory that its client decides about: replies that it does not read, with the requests behind
//! them, and a request that it has begun. Each is counted in the account that all connections have of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::state::server::Server;
use crate::state::unread::UnreadPart;

/// How often a connection is looked at that does not read its replies, and how long it may take none while they are too many.
pub(super) const UNREAD_LOOK: Duration = Duration::from_secs(2);

/// What it has to take of them in such a span.
pub(super) const UNREAD_SPAN: Duration = Duration::from_secs(10);
pub(super) const UNREAD_PACE: usize = 1 << 20;

/// What TLS takes of a connection's replies while the socket takes nothing.
pub(super) const TLS_BUFFER: usize = 64 * 1024;

/// Sixteen requests that wait.
const WAITS_AT_ONCE: usize = 8 * 1024;

/// One connection's part of each.
pub(super) struct Held {
    pub(super) unread: UnreadPart,
    /// What it has begun to ask for, and not more of yet.
    pub(super) half: UnreadPart,
    /// What waits for ids, with what was read behind it: of any connection that is done sooner or later.
    pub(super) waits: UnreadPart,
    /// Since when what it has not read counts, how much it took since, and when it was looked at.
    pub(super) since: Option<Instant>,
    pub(super) written: usize,
    pub(super) looked: Instant,
    /// Since when it does not, after it did.
    pub(super) clear: Option<Instant>,
    /// So much was taken since the socket had everything: within TLS it may lie there still.
    taken: usize,
}

impl Held {
    pub(super) fn new(server: &Server, opened: Instant) -> Self {
        Self {
            unread: UnreadPart::new(Arc::clone(&server.unread)),
            half: UnreadPart::new(Arc::clone(&server.begun)),
            waits: UnreadPart::new(Arc::clone(&server.waits)),
            since: None,
            written: 0,
            looked: opened,
            clear: None,
            taken: 0,
        }
    }

    /// So much of its replies was written.
    pub(super) fn wrote(&mut self, count: usize) {
        self.written += count;
        self.taken += count;
    }

    /// TLS has taken so much, and the socket none of it yet.
    pub(super) fn put_in_tls(&mut self, count: usize) {
        self.taken += count;
    }

    /// Counts what lies here for it, beside what lies in TLS if that is not `flushed`.
    pub(super) fn note_unread(&mut self, bytes: usize, flushed: bool) {
        if flushed {
            self.taken = 0;
        }
        self.unread.set(bytes + self.taken.min(TLS_BUFFER));
        match (self.unread.counts(), self.since, self.clear) {
            (true, None, _) => {
                self.looked = Instant::now();
                (self.since, self.written) = (Some(self.looked), 0);
            }
            // Who has read all for a moment, and was told as much again, is as slow as before. That moment does not count.
            (true, Some(since), Some(clear)) => {
                let pause = clear.elapsed();
                (self.since, self.looked) = (Some(since + pause), self.looked + pause);
                self.clear = None;
            }
            (false, Some(_), None) => self.clear = Some(Instant::now()),
            _ => {}
        }
    }

    /// Counts its requests that wait, and what lies behind them, not one by one: the count is of all threads.
    pub(super) fn note_waits(&mut self, bytes: usize) {
        let bytes = if bytes < WAITS_AT_ONCE { 0 } else { bytes.next_multiple_of(WAITS_AT_ONCE) };
        self.waits.set(bytes);
    }

    /// Whether few more requests of it are to wait: there are very many of all, or it is among those who do not read.
    pub(super) fn lets_few_wait(&self, is_written: bool) -> bool {
        let is_unread = !is_written || self.unread.counts();
        if self.waits.is_too_much_of_all() {
            self.waits.tell();
            return true;
        }
        is_unread && self.unread.bound().is_some()
    }

    /// Counts what it has begun to ask for. Whether it is to go, since that lies here for as long as the client likes, and
    /// others have too much here, too.
    pub(super) fn has_too_much_begun(&mut self, bytes: usize) -> bool {
        self.half.set(bytes);
        let ends = self.half.is_too_much();
        if ends {
            self.half.tell();
        }
        ends
    }

    /// It is looked at now. Whether that is late: this process may have been stopped meanwhile, and not the client.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let is_late = now > self.looked + 2 * UNREAD_LOOK;
        self.looked = now;
        is_late
    }

    /// Whether it took too little in the span that is over.
    pub(super) fn is_slow(&mut self, now: Instant, is_late: bool) -> bool {
        if is_late {
            (self.since, self.written) = (Some(now), 0);
        }
        let is_over = self.since.is_some_and(|since| now >= since + UNREAD_SPAN);
        let is_slow = is_over && self.written < UNREAD_PACE;
        if is_over {
            (self.since, self.written) = (Some(now), 0);
        }
        is_slow
    }
}
