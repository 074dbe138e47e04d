//! The two buffers of a connection. Both are bounded and reused.
//!
//! # Invariants
//! - I1 a buffer in which nothing is has no memory: it took what its thread had to spare, and gave it back. Half a
//!   frame that waits for its other half has as many bytes as it needs. Most requests are answered as soon as they are
//!   read, and most replies are written as soon as they are made. So all connections of a thread use the same few
//!   pages, which stay in that core's cache, and a thousand quiet connections cost nothing, whatever they did before.

use std::cell::Cell;
use std::thread::LocalKey;

/// From here on nothing more is answered until some of it is written. A quarter of a MiB keeps a fast reader busy, and
/// with one reply on top, of 1 MiB or of 3.4 MB where ids are texts, it bounds what a client that reads nothing costs.
pub(crate) const OUTBOX_HIGH: usize = 256 * 1024;

/// The same for a client that has not shown yet that it may ask: what it is told so far is short.
pub(crate) const STRANGER_HIGH: usize = 4 * 1024;

/// Memory of a thread that no buffer uses now.
type Spare = LocalKey<Cell<Vec<u8>>>;

thread_local! {
    /// For the next inbox of this thread that is read into.
    static SPARE_INBOX: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// For the next outbox of this thread in which something is.
    static SPARE_OUTBOX: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes the thread's memory, if `mine` is none.
fn borrow(mine: &mut Vec<u8>, spare: &'static Spare) {
    if mine.capacity() == 0 {
        // In a thread that is ending there is none.
        *mine = spare.try_with(Cell::take).unwrap_or_default();
    }
}

/// Gives the memory back. The larger one stays.
fn give_back(mine: &mut Vec<u8>, spare: &'static Spare) {
    let mine = std::mem::take(mine);
    let _ = spare.try_with(|spare| {
        let other = spare.take();
        spare.set(if other.capacity() > mine.capacity() { other } else { mine });
    });
}

/// Bytes that were read and not yet understood.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    at: usize,
}

/// Bytes that were answered and not yet written: those from `at` to `end`. What lies behind is memory that was written
/// before and will be again, so that a frame put there is written once and not zeroed first.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
    /// [`OUTBOX_HIGH`], less while all hold too much, or [`STRANGER_HIGH`].
    high: usize,
    /// Few requests are to wait for what comes here.
    few_wait: bool,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::up_to(OUTBOX_HIGH)
    }
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
            self.leave();
        }
    }

    /// Gives the memory back. What is there is lost.
    fn leave(&mut self) {
        self.at = 0;
        self.bytes.clear();
        give_back(&mut self.bytes, &SPARE_INBOX);
    }

    /// Nothing comes for the time being: gives the memory back, and keeps half a frame in as many bytes as it has.
    pub(crate) fn park(&mut self) {
        let rest = self.rest().to_vec();
        if rest.len() < self.bytes.capacity() {
            self.leave();
            self.bytes = rest;
        }
    }

    /// Gives memory back that is more than twice of what is there: nothing is read behind it for a while.
    pub(crate) fn trim(&mut self) {
        if self.bytes.capacity() > 2 * self.rest().len() {
            self.park();
        }
    }

    /// Room to read into, behind what is there: at least `least` bytes in all. What was consumed is dropped.
    pub(crate) fn room(&mut self, least: usize) -> &mut Vec<u8> {
        if self.bytes.capacity() < least {
            let parked = std::mem::take(&mut self.bytes);
            borrow(&mut self.bytes, &SPARE_INBOX);
            self.bytes.extend_from_slice(&parked[self.at..]);
            self.at = 0;
        }
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        if self.bytes.capacity() < least {
            self.bytes.reserve_exact(least - self.bytes.len());
        }
        &mut self.bytes
    }

    /// The same, and not a byte more: what the thread has to spare is for others.
    pub(crate) fn narrow_room(&mut self, least: usize) -> &mut Vec<u8> {
        if self.bytes.capacity() > least.max(self.rest().len()) {
            let rest = self.rest().to_vec();
            self.leave();
            self.bytes = rest;
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        let more = least.saturating_sub(self.bytes.len());
        self.bytes.reserve_exact(more);
        &mut self.bytes
    }

    /// Doubles the room, up to `most`, if the read before this filled it: a thread with little to do holds little that
    /// way, and a busy one reads in large pieces.
    pub(crate) fn widen(&mut self, most: usize) {
        let capacity = self.bytes.capacity();
        if self.bytes.len() == capacity && capacity < most {
            self.bytes.reserve_exact(capacity.min(most - capacity));
        }
    }
}

impl Drop for Inbox {
    /// What was not understood never will be; the memory is of use to others.
    fn drop(&mut self) {
        self.leave();
    }
}

