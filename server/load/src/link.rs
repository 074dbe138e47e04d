//! One connection of the load: requests into one write, replies out of one read.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use xuid_protocol::{LAST_ID, Reply, Run, printable};

use crate::dialect::Dialect;
use crate::duplicates::{Recorder, Tail};
use crate::flight::{Flight, Sent};
use crate::progress::LoadThread;
use crate::schedule::Schedule;
use crate::wire::Wire;

/// The memory that is read into: a thread has one, and a connection keeps it only while it holds half a large reply.
const PIECE: usize = 256 * 1024;

/// The beginning of a reply that is kept elsewhere until the rest comes: moving it costs less than that each connection
/// has memory of its own, which the processor's cache would not hold.
const SMALL: usize = PIECE / 4;

/// After a refusal, a closed loop sends nothing for as long as it was told, up to this.
const LONGEST_PAUSE: u64 = 20_000_000;

/// Which part of the timetable of an open loop is a connection's.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Requests a second of the whole.
    pub rate: u64,
    /// Its number, from 0 on.
    pub number: u64,
    /// How many there are.
    pub of: u64,
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
pub struct Link<D> {
    wire: Wire,
    server: String,
    dialect: D,
    /// What was read and not yet understood.
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Bytes of it that are written.
    written: usize,
    flight: Flight,
    /// `None`: a closed loop.
    share: Option<Share>,
    /// Its requests that are not sent yet; `None` in a closed loop.
    timetable: Option<Schedule>,
    tail: Tail,
    /// Above every id that came so far, where the ids ascend and are looked at.
    floor: u64,
    stand: Stand,
    /// Nothing is sent before that.
    paused: u64,
}

/// Why a connection is of no use any more.
type Broken = String;

/// What a read brought.
pub(crate) enum Read {
    Bytes(usize),
    Nothing,
    /// The server closed, after everything was answered.
    End,
}

impl<D: Dialect> Link<D> {
    /// A connection that does not block, to a server that is called so and has greeted already; `inbox` is what it said
    /// behind that. At most `depth` requests are in flight.
    pub fn new(
        wire: impl Into<Wire>,
        server: &str,
        inbox: Vec<u8>,
        dialect: D,
        depth: u32,
        share: Option<Share>,
    ) -> Self {
        Self {
            wire: wire.into(),
            server: server.to_owned(),
            dialect,
            inbox,
            outbox: Vec::new(),
            written: 0,
            flight: Flight::new(depth),
            share,
            timetable: None,
            tail: Tail::default(),
            floor: 0,
            stand: Stand::Open,
            paused: 0,
        }
    }

    /// Its part of the timetable, from `begin` on.
    pub(crate) fn schedule(&mut self, begin: u64) -> Option<Schedule> {
        self.timetable = self.share.map(|share| Schedule::new(begin, share.rate, share.number, share.of));
        self.timetable
    }

