//! A wait queue of the gate: tickets in the order in which they are served, so that callers share what there is.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996), with a ticket as the packet and ids as its length. The queue
//! has a virtual time, in ids. A ticket starts at the virtual time, or where its caller's ticket before it ended,
//! whichever is later; it ends `count` ids after that. The ticket with the earliest start is served, whole, and the
//! virtual time is its start. Serving parts of several tickets in turn would finish all of them late, and tickets are
//! all or nothing. A ticket that ends without ids was none: its caller's later ones start where it did.
//!
//! Called under the gate's lock.
//!
//! # Invariants
//! - I1 tickets of one caller are served first come, first served, and so are those without a caller;
//! - I2 of two callers with tickets waiting, neither is ahead of its share by more than its longest ticket;
//! - I3 a ticket that is being served stays first until it ends, or its caller pauses;
//! - I4 tickets of a caller that pauses are neither served nor waited for: nothing is gathered for it;
//! - I5 the virtual time never goes back, and no ticket that is to be served starts before it.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::mint::ticket::Ticket;
use crate::sys::wake::Wake;

/// How many wait queues a gate has.
pub(crate) const QUEUES: usize = 5;

/// The owner of a share in the ids there are, when more is asked for than that: a connection of a server, say. All
/// calls without a caller of their own have one share together. A caller belongs to one engine.
///
/// ```
/// # use std::time::Duration;
/// # use xuid_engine::{Caller, Engine, Order};
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
/// let connection = Caller::default();
/// let ids = engine.request(1_000, Order::Any, Duration::from_secs(1)).on_behalf_of(&connection);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Caller(Arc<Share>);

#[derive(Debug, Default)]
struct Share {
    /// Where its last ticket in each queue ends.
    ends: [AtomicU64; QUEUES],
    /// How many of its tickets wait, in all of them.
    waiting: AtomicUsize,
    pauses: AtomicBool,
    /// Who serves its calls that wait, once one did.
    producer: OnceLock<Arc<Wake>>,
}

impl Caller {
    /// Whether its calls that wait get nothing for now, be it that it has no room for more. They are refused when their
    /// time is over, as ever; once it does not pause, they go on.
    pub fn set_pause(&self, pauses: bool) {
        if self.pauses() != pauses {
            // Relaxed: the wake orders it.
            self.0.pauses.store(pauses, Relaxed);
            if let Some(producer) = self.0.producer.get().filter(|_| !pauses) {
                producer.wake();
            }
        }
    }

    /// Its calls wait for that producer.
    pub(crate) fn waits_for(&self, producer: &Arc<Wake>) {
        self.0.producer.get_or_init(|| producer.clone());
    }

    /// Tells callers apart.
    fn key(&self) -> *const Share {
        Arc::as_ptr(&self.0)
    }

    fn pauses(&self) -> bool {
        self.0.pauses.load(Relaxed)
    }

    /// How many of its tickets wait. Relaxed: the gate's lock orders it.
    pub(crate) fn waiting(&self) -> usize {
        self.0.waiting.load(Relaxed)
    }

    /// Where its last ticket in a queue ends. Relaxed: the gate's lock orders it.
    fn end(&self, queue: usize) -> u64 {
        self.0.ends[queue].load(Relaxed)
    }

    fn set_end(&self, queue: usize, end: u64) {
        self.0.ends[queue].store(end, Relaxed);
    }
}

/// A ticket that waits.
#[derive(Debug)]
struct Entry {
    start: u64,
    /// The ticket's, which nothing else of it need be read for.
    deadline: u64,
    ticket: Arc<Ticket>,
    caller: Place,
}

/// A place in line, whose caller has it counted.
#[derive(Debug)]
struct Place(Caller);

impl Place {
    fn of(caller: &Caller) -> Self {
        caller.0.waiting.fetch_add(1, Relaxed);
        Self(caller.clone())
    }
}

impl Deref for Place {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Entry {
    fn end(&self) -> u64 {
        self.start + u64::from(self.ticket.count)
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    /// Which of the gate's it is.
    index: usize,
    /// By their starts, those of one start as they came.
    entries: VecDeque<Entry>,
    /// Those whose callers pause.
    paused: Vec<Entry>,
    /// The virtual time.
    now: u64,
    /// The latest end of a ticket that was served.
    served: u64,
    /// The caller of calls without one.
    others: Caller,
}

impl WaitQueue {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            entries: VecDeque::new(),
            paused: Vec::new(),
            now: 0,
            served: 0,
            others: Caller::default(),
        }
    }

