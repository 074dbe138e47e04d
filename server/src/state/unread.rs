//! Replies that clients have not read, of all connections together: what each may have is bounded, and there may be many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tracing::warn;
use xuid_protocol::{Refusal, Status};

/// From here on what a connection holds counts: most replies are written as soon as they are made.
pub(crate) const COUNTS_FROM: usize = 64 * 1024;

/// Ids of one reply that are always answered, be they texts.
const ALWAYS: u32 = 2_048;

/// How much there is, and may be.
#[derive(Debug)]
pub(crate) struct Unread {
    held: AtomicUsize,
    most: usize,
    /// That it was too much was said.
    is_told: AtomicBool,
}

impl Unread {
    /// None beyond `most` bytes, but for what is made meanwhile.
    pub(crate) fn up_to(most: usize) -> Self {
        Self { held: AtomicUsize::new(0), most, is_told: AtomicBool::new(false) }
    }

    /// Those who read nothing are to go, and nobody is to hold much.
    pub(crate) fn is_too_much(&self) -> bool {
        self.held.load(Relaxed) > self.most
    }

    /// Whether there is room for the ids of one reply.
    pub(crate) fn check(&self, count: u32) -> Result<(), Refusal> {
        if count <= ALWAYS || !self.is_too_much() {
            return Ok(());
        }
        let text = format!(
            "replies that clients do not read fill the memory that there is for them; at most {ALWAYS} at once are answered \
             meanwhile"
        );
        Err(Refusal::new(Status::OVERLOADED, text).retry_after(Duration::from_secs(1)))
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
        let bytes = if bytes < COUNTS_FROM { 0 } else { bytes };
        if bytes != self.held {
            self.all.held.fetch_add(bytes, Relaxed);
            self.all.held.fetch_sub(self.held, Relaxed);
            self.held = bytes;
            if self.all.held.load(Relaxed) <= self.all.most / 2 {
                self.all.is_told.store(false, Relaxed);
            }
        }
    }

    /// That it is closed for this is said, and of others not until it was better.
    pub(crate) fn tell(&self) {
        if !self.all.is_told.swap(true, Relaxed) {
            let (unread, most) = (self.all.held.load(Relaxed), self.all.most);
            warn!(
                unread,
                most,
                "clients do not read their replies: those that hold most of the memory for them are closed"
            );
        }
    }

    /// There is too much, and it has a part in it.
    pub(crate) fn is_too_much(&self) -> bool {
        self.held > 0 && self.all.is_too_much()
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
        let all = Arc::new(Unread::up_to(1_000_000));
        let mut parts: Vec<_> = (0..4).map(|_| UnreadPart::new(Arc::clone(&all))).collect();
        parts[0].set(COUNTS_FROM - 1);
        assert!(!parts[0].counts());
        for part in &mut parts {
            part.set(300_000);
        }
        assert!(all.is_too_much() && parts[0].is_too_much());
        assert_eq!(all.check(2_049).map_err(|refusal| refusal.status), Err(Status::OVERLOADED));
        assert!(all.check(2_048).is_ok());
        parts[0].set(0);
        assert!(!parts[1].is_too_much() && parts[1].counts() && !parts[0].counts());
        drop(parts);
        assert!(all.check(10_000_000).is_ok());
        assert_eq!(all.held.load(Relaxed), 0);
    }
}