impl Outbox {
    /// For a client that may not ask for anything yet.
    pub(crate) fn of_stranger() -> Self {
        Self::up_to(STRANGER_HIGH)
    }

    fn up_to(high: usize) -> Self {
        Self { bytes: Vec::new(), at: 0, end: 0, high, few_wait: false }
    }

    /// It may.
    pub(crate) fn widen(&mut self) {
        self.high = OUTBOX_HIGH;
    }

    /// From so much on nothing more is answered, or from as much as ever.
    pub(crate) fn tighten(&mut self, bound: Option<usize>) {
        if self.high > STRANGER_HIGH {
            self.high = bound.unwrap_or(OUTBOX_HIGH);
        }
    }

    /// Whether few requests are to wait from now on, since there is much of them, or of what was not read before them.
    pub(crate) fn let_few_wait(&mut self, few: bool) {
        self.few_wait = few;
    }

    /// Whether few are.
    pub(crate) fn lets_few_wait(&self) -> bool {
        self.few_wait
    }

    /// Whether all hold so much that each has less room than ever.
    pub(crate) fn is_tight(&self) -> bool {
        self.high > STRANGER_HIGH && self.high < OUTBOX_HIGH
    }

    /// Gives memory back that it does not need for what is left.
    pub(crate) fn trim(&mut self) {
        if self.bytes.capacity() - self.len() > self.len() / 4 {
            let rest = self.rest().to_vec();
            give_back(&mut self.bytes, &SPARE_OUTBOX);
            (self.at, self.end) = (0, rest.len());
            self.bytes = rest;
        }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// What is to be written.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..self.end]
    }

    /// How many bytes that is.
    pub(crate) fn len(&self) -> usize {
        self.end - self.at
    }

    /// Whether more is to wait until some of it is written.
    pub(crate) fn is_high(&self) -> bool {
        self.len() >= self.high
    }

    /// How many bytes come before that.
    pub(crate) fn room(&self) -> usize {
        self.high.saturating_sub(self.len())
    }

    /// Whether everything is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the memory back, once everything is written.
    fn leave(&mut self) {
        debug_assert!(self.is_empty());
        (self.at, self.end) = (0, 0);
        give_back(&mut self.bytes, &SPARE_OUTBOX);
    }

    /// Appends what `write` appends. If it panics, nothing.
    pub(crate) fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        borrow(&mut self.bytes, &SPARE_OUTBOX);
        self.bytes.truncate(self.end);
        let result = write(&mut self.bytes);
        self.end = self.bytes.len();
        result
    }

    /// Appends the first bytes of `most`, as many as `fill` says that it wrote. If it panics, nothing.
    pub(crate) fn put(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        borrow(&mut self.bytes, &SPARE_OUTBOX);
        let all = self.end + most;
        if self.bytes.len() < all {
            self.bytes.resize(all, 0);
        }
        let written = fill(&mut self.bytes[self.end..all]);
        debug_assert!(written <= most);
        self.end += written;
    }

    /// Takes back what was appended since [`len`](Self::len) was this.
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        self.end = self.at + len;
    }

    /// The first `count` bytes are written.
    pub(crate) fn consume(&mut self, count: usize) {
        self.at += count;
        debug_assert!(self.at <= self.end);
        if self.at == self.end {
            self.leave();
        } else if self.at > self.len() {
            // A reader that never quite catches up must not make the buffer grow: less is moved than was written.
            self.bytes.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.len());
        }
    }
}

impl Drop for Outbox {
    /// What was not written never will be; the memory is of use to others.
    fn drop(&mut self) {
        self.at = self.end;
        self.leave();
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
        assert_eq!(inbox.bytes.capacity(), 0, "an empty inbox holds nothing");
        assert_eq!(Inbox::default().room(1).capacity(), 65_536, "its memory is there for the next one");
    }

