//! What came in and what was refused, counted over all connections.
//!
//! Connections count for themselves and add up once a batch, so that a shared line is touched once for many requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;
use xuid_protocol::{Op, Status};

use crate::state::id_limit::LimitBy;
use crate::state::latency::{Latencies, TIMED, Times, timed};

const OPS: usize = Op::ALL.len();
const STATUSES: usize = Status::NAMED.len();

/// Where a status counts that has no name.
const UNNAMED: Status = Status::INTERNAL;

/// Requests that waited for which a connection keeps room. A thousand may end at once.
const WAITED_KEPT: usize = 64;

/// What a connection came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrontName {
    Xuid,
    Resp,
    Http,
    /// Not for clients: its connections are none of those that `max_connections` bounds.
    Admin,
}

impl FrontName {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::Xuid, Self::Resp, Self::Http, Self::Admin];

    /// As a metric's label says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Xuid => "xuid",
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Admin => "admin",
        }
    }
}

/// Counters of one server.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: [AtomicU64; OPS],
    ids: [AtomicU64; OPS],
    errors: [AtomicU64; STATUSES],
    limited: [AtomicU64; LimitBy::ALL.len()],
    open: [AtomicU64; FrontName::ALL.len()],
    accepted: AtomicU64,
    refused: AtomicU64,
    foreign: AtomicU64,
    rejected_tokens: AtomicU64,
    failed_handshakes: AtomicU64,
    panics: AtomicU64,
    latencies: Latencies,
}

/// What one connection did since it last added up.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    requests: [u32; OPS],
    ids: [u64; OPS],
    errors: [u32; STATUSES],
    limited: [u32; LimitBy::ALL.len()],
    dirty: bool,
    /// Requests answered as soon as they were read, of those that are timed, and not timed yet.
    at_once: [u32; TIMED.len()],
    /// The same of those that waited, each with the time when it was read.
    waited: Vec<(usize, Instant)>,
    untimed: bool,
}

impl Tally {
    /// A request that could be read.
    pub(crate) fn request(&mut self, op: Op) {
        self.requests(op, 1);
    }

    /// Requests that could be read.
    pub(crate) fn requests(&mut self, op: Op, count: u32) {
        self.requests[index_of(op)] += count;
        self.dirty = true;
    }

    /// Ids that were copied into replies.
    pub(crate) fn ids(&mut self, op: Op, count: u64) {
        self.ids[index_of(op)] += count;
        self.dirty = true;
    }

    /// Requests that were answered as soon as they were read.
    pub(crate) fn answered(&mut self, op: Op, count: u32) {
        if let Some(place) = timed(op) {
            self.at_once[place] += count;
            self.untimed = true;
        }
    }

    /// A request that was read then, and waited.
    pub(crate) fn waited(&mut self, op: Op, came: Instant) {
        if let Some(place) = timed(op) {
            self.waited.push((place, came));
            self.untimed = true;
        }
    }

    /// Whether something was answered and is not timed yet.
    pub(crate) fn is_untimed(&self) -> bool {
        self.untimed
    }

    /// A request that was refused.
    pub(crate) fn error(&mut self, status: Status) {
        self.errors[index_of_status(status)] += 1;
        self.dirty = true;
    }

    /// A request above a limit in ids a second; the refusal itself counts besides.
    pub(crate) fn limited(&mut self, by: LimitBy) {
        self.limited[by as usize] += 1;
        self.dirty = true;
    }
}

/// Where [`Op::ALL`] has it; spelled out, since it is asked for each request.
const fn index_of(op: Op) -> usize {
    match op {
        Op::Hello => 0,
        Op::Ping => 1,
        Op::Next => 2,
        Op::Array => 3,
        Op::Runs => 4,
        Op::Decode => 5,
        Op::Info => 6,
        Op::Stats => 7,
        Op::Provenance => 8,
        Op::SeqNext => 9,
        Op::SeqArray => 10,
        Op::SeqRuns => 11,
        Op::SeqInfo => 12,
        Op::SeqList => 13,
        Op::SeqCreate => 14,
        Op::SeqAlter => 15,
        Op::GoAway => 16,
        Op::Bye => 17,
    }
}