    /// How many wait, those of callers that pause included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.paused.len()
    }

    /// How many are to be served, as far as was looked.
    pub(crate) fn servable(&self) -> usize {
        self.entries.len()
    }

    /// When the time of the first one of a caller that pauses is over.
    pub(crate) fn paused_until(&self) -> Option<u64> {
        self.paused.iter().map(|entry| entry.deadline).min()
    }

    /// Whether there is none that is to be served.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        self.entries.iter().chain(&self.paused).map(|entry| &*entry.ticket)
    }

    /// Puts a ticket where its caller's share says.
    pub(crate) fn push(&mut self, ticket: Arc<Ticket>, caller: Option<&Caller>) {
        let caller = Place::of(caller.unwrap_or(&self.others));
        let start = self.now.max(caller.end(self.index));
        caller.set_end(self.index, start + u64::from(ticket.count));
        self.insert(Entry { start, deadline: ticket.deadline, ticket, caller });
    }

    fn insert(&mut self, entry: Entry) {
        let at = self.entries.partition_point(|other| other.start <= entry.start);
        self.entries.insert(at, entry);
    }

    /// Takes back those whose callers do not pause any more. What others got meanwhile is not owed to them: they start at
    /// the virtual time (I5), one after the other.
    pub(crate) fn resume(&mut self) {
        let mut resumed: Vec<Entry> = self.paused.extract_if(.., |entry| !entry.caller.pauses()).collect();
        if resumed.is_empty() {
            return;
        }
        let mut entries = Vec::from(std::mem::take(&mut self.entries));
        let mut ends: HashMap<_, _> = resumed.iter().map(|entry| (entry.caller.key(), self.now)).collect();
        // Of one caller, those that paused come before those that came meanwhile.
        for entry in resumed.iter_mut().chain(&mut entries) {
            if let Some(end) = ends.get_mut(&entry.caller.key()) {
                entry.start = entry.start.max(*end);
                *end = entry.end();
                entry.caller.set_end(self.index, entry.caller.end(self.index).max(*end));
            }
        }
        entries.append(&mut resumed);
        self.set_entries(entries);
    }

    /// Stable, so that what is being served stays first (I3), and quick, since nearly all is in order.
    fn set_entries(&mut self, mut entries: Vec<Entry>) {
        entries.sort_by_key(|entry| entry.start);
        self.entries = entries.into();
    }

    /// The ticket to serve. From here on it stays the first (I3).
    pub(crate) fn front(&mut self) -> Option<Arc<Ticket>> {
        while self.entries.front()?.caller.pauses() {
            self.paused.extend(self.entries.pop_front());
        }
        let entry = self.entries.front()?;
        // Those that come now start no earlier.
        self.now = self.now.max(entry.start);
        Some(entry.ticket.clone())
    }

    /// The first ticket was served, or is over.
    pub(crate) fn pop(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.served = self.served.max(entry.end());
        self.rest();
    }

    /// What comes to an empty queue starts at the same time as everything else that comes.
    fn rest(&mut self) {
        if self.entries.is_empty() {
            self.now = self.now.max(self.served);
        }
    }

    /// Takes out the tickets that are to go. They got nothing, and leave no debt: the later ones of their callers start
    /// where the first of them did, or at the virtual time.
    pub(crate) fn take_if(&mut self, goes: impl Fn(&Ticket) -> bool) -> Vec<Arc<Ticket>> {
        self.take(|entry| goes(&entry.ticket))
    }

    /// The same of those whose time is over.
    pub(crate) fn take_overdue(&mut self, boot: u64) -> Vec<Arc<Ticket>> {
        let is_over = |entry: &Entry| entry.deadline <= boot;
        let is_any = self.entries.iter().chain(&self.paused).any(is_over);
        if is_any { self.take(is_over) } else { Vec::new() }
    }

    fn take(&mut self, goes: impl Fn(&Entry) -> bool) -> Vec<Arc<Ticket>> {
        let (now, index) = (self.now, self.index);
        let takes = |entry: &mut Entry| {
            let (goes, end) = (goes(entry), entry.caller.end(index));
            if goes {
                entry.caller.set_end(index, end.min(entry.start));
            } else if end <= entry.start {
                // It ends no later than this one starts: one before this went.
                entry.start = entry.start.min(now.max(end));
                entry.caller.set_end(index, entry.end());
            }
            goes
        };
        // Of one caller, those that pause are before those that do not.
        let mut over: Vec<Entry> = self.paused.extract_if(.., takes).collect();
        let mut entries = Vec::from(std::mem::take(&mut self.entries));
        over.extend(entries.extract_if(.., takes));
        if over.is_empty() {
            self.entries = entries.into();
        } else {
            self.set_entries(entries);
            self.rest();
        }
        over.into_iter().map(|entry| entry.ticket).collect()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::mint::ticket::Gathered;
    use std::time::Duration;
    use xuid_id::Order;

    /// A ticket for so many ids, which is known by its deadline.
    fn ticket(count: u32, name: u64) -> Arc<Ticket> {
        let nothing = Gathered::default();
        Arc::new(Ticket::new(Order::Any, count, count, 0, name, Duration::ZERO, nothing))
    }

    /// Serves so many tickets; returns their names.
    fn served(queue: &mut WaitQueue, most: usize) -> Vec<u64> {
        let next = || {
            let name = queue.front()?.deadline;
            queue.pop();
            Some(name)
        };
        std::iter::from_fn(next).take(most).collect()
    }

    #[test]
    fn calls_of_one_caller_or_of_none_are_served_as_they_came() {
        let caller = Caller::default();
        for caller in [None, Some(&caller)] {
            let mut queue = WaitQueue::new(0);
            for name in 0..10 {
                queue.push(ticket(1 + name as u32 * 7 % 5, name), caller);
            }
            assert_eq!(served(&mut queue, 99), (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_that_asks_a_thousand_times_is_served_in_turn_with_one_that_asks_once() {
        let (greedy, modest) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(3);
        for name in 0..1_000 {
            queue.push(ticket(131_072, name), Some(&greedy));
        }
        assert_eq!(served(&mut queue, 2), [0, 1]);
        queue.front().expect("it is being served");
        for round in 0..100 {
            let name = 5_000 + round;
            queue.push(ticket(131_072, name), Some(&modest));
            let both = served(&mut queue, 2);
            assert!(both.contains(&name), "{round}: {both:?}");
        }
    }

    #[test]
    fn callers_get_the_same_number_of_ids_whatever_the_size_of_their_calls() {
        let callers: Vec<(Caller, u32)> =
            [256, 1_000, 30_000, 131_072].map(|size| (Caller::default(), size)).into();
        let mut queue = WaitQueue::new(1);
        let mut got = vec![0_u64; callers.len()];
        let ask = |queue: &mut WaitQueue, who: usize| {
            queue.push(ticket(callers[who].1, who as u64), Some(&callers[who].0));
        };
        (0..callers.len()).for_each(|who| (0..3).for_each(|_| ask(&mut queue, who)));
        while got.iter().sum::<u64>() < 20_000_000 {
            let who = served(&mut queue, 1)[0] as usize;
            got[who] += u64::from(callers[who].1);
            ask(&mut queue, who);
        }
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!(most - least <= 2 * 131_072, "{got:?}");
    }

    #[test]
    fn what_a_callers_last_ticket_did_not_get_is_not_counted_against_it() {
        let (unlucky, lucky) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(1);
        queue.push(ticket(1_000, 1), Some(&lucky));
        queue.push(ticket(1_000, 2), Some(&unlucky));
        assert_eq!(queue.take_if(|ticket| ticket.deadline == 2).len(), 1);
        queue.push(ticket(1_000, 3), Some(&lucky));
        queue.push(ticket(1_000, 4), Some(&unlucky));
        assert_eq!(served(&mut queue, 9), [1, 4, 3]);
    }

    #[test]
    fn a_caller_whose_calls_keep_running_out_of_time_owes_nothing_for_them() {
        let (hasty, patient) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(1);
        (0..64).for_each(|_| queue.push(ticket(131_072, 0), Some(&patient)));
        queue.front().expect("it is being served");
        queue.push(ticket(1_000, 1), Some(&hasty));
        for round in 1..=1_000 {
            queue.push(ticket(1_000, round + 1), Some(&hasty));
            assert_eq!(queue.take_if(|ticket| ticket.deadline == round).len(), 1);
            assert_eq!(queue.front().map(|ticket| ticket.deadline), Some(0), "it stays the first");
            let ahead = hasty.end(1) - queue.now;
            assert_eq!(ahead, 1_000, "round {round}: only the call that waits");
        }
        let last = 1_001;
        assert_eq!(served(&mut queue, 3), [0, last, 0]);
    }

    #[test]
    fn of_several_calls_that_end_without_ids_each_moves_those_behind_it() {
        let (one, other) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(1);
        for name in 0..6 {
            queue.push(ticket(10 + name as u32, name), Some(&one));
            queue.push(ticket(20, 10 + name), Some(&other));
        }
        assert_eq!(served(&mut queue, 1), [0]);
        assert_eq!(queue.take_if(|ticket| [1, 3, 10].contains(&ticket.deadline)).len(), 3);
        let starts = |caller: &Caller| -> Vec<_> {
            let of = queue.entries.iter().filter(|entry| entry.caller.key() == caller.key());
            of.map(|entry| (entry.ticket.deadline, entry.start)).collect()
        };
        assert_eq!(starts(&one), [(2, 10), (4, 22), (5, 36)]);
        assert_eq!(starts(&other), [(11, 0), (12, 20), (13, 40), (14, 60), (15, 80)]);
        assert_eq!((one.end(1), other.end(1)), (51, 100));
        assert!(queue.entries.iter().is_sorted_by_key(|entry| entry.start));
    }

    #[test]
    fn a_caller_that_was_served_much_starts_with_everybody_else_once_none_waits() {
        let (before, after) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(1);
        queue.push(ticket(1_000_000, 1), Some(&before));
        assert_eq!(served(&mut queue, 1), [1]);
        queue.push(ticket(1_000, 2), Some(&before));
        queue.push(ticket(1_000, 3), Some(&after));
        assert_eq!(served(&mut queue, 2), [2, 3]);
    }

    #[test]
    fn a_caller_that_pauses_is_passed_over_and_goes_on_in_its_turn() {
        let (stalled, other) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(1);
        for name in 0..3 {
            queue.push(ticket(10, name), Some(&stalled));
            queue.push(ticket(10, 10 + name), Some(&other));
        }
        stalled.set_pause(true);
        assert_eq!(served(&mut queue, 2), [10, 11]);
        assert_eq!((queue.len(), queue.is_empty()), (4, false));
        assert_eq!(queue.take_if(|ticket| ticket.deadline == 0).len(), 1, "its time is over all the same");
        stalled.set_pause(false);
        queue.resume();
        assert_eq!(served(&mut queue, 9), [1, 2, 12]);
        queue.push(ticket(10, 3), Some(&stalled));
        stalled.set_pause(true);
        assert_eq!((served(&mut queue, 1).len(), queue.is_empty(), queue.len()), (0, true, 1));
    }

    #[test]
    fn a_caller_that_paused_for_long_shares_with_the_others_and_does_not_catch_up() {
        let (stalled, other) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(1);
        for name in 0..20 {
            queue.push(ticket(100, name), Some(&stalled));
            queue.push(ticket(100, 100), Some(&other));
        }
        stalled.set_pause(true);
        for _ in 0..1_000 {
            queue.push(ticket(100, 100), Some(&other));
            assert_eq!(served(&mut queue, 1), [100]);
        }
        queue.front().expect("it is being served");
        let before = queue.now;
        // One comes in the pause, and one after it.
        queue.push(ticket(100, 20), Some(&stalled));
        stalled.set_pause(false);
        queue.resume();
        assert_eq!(queue.front().map(|ticket| ticket.deadline), Some(100), "it stays the first");
        queue.push(ticket(100, 21), Some(&stalled));
        for round in 0..10 {
            let mut two = served(&mut queue, 2);
            two.sort_unstable();
            assert_eq!(two, [round, 100], "round {round}");
            assert!(queue.now >= before, "the virtual time went back");
        }
        let rest = served(&mut queue, 99).into_iter().filter(|name| *name < 100);
        assert!(rest.eq(10..=21), "in their order, with the one that came in the pause");
    }

    #[test]
    fn the_ticket_that_is_being_served_stays_the_first() {
        let (early, late) = (Caller::default(), Caller::default());
        let mut queue = WaitQueue::new(1);
        queue.push(ticket(10, 1), Some(&early));
        queue.push(ticket(10, 2), Some(&early));
        assert_eq!(served(&mut queue, 1), [1]);
        assert_eq!(queue.front().map(|ticket| ticket.deadline), Some(2));
        queue.push(ticket(10, 3), Some(&late));
        assert_eq!(served(&mut queue, 2), [2, 3]);
    }
}
