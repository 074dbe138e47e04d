//! One connection: a socket, its two buffers, its deadlines, and the [`Conversation`] that understands the bytes.
//!
//! # Invariants
//! - I1 memory is bounded: the inbox by [`INBOX_MOST`], the output by [`Outbox::is_high`] and one reply (and that is little
//!   before HELLO), waiting requests by `max_in_flight`;
//! - I2 it is woken by its socket, its waiting requests, one timer and the stop, before HELLO by the listener
//!   ([`Newcomer`]), for a moment after a reply by itself ([`BusyPoll`]), and while it waits and reads nothing, each
//!   [`FAILURE_LOOK`]: idle connections cost nothing;
//! - I3 what was answered is written before the close, as far as the client reads it;
//! - I4 a deadline is over only if nothing lies in the socket and it takes nothing of what is to be written: this
//!   process may have been stopped, and not the client. A client that never stops sending must not hold two of them off:
//!   the one before HELLO is over behind one look, of [`INBOX_MOST`] at most, and the one behind GOAWAY is set anew once,
//!   for [`GO_AWAY_GRACE`], and is then over behind such a look. Who knows no GOAWAY (RESP, HTTP) may finish the request that has
//!   begun by then, and by the next verdict: one that streams is closed between two requests, or at the end of the drain;
//! - I5 before HELLO was accepted one deadline holds, whatever is sent, and whether its replies are read or not;
//! - I6 a thousand requests in one piece wait for one turn of the other connections of the thread, and a thousand behind
//!   them for another, if others ask.

mod held;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout, timeout_at};
use xuid_protocol::{FRAME_DEADLINE, GREETING_DEADLINE, LINGER_TIME, WAIT_CAP};

use crate::crash_points;
use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::conversation::{Conversation, Need};
use crate::fronts::farewell::farewell;
use crate::fronts::tls::handshake::{self, NoTls};
use crate::fronts::{Front, http, resp, xuid};
use crate::net::busy_poll::BusyPoll;
use crate::net::newcomers::Newcomer;
use crate::net::stream::{Reading, TlsHalf, Writing};
use crate::state::access::REJECTION_PAUSE;
use crate::state::server::Server;
use held::{Held, UNREAD_LOOK};

/// The largest piece that is read at once. 64 KiB are 2,700 requests for an id.
const INBOX_MOST: usize = 64 * 1024;

/// What lies below is looked at anew when it has grown by so much.
const BELOW_STEP: usize = 8 * 1024;

/// With so much read and not answered yet, which is a thousand requests, other connections have their turn first, and if
/// there are any, no more is answered in a turn. One that sends without waiting would keep its thread from them as long
/// as the runtime lets it, and would get most of its time.
const LARGE_BATCH: usize = 16 * 1024;

/// A client that is being closed and takes nothing of its last replies for so long is given up.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Requests that were sent before the client can have read GOAWAY are answered: so much is allowed for the way.
const GO_AWAY_GRACE: Duration = Duration::from_millis(250);

/// While requests wait and nothing is read, nothing tells that the client has reset the connection: the socket is asked this
/// often, so that nothing is looked for and issued that nobody can get.
const FAILURE_LOOK: Duration = Duration::from_millis(250);

/// Serves a connection of a front to its end.
pub(crate) async fn serve(mut stream: TcpStream, front: Front, server: Arc<Server>, newcomer: Arc<Newcomer>) {
    let _open = server.traffic.connection_accepted(front.name());
    // Replies are written in batches; Nagle's algorithm would hold the last one of each back for 40 ms.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let opened = Instant::now();
    if server.access.has_tls() {
        // On the heap: TLS is large, and a plain connection must not pay for the room.
        return Box::pin(serve_tls(stream, front, &server, newcomer, opened)).await;
    }
    let ended = {
        let (reader, writer) = stream.split();
        converse(reader, writer, front, &server, newcomer, opened).await
    };
    if ended == Ended::Orderly {
        farewell(stream).await;
    }
}

