//! The loop of one load thread: wait for replies and for the timetable, take all that is there, send all that is due.

use std::num::NonZero;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::dialect::Dialect;
use crate::link::{Link, Read};
use crate::progress::LoadThread;
use crate::schedule::Schedule;

/// Connections that are served between two looks at the timetable.
const EVENTS: usize = 128;

/// A thread looks this often whether the run was ended.
const NAP: u64 = 20_000_000;

/// After the end, replies are awaited for their own `--wait` and this much more.
const GRACE: Duration = Duration::from_secs(2);

/// Nanoseconds by which the kernel may wake a thread of an open loop later than asked: by default it is 50 us, which
/// would be a part of every latency.
const SLACK: NonZero<u64> = NonZero::<u64>::MIN;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// One thread and its connections.
pub struct Turns<'t, D> {
    links: Vec<Link<D>>,
    /// When the next request of each is due. `links` take turns: the order of the timetable is theirs.
    arrivals: Vec<Schedule>,
    next_arrival: usize,
    /// Those to look after in this turn, and for each link whether it is among them.
    touched: Vec<usize>,
    is_touched: Vec<bool>,
    /// Those that a refusal keeps from sending.
    paused: Vec<usize>,
    /// Whether epoll watches for room to write.
    watched: Vec<bool>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Memory to read into.
    piece: Vec<u8>,
    grace: u64,
    thread: &'t mut LoadThread,
}

