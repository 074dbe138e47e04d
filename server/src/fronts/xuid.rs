//! One client's conversation: bytes in, bytes out, and requests that wait for ids in between. It has no socket and asks
//! no clock (but for a limit in ids a second), so a test can cut its input anywhere.
//!
//! # Invariants
//! - I1 each frame that was read is answered once; one that closes the connection takes no answer from those before it;
//! - I2 nothing is read beyond a whole frame while the output is above [`OUTBOX_HIGH`] or `max_in_flight` requests
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
use tokio::time::Instant;
use xuid_engine::sequence::{Numbers, SequenceErrorKind};
use xuid_engine::{Caller, Run};
use xuid_protocol::{
    HEADER_LEN, ID_REPLY_LEN, Limits, Op, Order, ParsedRequest, Phase, Preface, Refusal, Request, Status,
    check_preface, foreign_answer, goaway, id_reply, parse_request, plain_next, reply_bye, reply_error,
    reply_sequence,
};

pub(crate) use answer::{refuse_connection, refuse_plain};
use waiting::{Done, Ended, Shape, Waiting};

use crate::crash_points;
use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::conversation::{Conversation, Need, OUTBOX_HIGH};
use crate::fronts::names::Names;
use crate::fronts::refusals;
use crate::state::access::{Admitted, ClientRights};
use crate::state::id_limit::{Allowance, Charged};
use crate::state::server::Server;
use crate::state::traffic::Tally;

/// Runs for which room is kept. Ids are mostly whole ticks: a reply that needs more of them is rare.
const SCRATCH_KEPT: usize = 256;

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
    server: Arc<Server>,
    limits: Limits,
    stage: Stage,
    was_greeted: bool,
    /// The client is to leave. One that has not said HELLO is told behind its answer.
    sent_away: bool,
    /// PINGs that came before HELLO.
    early_pings: u32,
    /// Where it comes from, if that is known.
    address: Option<IpAddr>,
    /// What its token and its address may take.
    allowance: Allowance,
    /// What its token may do with named sequences.
    rights: ClientRights,
    /// What the request in hand was charged by it, which is given back if that panics.
    charged: Charged,
    /// Its token is none of ours, which [`take_rejection`](Self::take_rejection) has not said yet.
    was_rejected: bool,
    waiting: FuturesUnordered<Waiting>,
    /// Its share in the ids there are, once a request had to wait.
    share: Option<Caller>,
    scratch: Vec<Run>,
    /// The same of sequences, and what it knows of their names.
    numbers: Vec<Numbers>,
    names: Names,
    tally: Tally,
    /// When the input was read, as far as it was told: for how long requests take.
    came: Option<Instant>,
}

