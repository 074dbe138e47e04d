//! Ids for a client: at once, or as soon as there are some.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use xuid_engine::Run;
use xuid_engine::sequence::{Demand, Numbers, SequenceErrorKind, SequenceName};
use xuid_protocol::{Op, Order, Refusal, Status};

use super::Session;
use super::command::{Key, Shape};
use super::reply::{write_id, write_integer, write_length};
use super::waiting::{Done, Ended};
use crate::config::Right;
use crate::crash_points;
use crate::fronts::buffers::Outbox;
use crate::fronts::conversation::{OUTBOX_HIGH, run_of_ids, run_of_numbers};
use crate::fronts::names::{may, may_pass, similar};
use crate::fronts::refusals::{above_limit, forbidden, of_ids, of_numbers};
use crate::state::id_limit::Charged;
use crate::state::sequences::ServedSequences;

/// Commands that are answered with one take of a sequence's numbers.
const BATCH: usize = 256;

/// How long a command waits for ids at least, whatever the server's own `wait`: its client has no word for a wait, and takes an
/// error for the end. A sequence that is created by its first use needs two commits of its store.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Runs for which room is kept.
const SCRATCH_KEPT: usize = 256;

/// The longest reply of an INCR: an integer of 19 digits.
const LONGEST_INTEGER: usize = 22;

impl Session {
    /// Answers the INCR of a sequence at the front, and those behind it that have the same bytes, as far as numbers are at
    /// hand. Returns how many; 0: it is to be carried out by itself.
    pub(super) fn incrs(
        &mut self,
        frame: &[u8],
        bytes: &[u8],
        places: &[Range<usize>],
        left: usize,
        outbox: &mut Outbox,
    ) -> usize {
        // INCR key or, as redis-py says it, INCRBY key 1.
        let is = |place: &Range<usize>, word: &[u8]| frame[place.clone()].eq_ignore_ascii_case(word);
        let (name, is_one) = match places {
            [word, name] => (name, is(word, b"INCR")),
            [word, name, by] => (name, is(word, b"INCRBY") && is(by, b"1")),
            _ => return 0,
        };
        let name = &frame[name.clone()];
        if !is_one || name.starts_with(b"@") {
            return 0;
        }
        if !self.is_admitted
            || self.queue.is_some()
            || self.allowance.is_limited()
            || self.server.sequences.is_none()
        {
            return 0;
        }
        if !may(&mut self.rights, &self.server.access, Right::Next, name) {
            return 0;
        }
        let Some(sequence) = self.names.find(name) else { return 0 };
        let room = OUTBOX_HIGH.saturating_sub(outbox.len()).div_ceil(LONGEST_INTEGER);
        let turn = bytes.len().saturating_sub(left).div_ceil(frame.len());
        let same = bytes.chunks_exact(frame.len()).take(room.min(turn).min(BATCH));
        let count = same.take_while(|other| *other == frame).count();
        // All of them with one take; else one by one, as far as there are some.
        let numbers = &mut self.numbers;
        let taken = catch_unwind(AssertUnwindSafe(|| {
            if sequence.try_runs(Demand::ordered(count as u32), numbers).is_ok() {
                return count;
            }
            let one = || sequence.try_runs(Demand::ordered(1), numbers).is_ok();
            std::iter::repeat_with(one).take(count).take_while(|is_taken| *is_taken).count()
        }));
        // A panic is answered by the command that is tried by itself; what was taken until then is spent.
        let answered = taken.unwrap_or(0);
        if answered > 0 {
            let all = self.numbers.drain(..).flatten();
            outbox.append(|out| all.take(answered).for_each(|number| write_integer(out, number)));
            self.tally.requests(Op::SeqNext, answered as u32);
            self.tally.answered(Op::SeqNext, answered as u32);
            self.was_greeted = true;
        }
        self.numbers.clear();
        answered
    }

    /// Answers with ids now, or lets the command wait for them.
    pub(super) fn take(
        &mut self,
        key: Key,
        count: u32,
        shape: Shape,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let op = shape.op(&key);
        self.tally.request(op);
        let taken = match key {
            Key::Ids(order) => self.take_ids(op, order, count, shape, outbox),
            Key::Name(name) => self.take_numbers(op, &name, count, shape, outbox),
        };
        // Also where no ids came: the engine may have gathered many runs before it gave them back.
        self.scratch.shrink_to(SCRATCH_KEPT);
        if self.waiting.is_none() {
            self.tally.answered(op, 1);
        }
        taken
    }

    fn take_ids(
        &mut self,
        op: Op,
        order: Order,
        count: u32,
        shape: Shape,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.limits.check_count(count)?;
        let charged = self.charge(count)?;
        self.charged = charged;
        let tried = self.server.engine.try_runs(count, order, &mut self.scratch);
        self.charged = Charged::default();
        match tried {
            Ok(()) => {
                let runs = std::mem::take(&mut self.scratch);
                write_ids(shape, &runs, outbox);
                self.scratch = runs;
                self.scratch.clear();
                self.tally.ids(op, count.into());
                Ok(())
            }
            Err(error) if error.is_retryable() => {
                let wait = self.wait();
                let caller = self.share.get_or_insert_default();
                let pending = self.server.engine.request(count, order, wait).on_behalf_of(caller);
                self.wait_for(op, charged, pending.map(move |result| Ended::Ids(shape, result)));
                Ok(())
            }
            Err(error) => {
                self.allowance.give_back(charged);
                Err(of_ids(&self.server, error))
            }
        }
    }

