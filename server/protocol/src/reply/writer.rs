//! Replies that carry many ids, written straight into the output as the ids are taken.
//!
//! # Invariants
//! - I1 the output ends with a whole frame or is as long as before: a writer that is dropped unfinished takes its
//!   frame back;
//! - I2 a finished frame holds exactly the count it was begun with: all or nothing.
//!
//! I1 is for the writers that append; [`ArraySlots`] leaves it to whoever owns the memory.

use crate::header::{HEADER_LEN, Header};
use crate::limits::COUNT_CEILING;
use crate::op::Op;
use crate::run::Run;

/// The reply to ARRAY, or to `SEQ_ARRAY`, in the making.
///
/// ```
/// use xuid_protocol::ArrayWriter;
/// let mut out = Vec::new();
/// let mut writer = ArrayWriter::begin(&mut out, 7, 5);
/// writer.run(100, 3);
/// writer.ids(&[200, 300]);
/// writer.finish();
/// assert_eq!(out.len(), 16 + 8 + 5 * 8);
/// ```
#[derive(Debug)]
#[must_use = "a writer that is not finished takes its frame back"]
pub struct ArrayWriter<'o> {
    frame: Frame<'o>,
    left: u32,
}

impl<'o> ArrayWriter<'o> {
    /// Begins the frame of exactly `count` ids; room for all of them is made at once.
    ///
    /// # Panics
    /// If `count` is above [`COUNT_CEILING`].
    pub fn begin(out: &'o mut Vec<u8>, request_id: u64, count: u32) -> Self {
        Self::begin_op(out, Op::Array, request_id, count)
    }

    /// The same for `SEQ_ARRAY`.
    ///
    /// # Panics
    /// As [`begin`](Self::begin).
    pub fn of_sequence(out: &'o mut Vec<u8>, request_id: u64, count: u32) -> Self {
        Self::begin_op(out, Op::SeqArray, request_id, count)
    }

    fn begin_op(out: &'o mut Vec<u8>, op: Op, request_id: u64, count: u32) -> Self {
        assert!(count <= COUNT_CEILING, "{count} ids in one frame");
        let body_len = 8 + 8 * count as usize;
        out.reserve(HEADER_LEN + body_len);
        let frame = Frame::begin(out);
        frame.out.extend_from_slice(&Header::reply(op, body_len as u32, request_id).encode());
        // The second word is reserved.
        frame.out.extend_from_slice(&u64::from(count).to_le_bytes());
        Self { frame, left: count }
    }

    /// How many ids are missing.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Writes `len` ids, the first of which is `first` and each one more than the one before.
    ///
    /// # Panics
    /// If more ids come than the frame was begun for.
    #[inline]
    pub fn run(&mut self, first: u64, len: u32) {
        self.take(len);
        let at = self.frame.out.len();
        self.frame.out.resize(at + 8 * len as usize, 0);
        let (slots, _) = self.frame.out[at..].as_chunks_mut::<8>();
        write_run(slots, first);
    }

    /// Writes these ids.
    ///
    /// # Panics
    /// If more ids come than the frame was begun for.
    #[inline]
    pub fn ids(&mut self, ids: &[u64]) {
        self.take(ids.len() as u32);
        let at = self.frame.out.len();
        self.frame.out.resize(at + 8 * ids.len(), 0);
        let (slots, _) = self.frame.out[at..].as_chunks_mut::<8>();
        for (slot, id) in slots.iter_mut().zip(ids) {
            *slot = id.to_le_bytes();
        }
    }

    /// Ends the frame.
    ///
    /// # Panics
    /// If ids are missing: a frame must not say more than it carries.
    pub fn finish(self) {
        assert_eq!(self.left, 0, "ids missing in a reply to ARRAY");
        self.frame.keep();
    }

    #[inline]
    fn take(&mut self, len: u32) {
        assert!(len <= self.left, "{len} ids where {} are missing", self.left);
        self.left -= len;
    }
}

