//! Records that are opened when they are first wanted, on the thread that wants them.
//!
//! Until then nothing is read and nothing is made. What was never there stays so until a record is to be stored.

use super::{NewNames, SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords};
use crate::registry::{ClusterId, ReadError, SwapError, Versioned};

/// Opens records. With `true` it makes what was never there; without, `None` says that there never was anything.
type Opener = dyn FnMut(bool) -> Result<Option<Box<dyn SequenceRecords>>, ReadError> + Send;

/// Records that are opened at their first use.
pub struct OnDemand {
    shown: String,
    cluster: ClusterId,
    open: Box<Opener>,
    opened: Option<Box<dyn SequenceRecords>>,
}

impl std::fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnDemand").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl OnDemand {
    /// The records of a cluster, as people know them, and what opens them. That is asked again after an error.
    pub fn new(
        shown: impl Into<String>,
        cluster: ClusterId,
        open: impl FnMut(bool) -> Result<Option<Box<dyn SequenceRecords>>, ReadError> + Send + 'static,
    ) -> Self {
        Self { shown: shown.into(), cluster, open: Box::new(open), opened: None }
    }

    /// The records, if there are any.
    fn there(&mut self) -> Result<Option<&mut (dyn SequenceRecords + 'static)>, ReadError> {
        self.open_now(false)?;
        Ok(self.opened.as_deref_mut())
    }

    fn open_now(&mut self, makes: bool) -> Result<(), ReadError> {
        if self.opened.is_none() {
            self.opened = (self.open)(makes)?;
        }
        Ok(())
    }
}

fn absent(name: &str) -> ReadError {
    ReadError::Absent { what: format!("the sequence '{name}'") }
}

impl SequenceRecords for OnDemand {
    fn describe(&self) -> String {
        self.shown.clone()
    }

    fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        match self.there() {
            Ok(Some(records)) => records.read(names, out),
            Ok(None) => out.extend(names.iter().map(|name| Err(absent(name)))),
            Err(error) => out.extend(names.iter().map(|_| Err(error.clone()))),
        }
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        if let Err(error) = self.open_now(changes.iter().any(|change| change.expected.is_none())) {
            out.extend(changes.iter().map(|_| Err(error.clone().into())));
            return;
        }
        match self.opened.as_deref_mut() {
            Some(records) => records.swap(changes, out),
            // Each expects a version of what was never there.
            None => out.extend(changes.iter().map(|_| Err(SwapError::Conflict))),
        }
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        self.there()?.map_or_else(|| Ok(Vec::new()), |records| records.list(prefix, after, limit))
    }

    fn seat(&self) -> Option<u32> {
        self.opened.as_ref().and_then(|records| records.seat())
    }

    fn closed_record(&mut self, name: &str) -> Result<SequenceRecord, ReadError> {
        self.there()?.map_or_else(|| Err(absent(name)), |records| records.closed_record(name))
    }

    fn reopen(&mut self, name: &str, least: u64) -> Result<(), SwapError> {
        self.there()?
            .map_or_else(|| Err(SwapError::Read(absent(name))), |records| records.reopen(name, least))
    }

    fn new_names(&mut self) -> Result<NewNames, ReadError> {
        self.there()?.map_or_else(|| Ok(NewNames::default()), SequenceRecords::new_names)
    }

    fn allow_new(&mut self, seen: NewNames, least: u64) -> Result<(), SwapError> {
        self.open_now(least > 0)?;
        self.there()?.map_or(Ok(()), |records| records.allow_new(seen, least))
    }

    fn maintain(&mut self) {
        if let Some(records) = &mut self.opened {
            records.maintain();
        }
    }

    fn put_away(&mut self) {
        if let Some(mut records) = self.opened.take() {
            records.close();
        }
    }

    fn close(&mut self) {
        self.put_away();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::registry::sequences::memory::MemoryRecords;

    #[test]
    fn nothing_is_opened_before_it_is_wanted_and_nothing_made_before_a_record_is_to_be_stored() {
        let cluster = ClusterId::from_bytes([7; 16]);
        let (calls, is_made, is_away) =
            (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let (counted, made, away) = (calls.clone(), is_made.clone(), is_away.clone());
        let mut records = OnDemand::new("here", cluster, move |makes| {
            counted.fetch_add(1, Ordering::Relaxed);
            if away.load(Ordering::Relaxed) {
                return Err(ReadError::Unavailable { why: "it is away".into() });
            }
            made.fetch_or(makes, Ordering::Relaxed);
            Ok(makes.then(|| Box::new(MemoryRecords::new(cluster)) as Box<dyn SequenceRecords>))
        });
        assert_eq!((records.describe(), records.cluster(), records.seat()), ("here".into(), cluster, None));
        records.maintain();
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        let read = |records: &mut OnDemand| {
            let mut found = Vec::new();
            records.read(&["orders"], &mut found);
            found.pop().unwrap()
        };
        let swap = |records: &mut OnDemand, expected| {
            let record = SequenceRecord { value: 5, step: 1, ..SequenceRecord::default() };
            let mut out = Vec::new();
            records.swap(&[SequenceChange { name: "orders", expected, record }], &mut out);
            out.pop().unwrap()
        };
        assert!(matches!(records.list("", "", 10), Err(ReadError::Unavailable { .. })));
        let unsent = swap(&mut records, None);
        assert!(matches!(unsent, Err(SwapError::Unavailable { .. })), "it may be tried again: {unsent:?}");
        is_away.store(false, Ordering::Relaxed);
        assert!(matches!(read(&mut records), Err(ReadError::Absent { .. })));
        assert!(records.list("", "", 10).unwrap().is_empty());
        assert!(matches!(swap(&mut records, Some(3)), Err(SwapError::Conflict)));
        assert!(!is_made.load(Ordering::Relaxed));
        swap(&mut records, None).unwrap();
        assert!(is_made.load(Ordering::Relaxed));
        assert_eq!(read(&mut records).unwrap().record.value, 5);
        let opened = calls.load(Ordering::Relaxed);
        assert_eq!(records.list("", "", 10).unwrap().len(), 1);
        assert_eq!(calls.load(Ordering::Relaxed), opened, "it is opened once");
        records.put_away();
        assert_eq!(calls.load(Ordering::Relaxed), opened);
        assert!(matches!(read(&mut records), Err(ReadError::Absent { .. })), "it is opened again, not made");
        assert_eq!(calls.load(Ordering::Relaxed), opened + 1);
    }
}
