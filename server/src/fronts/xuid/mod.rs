//! One client's conversation: bytes in, bytes out, and requests that wait for ids in between. It has no socket and asks
//! no clock (but for a limit in ids a second), so a test can cut its input anywhere.
//!
//! # Invariants
//! - I1 each frame that was read is answered once; one that closes the connection takes no answer from those before it;
//! - I2 nothing is read beyond a whole frame while the output [is high](Outbox::is_high) or `max_in_flight` requests
//!   wait: what a client does not read costs it, and not us;
//! - I3 ids that were copied into the output are spent, whatever becomes of the connection;
//! - I4 within the bounds of I2, a request that is answered at once never waits behind one that waits;
//! - I5 requests that wait have a share of what there is with all others of their connection, so that connections share it.

mod answer;
mod sequences;
#[cfg(test)]
mod tests;
mod waiting;

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;
use xuid_engine::sequence::SequenceErrorKind;
use xuid_protocol::{
    HEADER_LEN, ID_REPLY_LEN, Op, Order, ParsedRequest, Phase, Preface, Refusal, Request, check_preface,
    foreign_answer, goaway, id_reply, parse_request, plain_next, reply_bye, reply_error, reply_provenance,
    reply_sequence, reply_stats,
};

pub(crate) use answer::{refuse_connection, refuse_plain};
use waiting::{Done, Ended, Shape, Waiting};

use crate::crash_points;
use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::client::Client;
use crate::fronts::conversation::{Conversation, Need};
use crate::fronts::refusals;
use crate::state::server::Server;

/// What a request that waits takes here and in the engine, about.
const WAITING_BYTES: usize = 512;

/// So many requests of a connection wait where there are very many of all, or where its client does not read what it was answered
/// while such clients hold most of the memory that there is for it.
const FEW_IN_FLIGHT: usize = 16;

/// What this front calls what it is asked.
const REQUEST: &str = "request";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preface,
    Greeting,
    Serving,
    /// Nothing is read any more, be it after a BYE, an error that closes, or the end of the input. What waits is
    /// answered, then BYE if it was that.
    Leaving {
        bye: Option<u64>,
    },
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    stage: Stage,
    /// The client is to leave. One that has not said HELLO is told behind its answer.
    sent_away: bool,
    /// PINGs that came before HELLO.
    early_pings: u32,
    waiting: FuturesUnordered<Waiting>,
    /// Held by the one of its requests that stands in line for the server's look at where an id came from.
    origins_turn: Option<Arc<Semaphore>>,
    /// The same for what is asked of the store of sequences.
    questions_turn: Option<Arc<Semaphore>>,
    /// The same of looks for a name that numbers were asked of: they do not wait for a list of all names.
    look_ups_turn: Option<Arc<Semaphore>>,
    /// Held by those sequences of this connection that are being made.
    creations_turn: Option<Arc<Semaphore>>,
    /// As `origins_turn`, for the server's figures.
    stats_turn: Option<Arc<Semaphore>>,
}

impl Session {
    /// A client that has not said anything yet, from this address.
    pub(crate) fn new(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        Self {
            client: Client::new(server, address),
            stage: Stage::Preface,
            sent_away: false,
            early_pings: 0,
            waiting: FuturesUnordered::new(),
            origins_turn: None,
            questions_turn: None,
            look_ups_turn: None,
            creations_turn: None,
            stats_turn: None,
        }
    }

    fn preface(&mut self, inbox: &mut Inbox, outbox: &mut Outbox) -> bool {
        match check_preface(inbox.rest()) {
            Preface::Incomplete { .. } => return false,
            Preface::Whole => {
                inbox.consume(xuid_protocol::PREFACE.len());
                self.stage = Stage::Greeting;
            }
            Preface::Foreign(foreign) => {
                let admin = self.client.server.places.admin;
                let admin = admin.as_ref().map(|admin| admin as &dyn std::fmt::Display);
                outbox.append(|out| foreign_answer(out, foreign, admin));
                self.client.server.traffic.foreign();
                self.stage = Stage::Leaving { bye: None };
            }
        }
        true
    }