impl Session {
    /// A client that has not said anything yet, from this address.
    pub(crate) fn new(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        let limits = server.limits.protocol;
        let (waiting, scratch) = (FuturesUnordered::new(), Vec::new());
        Self {
            server,
            limits,
            stage: Stage::Preface,
            was_greeted: false,
            sent_away: false,
            early_pings: 0,
            address,
            allowance: Allowance::default(),
            rights: ClientRights::default(),
            charged: Charged::default(),
            was_rejected: false,
            waiting,
            share: None,
            scratch,
            numbers: Vec::new(),
            names: Names::default(),
            tally: Tally::default(),
            came: None,
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
                let admin = self.server.places.admin;
                let admin = admin.as_ref().map(|admin| admin as &dyn std::fmt::Display);
                outbox.append(|out| foreign_answer(out, foreign, admin));
                self.server.traffic.foreign();
                self.stage = Stage::Leaving { bye: None };
            }
        }
        true
    }

    /// Answers the frames at the front that are nothing but NEXT, as far as ids are at hand, and none of the last `left`
    /// bytes; false if there was none. What is told here in a few comparisons a frame, [`frame`](Self::frame) tells as well.
    fn nexts(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, left: usize) -> bool {
        if self.allowance.is_limited() {
            return false;
        }
        let (heads, _) = inbox.rest().as_chunks::<HEADER_LEN>();
        let room = OUTBOX_HIGH.saturating_sub(outbox.len()).div_ceil(ID_REPLY_LEN);
        let turn = inbox.rest().len().saturating_sub(left).div_ceil(HEADER_LEN);
        let heads = &heads[..heads.len().min(room).min(turn)];
        if heads.first().is_none_or(|head| plain_next(head).is_none()) {
            return false;
        }
        let engine = &self.server.engine;
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
        self.tally.requests(Op::Next, answered as u32);
        self.tally.ids(Op::Next, answered as u64);
        self.tally.answered(Op::Next, answered as u32);
        inbox.consume(answered * HEADER_LEN);
        answered > 0
    }

    /// Answers one frame; false if there is no whole one.
    fn frame(&mut self, inbox: &mut Inbox, outbox: &mut Outbox) -> bool {
        let phase = if self.stage == Stage::Serving { Phase::Serving } else { Phase::Greeting };
        let parsed = parse_request(inbox.rest(), phase, self.limits.max_body);
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
            self.tally.request(op);
            let answer = || self.answer(request_id, request, outbox);
            let result = catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| Err(self.panicked()));
            if self.waiting.len() == waiting {
                self.tally.answered(op, 1);
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
                self.take(shape, 1, order, self.server.limits.wait, outbox)
            }
            Request::Array(bulk) => {
                self.limits.check_count(bulk.count)?;
                let shape = Shape::Array { request_id, count: bulk.count };
                self.take(shape, bulk.count, bulk.order, bulk.wait(), outbox)
            }
            Request::Runs(bulk) => {
                self.limits.check_count(bulk.count)?;
                let shape = Shape::Runs { request_id, count: bulk.count };
                self.take(shape, bulk.count, bulk.order, bulk.wait(), outbox)
            }
            Request::Hello(hello) => {
                let greet = |out: &mut _| answer::hello(&self.server, &self.limits, request_id, &hello, out);
                let Admitted { token, rights } = outbox.append(greet)?;
                let of_token = token.map(|(_, limit)| limit);
                (self.allowance, self.rights) =
                    (self.server.access.allowance(of_token, self.address), rights);
                (self.stage, self.was_greeted) = (Stage::Serving, true);
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
            Request::Bye => {
                self.stage = Stage::Leaving { bye: Some(request_id) };
                Ok(())
            }
            other => {
                if self.stage == Stage::Greeting {
                    answer::check_early_pings(self.early_pings)?;
                    self.early_pings += 1;
                }
                outbox.append(|out| answer::at_once(&self.server, request_id, other, out));
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
        let charged = self.charge(count)?;
        self.charged = charged;
        let tried = self.server.engine.try_runs(count, order, &mut self.scratch);
        self.charged = Charged::default();
        let taken = match tried {
            Ok(()) => {
                shape.write(self.scratch.drain(..), outbox);
                self.tally.ids(shape.op(), shape.ids());
                Ok(())
            }
            Err(error) if error.is_retryable() && !wait.is_zero() => {
                let caller = self.share.get_or_insert_default();
                let pending = self.server.engine.request(count, order, wait).on_behalf_of(caller);
                self.waiting.push(Waiting::new(shape, charged, pending, self.came));
                Ok(())
            }
            Err(error) => {
                self.allowance.give_back(charged);
                Err(refusals::of_ids(&self.server, error))
            }
        };
        // Also where no ids came: the engine may have gathered many runs before it gave them back.
        self.scratch.shrink_to(SCRATCH_KEPT);
        taken
    }

    /// Counts ids against the limits of the client's token and address, as far as there are any.
    fn charge(&mut self, count: u32) -> Result<Charged, Refusal> {
        self.allowance.take(count).map_err(|above| {
            self.tally.limited(above.by);
            refusals::above_limit(above, count)
        })
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
            self.tally.waited(shape.op(), came);
        }
        let refusal = match result {
            Some(Ended::Ids(Ok(runs))) => {
                shape.write(runs.into_iter(), outbox);
                self.tally.ids(shape.op(), shape.ids());
                return;
            }
            Some(Ended::Numbers(_, Ok(numbers))) => {
                return shape.write_numbers(numbers.into_iter(), outbox);
            }
            Some(Ended::Json(Ok(json))) => {
                return outbox.append(|out| reply_sequence(out, shape.op(), shape.request_id(), &json));
            }
            Some(Ended::Ids(Err(error))) => refusals::of_ids(&self.server, error),
            Some(Ended::Numbers(name, Err(error))) => refusals::of_numbers(error, &name),
            Some(Ended::Json(Err(refusal))) => refusal,
            None => self.panicked(),
        };
        self.allowance.give_back(charged);
        self.refuse(shape.request_id(), shape.op().code(), &refusal, outbox);
    }

    fn refuse(&mut self, request_id: u64, op: u8, refusal: &Refusal, outbox: &mut Outbox) {
        self.tally.error(refusal.status);
        outbox.append(|out| reply_error(out, request_id, op, refusal));
        self.was_rejected |= refusal.status == Status::UNAUTHENTICATED;
        if refusal.closes {
            self.stage = Stage::Leaving { bye: None };
        }
    }

    #[cold]
    fn panicked(&mut self) -> Refusal {
        self.scratch.clear();
        self.numbers.clear();
        let charged = std::mem::take(&mut self.charged);
        self.allowance.give_back(charged);
        self.server.traffic.panicked();
        let text = "the server failed on this request, and said why in its log: try again, and report it if it stays";
        Refusal::new(Status::INTERNAL, text)
    }
}

