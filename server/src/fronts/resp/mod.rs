//! One client's conversation in the protocol of Redis (RESP), version 2 and 3: any Redis library gets ids and numbers of
//! sequences.
//!
//! Replies come in the order of the commands, as Redis has them. A command that waits for ids therefore holds up those
//! behind it on its connection; other connections go on.
//!
//! # Invariants
//! - I1 each command that was read is answered once, in its turn;
//! - I2 nothing is read beyond a whole command while the output [is high](Outbox::is_high) or a command waits;
//! - I3 ids that were copied into the output are spent, whatever becomes of the connection;
//! - I4 what MULTI queues is bounded as a command is: [`MOST_COMMAND`] bytes, [`MOST_ARGUMENTS`](parse::MOST_ARGUMENTS) commands.

mod answer;
mod argument;
mod command;
mod glob;
mod keys;
mod parse;
mod queue;
mod reply;
mod take;
#[cfg(test)]
mod tests;
mod waiting;

use std::net::IpAddr;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xuid_protocol::{Op, Refusal, Status};

use command::{Command, Hello};
use parse::{MOST_COMMAND, Parsed, parse};
use queue::{Queue, Script};
use reply::{Reply, write_error, write_length, write_refusal};
use waiting::{Done, Ended};

use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::client::Client;
use crate::fronts::conversation::{Conversation, Need};
use crate::fronts::refusals::TOO_MANY_CONNECTIONS;
use crate::fronts::waiting::Waiting;
use crate::state::server::Server;

/// An inbox has room for so much, and for more once a command is known to be longer.
const FIRST_ROOM: usize = 4 * 1024;

/// Arguments whose places are known without memory of their own: nearly all commands have fewer.
const FEW: usize = 8;

/// So many commands of a client that has shown no token are answered. It has as much of its thread's time as others.
const MOST_EARLY: u32 = 64;

/// Connections so far, for CLIENT ID.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// What this front calls what it is asked.
const COMMAND: &str = "command";

/// One conversation.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    id: u64,
    /// What the client calls itself.
    name: String,
    is_version_3: bool,
    /// It has shown a token, or none is asked for.
    is_admitted: bool,
    /// Commands before that.
    early: u32,
    is_leaving: bool,
    queue: Option<Queue>,
    /// What EXEC has not carried out yet.
    script: Script,
    waiting: Waiting<Ended>,
    /// The places of the arguments of the command in hand.
    places: Vec<Range<usize>>,
    /// What the inbox is to have room for.
    room: usize,
}

impl Session {
    /// A client that has not said anything yet, from this address.
    pub(crate) fn new(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        let mut session = Self {
            client: Client::new(server, address),
            id: CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1,
            name: String::new(),
            is_version_3: false,
            is_admitted: false,
            early: 0,
            is_leaving: false,
            queue: None,
            script: Script::default(),
            waiting: Waiting::default(),
            places: Vec::new(),
            room: FIRST_ROOM,
        };
        session.admit(b"");
        session
    }

    /// Lets the client in, if it may with this token.
    fn admit(&mut self, token: &[u8]) -> bool {
        let admitted = self.client.server.access.admit(token);
        self.is_admitted |= admitted.is_some();
        if self.is_admitted {
            self.early = 0;
        }
        admitted.map(|admitted| self.client.let_in(admitted)).is_some()
    }

    /// Keeps the room for the places of few arguments. They are looked for anew with each command, and with the rest of half a one.
    fn keep_few(&mut self, mut places: Vec<Range<usize>>) {
        places.clear();
        places.shrink_to(FEW);
        self.places = places;
    }

    /// Answers the next command of the input; false if there is no whole one. None of the last `left` bytes are read for
    /// commands that are answered together.
    fn command(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, left: usize) -> bool {
        let mut places = std::mem::take(&mut self.places);
        let bytes = inbox.rest();
        let consumed = match parse(bytes, &mut places) {
            Parsed::Incomplete => {
                self.room = (2 * bytes.len()).clamp(FIRST_ROOM, MOST_COMMAND);
                self.keep_few(places);
                return false;
            }
            Parsed::Broken(why) => {
                let len = bytes.len();
                self.client.server.traffic.foreign();
                outbox.append(|out| write_error(out, "ERR", &format!("Protocol error: {why}")));
                self.is_leaving = true;
                self.keep_few(places);
                inbox.consume(len);
                return true;
            }
            Parsed::Command { consumed } => consumed,
        };
        self.room = FIRST_ROOM;
        let together = self.incrs(&bytes[..consumed], bytes, &places, left, outbox);
        if together == 0 {
            let mut few: [&[u8]; FEW] = [b""; FEW];
            let many: Vec<&[u8]>;
            let arguments = if let Some(few) = few.get_mut(..places.len()) {
                few.iter_mut().zip(&places).for_each(|(slot, place)| *slot = &bytes[place.clone()]);
                &*few
            } else {
                many = places.iter().map(|place| &bytes[place.clone()]).collect();
                &many
            };
            if arguments.is_empty() {
                self.is_early(outbox);
            } else {
                self.execute(arguments, outbox);
            }
        }
        self.keep_few(places);
        inbox.consume(together.max(1) * consumed);
        true
    }

