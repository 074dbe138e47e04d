//! Replies that clients have not read, and requests that they have begun, of all connections together: what each may have is bounded, and there may be many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tracing::warn;
use xuid_protocol::{Refusal, Status};

/// From here on what a connection holds counts, or from less where many may hold as much: most replies are written as soon
/// as they are made.
const COUNTS_FROM: usize = 64 * 1024;
const COUNTS_FROM_AT_LEAST: usize = 8 * 1024;

/// Ids of one reply that are always answered, be they texts.
const ALWAYS: u32 = 1_024;

/// What a sequence in a list counts as.
pub(crate) const IDS_A_ROW: u32 = 8;

/// Which part of what there may be is for connections that hold nothing yet.
const PART_FOR_OTHERS: usize = 4;

/// Which part of it may be gathered for KEYS.
const PART_OF_GATHERED: usize = 4;

/// How much there is, and may be.
#[derive(Debug)]
pub(crate) struct Unread {
    held: AtomicUsize,
    most: usize,
    counts_from: usize,
    /// That it was too much was said.
    is_told: AtomicBool,
    /// What is said then.
    line: &'static str,
}

const UNREAD: &str = "clients do not read their replies: those that hold most of the memory for them are closed, and where that is not enough, \
                      large requests of all are refused";

const GATHERED: &str = "names that are gathered for KEYS fill the memory that there is for them: who asks for many meanwhile is refused";

const BEGUN: &str = "half requests that clients do not end fill the memory that there is for them: who begins a large one meanwhile is closed";

const WAITING: &str = "requests that wait for ids, and what was sent behind them, fill the memory that there is for them: 16 may wait of each \
                       connection, and little is read ahead";

impl Unread {
    /// None beyond `most` bytes, but for what is made meanwhile, where there may be so many connections.
    pub(crate) fn up_to(most: usize, connections: usize) -> Self {
        let counts_from = (most / connections.max(1)).clamp(COUNTS_FROM_AT_LEAST, COUNTS_FROM);
        Self { held: AtomicUsize::new(0), most, counts_from, is_told: AtomicBool::new(false), line: UNREAD }
    }

    /// The same of requests that have begun, and are not whole yet.
    pub(crate) fn of_begun(most: usize, connections: usize) -> Self {
        Self { line: BEGUN, ..Self::up_to(most, connections) }
    }

    /// The same of names that are gathered, with less room: no connection is closed for them.
    pub(crate) fn of_gathered(most: usize, connections: usize) -> Self {
        Self { line: GATHERED, ..Self::up_to(most / PART_OF_GATHERED, connections) }
    }

    /// The same of requests that wait.
    pub(crate) fn of_waiting(most: usize, connections: usize) -> Self {
        Self { line: WAITING, ..Self::up_to(most, connections) }
    }

    /// Bytes that wait, of connections where they count.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Those who read nothing are to go, and nobody is to hold much.
    pub(crate) fn is_too_much(&self) -> bool {
        self.held() > self.most
    }

    /// Whether there is room for the ids of one reply.
    pub(crate) fn check(&self, count: u32) -> Result<(), Refusal> {
        if count <= ALWAYS || !self.is_too_much() {
            return Ok(());
        }
        self.tell();
        let text = format!(
            "replies that clients do not read fill the memory that there is for them; at most {ALWAYS} at once, or \
             {} sequences of a list, are answered meanwhile",
            ALWAYS / IDS_A_ROW
        );
        Err(Refusal::new(Status::OVERLOADED, text).retry_after(Duration::from_secs(1)))
    }

    /// That somebody is closed or refused for this is said, and of others not until it was better.
    fn tell(&self) {
        if !self.is_told.swap(true, Relaxed) {
            warn!(held = self.held(), most = self.most, "{}", self.line);
        }
    }
}

/// One connection's part.
#[derive(Debug)]
pub(crate) struct UnreadPart {
    all: Arc<Unread>,
    held: usize,
}

impl UnreadPart {
    pub(crate) fn new(all: Arc<Unread>) -> Self {
        Self { all, held: 0 }
    }

