//! Whether a registry answers, as its calls went.
//!
//! A [`Monitored`] registry is one that writes down, on the registry thread, whether each call of
//! [`Ownership`](crate::registry::ownership::Ownership) was answered; it changes nothing. What its own adaptor knows of
//! a connection comes first, since that is noticed before anybody calls.
//!
//! # Invariants
//! - I1 every method of the port is passed on, those with a default too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use xuid_spill::SpillId;

use crate::clock::{Clock, Reading};
use crate::registry::{
    Connection, ConnectionState, Genesis, MarkRecord, ReadError, Registry, SwapError, Versioned, WorkerEntry,
    WorkerRecord,
};
use crate::stats::{Latency, RegistryStats, Unknown};
use crate::sys::atomics::lock;

/// What was seen of the registry.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Since when calls have brought nothing, in boot time, and what the last one brought instead.
    silent: Option<(u64, String)>,
    connection: Option<Arc<Connection>>,
}

/// An outage of the registry.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// Boot time.
    pub(crate) since: u64,
    pub(crate) why: String,
}

impl Health {
    /// The connection of an adaptor that a test plays.
    #[cfg(test)]
    pub(crate) fn connect(&mut self, connection: Arc<Connection>) {
        self.connection = Some(connection);
    }

    /// A call brought nothing, for this reason.
    pub(crate) fn brought_nothing(&mut self, boot: u64, why: &str) {
        let since = self.silent.as_ref().map_or(boot, |(since, _)| *since);
        self.silent = Some((since, why.to_owned()));
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

    /// Whether and since when the registry is away: as its adaptor says, or as the last calls went.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let told = self.connection.as_ref().and_then(|connection| {
            let since = connection.away_since()?;
            Some(Outage {
                since,
                why: connection.problem().unwrap_or_else(|| "it does not answer".to_owned()),
            })
        });
        let met = self.silent.as_ref().map(|(since, why)| Outage { since: *since, why: why.clone() });
        match (told, met) {
            (Some(told), Some(met)) => Some(Outage { since: told.since.min(met.since), ..told }),
            (told, met) => told.or(met),
        }
    }

    /// The part of the figures that is known here, at a boot time.
    pub(crate) fn stats(&self, boot: u64) -> RegistryStats {
        let outage = self.outage();
        let connection = self.connection.as_deref();
        let told = connection.map(Connection::state).unwrap_or_default();
        let away = outage.as_ref().map(|outage| Duration::from_nanos(boot.saturating_sub(outage.since)));
        RegistryStats {
            state: if outage.is_some() && told == ConnectionState::Connected {
                ConnectionState::Away
            } else {
                told
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

    /// A call was answered, or this is why not.
    fn heard(&self, silence: Option<&String>) {
        match silence {
            None => lock(&self.tally).health.silent = None,
            Some(why) => {
                let boot = self.clock.read().boot;
                lock(&self.tally).health.brought_nothing(boot, why);
            }
        }
    }

    fn read<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        self.heard(match &result {
            Err(ReadError::Unavailable { why }) => Some(why),
            _ => None,
        });
        result
    }

    fn wrote(&self, result: Result<(), SwapError>) -> Result<(), SwapError> {
        self.heard(match &result {
            Err(
                SwapError::Unknown { why }
                | SwapError::Unavailable { why }
                | SwapError::Read(ReadError::Unavailable { why }),
            ) => Some(why),
            _ => None,
        });
        result
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

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        let result = self.inner.workers();
        self.read(result)
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        let result = self.inner.worker(worker);
        self.read(result)
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let result = self.inner.claim(worker, expected, record);
        self.wrote(result)
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let result = self.inner.swap_worker(worker, expected, record);
        self.wrote(result)
    }

    fn leave(&mut self, worker: u32) {
        self.inner.leave(worker);
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        let result = self.inner.mark(spill);
        self.read(result)
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        let result = self.inner.create_mark(spill, record);
        self.wrote(result)
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        let result = self.inner.swap_mark(spill, expected, record);
        self.wrote(result)
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
        let genesis = Genesis { cluster, layout: Layout::default(), floor: 1_000, workers: 3 };
        let registry = MemoryRegistry::new(genesis);
        let tally = Arc::<Mutex<Tally>>::default();
        let watched = Monitored::new(Box::new(registry.clone()), tally.clone(), Arc::new(SystemClock));
        let mut ownership = Ownership::new(Box::new(watched), Identity::new(Token([1; 16]), "a test".into()));
        let request =
            WorkerRequest { now: 2_000, start: 2_000, end: 2_100, pinned: Some(0), except: Vec::new() };
        drop(ownership.take(&request).unwrap());
        assert!(lock(&tally).health.outage().is_none());

        let before = SystemClock.read().boot;
        let mut fail = || {
            registry.fail(Fault::Away);
            assert!(ownership.extend(0, 2_050, 2_200).is_err());
            lock(&tally).health.outage().unwrap()
        };
        let (first, again) = (fail(), fail());
        assert!(again.since == first.since && first.since >= before && again.why.contains("away"));
        let stats = lock(&tally).health.stats(first.since + 3_000_000_000);
        assert_eq!((stats.state, stats.away), (ConnectionState::Away, Duration::from_secs(3)));

        drop(ownership.extend(0, 2_050, 2_200).unwrap());
        assert!(lock(&tally).health.outage().is_none());
        assert_eq!(lock(&tally).health.stats(u64::MAX).state, ConnectionState::Connected);
    }
}