    /// Answers the frames at the front that are nothing but NEXT, as far as ids are at hand, and none of the last `left`
    /// bytes; false if there was none. What is told here in a few comparisons a frame, [`frame`](Self::frame) tells as well.
    fn nexts(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, left: usize) -> bool {
        if self.client.allowance.is_limited() {
            return false;
        }
        let (heads, _) = inbox.rest().as_chunks::<HEADER_LEN>();
        let room = outbox.room().div_ceil(ID_REPLY_LEN);
        let turn = inbox.rest().len().saturating_sub(left).div_ceil(HEADER_LEN);
        let heads = &heads[..heads.len().min(room).min(turn)];
        if heads.first().is_none_or(|head| plain_next(head).is_none()) {
            return false;
        }
        let engine = &self.client.server.engine;
        let mut answered = 0;
        let answer = || {
            outbox.put(heads.len() * ID_REPLY_LEN, |slots| {
                let (slots, _) = slots.as_chunks_mut::<ID_REPLY_LEN>();
                for (head, slot) in heads.iter().zip(slots) {
                    let Some(request_id) = plain_next(head) else { break };
                    let Ok(id) = engine.try_next_id() else { break };
                    crash_points::issued(id.raw(), 1);
                    *slot = id_reply(request_id, id.raw());
                    answered += 1;
                }
                answered * ID_REPLY_LEN
            });
        };
        let answering = catch_unwind(AssertUnwindSafe(answer));
        // Before a byte of them is written: what a client has was counted.
        engine.publish();
        if answering.is_err() {
            // Nothing was put; the ids are spent. The frame that did it is tried by itself, and answered.
            return false;
        }
        self.client.tally.requests(Op::Next, answered as u32);
        self.client.tally.ids(Op::Next, answered as u64);
        self.client.tally.answered(Op::Next, answered as u32);
        inbox.consume(answered * HEADER_LEN);
        answered > 0
    }

    /// Answers one frame; false if there is no whole one.
    fn frame(&mut self, inbox: &mut Inbox, outbox: &mut Outbox) -> bool {
        let phase = if self.stage == Stage::Serving { Phase::Serving } else { Phase::Greeting };
        let parsed = parse_request(inbox.rest(), phase, self.client.limits.max_body);
        let ParsedRequest::Frame { consumed, request_id, op, request } = parsed else { return false };
        let before = outbox.len();
        let request = request.or_else(|refusal| {
            if phase == Phase::Greeting && !refusal.closes {
                // A PING that is refused is one, too.
                answer::check_early_pings(self.early_pings)?;
                self.early_pings += 1;
            }
            Err(refusal)
        });
        let result = request.and_then(|request| {
            let (op, waiting) = (request.op(), self.waiting.len());
            self.client.tally.request(op);
            let answer = || self.answer(request_id, request, outbox);
            let result =
                catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| Err(self.client.panicked(REQUEST)));
            if self.waiting.len() == waiting {
                self.client.tally.answered(op, 1);
            }
            result
        });
        if let Err(refusal) = result {
            outbox.truncate(before);
            self.refuse(request_id, op, &refusal, outbox);
        }
        inbox.consume(consumed);
        true
    }

    fn answer(&mut self, request_id: u64, request: Request<'_>, outbox: &mut Outbox) -> Result<(), Refusal> {
        match request {
            Request::Next { order } => {
                let shape = Shape::Next { request_id };
                self.take(shape, 1, order, self.client.server.limits.wait, outbox)
            }
            Request::Array(bulk) => {
                self.client.limits.check_count(bulk.count)?;
                let shape = Shape::Array { request_id, count: bulk.count };
                self.take(shape, bulk.count, bulk.order, bulk.wait(), outbox)
            }
            Request::Runs(bulk) => {
                self.client.limits.check_count(bulk.count)?;
                let shape = Shape::Runs { request_id, count: bulk.count };
                self.take(shape, bulk.count, bulk.order, bulk.wait(), outbox)
            }
            Request::Hello(hello) => {
                let greet = |out: &mut _| {
                    answer::hello(&self.client.server, &self.client.limits, request_id, &hello, out)
                };
                let admitted = outbox.append(greet)?;
                self.client.let_in(admitted);
                (self.stage, self.client.was_greeted) = (Stage::Serving, true);
                if self.sent_away {
                    outbox.append(goaway);
                }
                Ok(())
            }
            Request::SeqNext { .. }
            | Request::SeqArray(_)
            | Request::SeqRuns(_)
            | Request::SeqInfo { .. }
            | Request::SeqList(_)
            | Request::SeqCreate { .. }
            | Request::SeqAlter { .. } => self.of_sequences(request_id, request, outbox),
            Request::Provenance { id } => {
                let server = Arc::clone(&self.client.server);
                let own = self.origins_turn.get_or_insert_with(|| Arc::new(Semaphore::new(1)));
                let found = answer::provenance(server, Arc::clone(own), id);
                self.wait_for(Op::Provenance, request_id, found);
                Ok(())
            }
            Request::Stats => {
                let server = Arc::clone(&self.client.server);
                let own = self.stats_turn.get_or_insert_with(|| Arc::new(Semaphore::new(1)));
                let made = answer::stats(server, Arc::clone(own));
                self.wait_for(Op::Stats, request_id, made);
                Ok(())
            }
            Request::Bye => {
                self.stage = Stage::Leaving { bye: Some(request_id) };
                Ok(())
            }
            other => {
                if self.stage == Stage::Greeting {
                    answer::check_early_pings(self.early_pings)?;
                    self.early_pings += 1;
                }
                outbox.append(|out| answer::at_once(&self.client.server, request_id, other, out));
                Ok(())
            }
        }
    }

    /// Answers with ids now, or lets the request wait for them.
    fn take(
        &mut self,
        shape: Shape,
        count: u32,
        order: Order,
        wait: Duration,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.client.check_unread(shape.op(), count)?;
        match self.client.take_ids(count, order, wait)? {
            None => {
                shape.write(self.client.ids.drain(..), outbox);
                self.client.tally.ids(shape.op(), shape.ids());
            }
            Some((charged, pending)) => {
                self.waiting.push(Waiting::new(shape, charged, pending, self.client.came));
            }
        }
        Ok(())
    }

    fn finish_one(&mut self, done: Done, outbox: &mut Outbox) {
        let Done { shape, charged, came, result } = done;
        if let Some(Ended::Numbers(name, Err(error))) = &result
            && error.kind() == SequenceErrorKind::NoSequence
            && self.look_for_similar(shape, charged, name, came)
        {
            return;
        }
        if let Some(came) = came {
            self.client.tally.waited(shape.op(), came);
        }
        let refusal = match result {
            Some(Ended::Ids(Ok(runs))) => {
                shape.write(runs.into_iter(), outbox);
                self.client.tally.ids(shape.op(), shape.ids());
                return;
            }
            Some(Ended::Numbers(_, Ok(numbers))) => {
                return shape.write_numbers(numbers.into_iter(), outbox);
            }
            Some(Ended::Json(Ok(json))) => {
                let request_id = shape.request_id();
                return outbox.append(|out| match shape.op() {
                    Op::Provenance => reply_provenance(out, request_id, &json),
                    Op::Stats => reply_stats(out, request_id, &json),
                    op => reply_sequence(out, op, request_id, &json),
                });
            }
            Some(Ended::Ids(Err(error))) => refusals::of_ids(&self.client.server, error),
            Some(Ended::Numbers(name, Err(error))) => refusals::of_numbers(error, &name),
            Some(Ended::Json(Err(refusal))) => refusal,
            None => self.client.panicked(REQUEST),
        };
        self.client.allowance.give_back(charged);
        self.refuse(shape.request_id(), shape.op().code(), &refusal, outbox);
    }

    fn refuse(&mut self, request_id: u64, op: u8, refusal: &Refusal, outbox: &mut Outbox) {
        self.client.refused(refusal.status);
        outbox.append(|out| reply_error(out, request_id, op, refusal));
        if refusal.closes {
            self.stage = Stage::Leaving { bye: None };
        }
    }
}

