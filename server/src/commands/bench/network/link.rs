//! One connection of the load: requests into one write, replies out of one read.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use xuid_engine::registry::printable;
use xuid_protocol::{Bulk, ParsedReply, Reply, Run, parse_reply, request_array, request_next, request_runs};

use super::flight::{Flight, Sent};
use crate::commands::bench::duplicates::{Recorder, Tail};
use crate::commands::bench::plan::{Ask, Shape};
use crate::commands::bench::progress::Progress;
use crate::commands::bench::results::Results;
use crate::commands::bench::schedule::Schedule;
use crate::commands::connection::{Greeted, LAST_ID};
use crate::fronts::buffers::Inbox;

/// What a connection's buffer begins with. Most replies of many connections fit, and stay in the cache.
const INBOX_LEAST: usize = 16 * 1024;

/// What it grows to where reads fill it.
const INBOX_MOST: usize = 1 << 20;

/// After a refusal, a closed loop sends nothing for as long as it was told, up to this.
const LONGEST_PAUSE: u64 = 20_000_000;

/// A reply may be this much longer than its ids: an error's text is 64 KiB at most.
const REPLY_ROOM: u32 = 128 * 1024;

/// Which part of the timetable is a connection's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) number: u64,
    pub(super) of: u64,
}

/// How a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Open,
    /// The server told it to leave: what is in flight is awaited.
    Leaving,
    Closed,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    server: String,
    inbox: Inbox,
    outbox: Vec<u8>,
    /// Bytes of it that are written.
    written: usize,
    flight: Flight,
    ask: Ask,
    share: Share,
    rate: Option<u64>,
    /// Its requests that are not sent yet; `None` in a closed loop.
    timetable: Option<Schedule>,
    tail: Tail,
    stand: Stand,
    /// Nothing is sent before that.
    paused: u64,
    /// The longest body of a reply.
    most: u32,
}

/// What replies are counted in.
pub(super) struct Counters<'b> {
    pub(super) results: &'b mut Results,
    pub(super) recorder: Option<&'b mut Recorder>,
    pub(super) progress: &'b Progress,
}

/// Why a connection is of no use any more.
type Broken = String;

/// What a read brought.
pub(super) enum Read {
    Bytes(usize),
    Nothing,
    /// The server closed, after everything was answered.
    End,
}

impl Link {
    pub(super) fn new(
        greeted: Greeted,
        server: &str,
        ask: Ask,
        pipeline: u32,
        share: Share,
        rate: Option<u64>,
    ) -> Self {
        let Greeted { stream, inbox, limits, .. } = greeted;
        Self {
            stream,
            server: server.to_owned(),
            inbox,
            outbox: Vec::new(),
            written: 0,
            flight: Flight::new(pipeline.min(limits.max_in_flight)),
            ask,
            share,
            rate,
            timetable: None,
            tail: Tail::default(),
            stand: Stand::Open,
            paused: 0,
            most: ask.count.saturating_mul(16).saturating_add(REPLY_ROOM),
        }
    }

    /// Its part of the timetable, from `begin` on.
    pub(super) fn schedule(&mut self, begin: u64) -> Option<Schedule> {
        self.timetable = self.rate.map(|rate| Schedule::new(begin, rate, self.share.number, self.share.of));
        self.timetable
    }

    /// How long the server may take for a reply, at most.
    pub(super) fn longest_wait(&self) -> Duration {
        self.ask.wait
    }

    /// Whether replies are to be expected.
    pub(super) fn is_waiting(&self) -> bool {
        self.stand != Stand::Closed && self.flight.len() > 0
    }

    /// Whether it may send, now or later.
    pub(super) fn is_open(&self) -> bool {
        self.stand == Stand::Open
    }

    /// Whether bytes wait for room in the socket.
    pub(super) fn has_output(&self) -> bool {
        self.written < self.outbox.len()
    }

    /// When it may send again, if a refusal keeps it from that.
    pub(super) fn paused_until(&self, now: u64) -> Option<u64> {
        (self.paused > now && self.is_open()).then_some(self.paused)
    }

    /// Appends what is due, as far as there is room.
    pub(super) fn ask(&mut self, now: u64, end: u64) {
        if self.stand != Stand::Open || now >= end || self.paused > now {
            return;
        }
        while !self.flight.is_full() {
            let start = match &mut self.timetable {
                None => now,
                Some(timetable) if timetable.due() <= now => {
                    let due = timetable.due();
                    timetable.advance();
                    due
                }
                Some(_) => break,
            };
            let Some(number) = self.flight.start(Sent { start, at: now }) else { break };
            let Ask { shape, count, order, wait } = self.ask;
            let (out, order) = (&mut self.outbox, order.into());
            match shape {
                Shape::Next => request_next(out, number, order),
                Shape::Array => request_array(out, number, Bulk::new(count, order, wait)),
                Shape::Runs => request_runs(out, number, Bulk::new(count, order, wait)),
            }
        }
    }

    /// Writes what was appended, as much as the socket takes.
    pub(super) fn write(&mut self) -> Result<usize, Broken> {
        let mut all = 0;
        while self.has_output() {
            match rustix::io::write(&self.stream, &self.outbox[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    all += count;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.broke(error)),
            }
        }
        if !self.has_output() {
            self.outbox.clear();
            self.written = 0;
        }
        Ok(all)
    }

