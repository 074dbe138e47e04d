//! Whether a registry answers, as its calls went.
//!
//! A [`Watched`] registry is one that writes down, on the registrar's thread, whether each call of
//! [`Tenure`](crate::tenure::Tenure) was answered; it changes nothing. What its own adaptor knows of a connection
//! comes first, since that is noticed before anybody calls.
//!
//! # Invariants
//! - I1 every method of the port is passed on, those with a default too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use xuid_spill::SpillId;

use super::Tally;
use crate::clock::Clock;
use crate::registry::{
    Contact, ContactState, Genesis, MarkRecord, ReadError, Registry, SwapError, Versioned, WorkerEntry,
    WorkerRecord,
};
use crate::stats::RegistryStats;
use crate::sync::lock;

/// What was seen of the registry.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Since when calls have brought nothing, in boot time, and what the last one brought instead.
    silent: Option<(u64, String)>,
    contact: Option<Arc<Contact>>,
}

/// An absence of the registry.
#[derive(Debug, Clone)]
pub(crate) struct Absence {
    /// Boot time.
    pub(crate) since: u64,
    pub(crate) why: String,
}

impl Seen {
    /// The contact of an adaptor that a test plays.
    #[cfg(test)]
    pub(crate) fn connect(&mut self, contact: Arc<Contact>) {
        self.contact = Some(contact);
    }

    /// A call brought nothing, for this reason.
    pub(super) fn brought_nothing(&mut self, boot: u64, why: &str) {
        let since = self.silent.as_ref().map_or(boot, |(since, _)| *since);
        self.silent = Some((since, why.to_owned()));
    }

    /// Whether the registry has a connection of which its adaptor knows more.
    pub(crate) fn has_contact(&self) -> bool {
        self.contact.is_some()
    }

    /// Whether this is a thread of its adaptor.
    pub(crate) fn is_on_adaptors_thread(&self) -> bool {
        self.contact.as_ref().is_some_and(|contact| contact.is_on_own_thread())
    }

    /// Whether its adaptor knows that there is no connection.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.contact.as_ref().is_some_and(|contact| contact.away_since().is_some())
    }

    /// Whether and since when the registry is away: as its adaptor says, or as the last calls went.
    pub(crate) fn absence(&self) -> Option<Absence> {
        let told = self.contact.as_ref().and_then(|contact| {
            let since = contact.away_since()?;
            Some(Absence { since, why: contact.problem().unwrap_or_else(|| "it does not answer".to_owned()) })
        });
        let met = self.silent.as_ref().map(|(since, why)| Absence { since: *since, why: why.clone() });
        match (told, met) {
            (Some(told), Some(met)) => Some(Absence { since: told.since.min(met.since), ..told }),
            (told, met) => told.or(met),
        }
    }

    /// The part of the figures that is known here, at a boot time.
    pub(crate) fn stats(&self, boot: u64) -> RegistryStats {
        let absence = self.absence();
        let contact = self.contact.as_deref();
        let told = contact.map(Contact::state).unwrap_or_default();
        let away = absence.as_ref().map(|absence| Duration::from_nanos(boot.saturating_sub(absence.since)));
        RegistryStats {
            state: if absence.is_some() && told == ContactState::Connected {
                ContactState::Away
            } else {
                told
            },
            away: away.unwrap_or_default(),
            problem: absence.map(|absence| absence.why),
            sessions: contact.map_or(0, Contact::sessions),
            expirations: contact.map_or(0, Contact::expirations),
            disconnects: contact.map_or(0, Contact::disconnects),
            ..RegistryStats::default()
        }
    }
}

/// A registry under observation.
pub(crate) struct Watched {
    inner: Box<dyn Registry>,
    tally: Arc<Mutex<Tally>>,
    clock: Arc<dyn Clock>,
}

impl Watched {
    pub(crate) fn new(inner: Box<dyn Registry>, tally: Arc<Mutex<Tally>>, clock: Arc<dyn Clock>) -> Self {
        lock(&tally).seen.contact = inner.contact();
        Self { inner, tally, clock }
    }

    /// A call was answered, or this is why not.
    fn heard(&self, silence: Option<&String>) {
        match silence {
            None => lock(&self.tally).seen.silent = None,
            Some(why) => {
                let boot = self.clock.read().boot;
                lock(&self.tally).seen.brought_nothing(boot, why);
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

impl Registry for Watched {
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

    fn contact(&self) -> Option<Arc<Contact>> {
        self.inner.contact()
    }

    fn tend(&mut self) {
        self.inner.tend();
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
    use crate::layout::Layout;
    use crate::registry::memory::{Fault, MemoryRegistry};
    use crate::registry::{ClusterId, Token};
    use crate::tenure::{Tenure, Wish};

    #[test]
    fn a_registry_is_away_from_its_first_silence_to_its_next_answer() {
        let cluster = ClusterId::from_bytes([1; 16]);
        let genesis = Genesis { cluster, layout: Layout::default(), floor: 1_000, workers: 3 };
        let registry = MemoryRegistry::new(genesis);
        let tally = Arc::<Mutex<Tally>>::default();
        let watched = Watched::new(Box::new(registry.clone()), tally.clone(), Arc::new(SystemClock));
        let mut tenure = Tenure::new(Box::new(watched), Token([1; 16]), "a test".into());
        let wish = Wish { now: 2_000, start: 2_000, end: 2_100, pinned: Some(0), except: Vec::new() };
        drop(tenure.take(&wish).unwrap());
        assert!(lock(&tally).seen.absence().is_none());

        let before = SystemClock.read().boot;
        let mut fail = || {
            registry.fail(Fault::Away);
            assert!(tenure.extend(0, 2_050, 2_200).is_err());
            lock(&tally).seen.absence().unwrap()
        };
        let (first, again) = (fail(), fail());
        assert!(again.since == first.since && first.since >= before && again.why.contains("away"));
        let stats = lock(&tally).seen.stats(first.since + 3_000_000_000);
        assert_eq!((stats.state, stats.away), (ContactState::Away, Duration::from_secs(3)));

        drop(tenure.extend(0, 2_050, 2_200).unwrap());
        assert!(lock(&tally).seen.absence().is_none());
        assert_eq!(lock(&tally).seen.stats(u64::MAX).state, ContactState::Connected);
    }
}
