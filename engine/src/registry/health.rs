//! Whether a registry answers, as its calls went.
//!
//! A [`Monitored`] registry is one that writes down, on the registry thread, whether each call of
//! [`Ownership`](crate::registry::ownership::Ownership) was answered; it changes nothing. What its own adaptor knows of
//! a connection comes first, since that is noticed before a call meets it.
//!
//! # Invariants
//! - I1 every method of the port is passed on, those with a default too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use xuid_spill::SpillId;

use crate::clock::{Clock, Reading, SECOND};
use crate::registry::{
    Connection, ConnectionState, Genesis, MarkRecord, ReadError, Registry, SwapError, Versioned, WorkerEntry,
    WorkerRecord,
};
use crate::stats::{Latency, RegistryStats, Unknown};
use crate::sys::atomics::lock;

/// A call that has brought nothing for so long is an outage, although it may end well: one that hangs (a disk that is
/// frozen, a lock that a stranger keeps) ends never.
const SLOW: u64 = SECOND;

/// A change that failed is no outage any more after so long without another that failed, if calls that only read are
/// answered: while the registry is away, what failed is tried again every second or two.
const FORGIVEN: u64 = 10 * SECOND;

/// What was seen of the registry.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Calls of any kind, since one of them brought nothing, until one is answered.
    calls: Option<Silence>,
    /// The same of changes alone. A registry may be readable while nothing in it can be changed: then calls that only
    /// read are answered, and people are to know all the same.
    changes: Option<Silence>,
    /// Since when it answers that it is not the one that was opened. Of a registry with a connection its adaptor knows that.
    refused: Option<Silence>,
    /// When the call began that is under way, in boot time.
    calling: Option<u64>,
    connection: Option<Arc<Connection>>,
    /// What the log was told last.
    told: Option<Told>,
}

/// What the log was told of an outage.
#[derive(Debug, Clone, Copy)]
struct Told {
    since: u64,
    refused: bool,
}

/// What the log is to be told.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// The registry is away.
    Away { why: String },
    /// It answers, and must not be used.
    Refused { why: String },
    /// It is back, after so many nanoseconds.
    Back { after: u64 },
}

/// Calls that bring nothing.
#[derive(Debug, Clone)]
struct Silence {
    /// When the first of them began, in boot time.
    since: u64,
    /// When the last of them ended.
    last: u64,
    /// What it brought instead.
    why: String,
}

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Change,
}

/// An outage of the registry.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// Boot time.
    pub(crate) since: u64,
    pub(crate) why: String,
    /// The registry answers, and must not be used.
    pub(crate) refused: bool,
}

impl Health {
    /// The connection of an adaptor that a test plays.
    #[cfg(test)]
    pub(crate) fn connect(&mut self, connection: Arc<Connection>) {
        self.connection = Some(connection);
    }

    /// A call begins.
    pub(crate) fn begins(&mut self, boot: u64) {
        self.calling = Some(boot);
    }

    /// The call that was under way was answered.
    pub(crate) fn answered(&mut self, call: Call, boot: u64) {
        (self.calling, self.calls, self.refused) = (None, None, None);
        let forgiven = |changes: &mut Silence| call == Call::Change || changes.last + FORGIVEN <= boot;
        self.changes.take_if(forgiven);
    }

    /// A call brought nothing, for this reason.
    pub(crate) fn brought_nothing(&mut self, call: Call, boot: u64, why: &str) {
        let begun = self.calling.take().unwrap_or(boot);
        let more = |before: &Option<Silence>| {
            let since = before.as_ref().map_or(begun, |silence| silence.since);
            Some(Silence { since, last: boot, why: why.to_owned() })
        };
        self.calls = more(&self.calls);
        if call == Call::Change {
            self.changes = more(&self.changes);
        }
    }