/// The reply to ARRAY, or to `SEQ_ARRAY`, in memory that is there already, for those who keep it: no byte is written twice.
///
/// ```
/// use xuid_protocol::ArraySlots;
/// let mut frame = vec![0; ArraySlots::frame_len(5)];
/// let mut slots = ArraySlots::begin(&mut frame, 7, 5);
/// slots.run(100, 3);
/// slots.run(200, 2);
/// slots.finish();
/// ```
#[derive(Debug)]
#[must_use = "a frame that is not finished holds what was there before"]
pub struct ArraySlots<'o> {
    left: &'o mut [[u8; 8]],
}

impl<'o> ArraySlots<'o> {
    /// Bytes of the frame of `count` ids.
    ///
    /// # Panics
    /// If `count` is above [`COUNT_CEILING`].
    #[must_use]
    pub const fn frame_len(count: u32) -> usize {
        assert!(count <= COUNT_CEILING, "more ids than a frame holds");
        HEADER_LEN + 8 + 8 * count as usize
    }

    /// Begins the frame of exactly `count` ids.
    ///
    /// # Panics
    /// If `frame` is not [`frame_len`](Self::frame_len) bytes long.
    pub fn begin(frame: &'o mut [u8], request_id: u64, count: u32) -> Self {
        Self::begin_op(frame, Op::Array, request_id, count)
    }

    /// The same for `SEQ_ARRAY`.
    ///
    /// # Panics
    /// As [`begin`](Self::begin).
    pub fn of_sequence(frame: &'o mut [u8], request_id: u64, count: u32) -> Self {
        Self::begin_op(frame, Op::SeqArray, request_id, count)
    }

    fn begin_op(frame: &'o mut [u8], op: Op, request_id: u64, count: u32) -> Self {
        assert_eq!(frame.len(), Self::frame_len(count), "the frame of {count} ids");
        let (front, ids) = frame.split_at_mut(HEADER_LEN + 8);
        let body_len = (8 + ids.len()) as u32;
        front[..HEADER_LEN].copy_from_slice(&Header::reply(op, body_len, request_id).encode());
        // The second word is reserved.
        front[HEADER_LEN..].copy_from_slice(&u64::from(count).to_le_bytes());
        Self { left: ids.as_chunks_mut().0 }
    }

    /// Writes `len` ids, the first of which is `first` and each one more than the one before.
    ///
    /// # Panics
    /// If more ids come than the frame was begun for.
    #[inline]
    pub fn run(&mut self, first: u64, len: u32) {
        let (missing, len) = (self.left.len(), len as usize);
        assert!(len <= missing, "{len} ids where {missing} are missing");
        let (slots, left) = std::mem::take(&mut self.left).split_at_mut(len);
        write_run(slots, first);
        self.left = left;
    }

    /// Writes a run of any stride.
    ///
    /// # Panics
    /// If more ids come than the frame was begun for.
    pub fn push(&mut self, run: Run) {
        if run.stride == 1 {
            return self.run(run.first, run.count);
        }
        let (missing, len) = (self.left.len(), run.count as usize);
        assert!(len <= missing, "{len} ids where {missing} are missing");
        let (slots, left) = std::mem::take(&mut self.left).split_at_mut(len);
        for (slot, id) in slots.iter_mut().zip(run) {
            *slot = id.to_le_bytes();
        }
        self.left = left;
    }

