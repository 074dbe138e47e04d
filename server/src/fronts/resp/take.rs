//! Ids for a client: at once, or as soon as there are some.

use std::ops::Range;
use std::sync::Arc;

use futures_util::FutureExt;
use xuid_engine::Run;
use xuid_engine::sequence::{Demand, Numbers, SequenceErrorKind, SequenceName};
use xuid_protocol::{Op, Order, Refusal, Status};

use super::argument::Key;
use super::command::Shape;
use super::reply::{write_id, write_integer, write_length};
use super::waiting::{Done, Ended};
use super::{COMMAND, Session};
use crate::config::Right;
use crate::crash_points;
use crate::fronts::buffers::Outbox;
use crate::fronts::client::take_at_hand;
use crate::fronts::conversation::{run_of_ids, run_of_numbers};
use crate::fronts::names::may;
use crate::fronts::refusals::{forbidden, of_ids, of_numbers};
use crate::state::id_limit::Charged;
use crate::state::sequences::ServedSequences;

/// Commands that are answered with one take of a sequence's numbers.
const BATCH: usize = 256;

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
            || self.client.allowance.is_limited()
            || self.client.server.sequences.is_none()
        {
            return 0;
        }
        if !may(&mut self.client.rights, &self.client.server.access, Right::Next, name) {
            return 0;
        }
        let Some(sequence) = self.client.names.find(name) else { return 0 };
        let room = outbox.room().div_ceil(LONGEST_INTEGER);
        let turn = bytes.len().saturating_sub(left).div_ceil(frame.len());
        let same = bytes.chunks_exact(frame.len()).take(room.min(turn).min(BATCH));
        let count = same.take_while(|other| *other == frame).count();
        let answered = take_at_hand(sequence, count, &mut self.client.numbers);
        if answered > 0 {
            let all = self.client.numbers.drain(..).flatten();
            outbox.append(|out| all.take(answered).for_each(|number| write_integer(out, number)));
            self.client.tally.requests(Op::SeqNext, answered as u32);
            self.client.tally.answered(Op::SeqNext, answered as u32);
            self.client.was_greeted = true;
        }
        self.client.numbers.clear();
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
        self.client.tally.request(op);
        let taken = match key {
            Key::Ids(order) => self.take_ids(op, order, count, shape, outbox),
            Key::Name(name) => self.take_numbers(op, &name, count, shape, outbox),
        };
        if !self.waiting.is_some() {
            self.client.tally.answered(op, 1);
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
        self.client.limits.check_count(count)?;
        self.client.check_unread(op, count)?;
        match self.client.take_ids(count, order, self.client.default_wait())? {
            None => {
                write_ids(shape, &self.client.ids, outbox);
                self.client.ids.clear();
                self.client.tally.ids(op, count.into());
            }
            Some((charged, pending)) => {
                self.wait_for(op, charged, pending.map(move |result| Ended::Ids(shape, result)));
            }
        }
        Ok(())
    }

    fn take_numbers(
        &mut self,
        op: Op,
        name: &SequenceName,
        count: u32,
        shape: Shape,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let server = Arc::clone(&self.client.server);
        let sequences = served(server.sequences.as_ref())?;
        if !may(&mut self.client.rights, &server.access, Right::Next, name.as_str().as_bytes()) {
            return Err(forbidden(op, name.as_str()));
        }
        let sequence = self.client.names.sequence(sequences, name)?;
        self.client.limits.check_count(count)?;
        self.client.check_unread(op, count)?;
        let demand = match shape {
            Shape::Last | Shape::Piece if count > 1 => Demand::ordered(count).contiguous(),
            _ => Demand::ordered(count),
        };
        match self.client.take_numbers(&sequence, demand, self.client.default_wait())? {
            None => {
                write_numbers(shape, &self.client.numbers, outbox);
                self.client.numbers.clear();
            }
            Some((charged, pending)) => {
                let name = name.clone();
                self.wait_for(op, charged, pending.map(move |result| Ended::Numbers(shape, name, result)));
            }
        }
        Ok(())
    }

    /// The next reply is this one's, as soon as it is there.
    pub(super) fn wait_for(
        &mut self,
        op: Op,
        charged: Charged,
        ended: impl Future<Output = Ended> + Send + 'static,
    ) {
        self.waiting.begin(op, charged, self.client.came, ended);
    }

    /// Writes the reply of a command that waited.
    pub(super) fn write(&mut self, done: Done, outbox: &mut Outbox) {
        let Done { op, charged, came, ended } = done;
        if let Some(Ended::Numbers(_, name, Err(error))) = &ended
            && error.kind() == SequenceErrorKind::NoSequence
            && let Some(similar) = self.client.look_for_similar(name)
        {
            return self.wait_for(op, charged, similar.map(|refusal| Ended::Answer(Err(refusal))));
        }
        if let Some(came) = came {
            self.client.tally.waited(op, came);
        }
        let refusal = match ended {
            Some(Ended::Ids(shape, Ok(runs))) => {
                self.client.tally.ids(op, runs.iter().map(|run| u64::from(run.len())).sum());
                return write_ids(shape, &runs, outbox);
            }
            Some(Ended::Numbers(shape, _, Ok(numbers))) => return write_numbers(shape, &numbers, outbox),
            Some(Ended::Answer(Ok(reply))) => return self.reply(&reply, outbox),
            Some(Ended::Ids(_, Err(error))) => of_ids(&self.client.server, error),
            Some(Ended::Numbers(_, name, Err(error))) => of_numbers(error, &name),
            Some(Ended::Answer(Err(refusal))) => refusal,
            None => self.client.panicked(COMMAND),
        };
        self.client.allowance.give_back(charged);
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