impl Conversation for Session {
    type Done = Done;

    fn client(&self) -> &Client {
        &self.client
    }

    fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    fn longest_request(&self) -> usize {
        HEADER_LEN + self.client.limits.max_body as usize
    }

    fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving { .. })
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting.len() * WAITING_BYTES
    }

    fn receive(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, turn: usize) -> Need {
        let left = inbox.rest().len().saturating_sub(turn);
        let need = loop {
            // Those that wait are memory, too, and done before others come where there is little of it.
            let most = if outbox.lets_few_wait() { FEW_IN_FLIGHT } else { usize::MAX };
            if outbox.is_high() || self.waiting.len() >= most.min(self.client.limits.max_in_flight as usize) {
                break Need::Room;
            }
            if (1..=left).contains(&inbox.rest().len()) {
                break Need::Turn;
            }
            let stepped = match self.stage {
                Stage::Preface => self.preface(inbox, outbox),
                Stage::Greeting => self.frame(inbox, outbox),
                Stage::Serving => {
                    self.nexts(inbox, outbox, left)
                        || self.seq_nexts(inbox, outbox, left)
                        || self.frame(inbox, outbox)
                }
                Stage::Leaving { .. } if !self.waiting.is_empty() => break Need::Room,
                Stage::Leaving { bye } => {
                    if let Some(request_id) = bye {
                        outbox.append(|out| reply_bye(out, request_id));
                        self.stage = Stage::Leaving { bye: None };
                    }
                    break Need::End;
                }
            };
            if !stepped {
                break Need::Input;
            }
        };
        self.client.received(outbox);
        need
    }

    async fn waited(&mut self) -> Done {
        match self.waiting.next().await {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    fn finish(&mut self, done: Done, outbox: &mut Outbox) {
        self.finish_one(done, outbox);
        while !outbox.is_high() {
            let Some(Some(done)) = self.waiting.next().now_or_never() else { break };
            self.finish_one(done, outbox);
        }
        self.client.add_up();
    }

    fn input_ended(&mut self) {
        if !self.is_leaving() {
            self.stage = Stage::Leaving { bye: None };
        }
    }

    fn has_goaway(&self) -> bool {
        true
    }

    fn go_away(&mut self, outbox: &mut Outbox) {
        self.sent_away = true;
        if self.stage == Stage::Serving {
            outbox.append(goaway);
        }
    }
}

/// What still waits was not issued.
impl Drop for Session {
    fn drop(&mut self) {
        self.waiting.iter().for_each(|waiting| self.client.allowance.give_back(waiting.charged()));
    }
}