    #[test]
    fn narrow_room_is_no_more_than_was_asked_for_whatever_the_thread_has_to_spare() {
        let mut other = Inbox::default();
        other.room(65_536).extend_from_slice(b"x");
        other.consume(1);
        let mut inbox = Inbox::default();
        assert_eq!(inbox.narrow_room(4_112).capacity(), 4_112);
        inbox.narrow_room(4_112).extend_from_slice(b"whole-half");
        inbox.consume(6);
        let room = inbox.narrow_room(4_112);
        assert_eq!((&room[..], room.capacity()), (&b"half"[..], 4_112));
        drop(inbox);
        assert_eq!(Inbox::default().room(1).capacity(), 65_536, "the spare is there for the next one");
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
    fn half_a_frame_that_waits_keeps_no_more_memory_than_it_has_bytes() {
        let mut inbox = Inbox::default();
        inbox.room(65_536).extend_from_slice(b"whole-half");
        inbox.consume(6);
        inbox.park();
        assert_eq!((inbox.rest(), inbox.bytes.capacity()), (&b"half"[..], 4));
        let mut other = Inbox::default();
        assert_eq!(other.room(64).capacity(), 65_536, "the memory is there for others");
        other.park();
        inbox.room(64).extend_from_slice(b"-rest");
        assert_eq!((inbox.rest(), inbox.bytes.capacity()), (&b"half-rest"[..], 65_536));
    }

    #[test]
    fn what_waits_for_its_turn_has_twice_its_memory_at_most() {
        let mut inbox = Inbox::default();
        inbox.room(65_536).resize(60_000, 7);
        inbox.consume(20_000);
        inbox.trim();
        assert_eq!((inbox.rest().len(), inbox.bytes.capacity()), (40_000, 65_536));
        inbox.consume(10_000);
        inbox.trim();
        assert_eq!((inbox.rest().len(), inbox.bytes.capacity()), (30_000, 30_000));
    }

    #[test]
    fn an_outbox_holds_what_was_put_and_appended_in_that_order() {
        let mut outbox = Outbox::default();
        for round in 0..3 {
            outbox.put(8, |slot| {
                slot[..3].copy_from_slice(b"put");
                3
            });
            outbox.append(|out| out.extend_from_slice(b"-appended"));
            let len = outbox.len();
            outbox.append(|out| out.extend_from_slice(b"-taken back"));
            outbox.truncate(len);
            assert_eq!(outbox.rest(), b"put-appended", "round {round}");
            outbox.consume(1);
            assert_eq!(outbox.rest(), b"ut-appended");
            outbox.consume(len - 1);
            assert!(outbox.is_empty());
        }
    }

    #[test]
    fn a_frame_whose_making_panics_is_not_there() {
        let mut outbox = Outbox::default();
        outbox.append(|out| out.push(1));
        let half = std::panic::AssertUnwindSafe(|| {
            outbox.append(|out| {
                out.push(2);
                panic!("half a frame")
            })
        });
        assert!(std::panic::catch_unwind(half).is_err());
        outbox.append(|out| out.push(3));
        assert_eq!(outbox.rest(), [1, 3]);
    }

    #[test]
    fn outboxes_of_a_thread_share_memory_and_never_bytes() {
        let (mut one, mut other) = (Outbox::default(), Outbox::default());
        one.append(|out| out.extend_from_slice(b"one"));
        other.append(|out| out.extend_from_slice(b"other"));
        assert_eq!((one.rest(), other.rest()), (&b"one"[..], &b"other"[..]));
        let memory = other.bytes.as_ptr();
        other.consume(5);
        assert_eq!(other.bytes.capacity(), 0, "an empty outbox holds nothing");
        let mut third = Outbox::default();
        third.append(|out| out.extend_from_slice(b"3rd"));
        assert_eq!((third.rest(), third.bytes.as_ptr()), (&b"3rd"[..], memory));
        assert_eq!(one.rest(), b"one");
    }

    #[test]
    fn an_outbox_that_is_never_empty_does_not_grow() {
        let mut outbox = Outbox::default();
        for _ in 0..10_000 {
            outbox.append(|out| out.extend_from_slice(&[0; 100]));
            outbox.consume(outbox.len() - 1);
        }
        assert!(outbox.bytes.capacity() < 1_000, "{}", outbox.bytes.capacity());
    }

    #[test]
    fn the_bound_is_less_while_it_is_said_and_as_ever_after_that() {
        let mut outbox = Outbox::of_stranger();
        outbox.tighten(Some(8_192));
        outbox.append(|out| out.resize(5_000, 7));
        assert!(outbox.is_high(), "a stranger has less in any case");
        outbox.widen();
        assert!(!outbox.is_high());
        outbox.append(|out| out.resize(10_000, 7));
        outbox.tighten(Some(8_192));
        assert!(outbox.is_high());
        outbox.tighten(None);
        assert!(!outbox.is_high());
    }

    #[test]
    fn what_is_left_of_a_large_reply_keeps_as_much_memory_as_it_needs() {
        let mut outbox = Outbox::default();
        outbox.append(|out| out.resize(1_000_000, 7));
        outbox.consume(999_000);
        assert!(outbox.memory() >= 1_000_000);
        outbox.trim();
        assert_eq!((outbox.rest(), outbox.memory()), (&[7; 1_000][..], 1_000));
        outbox.trim();
        outbox.append(|out| out.extend_from_slice(&[8; 1_000]));
        assert_eq!((outbox.len(), outbox.rest()[999..1_001].to_vec()), (2_000, vec![7, 8]));
        outbox.consume(2_000);
        assert_eq!(outbox.memory(), 0);
        outbox.append(|out| out.push(1));
        assert!(outbox.memory() >= 1_000_000, "the memory is there for the next one");
    }
}
