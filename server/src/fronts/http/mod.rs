//! One client's conversation in HTTP/1: the paths of Leaf, of tinyid and of `/api/leaf`, whose clients need nothing new,
//! and our own below `/v1`.
//!
//! ```text
//!   framing   which bytes are one request
//!   target    its path and its parameters
//!   leaf, tinyid, api, v1     what it asks for, and how that is answered: the dialects
//!   ask       what is asked for and got, whatever the dialect
//!   take      ids, sequences, and the wait for them
//!   reply     heads and bodies as bytes
//! ```
//!
//! Replies come in the order of the requests. One that waits for ids holds up those behind it on its connection.
//!
//! # Invariants
//! - I1 each request that was read is answered once, in its turn, but for those behind one that closes the connection;
//! - I2 nothing is read beyond a whole request while the output [is high](Outbox::is_high) or a request waits;
//! - I3 ids that were copied into the output are spent, whatever becomes of the connection;
//! - I4 no client gets an id whose request did not show a token that counts now, where one is asked for.

mod api;
mod ask;
mod framing;
mod leaf;
mod reply;
mod take;
mod target;
#[cfg(test)]
mod tests;
mod tinyid;
mod v1;
mod waiting;

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;
use xuid_protocol::{Refusal, Status};

use ask::{Ask, Denial, Dialect, Form, Got};
use framing::{MOST_HEAD, MOST_RAW_BODY, Parsed, Request};
use reply::{Head, Then};
use waiting::{Done, Ended};

use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::client::Client;
use crate::fronts::conversation::{Conversation, Need};
use crate::fronts::refusals::{SOON, TOO_MANY_CONNECTIONS, unauthenticated};
use crate::fronts::waiting::Waiting;
use crate::state::access::{Admitted, ClientRights};
use crate::state::server::Server;
use crate::state::tiny_tokens::Verdict;

/// An inbox has room for so much, and for more once a request is known to be longer.
const FIRST_ROOM: usize = 4 * 1024;

/// The longest token, and the longest path, that a connection keeps between its requests.
const TEXT_KEPT: usize = 256;

/// How the request in hand is to be answered.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Asked {
    dialect: Dialect,
    form: Form,
    /// It is a HEAD.
    is_headless: bool,
    is_old: bool,
    keeps_alive: bool,
    /// More was read behind it.
    is_followed: bool,
    /// The path, where errors tell it.
    path: String,
}

/// What the last request showed.
#[derive(Debug, Default)]
struct Shown {
    token: Vec<u8>,
    /// As of which change of the rules it was let in with that; `None`: it was not.
    let_in: Option<u64>,
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    shown: Shown,
    is_leaving: bool,
    /// The server wants it to go: the last reply says so.
    is_going: bool,
    /// The client of the request that is not whole yet was told to go on.
    was_continued: bool,
    waiting: Waiting<Ended>,
    pieces: Vec<xuid_protocol::Run>,
    asked: Asked,
    /// What the inbox is to have room for.
    room: usize,
}

impl Session {
    /// A client that has not said anything yet, from this address.
    pub(crate) fn new(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        Self {
            client: Client::new(server, address),
            shown: Shown::default(),
            is_leaving: false,
            is_going: false,
            was_continued: false,
            waiting: Waiting::default(),
            pieces: Vec::new(),
            asked: Asked {
                dialect: Dialect::V1,
                form: Form::One,
                is_headless: false,
                is_old: false,
                keeps_alive: false,
                is_followed: false,
                path: String::new(),
            },
            room: FIRST_ROOM,
        }
    }