impl<'t, D: Dialect> Turns<'t, D> {
    /// The loop of a thread over these connections.
    ///
    /// # Errors
    /// The kernel does not watch them.
    pub fn new(links: Vec<Link<D>>, thread: &'t mut LoadThread) -> Result<Self> {
        if thread.results.open.is_some() {
            // As it was, then: the report shows how late requests were.
            let _ = rustix::thread::set_current_timer_slack(Some(SLACK));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("failed to make an epoll")?;
        for (index, link) in links.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, link.socket(), data, epoll::EventFlags::IN)
                .context("failed to watch a connection")?;
        }
        let count = links.len();
        let grace = links.first().map_or(GRACE, |link| GRACE + link.longest_wait()).as_nanos() as u64;
        Ok(Self {
            links,
            arrivals: Vec::new(),
            next_arrival: 0,
            touched: Vec::with_capacity(count),
            is_touched: vec![false; count],
            paused: Vec::new(),
            watched: vec![false; count],
            epoll,
            events: Vec::with_capacity(EVENTS),
            piece: Vec::new(),
            grace,
            thread,
        })
    }

    /// Runs until the end, and until what is in flight then is answered.
    ///
    /// # Errors
    /// The kernel does not wait for replies. What becomes of a connection is counted.
    pub fn run(mut self) -> Result<()> {
        let begin = self.thread.progress.begin();
        std::thread::sleep(Duration::from_nanos(begin.saturating_sub(self.thread.progress.now())));
        self.arrivals = self.links.iter_mut().filter_map(|link| link.schedule(begin)).collect();
        // The first requests, and what the server said behind its greeting.
        (0..self.links.len()).for_each(|index| self.take(index, 0));
        loop {
            let (now, end) = (self.thread.progress.now(), self.thread.progress.end());
            let is_over = if now < end {
                !self.links.iter().any(|link| link.is_open() || link.is_waiting())
            } else {
                now > end + self.grace || !self.links.iter().any(Link::is_waiting)
            };
            if is_over {
                break;
            }
            self.collect_due(now);
            self.send(end);
            if now >= end {
                // A socket with a low water does not wake its reader for the last replies.
                self.read_each();
            }
            self.wait(end)?;
        }
        let now = self.thread.progress.now();
        for link in &mut self.links {
            link.settle(now, self.thread);
        }
        Ok(())
    }

    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.is_touched[index], true) {
            self.touched.push(index);
        }
    }

    /// Touches the connections that have something to send by the clock.
    fn collect_due(&mut self, now: u64) {
        while let Some(arrival) = self.arrivals.get_mut(self.next_arrival)
            && arrival.due() <= now
        {
            arrival.advance();
            self.touch(self.next_arrival);
            self.next_arrival = (self.next_arrival + 1) % self.arrivals.len();
        }
        let mut paused = std::mem::take(&mut self.paused);
        paused.retain(|index| {
            let stays = self.links[*index].paused_until(now).is_some();
            if !stays {
                self.touch(*index);
            }
            stays
        });
        self.paused = paused;
    }

    /// Sends what the touched ones may send: many requests, one write each.
    fn send(&mut self, end: u64) {
        if self.touched.is_empty() {
            return;
        }
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            self.is_touched[index] = false;
            let now = self.thread.progress.now();
            let link = &mut self.links[index];
            link.ask(now, end);
            if link.paused_until(now).is_some() && !self.paused.contains(&index) {
                self.paused.push(index);
            }
            match link.write() {
                Ok(count) if self.thread.progress.counts(now) => self.thread.results.sent += count as u64,
                Ok(_) => {}
                Err(why) => self.fail(index, why),
            }
            self.watch(index);
        }
        self.touched = touched;
    }

    /// When to look again if no reply comes.
    fn until(&self, now: u64, end: u64) -> u64 {
        if now >= end {
            // Nothing is due any more.
            return now + NAP;
        }
        let due = self.arrivals.get(self.next_arrival).map_or(u64::MAX, Schedule::due);
        let resumed = self.paused.iter().filter_map(|index| self.links[*index].paused_until(now)).min();
        due.min(resumed.unwrap_or(u64::MAX)).min(end).min(now + NAP)
    }

    /// Waits for replies, for room to write, or until something is due; answers replies with requests.
    fn wait(&mut self, end: u64) -> Result<()> {
        let now = self.thread.progress.now();
        let left = self.until(now, end).saturating_sub(now);
        let timeout =
            Timespec { tv_sec: (left / SECOND).cast_signed(), tv_nsec: (left % SECOND).cast_signed() };
        self.events.clear();
        let timeout = if self.arrivals.is_empty() || left == 0 { timeout } else { self.sleep(timeout)? };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("failed to wait for replies"),
        }
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let index = event.data.u64() as usize;
            self.read(index);
            // Before the next one is read, so that the server has something to do meanwhile.
            self.send(end);
        }
        self.events = events;
        self.thread.publish();
        Ok(())
    }

    /// Waits for replies as long as told, to the microsecond: epoll's own timeout is rounded up to milliseconds, and a
    /// timetable that is late by half a one measures that instead of the server. Returns what is left to wait.
    fn sleep(&self, timeout: Timespec) -> Result<Timespec> {
        let mut ready = [PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Err(error) => Err(error).context("failed to wait for replies"),
        }
    }

    fn read_each(&mut self) {
        for index in 0..self.links.len() {
            if self.links[index].is_waiting() {
                self.read(index);
            }
        }
    }

    /// Reads once, and takes the replies among that.
    fn read(&mut self, index: usize) {
        match self.links[index].read(&mut self.piece) {
            Ok(Read::Bytes(count)) => self.take(index, count),
            Ok(Read::Nothing) => self.touch(index),
            // It fails only for one that is not watched.
            Ok(Read::End) => _ = epoll::delete(&self.epoll, self.links[index].socket()),
            Err(why) => self.fail(index, why),
        }
    }

    /// Takes the replies among what was read.
    fn take(&mut self, index: usize, read: usize) {
        let at = self.thread.progress.now();
        if self.thread.progress.counts(at) {
            self.thread.results.received += read as u64;
        }
        match self.links[index].take(at, self.thread, &mut self.piece) {
            Ok(()) => self.touch(index),
            Err(why) => self.fail(index, why),
        }
    }

    fn fail(&mut self, index: usize, why: String) {
        self.links[index].close();
        self.thread.results.failed(why);
        // It fails only for one that is not watched.
        let _ = epoll::delete(&self.epoll, self.links[index].socket());
    }

    /// Watches for room to write exactly as long as something waits for it.
    fn watch(&mut self, index: usize) {
        let wants = self.links[index].has_output();
        if wants == self.watched[index] {
            return;
        }
        self.watched[index] = wants;
        let flags =
            if wants { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        let data = epoll::EventData::new_u64(index as u64);
        if let Err(error) = epoll::modify(&self.epoll, self.links[index].socket(), data, flags) {
            self.fail(index, format!("failed to watch a connection: {error}"));
        }
    }
}