    /// Ends the frame.
    ///
    /// # Panics
    /// If ids are missing: a frame must not say more than it carries.
    pub fn finish(self) {
        assert!(self.left.is_empty(), "ids missing in a reply to ARRAY");
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// `first` and what follows it, one a slot. Those before the first whole line by themselves: a frame's ids begin
/// anywhere, and of the stores that write two at once every fourth would lie across two lines, which costs a third more
/// in all.
#[inline]
fn write_run(slots: &mut [[u8; 8]], first: u64) {
    // All of them, where no slot begins with a line.
    let few = slots.as_ptr().align_offset(LINE).min(slots.len());
    let (head, lines) = slots.split_at_mut(few);
    write_slots(head, first);
    write_slots(lines, first.wrapping_add(few as u64));
}

#[inline]
fn write_slots(slots: &mut [[u8; 8]], first: u64) {
    for (offset, slot) in slots.iter_mut().enumerate() {
        *slot = first.wrapping_add(offset as u64).to_le_bytes();
    }
}

/// The reply to RUNS, or to `SEQ_RUNS`, in the making. Runs of one stride that go on from each other become one.
///
/// ```
/// use xuid_protocol::RunsWriter;
/// let mut out = Vec::new();
/// let mut writer = RunsWriter::begin(&mut out, 7, 60);
/// writer.run(100, 30);
/// writer.run(130, 20);
/// writer.run(900, 10);
/// writer.finish();
/// assert_eq!(out.len(), 16 + 8 + 2 * 16);
/// ```
#[derive(Debug)]
#[must_use = "a writer that is not finished takes its frame back"]
pub struct RunsWriter<'o> {
    frame: Frame<'o>,
    op: Op,
    request_id: u64,
    count: u32,
    left: u32,
    runs: u32,
    /// Not written yet, because the next one may touch it; empty at first.
    last: Run,
}

impl<'o> RunsWriter<'o> {
    /// Begins the frame of exactly `count` ids.
    ///
    /// # Panics
    /// If `count` is above [`COUNT_CEILING`].
    pub fn begin(out: &'o mut Vec<u8>, request_id: u64, count: u32) -> Self {
        Self::begin_op(out, Op::Runs, request_id, count)
    }

    /// The same for `SEQ_RUNS`.
    ///
    /// # Panics
    /// As [`begin`](Self::begin).
    pub fn of_sequence(out: &'o mut Vec<u8>, request_id: u64, count: u32) -> Self {
        Self::begin_op(out, Op::SeqRuns, request_id, count)
    }

    fn begin_op(out: &'o mut Vec<u8>, op: Op, request_id: u64, count: u32) -> Self {
        assert!(count <= COUNT_CEILING, "{count} ids in one frame");
        let frame = Frame::begin(out);
        // Header and counts are known at the end.
        frame.out.extend_from_slice(&[0; HEADER_LEN + 8]);
        Self {
            frame,
            op,
            request_id,
            count,
            left: count,
            runs: 0,
            last: Run { first: 0, count: 0, stride: 1 },
        }
    }

    /// How many ids are missing.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Adds `len` consecutive ids from `first`. An empty run is passed over.
    ///
    /// # Panics
    /// If more ids come than the frame was begun for.
    #[inline]
    pub fn run(&mut self, first: u64, len: u32) {
        self.push(Run { first, count: len, stride: 1 });
    }

    /// Adds a run of any stride. An empty run is passed over.
    ///
    /// # Panics
    /// If more ids come than the frame was begun for.
    pub fn push(&mut self, run: Run) {
        assert!(run.count <= self.left, "{} ids where {} are missing", run.count, self.left);
        if run.count == 0 {
            return;
        }
        self.left -= run.count;
        let last = &mut self.last;
        // At most 2^32 * 2^32, less both: it fits.
        let span = u64::from(last.count) * u64::from(last.stride);
        let goes_on = last.stride == run.stride && last.first.checked_add(span) == Some(run.first);
        if goes_on && last.count > 0 {
            last.count += run.count;
            return;
        }
        let done = std::mem::replace(last, run);
        self.write(done);
    }

    fn write(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        let number = u128::from(run.first) | u128::from(run.count) << 64 | u128::from(run.stride) << 96;
        self.frame.out.extend_from_slice(&number.to_le_bytes());
        self.runs += 1;
    }

