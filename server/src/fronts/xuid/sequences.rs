//! What a session does with named sequences.
//!
//! A request is checked in this order: the name is legal (the parser did that), the token may do it, the name exists,
//! the count. Numbers that the process holds are answered at once; what the store must be asked for waits as a request
//! for ids does, and no thread waits with it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use xuid_engine::sequence::store::NewSequence;
use xuid_engine::sequence::{Demand, SequenceName, Sequences};
use xuid_protocol::{
    ID_REPLY_LEN, Op, Order, Refusal, Request, SeqBulk, SeqList, Status, plain_seq_next, seq_id_reply,
};

use crate::config::Right;
use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::client::take_at_hand;
use crate::fronts::names::{alter, list_all, may};
use crate::fronts::refusals::{forbidden, of_control};
use crate::fronts::xuid::Session;
use crate::fronts::xuid::answer;
use crate::fronts::xuid::waiting::{Json, Shape, Waiting};
use crate::state::id_limit::Charged;
use crate::state::sequences::{ServedSequences, as_json, list_as_json};

/// A connection may have such a part of the places that are left.
const PART_OF_PLACES: u64 = 16;

/// Frames of one batch. So many share one take of the sequence's numbers, and a batch that finds too few costs no more.
const BATCH: usize = 256;

/// Sequences of one connection that are being made at once: as many as share one change of the store.
const MOST_CREATIONS: usize = 64;

impl Session {
    /// Answers the frames at the front that are nothing but `SEQ_NEXT` of one name, as far as numbers are at hand, and none
    /// of the last `left` bytes; false if there was none. [`frame`](Self::frame) answers the same one by one.
    pub(super) fn seq_nexts(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, left: usize) -> bool {
        let rest = inbox.rest();
        let Some((_, name, len)) = plain_seq_next(rest) else { return false };
        if self.client.allowance.is_limited() || self.client.server.sequences.is_none() {
            return false;
        }
        let name_of = |frame: &[u8]| -> bool { frame[..8] == rest[..8] && frame[16..] == rest[16..len] };
        let room = outbox.room().div_ceil(ID_REPLY_LEN);
        let turn = rest.len().saturating_sub(left).div_ceil(len);
        let most = room.min(turn).min(BATCH);
        let frames = rest.chunks_exact(len).take(most).take_while(|frame| name_of(frame)).count();
        if !may(&mut self.client.rights, &self.client.server.access, Right::Next, name) {
            return false;
        }
        let Some(sequence) = self.client.names.find(name) else { return false };
        let answered = take_at_hand(sequence, frames, &mut self.client.numbers);
        if answered == 0 {
            self.client.numbers.clear();
            return false;
        }
        let mut numbers = self.client.numbers.drain(..).flatten();
        outbox.put(answered * ID_REPLY_LEN, |slots| {
            let (slots, _) = slots.as_chunks_mut::<ID_REPLY_LEN>();
            let mut written = 0;
            for ((frame, slot), number) in rest.chunks_exact(len).zip(slots).zip(&mut numbers) {
                let Some(request_id) = frame[8..16].first_chunk() else { break };
                *slot = seq_id_reply(u64::from_le_bytes(*request_id), number);
                written += ID_REPLY_LEN;
            }
            written
        });
        drop(numbers);
        self.client.tally.requests(Op::SeqNext, answered as u32);
        self.client.tally.answered(Op::SeqNext, answered as u32);
        inbox.consume(answered * len);
        true
    }

    /// Answers a request about sequences, or lets it wait.
    pub(super) fn of_sequences(
        &mut self,
        request_id: u64,
        request: Request<'_>,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let op = request.op();
        let server = Arc::clone(&self.client.server);
        let Some(sequences) = &server.sequences else { return Err(answer::no_sequences(op)) };
        match request {
            Request::SeqNext { name } => {
                let name = self.allowed(Right::Next, op, name)?;
                let shape = Shape::SeqNext { request_id };
                self.take_numbers(sequences, &name, shape, Demand::ordered(1), server.limits.wait, outbox)
            }
            Request::SeqArray(asked) | Request::SeqRuns(asked) => {
                let SeqBulk { name, bulk, contiguous } = asked;
                let name = self.allowed(Right::Next, op, name)?;
                if let Err(refusal) = self.client.limits.check_count(bulk.count) {
                    return self.refuse_count(sequences, op, request_id, &name, refusal);
                }
                let demand = match bulk.order {
                    Order::Any => Demand::any(bulk.count),
                    _ => Demand::ordered(bulk.count),
                };
                let demand = if contiguous { demand.contiguous() } else { demand };
                let shape = match op {
                    Op::SeqRuns => Shape::SeqRuns { request_id, count: bulk.count },
                    _ => Shape::SeqArray { request_id, count: bulk.count },
                };
                self.take_numbers(sequences, &name, shape, demand, bulk.wait(), outbox)
            }
            Request::SeqInfo { name } => {
                if !self.client.rights.now(&server.access).may_see(name.as_str()) {
                    return Err(forbidden(op, name.as_str()));
                }
                let (all, name) = (sequences.all.clone(), SequenceName::from(name));
                self.ask_in_turn(op, request_id, async move {
                    let info = all.info(&name).await;
                    info.map(|info| as_json(&info).to_string()).map_err(|error| of_control(&error))
                });
                Ok(())
            }
            Request::SeqList(list) => {
                self.client.limits.check_list(list.limit)?;
                self.client.check_unread(op, list.limit)?;
                let rights = self.client.rights.now(&server.access).clone();
                let all = sequences.all.clone();
                let SeqList { limit, prefix, after } = list;
                let (prefix, after) = (prefix.to_owned(), after.to_owned());
                let page = list_all(all, rights, limit, prefix, after);
                self.ask_in_turn(op, request_id, async move { Ok(list_as_json(&page.await?)) });
                Ok(())
            }
            Request::SeqCreate { name, settings } => {
                let name = self.allowed(Right::Create, op, name)?;
                let new = sequences.parse_new(settings).map_err(bad_request)?;
                self.create(sequences.all.clone(), request_id, name, new);
                Ok(())
            }
            Request::SeqAlter { name, changes } => {
                let name = self.allowed(Right::Alter, op, name)?;
                let changes = ServedSequences::parse_changes(changes).map_err(bad_request)?;
                let altered = alter(sequences.all.clone(), name, changes);
                self.ask_in_turn(op, request_id, async move { Ok(as_json(&altered.await?).to_string()) });
                Ok(())
            }
            _ => unreachable!("a request about something else"),
        }
    }