/// The same within TLS. The handshake is a part of the greeting, and has no more time than that.
async fn serve_tls(
    stream: TcpStream,
    front: Front,
    server: &Arc<Server>,
    newcomer: Arc<Newcomer>,
    opened: Instant,
) {
    let Some(config) = server.access.tls_for_clients() else { return };
    let peer = stream.peer_addr().ok();
    let mut draining = server.draining();
    let stop = async {
        let _ = draining.wait_for(|draining| *draining).await;
        sleep(GO_AWAY_GRACE).await;
    };
    let shaking = handshake::accept(stream, config, |first| front.refuse_plain(first));
    let shaken = tokio::select! {
        shaken = timeout_at(opened + GREETING_DEADLINE, shaking) => shaken,
        () = stop => return,
        () = newcomer.ended() => return,
    };
    let tls = match shaken {
        Ok(Ok(tls)) => Mutex::new(tls),
        Ok(Err(NoTls::Plain(stream))) => {
            server.traffic.foreign();
            // It listens to no wish for its place any more, so it has none.
            drop(newcomer);
            return farewell(stream).await;
        }
        Ok(Err(NoTls::Failed(error, stream))) => {
            server.handshake_failed(peer, &error);
            drop(newcomer);
            return farewell(stream).await;
        }
        Err(_) => return,
    };
    let ended = converse(TlsHalf(&tls), TlsHalf(&tls), front, server, newcomer, opened).await;
    if ended == Ended::Orderly {
        let mut tls = tls.into_inner().unwrap_or_else(PoisonError::into_inner);
        // TLS's own goodbye: else the client could not tell an end from a cut.
        let _ = timeout(LINGER_TIME, tls.shutdown()).await;
        farewell(tls.into_inner().0.stream).await;
    }
}