    /// Reads once.
    pub(super) fn read(&mut self) -> Result<Read, Broken> {
        let room = self.inbox.room(INBOX_LEAST);
        if room.len() == room.capacity() {
            // Half a reply fills it.
            room.reserve(room.len());
        }
        match rustix::io::read(&self.stream, spare_capacity(room)) {
            Ok(0) if self.stand == Stand::Leaving && self.flight.len() == 0 => {
                self.stand = Stand::Closed;
                Ok(Read::End)
            }
            Ok(0) => Err(format!("{} closed the connection", self.server)),
            Ok(count) => {
                self.inbox.widen(INBOX_MOST);
                Ok(Read::Bytes(count))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Read::Nothing),
            Err(error) => Err(self.broke(error)),
        }
    }

    fn broke(&self, error: Errno) -> Broken {
        format!("the connection to {} broke: {}", self.server, io::Error::from(error))
    }

    /// Takes all whole replies, which were there at `at`.
    pub(super) fn take(&mut self, at: u64, counters: &mut Counters<'_>) -> Result<(), Broken> {
        let Self { inbox, flight, tail, stand, paused, server, .. } = self;
        let bytes = inbox.rest();
        let mut used = 0;
        let counts = counters.progress.counts(at);
        loop {
            let (consumed, number, reply) = match parse_reply(&bytes[used..], self.most) {
                Ok(ParsedReply::Frame { consumed, request_id, reply, .. }) => (consumed, request_id, reply),
                Ok(ParsedReply::Incomplete { .. }) => break,
                Err(error) => return Err(format!("{server} stopped speaking XUID/1: {error}")),
            };
            used += consumed;
            if matches!(reply, Reply::GoAway) {
                if *stand == Stand::Open {
                    *stand = Stand::Leaving;
                    counters.results.sent_away += 1;
                }
                continue;
            }
            let Some(sent) = flight.land(number) else {
                return Err(format!("{server} answered request {number}, which was not in flight"));
            };
            if let Reply::Error(error) = &reply {
                let told = || format!("{}: {}", error.status, printable(&error.text));
                if counts {
                    counters.results.refused(error.status.name(), told());
                }
                if !error.status.is_retryable() {
                    return Err(format!("{server} refused for good: {}", told()));
                }
                if self.timetable.is_none() {
                    let pause = u64::from(error.retry_after_ms) * 1_000_000;
                    *paused = at + pause.min(LONGEST_PAUSE);
                }
                continue;
            }
            if counters.recorder.is_some()
                && let Some(id) = impossible(&reply)
            {
                return Err(format!("{server} answered {id}, which is no id: the highest is {LAST_ID}"));
            }
            let ids = brought(&reply, tail, counters.recorder.as_deref_mut());
            if ids != Some(u64::from(self.ask.count)) {
                return Err(format!("{server} answered another question: {}", brief(&reply)));
            }
            if counts {
                counters.results.ids += u64::from(self.ask.count);
                counters.results.requests += 1;
            }
            if counters.progress.counts(sent.start) {
                counters.results.answered(sent.start, sent.at, at);
            }
        }
        inbox.consume(used);
        Ok(())
    }

    /// It is of no use any more. What was in flight stays so, and counts with its age.
    pub(super) fn close(&mut self) {
        self.stand = Stand::Closed;
        self.outbox.clear();
        self.written = 0;
    }

    /// The run is over: what was due and not sent, and what was sent and not answered.
    pub(super) fn settle(&mut self, now: u64, counters: &mut Counters<'_>) {
        let progress = counters.progress;
        if let Some(timetable) = self.timetable {
            counters.results.never_sent(timetable, progress.measured(), progress.end());
        }
        for sent in self.flight.iter().filter(|sent| progress.counts(sent.start)) {
            counters.results.gave_up(sent.start, sent.at, now);
        }
        if let Some(recorder) = &mut counters.recorder {
            recorder.end(&mut self.tail);
        }
    }
}

/// An id of a reply that no server may answer, if there is one: the duplicate check would count it for an id like others.
fn impossible(reply: &Reply<'_>) -> Option<u64> {
    let beyond = |id: &u64| *id > LAST_ID;
    match reply {
        Reply::Next(id) => Some(*id).filter(beyond),
        Reply::Array(ids) => {
            // All of them in one go, without a branch each.
            let any = ids.iter().fold(0, |bits, id| bits | id);
            if beyond(&any) { ids.iter().find(beyond) } else { None }
        }
        Reply::Runs(runs) => runs.iter().filter_map(Run::last).find(beyond),
        _ => None,
    }
}

/// How many ids are in a reply; `None` if it is about something else.
#[inline]
fn brought(reply: &Reply<'_>, tail: &mut Tail, recorder: Option<&mut Recorder>) -> Option<u64> {
    match reply {
        Reply::Next(id) => {
            if let Some(recorder) = recorder {
                recorder.note(tail, *id, 1);
            }
            Some(1)
        }
        Reply::Array(ids) => {
            if let Some(recorder) = recorder {
                recorder.note_each(tail, ids.iter());
            }
            Some(ids.len() as u64)
        }
        Reply::Runs(runs) => {
            if let Some(recorder) = recorder {
                for run in runs.iter() {
                    if run.stride == 1 {
                        recorder.note(tail, run.first, run.count);
                    } else {
                        recorder.note_each(tail, run.into_iter());
                    }
                }
            }
            Some(u64::from(runs.ids()))
        }
        _ => None,
    }
}

/// What came instead, without its thousands of ids.
fn brief(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Array(ids) => format!("an array of {} ids", ids.len()),
        Reply::Runs(runs) => format!("runs of {} ids", runs.ids()),
        other => format!("{other:?}"),
    }
}