    /// The name, if the client's token may do that with it.
    fn allowed(
        &mut self,
        right: Right,
        op: Op,
        name: xuid_protocol::SequenceName<'_>,
    ) -> Result<SequenceName, Refusal> {
        if may(&mut self.client.rights, &self.client.server.access, right, name.as_str().as_bytes()) {
            return Ok(name.into());
        }
        Err(forbidden(op, name.as_str()))
    }

    /// Answers with numbers now, or lets the request wait for them.
    fn take_numbers(
        &mut self,
        sequences: &ServedSequences,
        name: &SequenceName,
        shape: Shape,
        demand: Demand,
        wait: Duration,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.client.check_unread(shape.op(), demand.count())?;
        let sequence = self.client.names.sequence(sequences, name)?;
        // As of ids: so that some places are left for others, however many connections fill the line.
        let has_place = (self.waiting.len() as u64) < sequence.places() / PART_OF_PLACES;
        let wait = if has_place { wait } else { Duration::ZERO };
        match self.client.take_numbers(&sequence, demand, wait)? {
            None => shape.write_numbers(self.client.numbers.drain(..), outbox),
            Some((charged, pending)) => {
                let (name, came) = (name.clone(), self.client.came);
                self.waiting.push(Waiting::numbers(shape, charged, pending, name, came));
            }
        }
        Ok(())
    }

    /// A count out of range, of a name that may not exist either, which is said first.
    fn refuse_count(
        &mut self,
        sequences: &ServedSequences,
        op: Op,
        request_id: u64,
        name: &SequenceName,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        if sequences.knows(name) {
            return Err(refusal);
        }
        self.client.names.check_look_up(sequences, name)?;
        // It brings no numbers, whatever the answer is.
        self.client.names.was_unknown();
        let (all, name) = (sequences.all.clone(), name.clone());
        let answer = in_turn(&mut self.look_ups_turn, async move {
            Err(all.info(&name).await.map_or_else(|error| of_control(&error), |_| refusal))
        });
        self.wait_for(op, request_id, answer);
        Ok(())
    }

    /// Has a sequence made: at once, so that what is read behind it finds it, or in turn when many are being made already. They
    /// share changes of the store.
    fn create(&mut self, all: Sequences, request_id: u64, name: SequenceName, new: NewSequence) {
        let own = self.creations_turn.get_or_insert_with(|| Arc::new(Semaphore::new(MOST_CREATIONS)));
        let own = Arc::clone(own);
        let begun =
            Arc::clone(&own).try_acquire_owned().ok().map(|turn| (turn, all.create(&name, new.clone())));
        self.wait_for(Op::SeqCreate, request_id, async move {
            let (_turn, reply) = match begun {
                Some((turn, reply)) => (Some(turn), reply),
                // It is never closed.
                None => (own.acquire_owned().await.ok(), all.create(&name, new)),
            };
            reply.await.map(|info| as_json(&info).to_string()).map_err(|error| of_control(&error))
        });
    }

    /// Asks the store when no other question of this connection is asked: a thousand of them hold up nobody else's, and what
    /// nobody reads is not asked for. So `json` must not ask before it is awaited.
    fn ask_in_turn(
        &mut self,
        op: Op,
        request_id: u64,
        json: impl Future<Output = Result<String, Refusal>> + Send + 'static,
    ) {
        let json = in_turn(&mut self.questions_turn, json);
        self.wait_for(op, request_id, json);
    }

    /// Lets a request wait for an answer in JSON.
    pub(super) fn wait_for(
        &mut self,
        op: Op,
        request_id: u64,
        json: impl Future<Output = Result<String, Refusal>> + Send + 'static,
    ) {
        let json: Pin<Box<Json>> = Box::pin(json);
        self.waiting.push(Waiting::json(
            Shape::Json { op, request_id },
            Charged::default(),
            json,
            self.client.came,
        ));
    }

    /// A look-up found nothing: the answer says which name was meant, if the store has one like it.
    pub(super) fn look_for_similar(
        &mut self,
        shape: Shape,
        charged: Charged,
        name: &SequenceName,
        came: Option<Instant>,
    ) -> bool {
        let Some(similar) = self.client.look_for_similar(name) else { return false };
        let json: Pin<Box<Json>> = Box::pin(in_turn(&mut self.look_ups_turn, similar.map(Err)));
        self.waiting.push(Waiting::json(shape, charged, json, came));
        true
    }
}

/// The same question, asked when none is any more that was given this turn before.
fn in_turn<F: Future>(
    turn: &mut Option<Arc<Semaphore>>,
    question: F,
) -> impl Future<Output = F::Output> + use<F> {
    let own = Arc::clone(turn.get_or_insert_with(|| Arc::new(Semaphore::new(1))));
    async move {
        // It is never closed.
        let _own = own.acquire().await;
        question.await
    }
}

fn bad_request(text: String) -> Refusal {
    Refusal::new(Status::BAD_REQUEST, text)
}