    /// A call was answered with this reason why the registry must not be used.
    pub(crate) fn refuses(&mut self, boot: u64, why: &str) {
        let since = self.refused.take().map_or(boot, |silence| silence.since);
        (self.calling, self.calls, self.changes) = (None, None, None);
        if self.connection.is_none() {
            self.refused = Some(Silence { since, last: boot, why: why.to_owned() });
        }
    }

    /// The call that was under way asked for nothing.
    pub(crate) fn asked_nothing(&mut self) {
        self.calling = None;
    }

    /// When the call that is under way becomes an outage, if it brings nothing until then.
    pub(crate) fn suspect_at(&self) -> Option<u64> {
        self.calling.map(|begun| begun + SLOW)
    }

    /// What the log was not told yet. The caller tells it.
    pub(crate) fn untold(&mut self, boot: u64) -> Option<News> {
        match (self.outage(boot), self.told) {
            (Some(outage), told) if told.is_none_or(|told| told.refused != outage.refused) => {
                let Outage { since, why, refused } = outage;
                self.told = Some(Told { since: told.map_or(since, |told| told.since), refused });
                Some(if refused { News::Refused { why } } else { News::Away { why } })
            }
            (None, Some(told)) => {
                self.told = None;
                Some(News::Back { after: boot.saturating_sub(told.since) })
            }
            _ => None,
        }
    }

    /// Whether the registry has a connection of which its adaptor knows more.
    pub(crate) fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether this is a thread of its adaptor.
    pub(crate) fn is_on_adaptors_thread(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_on_own_thread())
    }

    /// Whether its adaptor knows that there is no connection.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.away_since().is_some())
    }

    /// Whether the registry answers nothing, at a boot time: as its adaptor says, or as the last call went. One in which
    /// nothing can be changed answers: what is to be changed is tried as ever.
    pub(crate) fn is_silent(&self, boot: u64) -> bool {
        self.calls.is_some()
            || self.refused.is_some()
            || self.is_disconnected()
            || self.calling.is_some_and(|begun| begun + SLOW <= boot)
    }

    /// Whether and since when the registry is away, for figures and readiness, at a boot time: it is silent, or the
    /// last changes brought nothing.
    pub(crate) fn outage(&self, boot: u64) -> Option<Outage> {
        let told = self.connection.as_ref().and_then(|connection| {
            let since = connection.away_since()?;
            Some(Outage {
                since,
                why: connection.problem().unwrap_or_else(|| "it does not answer".to_owned()),
                refused: connection.state() == ConnectionState::Refused,
            })
        });
        let silent =
            |silence: &Silence| Outage { since: silence.since, why: silence.why.clone(), refused: false };
        let refused = self.refused.as_ref().map(|silence| Outage { refused: true, ..silent(silence) });
        let hangs = self.calling.filter(|begun| begun + SLOW <= boot);
        let hangs = hangs.map(|since| Outage {
            since,
            why: "a call has not come back yet".to_owned(),
            refused: false,
        });
        // What is known of the reason is told by whichever knows most; the outage began with the first of them.
        let all = [told, refused, self.changes.as_ref().map(silent), self.calls.as_ref().map(silent), hangs];
        let since = all.iter().flatten().map(|outage| outage.since).min()?;
        all.into_iter().flatten().next().map(|outage| Outage { since, ..outage })
    }

    /// The part of the figures that is known here, at a boot time.
    pub(crate) fn stats(&self, boot: u64) -> RegistryStats {
        let outage = self.outage(boot);
        let connection = self.connection.as_deref();
        let told = connection.map(Connection::state).unwrap_or_default();
        let away = outage.as_ref().map(|outage| Duration::from_nanos(boot.saturating_sub(outage.since)));
        RegistryStats {
            state: match &outage {
                Some(outage) if told == ConnectionState::Connected && outage.refused => {
                    ConnectionState::Refused
                }
                Some(_) if told == ConnectionState::Connected => ConnectionState::Away,
                _ => told,
            },
            away: away.unwrap_or_default(),
            problem: outage.map(|outage| outage.why),
            sessions: connection.map_or(0, Connection::sessions),
            expirations: connection.map_or(0, Connection::expirations),
            disconnects: connection.map_or(0, Connection::disconnects),
            ..RegistryStats::default()
        }
    }
}