impl Conversation for Session {
    type Done = Done;

    fn longest_request(&self) -> usize {
        HEADER_LEN + self.limits.max_body as usize
    }

    fn was_greeted(&self) -> bool {
        self.was_greeted
    }

    fn take_rejection(&mut self) -> bool {
        std::mem::take(&mut self.was_rejected)
    }

    fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving { .. })
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn read_at(&mut self, now: Instant) {
        self.came = Some(now);
    }

    fn has_replied(&self) -> bool {
        self.tally.is_untimed()
    }

    fn written_at(&mut self, now: Instant) {
        self.server.traffic.time(&mut self.tally, self.came.unwrap_or(now), now);
    }

    fn receive(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, turn: usize) -> Need {
        let left = inbox.rest().len().saturating_sub(turn);
        let need = loop {
            if outbox.len() >= OUTBOX_HIGH || self.waiting.len() >= self.limits.max_in_flight as usize {
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
        self.server.traffic.add(&mut self.tally);
        crash_points::settle();
        if let Some(share) = &self.share {
            // What it has no room for is others' meanwhile, and not older when it comes than it was asked for.
            share.set_pause(outbox.len() >= OUTBOX_HIGH);
        }
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
        while outbox.len() < OUTBOX_HIGH {
            let Some(Some(done)) = self.waiting.next().now_or_never() else { break };
            self.finish_one(done, outbox);
        }
        self.server.traffic.add(&mut self.tally);
        crash_points::settle();
    }

    fn input_ended(&mut self) {
        if !self.is_leaving() {
            self.stage = Stage::Leaving { bye: None };
        }
    }

    fn go_away(&mut self, outbox: &mut Outbox) {
        self.sent_away = true;
        if self.stage == Stage::Serving {
            outbox.append(goaway);
        }
    }
}

/// What was counted last is not lost with the connection, and what still waits was not issued.
impl Drop for Session {
    fn drop(&mut self) {
        self.waiting.iter().for_each(|waiting| self.allowance.give_back(waiting.charged()));
        self.server.traffic.add(&mut self.tally);
    }
}