    fn take_numbers(
        &mut self,
        op: Op,
        name: &SequenceName,
        count: u32,
        shape: Shape,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let server = Arc::clone(&self.server);
        let sequences = served(server.sequences.as_ref())?;
        if !may(&mut self.rights, &server.access, Right::Next, name.as_str().as_bytes()) {
            return Err(forbidden(op, name.as_str()));
        }
        let sequence = self.names.sequence(sequences, name)?;
        self.limits.check_count(count)?;
        let charged = self.charge(count)?;
        let demand = match shape {
            Shape::Last | Shape::Piece if count > 1 => Demand::ordered(count).contiguous(),
            _ => Demand::ordered(count),
        };
        self.charged = charged;
        let tried = sequence.try_runs(demand, &mut self.numbers);
        self.charged = Charged::default();
        match tried {
            Ok(()) => {
                let numbers = std::mem::take(&mut self.numbers);
                write_numbers(shape, &numbers, outbox);
                self.numbers = numbers;
                self.numbers.clear();
                Ok(())
            }
            Err(error) if may_pass(error) => {
                let (pending, name) = (sequence.request(demand, self.wait()), name.clone());
                self.wait_for(op, charged, pending.map(move |result| Ended::Numbers(shape, name, result)));
                Ok(())
            }
            Err(error) => {
                self.allowance.give_back(charged);
                Err(of_numbers(error, name))
            }
        }
    }

    fn wait(&self) -> Duration {
        self.server.limits.wait.max(LEAST_WAIT)
    }

    /// Counts ids against the limits of the client's token and address, as far as there are any.
    fn charge(&mut self, count: u32) -> Result<Charged, Refusal> {
        self.allowance.take(count).map_err(|above| {
            self.tally.limited(above.by);
            above_limit(above, count)
        })
    }

    /// The next reply is this one's, as soon as it is there.
    pub(super) fn wait_for(
        &mut self,
        op: Op,
        charged: Charged,
        ended: impl Future<Output = Ended> + Send + 'static,
    ) {
        let came = self.came;
        let waiting = async move {
            let ended = AssertUnwindSafe(ended).catch_unwind().await.ok();
            Done { op, charged, came, ended }
        };
        self.waiting_charged = charged;
        self.waiting = Some(Mutex::new(Box::pin(waiting)));
    }

    /// Writes the reply of a command that waited.
    pub(super) fn write(&mut self, done: Done, outbox: &mut Outbox) {
        let Done { op, charged, came, ended } = done;
        if let Some(Ended::Numbers(_, name, Err(error))) = &ended
            && error.kind() == SequenceErrorKind::NoSequence
            && let Some(sequences) = &self.server.sequences
        {
            let similar = similar(sequences.all.clone(), name.clone());
            self.names.was_unknown();
            return self.wait_for(op, charged, similar.map(|refusal| Ended::Answer(Err(refusal))));
        }
        if let Some(came) = came {
            self.tally.waited(op, came);
        }
        let refusal = match ended {
            Some(Ended::Ids(shape, Ok(runs))) => {
                self.tally.ids(op, runs.iter().map(|run| u64::from(run.len())).sum());
                return write_ids(shape, &runs, outbox);
            }
            Some(Ended::Numbers(shape, _, Ok(numbers))) => return write_numbers(shape, &numbers, outbox),
            Some(Ended::Answer(Ok(reply))) => return self.reply(&reply, outbox),
            Some(Ended::Ids(_, Err(error))) => of_ids(&self.server, error),
            Some(Ended::Numbers(_, name, Err(error))) => of_numbers(error, &name),
            Some(Ended::Answer(Err(refusal))) => refusal,
            None => self.panicked(),
        };
        self.allowance.give_back(charged);
        self.refuse(&refusal, outbox);
    }
}

/// The sequences, if this server has any.
pub(super) fn served(sequences: Option<&ServedSequences>) -> Result<&ServedSequences, Refusal> {
    sequences.ok_or_else(|| {
        let text = "this server has no named sequences (sequences is off): use @any, @fresh, @ordered, or another server";
        Refusal::new(Status::UNKNOWN_OP, text)
    })
}

fn write_ids(shape: Shape, runs: &[Run], outbox: &mut Outbox) {
    for run in runs {
        crash_points::issued(run.first().raw(), run.len());
    }
    write_runs(shape, runs.iter().map(run_of_ids), outbox);
}

fn write_numbers(shape: Shape, numbers: &[Numbers], outbox: &mut Outbox) {
    write_runs(shape, numbers.iter().map(run_of_numbers), outbox);
}

/// From here on they are spent.
fn write_runs(
    shape: Shape,
    runs: impl ExactSizeIterator<Item = xuid_protocol::Run> + Clone,
    outbox: &mut Outbox,
) {
    let write_run = |out: &mut Vec<u8>, run: xuid_protocol::Run| {
        write_length(out, b'*', 3);
        write_id(out, run.first);
        write_integer(out, run.count.into());
        write_integer(out, run.stride.into());
    };
    outbox.append(|out| match shape {
        Shape::Last => {
            let last = runs.last().and_then(xuid_protocol::Run::last);
            write_integer(out, last.unwrap_or(0));
        }
        Shape::One => runs.flatten().for_each(|id| write_id(out, id)),
        Shape::List => {
            let count: u64 = runs.clone().map(|run| u64::from(run.count)).sum();
            write_length(out, b'*', count as usize);
            runs.flatten().for_each(|id| write_id(out, id));
        }
        Shape::Runs => {
            write_length(out, b'*', runs.len());
            runs.for_each(|run| write_run(out, run));
        }
        Shape::Piece => runs.for_each(|run| write_run(out, run)),
    });
}