/// What the registry thread has seen and counted, for the producer and for stats.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The registry's wall clock, and a reading of ours from then, until the producer takes them.
    pub(crate) time: Option<(u64, Reading)>,
    pub(crate) reserved: u64,
    pub(crate) panics: u64,
    pub(crate) conflicts: u64,
    /// How often a copy of this process was met.
    pub(crate) copies: u64,
    pub(crate) unknown: Unknown,
    pub(crate) claims: Latency,
    pub(crate) renewals: Latency,
    pub(crate) marks: Latency,
    pub(crate) health: Health,
}

impl Tally {
    /// The registry's figures at a boot time.
    pub(crate) fn stats(&self, boot: u64) -> RegistryStats {
        let mut stats = self.health.stats(boot);
        (stats.conflicts, stats.unknown) = (self.conflicts, self.unknown);
        (stats.claims, stats.renewals, stats.marks) = (self.claims, self.renewals, self.marks);
        stats
    }
}

/// What a call brought.
enum Answer<'a> {
    /// What was asked for, or the reason why that is not to be had.
    Some,
    /// Nothing, for this reason.
    Nothing(&'a str),
    /// That the registry must not be used, for this reason.
    Refusal(&'a str),
}

impl<'a> Answer<'a> {
    fn of_read<T>(result: &'a Result<T, ReadError>) -> Self {
        result.as_ref().err().map_or(Self::Some, Self::of_error)
    }

    fn of_error(error: &'a ReadError) -> Self {
        match error {
            ReadError::Unavailable { why } => Self::Nothing(why),
            ReadError::Foreign { why } => Self::Refusal(why),
            ReadError::Absent { .. } | ReadError::Damaged { .. } | ReadError::Closed { .. } => Self::Some,
        }
    }

    fn of_change(result: &'a Result<(), SwapError>) -> Self {
        match result {
            Err(SwapError::Unknown { why } | SwapError::Unavailable { why }) => Self::Nothing(why),
            Err(SwapError::Read(error)) => Self::of_error(error),
            Ok(()) | Err(SwapError::Conflict | SwapError::Full { .. } | SwapError::TooLow { .. }) => {
                Self::Some
            }
        }
    }
}

/// A registry under observation.
pub(crate) struct Monitored {
    inner: Box<dyn Registry>,
    tally: Arc<Mutex<Tally>>,
    clock: Arc<dyn Clock>,
}

impl Monitored {
    pub(crate) fn new(inner: Box<dyn Registry>, tally: Arc<Mutex<Tally>>, clock: Arc<dyn Clock>) -> Self {
        lock(&tally).health.connection = inner.connection();
        Self { inner, tally, clock }
    }

    /// Makes a call, and notes how it went: what it brought, if it asked for anything.
    fn call<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(&mut dyn Registry) -> T,
        answer: impl FnOnce(&T) -> Option<Answer<'_>>,
    ) -> T {
        let begun = self.clock.read().boot;
        lock(&self.tally).health.begins(begun);
        let result = make(&mut *self.inner);
        let ended = self.clock.read().boot;
        let health = &mut lock(&self.tally).health;
        match answer(&result) {
            None => health.asked_nothing(),
            Some(Answer::Some) => health.answered(call, ended),
            Some(Answer::Nothing(why)) => health.brought_nothing(call, ended, why),
            Some(Answer::Refusal(why)) => health.refuses(ended, why),
        }
        result
    }

    fn read<T>(
        &mut self,
        make: impl FnOnce(&mut dyn Registry) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.call(Call::Read, make, |result| Some(Answer::of_read(result)))
    }

    fn change(
        &mut self,
        make: impl FnOnce(&mut dyn Registry) -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        self.call(Call::Change, make, |result| Some(Answer::of_change(result)))
    }
}

