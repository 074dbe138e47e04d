//! The two buffers of a connection. Both are bounded and reused.

/// Bytes that were read and not yet understood.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    at: usize,
}

/// Bytes that were answered and not yet written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    at: usize,
}

impl Inbox {
    /// What is there.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// The first `count` bytes are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.at += count;
        debug_assert!(self.at <= self.bytes.len());
        if self.at == self.bytes.len() {
            self.clear();
        }
    }

    /// Nothing more is wanted of what is there.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
    }

    /// Room to read into, behind what is there: at least `least` bytes in all. What was consumed is dropped.
    pub(crate) fn room(&mut self, least: usize) -> &mut Vec<u8> {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        if self.bytes.capacity() < least {
            self.bytes.reserve_exact(least - self.bytes.len());
        }
        &mut self.bytes
    }

    /// Doubles the room, up to `most`, if the read before this filled it: an idle connection holds little that way,
    /// and a busy one is read in large pieces.
    pub(crate) fn widen(&mut self, most: usize) {
        let capacity = self.bytes.capacity();
        if self.bytes.len() == capacity && capacity < most {
            self.bytes.reserve_exact(capacity.min(most - capacity));
        }
    }

    /// Gives memory back, if nothing is there.
    pub(crate) fn shrink(&mut self, to: usize) {
        if self.bytes.is_empty() {
            self.bytes.shrink_to(to);
        }
    }
}

impl Outbox {
    /// What is to be written.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// How many bytes that is.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether everything is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where frames are appended.
    pub(crate) fn frames(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The first `count` bytes are written.
    pub(crate) fn consume(&mut self, count: usize) {
        self.at += count;
        debug_assert!(self.at <= self.bytes.len());
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at > self.len() {
            // A reader that never quite catches up must not make the buffer grow: less is moved than was written.
            self.bytes.drain(..self.at);
            self.at = 0;
        }
    }

    /// Gives memory back, if nothing is there.
    pub(crate) fn shrink(&mut self, to: usize) {
        if self.is_empty() {
            self.bytes.shrink_to(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_grows_only_when_reads_fill_it_and_never_beyond_its_bound() {
        let mut inbox = Inbox::default();
        let mut last = 0;
        for _ in 0..10 {
            let room = inbox.room(4_112);
            room.resize(room.capacity(), 7);
            inbox.widen(65_536);
            last = inbox.bytes.capacity();
            let whole = inbox.rest().len();
            inbox.consume(whole);
        }
        assert_eq!(last, 65_536);
        inbox.shrink(4_112);
        assert_eq!(inbox.bytes.capacity(), 4_112);
    }

    #[test]
    fn half_a_frame_stays_at_the_front() {
        let mut inbox = Inbox::default();
        inbox.room(64).extend_from_slice(b"whole-half");
        inbox.consume(6);
        inbox.room(64).extend_from_slice(b"-rest");
        assert_eq!(inbox.rest(), b"half-rest");
    }

    #[test]
    fn an_outbox_that_is_never_empty_does_not_grow() {
        let mut outbox = Outbox::default();
        for _ in 0..10_000 {
            outbox.frames().extend_from_slice(&[0; 100]);
            outbox.consume(outbox.len() - 1);
        }
        assert!(outbox.bytes.capacity() < 1_000, "{}", outbox.bytes.capacity());
    }
}