    /// Carries out the next command of a transaction; false if there is none.
    fn queued(&mut self, outbox: &mut Outbox) -> bool {
        if self.script.is_empty() {
            return false;
        }
        let mut places = std::mem::take(&mut self.places);
        let command = self.script.next(&mut places);
        if let Some(command) = &command {
            let arguments: Vec<&[u8]> = places.iter().map(|place| &command[place.clone()]).collect();
            self.execute(&arguments, outbox);
        }
        self.keep_few(places);
        command.is_some()
    }

    /// Carries out one command, or queues it. What it writes is its whole reply, unless it waits.
    fn execute(&mut self, arguments: &[&[u8]], outbox: &mut Outbox) {
        let before = outbox.len();
        let was_waiting = self.waiting.is_some();
        let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(arguments, outbox)));
        let result = done.unwrap_or_else(|_| Err(self.client.panicked(COMMAND)));
        if let Err(refusal) = result {
            outbox.truncate(before);
            self.refuse(&refusal, outbox);
            if let Some(queue) = &mut self.queue {
                queue.is_refused = true;
            }
        }
        debug_assert!(!was_waiting, "a command while another one waits");
    }

    fn carry_out(&mut self, arguments: &[&[u8]], outbox: &mut Outbox) -> Result<(), Refusal> {
        if !self.client.was_greeted && is_http(arguments) {
            // A browser that is made to post to this port must not reach what is in the body.
            self.is_leaving = true;
            self.client.server.traffic.foreign();
            let text = "this port speaks the protocol of Redis (RESP), and this is HTTP";
            return Err(Refusal::new(Status::BAD_REQUEST, text));
        }
        if self.is_early(outbox) {
            return Ok(());
        }
        let command = command::parse(arguments)?;
        if !self.is_admitted && !command.is_for_strangers() {
            let text = "Authentication required: AUTH token, or HELLO 3 AUTH default token";
            outbox.append(|out| write_error(out, "NOAUTH", text));
            self.client.tally.error(Status::UNAUTHENTICATED);
            return Ok(());
        }
        if self.queue.is_some() && matches!(command, Command::Auth(_) | Command::Hello(_)) {
            let text = "AUTH and HELLO have no place between MULTI and EXEC";
            return Err(Refusal::new(Status::BAD_REQUEST, text));
        }
        if self.queue.is_some() && !command.is_never_queued() {
            return self.enqueue(arguments, outbox);
        }
        // The first command that is one, of a client that may say it.
        self.client.was_greeted |= self.is_admitted;
        self.answer(command, outbox)
    }

    /// Counts a command of a stranger. True if there were too many: it was told so, and goes.
    fn is_early(&mut self, outbox: &mut Outbox) -> bool {
        self.early += u32::from(!self.is_admitted);
        if self.is_admitted || self.early <= MOST_EARLY {
            return false;
        }
        self.is_leaving = true;
        let text = format!(
            "Authentication required: {MOST_EARLY} commands came before it; connect again, and AUTH first"
        );
        outbox.append(|out| write_error(out, "NOAUTH", &text));
        self.client.tally.error(Status::UNAUTHENTICATED);
        true
    }

    fn enqueue(&mut self, arguments: &[&[u8]], outbox: &mut Outbox) -> Result<(), Refusal> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        queue.push(arguments)?;
        outbox.append(|out| Reply::Simple("QUEUED").write(false, out));
        Ok(())
    }

    fn answer(&mut self, command: Command<'_>, outbox: &mut Outbox) -> Result<(), Refusal> {
        match command {
            Command::Take { key, count, shape } => return self.take(key, count, shape, outbox),
            Command::Multi if self.queue.is_some() => {
                return Err(Refusal::new(Status::BAD_REQUEST, "MULTI calls can not be nested"));
            }
            Command::Multi => {
                self.queue = Some(Queue::default());
                self.reply(&Reply::Simple("OK"), outbox);
            }
            Command::Exec => self.exec(outbox)?,
            Command::Discard => match self.queue.take() {
                Some(_) => self.reply(&Reply::Simple("OK"), outbox),
                None => return Err(Refusal::new(Status::BAD_REQUEST, "DISCARD without MULTI")),
            },
            Command::Hello(hello) => self.hello(hello, outbox)?,
            Command::Auth(credentials) => self.auth(credentials.token, outbox)?,
            Command::Quit => {
                self.reply(&Reply::Simple("OK"), outbox);
                self.is_leaving = true;
            }
            Command::Reset => {
                (self.queue, self.is_version_3, self.is_admitted) = (None, false, false);
                self.name.clear();
                self.admit(b"");
                self.reply(&Reply::Simple("RESET"), outbox);
            }
            other => {
                if let Some(other) = self.about_names(other)? {
                    let reply = self.at_once(&other)?;
                    self.reply(&reply, outbox);
                }
            }
        }
        Ok(())
    }

    /// Begins to carry out what was queued: its replies follow the head of their list.
    fn exec(&mut self, outbox: &mut Outbox) -> Result<(), Refusal> {
        let Some(queue) = self.queue.take() else {
            return Err(Refusal::new(Status::BAD_REQUEST, "EXEC without MULTI"));
        };
        if queue.is_refused {
            let text = "Transaction discarded because of previous errors.";
            outbox.append(|out| write_error(out, "EXECABORT", text));
            self.client.tally.error(Status::BAD_REQUEST);
            return Ok(());
        }
        outbox.append(|out| write_length(out, b'*', queue.len()));
        self.script = queue.begin();
        Ok(())
    }

    fn auth(&mut self, token: &[u8], outbox: &mut Outbox) -> Result<(), Refusal> {
        self.check_token(token)?;
        self.reply(&Reply::Simple("OK"), outbox);
        Ok(())
    }

    fn check_token(&mut self, token: &[u8]) -> Result<(), Refusal> {
        self.client.tally.request(Op::Hello);
        if self.admit(token) {
            self.client.was_greeted = true;
            return Ok(());
        }
        Err(Refusal::new(
            Status::UNAUTHENTICATED,
            "invalid username-password pair: the password is a token of this server",
        ))
    }

    fn hello(&mut self, hello: Hello<'_>, outbox: &mut Outbox) -> Result<(), Refusal> {
        if let Some(credentials) = hello.auth {
            self.check_token(credentials.token)?;
        }
        if !self.is_admitted {
            let text =
                "HELLO must be called with the client already authenticated: HELLO 3 AUTH default token";
            outbox.append(|out| write_error(out, "NOAUTH", text));
            self.client.tally.error(Status::UNAUTHENTICATED);
            return Ok(());
        }
        self.client.was_greeted = true;
        if let Some(name) = hello.name {
            self.set_name(name)?;
        }
        if let Some(version) = hello.version {
            self.is_version_3 = version == 3;
        }
        let reply = self.greeting();
        self.reply(&reply, outbox);
        Ok(())
    }

    fn reply(&self, reply: &Reply, outbox: &mut Outbox) {
        outbox.append(|out| reply.write(self.is_version_3, out));
    }

    fn refuse(&mut self, refusal: &Refusal, outbox: &mut Outbox) {
        self.client.refused(refusal.status);
        // One guess a connection, as at the binary port: those in one piece would share one pause.
        self.is_leaving |= refusal.status == Status::UNAUTHENTICATED;
        outbox.append(|out| write_refusal(out, refusal));
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

    fn kept(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::memory) + self.script.memory()
    }

    fn receive(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, turn: usize) -> Need {
        let left = inbox.rest().len().saturating_sub(turn);
        let need = loop {
            if outbox.is_high() || self.waiting.is_some() {
                break Need::Room;
            }
            if self.queued(outbox) {
                continue;
            }
            if self.is_leaving {
                break Need::End;
            }
            if (1..=left).contains(&inbox.rest().len()) {
                break Need::Turn;
            }
            if !self.command(inbox, outbox, left) {
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

    /// Half a command stays one; what was read whole is answered.
    fn input_ended(&mut self) {
        self.is_leaving = true;
    }

    /// The protocol has no word for it: the connection ends when nothing waits any more, and libraries connect again.
    fn go_away(&mut self, _: &mut Outbox) {}

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

/// Whether this is the first line of an HTTP request, or a header that every browser sends.
fn is_http(arguments: &[&[u8]]) -> bool {
    let is_versioned = arguments.len() == 3 && arguments[2].starts_with(b"HTTP/");
    is_versioned || arguments[0].eq_ignore_ascii_case(b"host:")
}

/// What one connection too many is told.
pub(crate) fn refuse_connection() -> Vec<u8> {
    let mut out = Vec::new();
    write_error(&mut out, "ERR", &format!("max number of clients reached: {TOO_MANY_CONNECTIONS}"));
    out
}

/// What a client is told that speaks anything but TLS to a port of TLS.
pub(crate) fn refuse_plain() -> Vec<u8> {
    let mut out = Vec::new();
    write_error(
        &mut out,
        "ERR",
        "this port speaks TLS only: connect with TLS (redis-cli --tls --cacert FILE)",
    );
    out
}