impl Registry for Monitored {
    fn genesis(&self) -> &Genesis {
        self.inner.genesis()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn last_worker(&self) -> Option<u32> {
        self.inner.last_worker()
    }

    fn time(&mut self) -> Option<u64> {
        self.inner.time()
    }

    fn reached(&mut self) -> Option<u64> {
        self.inner.reached()
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        self.inner.connection()
    }

    fn maintain(&mut self) {
        self.inner.maintain();
    }

    fn probe(&mut self) -> Option<Result<(), SwapError>> {
        self.call(Call::Change, |registry| registry.probe(), |tried| tried.as_ref().map(Answer::of_change))
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        self.read(|registry| registry.workers())
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.read(|registry| registry.worker(worker))
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.change(|registry| registry.claim(worker, expected, record))
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.change(|registry| registry.swap_worker(worker, expected, record))
    }

    fn leave(&mut self, worker: u32) {
        self.inner.leave(worker);
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        self.read(|registry| registry.mark(spill))
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.change(|registry| registry.create_mark(spill, record))
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        self.change(|registry| registry.swap_mark(spill, expected, record))
    }

    fn close(&mut self) {
        self.inner.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::registry::memory::{Fault, MemoryRegistry};
    use crate::registry::ownership::{Identity, Ownership, WorkerRequest};
    use crate::registry::{ClusterId, Token};
    use xuid_id::Layout;

    #[test]
    fn a_registry_is_away_from_its_first_silence_to_its_next_answer() {
        let cluster = ClusterId::from_bytes([1; 16]);
        let genesis = Genesis::new(cluster, Layout::default(), 1_000, 3);
        let registry = MemoryRegistry::new(genesis);
        let tally = Arc::<Mutex<Tally>>::default();
        let watched = Monitored::new(Box::new(registry.clone()), tally.clone(), Arc::new(SystemClock));
        let mut ownership = Ownership::new(Box::new(watched), Identity::new(Token([1; 16]), "a test".into()));
        let request =
            WorkerRequest { now: 2_000, start: 2_000, end: 2_100, pinned: Some(0), except: Vec::new() };
        drop(ownership.take(&request).unwrap());
        assert!(lock(&tally).health.outage(SystemClock.read().boot).is_none());

        let before = SystemClock.read().boot;
        let mut fail = || {
            registry.fail(Fault::Away);
            assert!(ownership.extend(0, 2_050, 2_200).is_err());
            lock(&tally).health.outage(SystemClock.read().boot).unwrap()
        };
        let (first, again) = (fail(), fail());
        assert!(again.since == first.since && first.since >= before && again.why.contains("away"));
        let stats = lock(&tally).health.stats(first.since + 3_000_000_000);
        assert_eq!((stats.state, stats.away), (ConnectionState::Away, Duration::from_secs(3)));

        drop(ownership.extend(0, 2_050, 2_200).unwrap());
        assert!(lock(&tally).health.outage(SystemClock.read().boot).is_none());
        assert_eq!(lock(&tally).health.stats(u64::MAX).state, ConnectionState::Connected);
    }

    /// What calls say at these moments of boot time, in seconds.
    fn away_since(health: &Health, second: u64) -> Option<u64> {
        health.outage(second * SECOND).map(|outage| outage.since / SECOND)
    }

    #[test]
    fn a_registry_that_can_be_read_and_not_changed_is_away_until_a_change_lands() {
        let mut health = Health::default();
        for second in [10, 13, 16] {
            health.begins(second * SECOND);
            health.answered(Call::Read, second * SECOND);
            health.begins(second * SECOND);
            health.brought_nothing(Call::Change, (second + 2) * SECOND, "it is locked");
            assert_eq!(
                away_since(&health, second + 2),
                Some(10),
                "a read that is answered says nothing of changes"
            );
        }
        health.answered(Call::Change, 19 * SECOND);
        assert_eq!(away_since(&health, 19), None);
    }

    #[test]
    fn a_change_that_failed_and_was_not_tried_again_is_forgiven_where_reads_are_answered() {
        let mut health = Health::default();
        health.brought_nothing(Call::Change, 10 * SECOND, "it is locked");
        health.answered(Call::Read, 19 * SECOND);
        assert_eq!(away_since(&health, 19), Some(10));
        health.answered(Call::Read, 20 * SECOND);
        assert_eq!(away_since(&health, 20), None);
    }

    #[test]
    fn a_call_that_hangs_is_an_outage_since_it_began() {
        let mut health = Health::default();
        health.begins(10 * SECOND);
        assert_eq!(away_since(&health, 10), None);
        assert_eq!(away_since(&health, 11), Some(10));
        assert!(health.outage(11 * SECOND).is_some_and(|outage| outage.why.contains("not come back")));
        health.brought_nothing(Call::Change, 30 * SECOND, "the disk failed");
        assert_eq!(away_since(&health, 31), Some(10), "and it began then, too, when it has failed");
        health.begins(32 * SECOND);
        health.answered(Call::Change, 32 * SECOND);
        assert_eq!(away_since(&health, 40), None);
    }

    #[test]
    fn a_registry_that_is_not_the_one_that_was_opened_is_refused_until_it_is() {
        let mut health = Health::default();
        health.begins(10 * SECOND);
        health.refuses(10 * SECOND, "it is not a registry");
        health.begins(12 * SECOND);
        health.refuses(12 * SECOND, "it is not a registry");
        let stats = health.stats(13 * SECOND);
        assert_eq!((stats.state, stats.away), (ConnectionState::Refused, Duration::from_secs(3)));
        assert!(
            health.is_silent(13 * SECOND) && stats.problem.is_some_and(|why| why.contains("not a registry"))
        );
        health.answered(Call::Read, 14 * SECOND);
        assert_eq!(health.stats(14 * SECOND).state, ConnectionState::Connected);
    }

    #[test]
    fn a_refusal_is_an_answer_to_what_brought_nothing_before() {
        // Whether there is a refusal is for the connection to say, where there is one.
        for connection in [None, Some(Arc::new(Connection::default()))] {
            for call in [Call::Read, Call::Change] {
                let mut health = Health { connection: connection.clone(), ..Health::default() };
                health.brought_nothing(call, 10 * SECOND, "it is away");
                assert_eq!(away_since(&health, 11), Some(10));
                health.refuses(12 * SECOND, "it is not a registry");
                let refused = connection.is_none().then_some(12);
                assert_eq!(away_since(&health, 13), refused, "the outage of before is over");
                assert_eq!(health.is_silent(13 * SECOND), refused.is_some());
            }
        }
    }

    #[test]
    fn each_turn_of_an_outage_is_told_once_by_the_first_that_asks() {
        let mut health = Health::default();
        let told = |health: &mut Health, second: u64| {
            let both = [health.untold(second * SECOND), health.untold(second * SECOND)];
            assert!(both[1].is_none(), "told twice: {both:?}");
            both.into_iter().flatten().next().map(|news| match news {
                News::Away { why } => format!("away: {why}"),
                News::Refused { why } => format!("refused: {why}"),
                News::Back { after } => format!("back after {}", after / SECOND),
            })
        };
        assert_eq!(told(&mut health, 1), None);
        health.begins(10 * SECOND);
        assert_eq!(health.suspect_at(), Some(11 * SECOND));
        assert_eq!(told(&mut health, 11).as_deref(), Some("away: a call has not come back yet"));
        health.brought_nothing(Call::Change, 12 * SECOND, "it is locked");
        assert_eq!(told(&mut health, 12), None, "the same outage");
        health.refuses(14 * SECOND, "it is not a registry");
        assert_eq!(told(&mut health, 14).as_deref(), Some("refused: it is not a registry"));
        health.answered(Call::Change, 15 * SECOND);
        assert_eq!(told(&mut health, 15).as_deref(), Some("back after 5"));
    }
}