    /// How long the server may take for a reply, at most.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.dialect.longest_wait()
    }

    /// Whether replies are to be expected.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stand != Stand::Closed && self.flight.len() > 0
    }

    /// Whether it may send, now or later.
    pub(crate) fn is_open(&self) -> bool {
        self.stand == Stand::Open
    }

    /// What to wait for.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.wire.socket()
    }

    /// Whether bytes wait for room in the socket.
    pub(crate) fn has_output(&self) -> bool {
        self.written < self.outbox.len() || self.wire.has_output()
    }

    /// When it may send again, if a refusal keeps it from that.
    pub(crate) fn paused_until(&self, now: u64) -> Option<u64> {
        (self.paused > now && self.is_open()).then_some(self.paused)
    }

    /// Appends what is due, as far as there is room.
    pub(crate) fn ask(&mut self, now: u64, end: u64) {
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
            let Some(number) = self.flight.start(Sent { start, at: now }, self.floor) else { break };
            self.dialect.request(number, &mut self.outbox);
        }
    }

    /// Writes what was appended, as much as the socket takes.
    pub(crate) fn write(&mut self) -> Result<usize, Broken> {
        let mut all = 0;
        while self.has_output() {
            match self.wire.write(&self.outbox[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    all += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broke(&error)),
            }
        }
        if !self.has_output() {
            self.outbox.clear();
            self.written = 0;
        }
        Ok(all)
    }

    /// Reads once, into the thread's memory.
    pub(crate) fn read(&mut self, piece: &mut Vec<u8>) -> Result<Read, Broken> {
        self.exchange(piece);
        // A larger reply is read in few pieces all the same.
        self.inbox.reserve(PIECE.max(self.inbox.len()));
        match self.wire.read(&mut self.inbox) {
            Ok(0) if self.stand == Stand::Leaving && self.flight.len() == 0 => {
                self.stand = Stand::Closed;
                Ok(Read::End)
            }
            Ok(0) => Err(format!("{} closed the connection", self.server)),
            Ok(count) => Ok(Read::Bytes(count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.exchange(piece);
                Ok(Read::Nothing)
            }
            Err(error) => Err(self.broke(&error)),
        }
    }

    fn broke(&self, error: &io::Error) -> Broken {
        format!("the connection to {} broke: {error}", self.server)
    }

    /// Moves what is there, if that is little, from the thread's memory into the connection's own or back.
    fn exchange(&mut self, piece: &mut Vec<u8>) {
        if self.inbox.len() <= SMALL {
            piece.clear();
            piece.extend_from_slice(&self.inbox);
            std::mem::swap(&mut self.inbox, piece);
        }
    }

    /// Takes all whole replies, which were there at `at`, and gives the thread's memory back.
    pub(crate) fn take(
        &mut self,
        at: u64,
        thread: &mut LoadThread,
        piece: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let mut used = 0;
        let taken = self.take_each(at, thread, &mut used);
        self.inbox.drain(..used);
        self.exchange(piece);
        taken
    }

    fn take_each(&mut self, at: u64, thread: &mut LoadThread, used: &mut usize) -> Result<(), Broken> {
        let Self { inbox, dialect, flight, tail, floor, stand, paused, server, .. } = self;
        let count = dialect.count();
        let ascends = thread.recorder.is_some() && dialect.ascends();
        // Those that were sent together are recorded together.
        let (mut together, mut answered) = (Sent { start: 0, at: 0 }, 0);
        let taken = loop {
            let (consumed, number, reply) = match dialect.reply(&inbox[*used..]) {
                Ok(Some(answer)) => answer,
                Ok(None) => break Ok(()),
                Err(why) => break Err(format!("{server} {why}")),
            };
            *used += consumed;
            if matches!(reply, Reply::GoAway) {
                if *stand == Stand::Open {
                    *stand = Stand::Leaving;
                    // After the end nothing would have been sent any more.
                    if at < thread.progress.end() {
                        thread.results.sent_away += 1;
                    }
                }
                continue;
            }
            let Some((sent, above)) = flight.land(number) else {
                break Err(format!("{server} answered request {number}, which was not in flight"));
            };
            if let Reply::Error(error) = &reply {
                let told = || format!("{}: {}", error.status, printable(&error.text));
                if thread.progress.counts(at) {
                    thread.results.refused(error.status.name(), told());
                }
                if !error.status.is_retryable() {
                    break Err(format!("{server} refused for good: {}", told()));
                }
                if self.timetable.is_none() {
                    let pause = u64::from(error.retry_after_ms) * 1_000_000;
                    *paused = at + pause.min(LONGEST_PAUSE);
                }
                continue;
            }
            if thread.recorder.is_some()
                && let Some(id) = impossible(&reply)
            {
                break Err(format!("{server} answered {id}, which is no id: the highest is {LAST_ID}"));
            }
            if ascends {
                match ascended(&reply, above) {
                    Ok(end) => *floor = end.max(*floor),
                    Err(id) => {
                        break Err(format!(
                            "{server} answered {id} where ids ascend: greater ones had come before on the same connection"
                        ));
                    }
                }
            }
            if brought(&reply) != Some(u64::from(count)) {
                break Err(format!("{server} answered another question: {}", brief(&reply)));
            }
            if let Some(recorder) = thread.recorder.as_mut() {
                note(&reply, tail, recorder);
            }
            if sent != together {
                thread.answered(count, answered, together, at);
                (together, answered) = (sent, 0);
            }
            answered += 1;
        };
        thread.answered(count, answered, together, at);
        taken
    }

    /// It is of no use any more. What was in flight stays so, and counts with its age.
    pub(crate) fn close(&mut self) {
        self.stand = Stand::Closed;
        self.outbox.clear();
        self.written = 0;
    }

    /// The run is over: what was due and not sent, and what was sent and not answered.
    pub(crate) fn settle(&mut self, now: u64, thread: &mut LoadThread) {
        let LoadThread { progress, recorder, results, .. } = thread;
        if let Some(timetable) = self.timetable {
            results.never_sent(timetable, progress.measured(), progress.end());
        }
        for sent in self.flight.iter().filter(|sent| progress.counts(sent.start)) {
            results.gave_up(sent, now);
        }
        if let Some(recorder) = recorder {
            recorder.end(&mut self.tail);
        }
    }
}

/// An id of a reply that no server may answer, if there is one: the duplicate check would count it for an id like
/// others.
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

/// What is above all ids of a reply, if they ascend from `floor` on; else the first that does not.
fn ascended(reply: &Reply<'_>, floor: u64) -> Result<u64, u64> {
    let next = |floor: u64, id: u64| if id < floor { Err(id) } else { Ok(id + 1) };
    match reply {
        Reply::Next(id) => next(floor, *id),
        Reply::Array(ids) => ids.iter().try_fold(floor, next),
        Reply::Runs(runs) => runs.iter().try_fold(floor, |floor, run| {
            // The ids of a run ascend, and their last one was looked at.
            next(floor, run.first).map(|_| run.last().unwrap_or(run.first) + 1)
        }),
        _ => Ok(floor),
    }
}

/// How many ids are in a reply; `None` if it is about something else.
#[inline]
fn brought(reply: &Reply<'_>) -> Option<u64> {
    match reply {
        Reply::Next(_) => Some(1),
        Reply::Array(ids) => Some(ids.len() as u64),
        Reply::Runs(runs) => Some(u64::from(runs.ids())),
        _ => None,
    }
}

/// Notes the ids of a reply that has as many as were asked for: a run of a few bytes may claim billions.
#[inline]
fn note(reply: &Reply<'_>, tail: &mut Tail, recorder: &mut Recorder) {
    match reply {
        Reply::Next(id) => recorder.note(tail, *id, 1),
        Reply::Array(ids) => recorder.note_each(tail, ids.iter()),
        Reply::Runs(runs) => {
            for run in runs.iter() {
                if run.stride == 1 {
                    recorder.note(tail, run.first, run.count);
                } else {
                    recorder.note_each(tail, run.into_iter());
                }
            }
        }
        _ => {}
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