    /// It holds so many bytes now.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = if bytes < self.all.counts_from { 0 } else { bytes };
        if bytes != self.held {
            self.all.held.fetch_add(bytes, Relaxed);
            self.all.held.fetch_sub(self.held, Relaxed);
            self.held = bytes;
            if self.all.held() <= self.all.most / 2 {
                self.all.is_told.store(false, Relaxed);
            }
        }
    }

    /// It is closed for this, which is said.
    pub(crate) fn tell(&self) {
        self.all.tell();
    }

    /// How much each may have waiting before nothing more is answered, if there is so much that the rest is for large requests
    /// of those who hold nothing: those who read slowly, however many, keep none from those who read, and those who begin to
    /// hold something at once cannot have more between them than all may have.
    pub(crate) fn bound(&self) -> Option<usize> {
        let for_holders = self.all.most - self.all.most / PART_FOR_OTHERS;
        (self.all.held() > for_holders).then_some(self.all.counts_from)
    }

    /// There is too much, and it has a part in it.
    pub(crate) fn is_too_much(&self) -> bool {
        self.held > 0 && self.all.is_too_much()
    }

    /// There is too much, whoever has a part in it.
    pub(crate) fn is_too_much_of_all(&self) -> bool {
        self.all.is_too_much()
    }

    /// There is so much that each has little room, and it has a part in it.
    pub(crate) fn is_much(&self) -> bool {
        self.held > 0 && self.bound().is_some()
    }

    /// It has a part in what there is.
    pub(crate) fn counts(&self) -> bool {
        self.held > 0
    }
}

impl Drop for UnreadPart {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_replies_are_refused_while_others_hold_too_much() {
        let all = Arc::new(Unread::up_to(1_000_000, 1));
        let mut parts: Vec<_> = (0..4).map(|_| UnreadPart::new(Arc::clone(&all))).collect();
        parts[0].set(COUNTS_FROM - 1);
        assert!(!parts[0].counts());
        for part in &mut parts {
            part.set(300_000);
        }
        assert!(all.is_too_much() && parts[0].is_too_much());
        assert_eq!(all.check(1_025).map_err(|refusal| refusal.status), Err(Status::OVERLOADED));
        assert!(all.check(1_024).is_ok());
        parts[0].set(0);
        assert!(!parts[1].is_too_much() && parts[1].counts() && !parts[0].counts());
        drop(parts);
        assert!(all.check(10_000_000).is_ok());
        assert_eq!(all.held(), 0);
    }

    #[test]
    fn where_many_may_hold_something_less_of_each_counts() {
        let counts_from = |most, connections| Unread::up_to(most, connections).counts_from;
        assert_eq!(counts_from(64 << 20, 8_192), 8 << 10);
        assert_eq!(counts_from(8 << 30, 65_536), 64 << 10);
        assert_eq!(counts_from(usize::MAX, 0), 64 << 10);
        assert_eq!(counts_from(64 << 20, 2_048), 32 << 10);
        let all = Arc::new(Unread::up_to(64 << 20, 8_192));
        let parts = (0..8_192).map(|_| UnreadPart::new(Arc::clone(&all)));
        let parts = parts.map(|mut part| {
            part.set(60 << 10);
            part
        });
        let parts: Vec<_> = parts.collect();
        assert!(all.is_too_much());
        assert_eq!(parts[0].bound(), Some(8 << 10));
    }

    /// Each has a full outbox and one reply more, of as many as are always answered, before anybody is looked at.
    #[test]
    fn those_who_read_nothing_and_begin_at_once_have_less_than_half_of_the_memory_between_them() {
        const MEMORY: usize = 512 << 20;
        let all = Arc::new(Unread::up_to(MEMORY / 8, 8_192));
        let mut parts: Vec<_> = (0..8_192).map(|_| UnreadPart::new(Arc::clone(&all))).collect();
        for part in &mut parts {
            let full = part.bound().unwrap_or(256 << 10);
            part.set(full + 8 * ALWAYS as usize);
        }
        assert!(all.held() < MEMORY / 2, "{}", all.held());
    }

    /// Forty that read 105 KB/s each would hold all of it for good.
    #[test]
    fn who_holds_something_leaves_a_quarter_to_those_who_hold_nothing() {
        let all = Arc::new(Unread::up_to(64 << 20, 1));
        let mut parts: Vec<_> = (0..40).map(|_| UnreadPart::new(Arc::clone(&all))).collect();
        let mut rounds = 0;
        // Each is answered as long as it may be.
        while parts.iter().any(|part| part.bound().is_none()) {
            for part in parts.iter_mut().filter(|part| part.bound().is_none()) {
                part.set(part.held + (100 << 10));
            }
            rounds += 1;
            assert!(rounds < 1_000, "nothing bounds them");
        }
        assert!(!all.is_too_much(), "{}", all.held());
        assert!(all.check(1_000_000).is_ok());
        let mut other = UnreadPart::new(Arc::clone(&all));
        assert_eq!(other.bound(), Some(COUNTS_FROM), "one large reply after the other");
        other.set(20 << 20);
        assert!(all.is_too_much());
    }
}