    /// Ends the frame.
    ///
    /// # Panics
    /// If ids are missing: a frame must not say more than it carries.
    pub fn finish(mut self) {
        assert_eq!(self.left, 0, "ids missing in a reply to RUNS");
        self.write(self.last);
        let Self { frame, op, request_id, count, runs, .. } = self;
        let header = Header::reply(op, 8 + 16 * runs, request_id);
        let front = &mut frame.out[frame.begin..][..HEADER_LEN + 8];
        front[..HEADER_LEN].copy_from_slice(&header.encode());
        front[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&count.to_le_bytes());
        front[HEADER_LEN + 4..].copy_from_slice(&runs.to_le_bytes());
        frame.keep();
    }
}

/// The part of the output that belongs to an unfinished frame.
#[derive(Debug)]
struct Frame<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
    kept: bool,
}

impl<'o> Frame<'o> {
    fn begin(out: &'o mut Vec<u8>) -> Self {
        let begin = out.len();
        Self { out, begin, kept: false }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.out.truncate(self.begin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_is_dropped_leaves_the_output_as_it_was() {
        let mut out = vec![1, 2, 3];
        let mut array = ArrayWriter::begin(&mut out, 1, 10);
        array.run(5, 5);
        assert_eq!(array.left(), 5);
        drop(array);
        assert_eq!(out, [1, 2, 3]);
        let mut runs = RunsWriter::begin(&mut out, 1, 10);
        runs.run(5, 5);
        runs.run(50, 5);
        drop(runs);
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn a_frame_in_place_has_the_bytes_of_an_appended_one() {
        let mut appended = Vec::new();
        let mut writer = ArrayWriter::begin(&mut appended, 9, 700);
        let mut in_place = vec![0xaa; ArraySlots::frame_len(700)];
        let mut slots = ArraySlots::begin(&mut in_place, 9, 700);
        for (first, len) in [(1 << 40, 512), (77, 0), (u64::MAX >> 1, 1), (4_096, 187)] {
            writer.run(first, len);
            slots.run(first, len);
        }
        writer.finish();
        slots.finish();
        assert_eq!(in_place, appended);
    }

    #[test]
    fn a_run_is_the_same_wherever_in_memory_it_begins() {
        let mut memory = vec![0; 8 * 40 + LINE];
        for begin in 0..LINE {
            for len in [0, 1, 7, 8, 9, 16, 40] {
                memory.fill(0xaa);
                let (slots, _) = memory[begin..][..8 * len].as_chunks_mut();
                write_run(slots, u64::MAX - 4);
                let ids: Vec<u64> = slots.iter().map(|slot| u64::from_le_bytes(*slot)).collect();
                let wanted: Vec<u64> = (0..len as u64).map(|at| (u64::MAX - 4).wrapping_add(at)).collect();
                assert_eq!(ids, wanted, "{len} ids from byte {begin} on");
                let beside = memory[..begin].iter().chain(&memory[begin + 8 * len..]);
                assert!(beside.copied().all(|byte| byte == 0xaa), "{len} ids from byte {begin} on");
            }
        }
    }

    #[test]
    #[should_panic(expected = "ids missing")]
    fn a_frame_in_place_must_be_filled() {
        let mut frame = vec![0; ArraySlots::frame_len(10)];
        let mut slots = ArraySlots::begin(&mut frame, 1, 10);
        slots.run(0, 9);
        slots.finish();
    }

    #[test]
    #[should_panic(expected = "11 ids where 10 are missing")]
    fn more_ids_than_announced_are_a_mistake_of_the_server() {
        ArrayWriter::begin(&mut Vec::new(), 1, 10).run(0, 11);
    }

    #[test]
    #[should_panic(expected = "ids missing")]
    fn fewer_ids_than_announced_are_a_mistake_of_the_server() {
        let mut out = Vec::new();
        let mut writer = RunsWriter::begin(&mut out, 1, 10);
        writer.run(0, 9);
        writer.finish();
    }
}