/// Runs the connection with the conversation of its front.
async fn converse(
    reader: impl Reading,
    writer: impl Writing,
    front: Front,
    server: &Arc<Server>,
    newcomer: Arc<Newcomer>,
    opened: Instant,
) -> Ended {
    let address = Some(newcomer.address());
    let idle = server.limits.idle();
    match front {
        Front::Xuid => {
            let session = xuid::Session::new(Arc::clone(server), address);
            Connection::new(reader, writer, session, newcomer, (opened, idle)).run(server).await
        }
        Front::Resp => {
            let session = resp::Session::new(Arc::clone(server), address);
            Connection::new(reader, writer, session, newcomer, (opened, idle)).run(server).await
        }
        Front::Http => {
            let session = http::Session::new(Arc::clone(server), address);
            Connection::new(reader, writer, session, newcomer, (opened, idle)).run(server).await
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Everything was written.
    Orderly,
    /// The socket failed, or its time was over: there is nobody to be polite to.
    Broken,
}

struct Connection<R, W, C> {
    reader: R,
    writer: W,
    session: C,
    newcomer: Arc<Newcomer>,
    inbox: Inbox,
    outbox: Outbox,
    need: Need,
    busy_poll: BusyPoll,
    opened: Instant,
    /// When bytes last went either way.
    active: Instant,
    /// When the first byte of the frame that is not whole yet was read.
    begun: Option<Instant>,
    /// When GOAWAY was written, or was to be: before HELLO it waits for that one's reply.
    sent_away: Option<Instant>,
    /// The deadline at which the socket was looked into, and the one at which it was written to directly.
    looked: Option<Instant>,
    pushed: Option<Instant>,
    held: Held,
    /// Half of what TLS makes a request of, as it was when it was looked at last.
    below: Option<(usize, Instant)>,
    /// When it had its turn to send again, after it waited for us.
    turned: Instant,
    /// The client got its time behind GOAWAY a second time.
    was_prolonged: bool,
    /// It was sent away since it asked for nothing.
    was_idle: bool,
    idle: Duration,
}

impl<R: Reading, W: Writing, C: Conversation> Connection<R, W, C> {
    fn new(
        reader: R,
        writer: W,
        session: C,
        newcomer: Arc<Newcomer>,
        (opened, idle): (Instant, Duration),
    ) -> Self {
        let server = &session.client().server;
        Self {
            held: Held::new(server, opened),
            reader,
            writer,
            session,
            newcomer,
            inbox: Inbox::default(),
            outbox: Outbox::of_stranger(),
            need: Need::Input,
            busy_poll: BusyPoll::new(),
            opened,
            active: opened,
            begun: None,
            sent_away: None,
            looked: None,
            pushed: None,
            below: None,
            turned: opened,
            was_prolonged: false,
            was_idle: false,
            idle,
        }
    }

    async fn run(&mut self, server: &Server) -> Ended {
        let mut draining = server.draining();
        let mut stop = std::pin::pin!(draining.wait_for(|draining| *draining));
        let mut timer = std::pin::pin!(sleep_until(self.due()));
        loop {
            if self.need == Need::Input && self.inbox.rest().len() >= LARGE_BATCH {
                yield_now().await;
            }
            self.advance();
            if self.session.take_rejection() && !self.hold_back(server).await {
                return Ended::Broken;
            }
            let was_full = self.outbox.is_high();
            if self.write_now().is_err() {
                return Ended::Broken;
            }
            self.note_unread();
            if self.has_too_much_begun() {
                return Ended::Broken;
            }
            self.time_replies();
            if self.need == Need::End && self.is_written() {
                return Ended::Orderly;
            }
            self.wind(timer.as_mut());
            let has_room = !self.outbox.is_high();
            let may_finish = has_room && self.session.in_flight() > 0;
            let longest = self.session.longest_request();
            let (is_stranger, is_tight) = (!self.session.was_greeted(), self.is_tight());
            tokio::select! {
                // In this order, reading last: a client that never stops asking must starve neither its own requests
                // that wait, nor the stop, nor its deadlines.
                biased;
                written = write(&mut self.writer, self.outbox.rest()), if !self.is_written() => match written {
                    Ok(count) => self.was_written(count),
                    Err(_) => return Ended::Broken,
                },
                done = self.session.waited(), if may_finish => self.session.finish(done, &mut self.outbox),
                _ = stop.as_mut(), if self.sent_away.is_none() => self.send_away(),
                () = self.newcomer.ended(), if is_stranger => return Ended::Broken,
                () = timer.as_mut() => {
                    if self.time_is_over() {
                        return Ended::Broken;
                    }
                    timer.as_mut().reset(self.due());
                }
                read = read(&mut self.reader, &mut self.inbox, (longest, is_tight), self.below), if self.need == Need::Input => match read {
                    Ok(Some(count)) => self.was_read(count),
                    // The next turn counts it.
                    Ok(None) => self.below = self.reader.half(),
                    Err(_) => return Ended::Broken,
                },
                () = failure_look(), if self.need != Need::Input && self.session.in_flight() > 0 => {
                    if self.reader.has_failed() {
                        return Ended::Broken;
                    }
                }
                // More was read than is answered in a turn, or the output was full and is not any more. Others have their
                // turn first.
                () = yield_now(), if self.need == Need::Turn || was_full && has_room => {}
                () = yield_now(), if self.busy_poll.looks_on() => self.busy_poll.saw_nothing(Instant::now()),
            }
        }
    }

    /// Counts and logs a wrong token, and waits for a moment before that is answered; false if its place is wanted meanwhile.
    #[cold]
    async fn hold_back(&self, server: &Server) -> bool {
        server.reject(|| self.reader.peer().ok());
        tokio::select! {
            () = self.newcomer.ended(), if !self.session.was_greeted() => false,
            () = sleep(REJECTION_PAUSE) => true,
        }
    }

    /// Whether little is read ahead: all together hold much that is unread, or that waits.
    fn is_tight(&self) -> bool {
        self.outbox.is_tight() || self.outbox.lets_few_wait()
    }

    /// Whether the socket has everything that was answered.
    fn is_written(&self) -> bool {
        self.outbox.is_empty() && self.writer.is_flushed()
    }

    /// Writes what the socket takes at once, which is nearly always everything.
    fn write_now(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            match self.writer.try_write(crash_points::portion(self.outbox.rest())) {
                Ok(count @ 1..) => self.was_written(count),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    crash_points::not_written();
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells how long the last replies took: until they were written, or found no room in the socket.
    fn time_replies(&mut self) {
        if self.session.has_replied() {
            // Written now: that clock was read already.
            let now = if self.outbox.is_empty() { self.active } else { Instant::now() };
            self.session.written_at(now);
        }
    }

    /// Answers what can be answered now.
    fn advance(&mut self) {
        let before = self.inbox.rest().len();
        let was_greeted = self.session.was_greeted();
        let has_waited = self.need != Need::Input;
        // Others may hold more than when it had its last turn.
        self.outbox.tighten(self.held.unread.bound());
        self.outbox.let_few_wait(self.held.lets_few_wait(self.is_written()));
        let turn = if self.busy_poll.is_alone() { usize::MAX } else { LARGE_BATCH };
        self.need = self.session.receive(&mut self.inbox, &mut self.outbox, turn);
        if !was_greeted && self.session.was_greeted() {
            self.newcomer.greeted();
            self.outbox.widen();
            if self.need == Need::Room {
                // It stopped for the little room of a stranger, and there is more now: nothing else would wake it.
                self.need = Need::Turn;
            }
            // GOAWAY went behind the reply to HELLO.
            self.sent_away = self.sent_away.map(|_| Instant::now());
        }
        if has_waited && self.need == Need::Input {
            self.turned = Instant::now();
        }
        let after = self.inbox.rest().len();
        if after == 0 || self.need != Need::Input {
            // While we are the ones who do not read, no time runs against the client.
            self.begun = None;
        } else if after < before || self.begun.is_none() {
            // Behind one that waited for us, what lies there since long has its time from now on.
            self.begun = Some(self.active.max(self.turned));
        }
    }

    fn was_written(&mut self, count: usize) {
        crash_points::written();
        self.outbox.consume(count);
        self.held.wrote(count);
        self.active = Instant::now();
        if self.outbox.is_empty() && self.session.in_flight() == 0 {
            self.busy_poll.answered(self.active);
        }
    }

    fn was_read(&mut self, count: usize) {
        if count == 0 {
            self.session.input_ended();
            return;
        }
        self.active = Instant::now();
        if self.was_idle && !self.session.has_goaway() {
            // It does not know that it was to go, and works again.
            (self.sent_away, self.was_idle, self.was_prolonged) = (None, false, false);
        }
        self.session.read_at(self.active);
        self.busy_poll.asked(self.active);
        if !self.is_tight() {
            self.inbox.widen(INBOX_MOST);
        }
    }

    /// Tells the client that the server wants it to go; what is on its way already is still read for a moment.
    fn send_away(&mut self) {
        self.session.go_away(&mut self.outbox);
        self.sent_away = Some(Instant::now());
    }

    /// When something is over if nothing happens until then.
    fn last_due(&self) -> Instant {
        let due = if self.need == Need::End {
            self.active + LAST_WRITE
        } else if self.session.is_leaving() {
            let waits = if self.is_written() { WAIT_CAP } else { Duration::ZERO };
            self.active + waits + LAST_WRITE
        } else if let Some(sent) = self.sent_away {
            sent + GO_AWAY_GRACE
        } else {
            self.begun().map_or(self.active + self.idle, |begun| begun + FRAME_DEADLINE)
        };
        if self.session.was_greeted() { due } else { due.min(self.opened + GREETING_DEADLINE) }
    }

    /// The same, or when it is to be looked at since it does not read.
    fn due(&self) -> Instant {
        let due = self.last_due();
        if self.held.unread.counts() { due.min(self.held.looked + UNREAD_LOOK) } else { due }
    }

    /// Counts what it has not read.
    fn note_unread(&mut self) {
        let bound = self.held.unread.bound();
        if bound.is_some() {
            self.outbox.trim();
        }
        if self.need == Need::Room {
            self.inbox.trim();
        }
        // Requests that are not answered before those before them, or before it reads, lie here as long.
        let behind = if self.need == Need::Room { self.inbox.rest().len() } else { 0 };
        let waiting = behind + self.session.waiting_bytes();
        self.held.note_waits(waiting);
        let mut bytes = self.outbox.memory();
        if !self.is_written() {
            bytes += waiting;
        }
        self.held.note_unread(bytes, self.writer.is_flushed());
        self.outbox.tighten(bound);
    }

    /// Counts what it has begun to ask for. Whether it is to go for that.
    fn has_too_much_begun(&mut self) -> bool {
        let begun = || self.inbox.rest().len() + self.reader.half().map_or(0, |(bytes, _)| bytes);
        let begun = if self.need == Need::Input { begun() } else { 0 };
        self.held.has_too_much_begun(begun + self.session.kept())
    }

    /// Whether it is to make room, where what nobody reads is too much: it takes nothing of it, or takes long.
    fn makes_room(&mut self, now: Instant) -> bool {
        let is_late = self.held.look(now);
        if self.held.unread.is_much() {
            // It may hold more than what waits.
            self.outbox.trim();
            self.note_unread();
        }
        // Not before all have little room for it: then nobody keeps it so.
        if !self.held.unread.is_much() {
            return false;
        }
        let is_slow = self.held.is_slow(now, is_late);
        // Who has only queued something may think for a moment.
        let is_silent = now >= self.active + UNREAD_LOOK && !self.is_written();
        let ends = is_slow || is_silent && !matches!(self.push(), Ok(true));
        if ends {
            self.held.unread.tell();
        }
        ends
    }

    /// Sets the timer, if it would be late. If it is early it will find that out by itself: a deadline moves with every
    /// byte, and a timer that moved along would cost more than the byte.
    fn wind(&self, timer: Pin<&mut Sleep>) {
        let due = self.due();
        if timer.deadline() > due {
            timer.reset(due);
        }
    }

    /// The timer rang. True: give the connection up at once.
    fn time_is_over(&mut self) -> bool {
        let (now, due) = (Instant::now(), self.last_due());
        if now < due {
            return now >= self.due() && self.makes_room(now);
        }
        if self.need == Need::Turn {
            // Requests that were read in time lie before the rest of its turn.
            return false;
        }
        if !self.is_written() && self.pushed.replace(due) != Some(due) {
            match self.push() {
                Ok(false) => {}
                Ok(true) => return false,
                Err(_) => return true,
            }
        }
        if self.need == Need::Input && self.looked.replace(due) != Some(due) {
            match self.look() {
                Ok(0) => {}
                Ok(_) => {
                    self.prolong(now);
                    return false;
                }
                Err(_) => return true,
            }
        }
        if self.need == Need::End || self.session.is_leaving() {
            return true;
        }
        if self.sent_away.is_some() && self.has_begun_untold(now) {
            self.sent_away = Some(now);
            return false;
        }
        if !self.session.was_greeted() {
            return true;
        }
        if self.sent_away.is_some() {
            let reads_on = now < self.active + LAST_WRITE;
            // What waits is not answered before there is room for it.
            let goes_on = self.session.in_flight() > 0 && !self.outbox.is_high();
            if self.need == Need::Room && (goes_on || reads_on) {
                // Requests that were read already have their turn as soon as some of those before them are answered, or
                // their replies are read.
                self.sent_away = Some(now);
            } else {
                // What waits is answered, then it closes.
                self.session.input_ended();
            }
            return false;
        }
        if self.begun().is_none() && !self.is_written() {
            // It has read nothing of its replies for so long.
            return true;
        }
        if self.begun().is_none() && self.session.in_flight() > 0 {
            // It waits for us, and not the other way round.
            self.active = now;
            return false;
        }
        // Half a request had its time, and no more of it gives it another.
        self.was_idle = self.begun().is_none();
        self.send_away();
        false
    }

    /// Since when half a request lies here, or half of what TLS makes one of.
    fn begun(&self) -> Option<Instant> {
        let below = || self.reader.half().map(|(_, since)| since).filter(|_| self.need == Need::Input);
        // While we are the ones who do not read, no time runs against the client.
        self.begun.or_else(|| below().map(|since| since.max(self.turned)))
    }

    /// A request was begun by a client that was told nothing, and has the time that it has ever.
    fn has_begun_untold(&self, now: Instant) -> bool {
        let begun = self.begun().filter(|_| !self.session.has_goaway());
        let is_stranger = !self.session.was_greeted();
        begun.is_some_and(|begun| now < begun + FRAME_DEADLINE)
            && !(is_stranger && now >= self.opened + GREETING_DEADLINE)
    }

    /// Something lay in the socket when the time behind GOAWAY was over: more may have been sent while this process was
    /// stopped than the socket holds, and comes as soon as that is read.
    fn prolong(&mut self, now: Instant) {
        if self.session.was_greeted() && self.sent_away.is_some() && !self.was_prolonged {
            (self.sent_away, self.was_prolonged) = (Some(now), true);
        }
    }

    /// Writes what the socket takes, without asking the runtime whether it takes anything: it may not have looked yet.
    /// Whether it took something.
    fn push(&mut self) -> io::Result<bool> {
        let pushed = self.writer.push(crash_points::portion(self.outbox.rest()))?;
        if pushed.moved {
            self.was_written(pushed.taken);
        } else if pushed.taken > 0 {
            self.outbox.consume(pushed.taken);
            self.held.put_in_tls(pushed.taken);
        }
        Ok(pushed.moved)
    }

    /// Reads what lies in the socket, without asking the runtime whether something does: it may not have looked yet. A
    /// deadline gets one look, which has room for all of a frame, so that no client lives on by a byte at a time. One that
    /// does not move with what was read has room for more.
    fn look(&mut self) -> io::Result<usize> {
        let moves = self.session.was_greeted() && self.sent_away.is_none();
        let least = if moves { self.session.longest_request() } else { INBOX_MOST };
        let room = self.inbox.room(least);
        match self.reader.look(room) {
            Ok(count) => {
                self.was_read(count);
                // The end of the input is something, too.
                Ok(count.max(1))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.inbox.park();
                let below = self.reader.half();
                // Half of something came.
                Ok(usize::from(below.is_some() && std::mem::replace(&mut self.below, below) != below))
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads into memory that the inbox has only while something comes, or is in it: at least so much, or that alone where it is tight.
/// `None`: more lies below, as half of something, than did when it was looked at.
async fn read(
    reader: &mut impl Reading,
    inbox: &mut Inbox,
    (least, is_tight): (usize, bool),
    below: Option<(usize, Instant)>,
) -> io::Result<Option<usize>> {
    poll_fn(|context| {
        let room = if is_tight { inbox.narrow_room(least) } else { inbox.room(least) };
        let read = reader.poll_read(context, room);
        if read.is_pending() {
            inbox.park();
            let is_more = |(bytes, since)| {
                below.is_none_or(|(seen, known)| since != known || bytes >= seen + BELOW_STEP)
            };
            if reader.half().is_some_and(is_more) {
                return Poll::Ready(Ok(None));
            }
        }
        read.map_ok(Some)
    })
    .await
}

/// The timer is made by the first poll: a turn that needs no look pays nothing for it.
async fn failure_look() {
    sleep(FAILURE_LOOK).await;
}

/// Writes as soon as something is taken.
async fn write(writer: &mut impl Writing, bytes: &[u8]) -> io::Result<usize> {
    poll_fn(|context| writer.poll_write(context, bytes)).await
}

#[cfg(test)]
mod tests;