    /// Lets the client in, if it may with this token. One that was let in with it is not looked up again before the rules
    /// change.
    fn admit(&mut self, token: &[u8], place: &str) -> Result<(), Denial> {
        let changes = self.client.server.access.changes();
        if self.shown.let_in == Some(changes) && bool::from(self.shown.token.ct_eq(token)) {
            return Ok(());
        }
        self.shown.let_in = None;
        let Some(admitted) = self.client.server.access.admit(token) else {
            return Err(unauthenticated(token, place).into());
        };
        self.client.let_in(admitted);
        // A longer one is looked up again each time.
        self.shown = match token.len() {
            ..=TEXT_KEPT => Shown { token: token.to_vec(), let_in: Some(changes) },
            _ => Shown::default(),
        };
        Ok(())
    }

    /// Lets a client of tinyid in: by tinyid's own rows where there are any, each time, as they are for one name.
    fn admit_tiny(&mut self, call: &tinyid::Call<'_>) -> Result<(), Denial> {
        let rows = self.client.server.sequences.as_ref().and_then(|sequences| sequences.tiny_tokens.as_ref());
        match rows.map_or(Verdict::NoTable, |rows| rows.judge(&call.token, call.name())) {
            Verdict::NoTable => self.admit(&call.token, tinyid::TOKEN_PLACE),
            Verdict::Unknown => Err(unauthenticated(&call.token, tinyid::TOKEN_PLACE).into()),
            Verdict::NotRead => {
                let text = "the rows of tiny_id_token were not read yet: its database does not answer";
                Err(Refusal::new(Status::STORE_AWAY, text).retry_after(Duration::from_secs(1)).into())
            }
            Verdict::Known => {
                // It counts for this request alone: the next one, of another front's kind perhaps, is looked up.
                self.shown = Shown::default();
                self.client.let_in(Admitted { token: None, rights: ClientRights::default() });
                Ok(())
            }
        }
    }