/// Where [`Status::NAMED`] has it; one that has no name counts as [`UNNAMED`].
fn index_of_status(status: Status) -> usize {
    let place = |status| Status::NAMED.iter().position(|named| *named == status);
    place(status).or_else(|| place(UNNAMED)).unwrap_or(0)
}

impl Traffic {
    /// Adds what a connection counted, and begins anew there.
    pub(crate) fn add(&self, tally: &mut Tally) {
        if !std::mem::take(&mut tally.dirty) {
            return;
        }
        let requests = self.requests.iter().zip(&mut tally.requests);
        let refused = self.errors.iter().zip(&mut tally.errors);
        for (total, part) in requests.chain(refused).chain(self.limited.iter().zip(&mut tally.limited)) {
            if *part > 0 {
                total.fetch_add(u64::from(std::mem::take(part)), Relaxed);
            }
        }
        for (total, part) in self.ids.iter().zip(&mut tally.ids).filter(|(_, part)| **part > 0) {
            total.fetch_add(std::mem::take(part), Relaxed);
        }
    }

    /// Times what a connection answered: it is written now, and what did not wait was read at `came`.
    pub(crate) fn time(&self, tally: &mut Tally, came: Instant, now: Instant) {
        tally.untimed = false;
        let took = now.saturating_duration_since(came);
        for (place, count) in tally.at_once.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            self.latencies.record(place, std::mem::take(count), took);
        }
        for (place, came) in tally.waited.drain(..) {
            self.latencies.record(place, 1, now.saturating_duration_since(came));
        }
        tally.waited.shrink_to(WAITED_KEPT);
    }

    /// How long requests took so far, by op.
    pub(crate) fn times(&self) -> impl Iterator<Item = (Op, Times)> + '_ {
        self.latencies.times()
    }

    /// A client's connection begins; it ends when the guard is dropped.
    pub(crate) fn connection_accepted(&self, front: FrontName) -> Open<'_> {
        self.accepted.fetch_add(1, Relaxed);
        self.connection_opened(front)
    }

    /// The same of any connection, without being counted as accepted.
    pub(crate) fn connection_opened(&self, front: FrontName) -> Open<'_> {
        let open = &self.open[front as usize];
        open.fetch_add(1, Relaxed);
        Open(open)
    }

    /// One connection too many, which is told that with an error; returns how many there were so far.
    pub(crate) fn connection_refused(&self) -> u64 {
        self.errors[index_of_status(Status::OVERLOADED)].fetch_add(1, Relaxed);
        self.refused.fetch_add(1, Relaxed) + 1
    }

    /// A connection that speaks something else.
    pub(crate) fn foreign(&self) {
        self.foreign.fetch_add(1, Relaxed);
    }

    /// A token that is none of ours; returns how many there were so far.
    pub(crate) fn token_rejected(&self) -> u64 {
        self.rejected_tokens.fetch_add(1, Relaxed) + 1
    }

    /// A TLS handshake that failed; returns how many there were so far.
    pub(crate) fn handshake_failed(&self) -> u64 {
        self.failed_handshakes.fetch_add(1, Relaxed) + 1
    }

    /// TLS handshakes that failed.
    pub(crate) fn failed_handshakes(&self) -> u64 {
        self.failed_handshakes.load(Relaxed)
    }

    /// Tokens that were none of ours.
    pub(crate) fn rejected_tokens(&self) -> u64 {
        self.rejected_tokens.load(Relaxed)
    }

    /// A request that made us panic.
    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    /// Requests so far, by op.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (Op, u64)> + '_ {
        Op::ALL.into_iter().zip(self.requests.iter().map(|count| count.load(Relaxed)))
    }

    /// Ids copied into replies so far, by op, of those that ask for ids.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (Op, u64)> + '_ {
        let count = |op: Op| (op, self.ids[index_of(op)].load(Relaxed));
        [Op::Next, Op::Array, Op::Runs].into_iter().map(count)
    }

    /// Errors so far, by status; success is none.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (Status, u64)> + '_ {
        let all = Status::NAMED.into_iter().zip(self.errors.iter().map(|count| count.load(Relaxed)));
        all.filter(|(status, _)| *status != Status::OK)
    }

    /// Requests above a limit in ids a second so far, by what the limit goes by.
    pub(crate) fn limited(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        LimitBy::ALL.into_iter().map(|by| (by.name(), self.limited[by as usize].load(Relaxed)))
    }

    /// Connections so far: accepted, refused, of another protocol.
    pub(crate) fn connections(&self) -> [(&'static str, u64); 3] {
        [
            ("accepted", self.accepted.load(Relaxed)),
            ("refused", self.refused.load(Relaxed)),
            ("foreign", self.foreign.load(Relaxed)),
        ]
    }

    /// Connections of clients open now.
    pub(crate) fn open(&self) -> u64 {
        let of_clients = self.open_by_front().filter(|(front, _)| *front != FrontName::Admin);
        of_clients.map(|(_, open)| open).sum()
    }

    /// Connections open now, by what they came in by.
    pub(crate) fn open_by_front(&self) -> impl Iterator<Item = (FrontName, u64)> + '_ {
        FrontName::ALL.into_iter().zip(self.open.iter().map(|open| open.load(Relaxed)))
    }

    /// Requests that made us panic.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}

/// A connection that is open, and where it is counted.
#[derive(Debug)]
pub(crate) struct Open<'a>(&'a AtomicU64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_its_own_place() {
        assert!(Op::ALL.into_iter().enumerate().all(|(place, op)| index_of(op) == place));
    }

    #[test]
    fn a_status_without_a_name_counts_as_a_failure_of_the_server() {
        let (traffic, mut tally) = (Traffic::default(), Tally::default());
        tally.error(Status::from_code(0x80ff));
        tally.error(Status::RATE);
        traffic.add(&mut tally);
        let found: Vec<_> = traffic.errors().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [(Status::INTERNAL, 1), (Status::RATE, 1)]);
    }

    #[test]
    fn a_thousand_requests_that_waited_leave_no_room_for_as_many_behind() {
        let (traffic, mut tally, now) = (Traffic::default(), Tally::default(), Instant::now());
        (0..1_024).for_each(|_| tally.waited(Op::Next, now));
        traffic.time(&mut tally, now, now);
        assert!(tally.waited.capacity() <= WAITED_KEPT, "{}", tally.waited.capacity());
        assert_eq!(traffic.times().map(|(_, times)| times.count()).sum::<u64>(), 1_024);
    }

    #[test]
    fn a_tally_is_added_once() {
        let (traffic, mut tally) = (Traffic::default(), Tally::default());
        tally.request(Op::Next);
        tally.error(Status::COUNT);
        tally.ids(Op::Runs, 1 << 40);
        traffic.add(&mut tally);
        traffic.add(&mut tally);
        assert_eq!(traffic.requests().map(|(_, count)| count).sum::<u64>(), 1);
        assert_eq!(traffic.ids().last(), Some((Op::Runs, 1 << 40)));
        assert_eq!(traffic.errors().find(|(_, count)| *count > 0), Some((Status::COUNT, 1)));
    }

    #[test]
    fn open_connections_are_counted_by_front_and_those_of_the_admin_port_are_no_clients() {
        let traffic = Traffic::default();
        let open = || traffic.open_by_front().map(|(_, open)| open).collect::<Vec<_>>();
        let one = traffic.connection_accepted(FrontName::Resp);
        let (_other, _page) =
            (traffic.connection_accepted(FrontName::Http), traffic.connection_opened(FrontName::Admin));
        assert_eq!((open(), traffic.open(), traffic.connections()[0].1), (vec![0, 1, 1, 1], 2, 2));
        drop(one);
        assert_eq!((open(), traffic.open(), traffic.connections()[0].1), (vec![0, 0, 1, 1], 1, 2));
    }

    #[test]
    fn a_connection_too_many_is_an_error_as_its_client_is_told() {
        let traffic = Traffic::default();
        assert_eq!((traffic.connection_refused(), traffic.connection_refused()), (1, 2));
        let errors: Vec<_> = traffic.errors().filter(|(_, count)| *count > 0).collect();
        assert_eq!(errors, [(Status::OVERLOADED, 2)]);
    }
}