    /// Answers the next request of the input; false if there is no whole one.
    fn request(&mut self, inbox: &mut Inbox, outbox: &mut Outbox) -> bool {
        let bytes = inbox.rest();
        let (request, consumed) = match framing::parse(bytes) {
            Parsed::Incomplete { awaits_continue } => {
                if awaits_continue && !std::mem::replace(&mut self.was_continued, true) {
                    outbox.append(|out| out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
                }
                self.room = (2 * bytes.len()).clamp(FIRST_ROOM, MOST_HEAD + MOST_RAW_BODY);
                return false;
            }
            Parsed::Broken(broken) => {
                let len = bytes.len();
                self.client.server.traffic.foreign();
                self.is_leaving = true;
                self.asked.dialect = Dialect::V1;
                // Whatever the request before it was.
                self.asked.is_headless = false;
                let refusal = Refusal::new(Status::BAD_REQUEST, broken.why);
                self.deny(&Denial { http: Some(broken.status), ..refusal.into() }, outbox);
                inbox.consume(len);
                return true;
            }
            Parsed::Request(request, consumed) => (request, consumed),
        };
        (self.room, self.was_continued) = (FIRST_ROOM, false);
        self.asked.dialect = Dialect::V1;
        self.asked.form = Form::One;
        self.asked.is_headless = request.method == "HEAD";
        (self.asked.is_old, self.asked.keeps_alive) = (request.is_old, request.keeps_alive);
        self.asked.is_followed = consumed < bytes.len();
        self.execute(&request, outbox);
        inbox.consume(consumed);
        true
    }

    /// Carries out one request. What it writes is its whole reply, unless it waits.
    fn execute(&mut self, request: &Request<'_>, outbox: &mut Outbox) {
        let before = outbox.len();
        let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(request, outbox)));
        let result = done.unwrap_or_else(|_| Err(self.panicked().into()));
        if let Err(denial) = result {
            outbox.truncate(before);
            self.deny(&denial, outbox);
        }
    }

    fn carry_out(&mut self, request: &Request<'_>, outbox: &mut Outbox) -> Result<(), Denial> {
        if request.is_of_other_page {
            return Err(Denial::other_page());
        }
        let (path, query) = target::split(request.target);
        if path.starts_with("/tinyid/") {
            self.asked.dialect = Dialect::Tiny { is_simple: path.ends_with("Simple") };
            let Some(call) = tinyid::Call::parse(request, path, query)? else {
                self.asked.dialect = Dialect::V1;
                return Err(Denial::not_found());
            };
            self.admit_tiny(&call)?;
            self.client.was_greeted = true;
            let (ask, form) = call.ask()?;
            self.asked.form = form;
            return self.carry_out_ask(ask, outbox);
        }
        let is_api = path.starts_with("/api/leaf");
        let is_leaf = !is_api && (path.starts_with("/api/") || path == "/decodeSnowflakeId");
        self.asked.dialect = match (is_api, is_leaf) {
            (true, _) => Dialect::Api,
            (_, true) => Dialect::Leaf,
            _ => Dialect::V1,
        };
        if is_leaf {
            self.asked.path.clear();
            self.asked.path.push_str(path);
        }
        self.admit(request.token, "Authorization: Bearer")?;
        self.client.was_greeted = true;
        let ask = match self.asked.dialect {
            Dialect::Leaf => leaf::parse(request.method, path, query, &self.client.server.engine)?,
            Dialect::Api => api::parse(request, path, query)?,
            _ if path.starts_with("/v1/") => {
                let (ask, form) = v1::parse(request, path, query, &self.client.server.engine)?;
                self.asked.form = form;
                Some(ask)
            }
            _ => None,
        };
        let Some(ask) = ask else {
            self.asked.dialect = Dialect::V1;
            return Err(Denial::not_found());
        };
        self.carry_out_ask(ask, outbox)
    }

    fn carry_out_ask(&mut self, ask: Ask<'_>, outbox: &mut Outbox) -> Result<(), Denial> {
        Ok(self.ask(ask, outbox)?)
    }

    /// Writes what the request got.
    fn fulfil(&mut self, got: &Got, outbox: &mut Outbox) {
        let (dialect, form) = (self.asked.dialect, self.asked.form);
        let is_new = matches!(got, Got::Sequence { is_new: true, .. });
        let (status, kind) = match (dialect, got) {
            (Dialect::Leaf, Got::Pieces) | (Dialect::Tiny { is_simple: true }, _) => (200, reply::TEXT),
            (Dialect::V1, _) => (if is_new { 201 } else { 200 }, "application/json"),
            _ => (200, reply::JSON),
        };
        let pieces = std::mem::take(&mut self.pieces);
        self.reply(&Head::of(status, kind), outbox, |out| match dialect {
            Dialect::Leaf => match got {
                Got::Parts(parts) => leaf::write_parts(out, *parts),
                _ => leaf::write_number(out, &pieces),
            },
            Dialect::Tiny { is_simple } => tinyid::write(out, form, is_simple, &pieces),
            Dialect::Api => api::write(out, got, &pieces),
            Dialect::V1 => v1::write(out, got, form, &pieces),
        });
        self.pieces = pieces;
        self.pieces.clear();
        self.asked.path.clear();
        self.asked.path.shrink_to(TEXT_KEPT);
    }

    /// Writes why it got nothing.
    fn deny(&mut self, denial: &Denial, outbox: &mut Outbox) {
        let refusal = &denial.refusal;
        self.client.refused(refusal.status);
        // One guess a connection, as at the binary port: those in one piece would share one pause. And a stranger has no
        // second try at what is refused before a token is looked at.
        let is_stranger = !self.client.was_greeted && self.client.server.access.admit(b"").is_none();
        self.is_leaving |=
            refusal.status == Status::UNAUTHENTICATED || is_stranger && !refusal.status.is_retryable();
        let told = denial.http.unwrap_or_else(|| v1::status_of(refusal.status));
        let dialect = self.asked.dialect;
        let (status, kind) = match dialect {
            Dialect::V1 => (told, reply::PROBLEM),
            Dialect::Leaf if denial.http.is_some() || told == 401 => (told, reply::JSON),
            Dialect::Leaf => (500, reply::JSON),
            Dialect::Api | Dialect::Tiny { is_simple: false } if told == 405 => (told, reply::JSON),
            Dialect::Api if told == 401 => (401, reply::JSON),
            Dialect::Tiny { is_simple: true } if told != 405 => (200, reply::TEXT),
            Dialect::Tiny { is_simple: true } => (told, reply::TEXT),
            _ => (200, reply::JSON),
        };
        let retry_after_ms = if dialect == Dialect::V1 { refusal.retry_after_ms } else { 0 };
        let path = std::mem::take(&mut self.asked.path);
        let head = Head { status, kind, allow: denial.allow, retry_after_ms };
        self.reply(&head, outbox, |out| match dialect {
            Dialect::Leaf => leaf::write_error(out, denial, status, reply::phrase(status), &path),
            Dialect::Tiny { is_simple } => tinyid::write_error(out, is_simple, denial),
            Dialect::Api => api::write_error(out, denial),
            Dialect::V1 => v1::write_problem(out, status, refusal),
        });
    }

    fn panicked(&mut self) -> Refusal {
        self.pieces.clear();
        self.client.panicked("request")
    }

    fn reply(&mut self, head: &Head, outbox: &mut Outbox, body: impl FnOnce(&mut Vec<u8>)) {
        let asked = &self.asked;
        self.is_leaving |= !asked.keeps_alive || self.is_going && !asked.is_followed;
        let then = match (self.is_leaving, asked.is_old) {
            (true, _) => Then::Closes,
            (false, true) => Then::StaysOld,
            (false, false) => Then::Stays,
        };
        outbox.append(|out| reply::write(out, head, then, asked.is_headless, body));
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
        self.room
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    fn in_flight(&self) -> usize {
        usize::from(self.waiting.is_some())
    }

    fn receive(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, turn: usize) -> Need {
        let left = inbox.rest().len().saturating_sub(turn);
        let need = loop {
            if outbox.is_high() || self.waiting.is_some() {
                break Need::Room;
            }
            if self.is_leaving {
                break Need::End;
            }
            if (1..=left).contains(&inbox.rest().len()) {
                break Need::Turn;
            }
            if !self.request(inbox, outbox) {
                break Need::Input;
            }
        };
        self.client.received(outbox);
        need
    }

    async fn waited(&mut self) -> Done {
        self.waiting.ended().await
    }

    fn finish(&mut self, done: Done, outbox: &mut Outbox) {
        self.waiting.clear();
        self.write(done, outbox);
        self.client.add_up();
    }

    /// Half a request stays one; what was read whole is answered.
    fn input_ended(&mut self) {
        self.is_leaving = true;
    }

    /// The last reply of those that were read says so. A client that asks for nothing is not told: the connection ends.
    fn go_away(&mut self, _: &mut Outbox) {
        self.is_going = true;
    }

    fn has_goaway(&self) -> bool {
        false
    }
}

/// What still waits was not issued.
impl Drop for Session {
    fn drop(&mut self) {
        self.client.allowance.give_back(self.waiting.charged());
    }
}

/// What one connection too many is told.
pub(crate) fn refuse_connection() -> Vec<u8> {
    let refusal = Refusal::new(Status::OVERLOADED, TOO_MANY_CONNECTIONS).retry_after(SOON);
    problem(503, &refusal)
}

/// What a client is told that speaks anything but TLS to a port of TLS.
pub(crate) fn refuse_plain() -> Vec<u8> {
    let refusal = Refusal::new(Status::BAD_REQUEST, "this port speaks HTTPS only: ask for https://");
    problem(400, &refusal)
}

fn problem(status: u16, refusal: &Refusal) -> Vec<u8> {
    let mut out = Vec::new();
    let retry_after_ms = refusal.retry_after_ms;
    let head = Head { retry_after_ms, ..Head::of(status, reply::PROBLEM) };
    reply::write(&mut out, &head, Then::Closes, false, |out| v1::write_problem(out, status, refusal));
    out
}
