//! The leftovers of the life before, claimed before the first grant, and those of this life, saved at its end.

use std::sync::Arc;

use super::teller::Teller;
use crate::clock::SECOND;
use crate::sequence::chain::span::{Span, sorted, total};
use crate::sequence::error::SequenceError;
use crate::sequence::leftovers::claim::{Claim, Lineage, begin, claim};
use crate::sequence::leftovers::file::left_in;
use crate::sequence::leftovers::format::{Batch, MOST_RANGES, NameRest, is_of_store, store_text};
use crate::sequence::name::SequenceName;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::named::Named;
use crate::sequence::names::named_table::mark_of;
use crate::sequence::store::StoreError;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// A name, and what of it was held at the stop.
type Held = (Arc<Named>, Vec<Span>);

/// How long leftovers are claimed before ids are granted without them, where no registry is needed for that.
const PATIENCE: u64 = 10 * SECOND;

/// How often an adaptor may panic over leftovers, once a second, before ids are granted without them.
const MOST_PANICS: u32 = 10;

impl Teller {
    /// Claims what the life before left, before anything is granted (I1 of the teller). False while it is not known
    /// which store it is for.
    pub(super) fn reclaim_first(&mut self) -> bool {
        if self.reclaim.found.is_none() && self.reclaim.claimed.is_none() {
            return true;
        }
        // An adaptor that panics each time does not keep all names from being served.
        if self.reclaim.broken_off >= MOST_PANICS {
            self.reclaim_in_vain();
            return true;
        }
        let boot = self.hub.clock.read().boot;
        if self.reclaim.broken_off > 0 && boot.saturating_sub(self.reclaim.tried_at) < SECOND {
            return false;
        }
        self.reclaim.tried_at = boot;
        self.reclaim.broken_off += 1;
        let is_done = self.reclaim_now();
        self.reclaim.broken_off = 0;
        // A hundred thousand names are 20 MB in the index of a folder's records, and a session at an ensemble.
        if is_done
            && !self.witnesses
            && let Some(records) = &mut self.records
        {
            records.put_away();
        }
        is_done
    }

    fn reclaim_in_vain(&mut self) {
        let claimed = self.reclaim.claimed.take().map(|(batch, _)| batch);
        if let Some(batch) = self.reclaim.found.take().or(claimed) {
            self.refuse_batch(&batch, "an adaptor panics while they are claimed");
            self.remember_marks(&batch);
        }
    }

    fn reclaim_now(&mut self) -> bool {
        if let Some(batch) = self.reclaim.found.clone() {
            let leaps = self.hub.leaps();
            match self.claim(&batch) {
                Some(true) => self.reclaim.claimed = Some((batch, leaps)),
                Some(false) => {}
                None => return false,
            }
            self.reclaim.found = None;
        }
        // Both stay where they are until it is known what becomes of them: an adaptor may panic, and is asked again.
        let Some((batch, leaps)) = self.reclaim.claimed.clone() else { return true };
        // What a witness of all saw was granted to this file's process by whichever of the store's hosts; else by the same one.
        let current = if self.is_witness_shared && !self.known.is_witness_changed() {
            None
        } else {
            match self.store.identity() {
                Ok(found) => {
                    self.reclaim.identity = Some(found.current.clone());
                    Some(found.current)
                }
                Err(StoreError::Away { why } | StoreError::Unknown { why }) => {
                    self.store_failed(&why, self.hub.clock.read().boot);
                    return false;
                }
                // A person can mend it, and nothing is granted before.
                Err(error) if self.store.may_go_back() => {
                    self.store_failed(&error.to_string(), self.hub.clock.read().boot);
                    return false;
                }
                Err(_) => Some(String::new()),
            }
        };
        let place = self.store.place();
        self.reclaim.claimed = None;
        self.store_answered();
        self.hub.now();
        if self.hub.leaps() != leaps && Guard::LeapDropsClaimed.holds() {
            self.refuse_batch(&batch, "the clock leapt while they were claimed");
            self.remember_marks(&batch);
        } else {
            self.distribute(&batch, &place, current.as_deref(), leaps);
        }
        true
    }

    /// Whether a batch is ours now; `None` while that is not known.
    fn claim(&mut self, batch: &Batch) -> Option<bool> {
        let Some(records) = &mut self.records else {
            self.refuse_batch(batch, "there is no registry that says whether it was used");
            self.remember_marks(batch);
            return Some(false);
        };
        if batch.cluster != records.cluster() {
            self.refuse_batch(batch, "it belongs to another cluster");
            // Another registry numbers anew; a database goes on, whichever registry there is beside it.
            if self.store.may_go_back() {
                self.reclaim.is_witness_new = true;
                self.remember_marks(batch);
            }
            return Some(false);
        }
        let claimed = claim(&mut **records, batch);
        if self.witnesses && !matches!(claimed, Claim::Later(_)) {
            self.witness_answered();
        }
        match claimed {
            Claim::Ours(lineage) => {
                self.reclaim.lineage = Some(lineage);
                return Some(true);
            }
            // As after a life that was killed: its file is the one that it claimed at its start.
            Claim::Before(lineage) => self.reclaim.lineage = Some(lineage),
            Claim::Later(why) if self.waits_for_registry(&why) => return None,
            Claim::Elsewhere(why) => {
                self.reclaim.is_witness_new = true;
                self.refuse_batch(batch, &why);
            }
            Claim::Refused(why) | Claim::Later(why) => self.refuse_batch(batch, &why),
        }
        self.remember_marks(batch);
        Some(false)
    }

    /// The registry is away for now. Whether leftovers wait for it: where grants need it, they do as well.
    fn waits_for_registry(&mut self, why: &str) -> bool {
        let boot = self.hub.clock.read().boot;
        let is_news = self.reclaim.since.is_none();
        let since = *self.reclaim.since.get_or_insert(boot);
        let is_needed = self.witnesses || !self.store.may_go_back();
        if !is_needed && boot.saturating_sub(since) >= PATIENCE {
            return false;
        }
        if self.witnesses {
            self.witness_failed(why, boot);
        } else if is_needed {
            self.store_failed(why, boot);
        } else if is_news {
            let why = why.to_owned();
            deferred_log::log(move || {
                tracing::warn!(
                    why,
                    "numbers wait up to 10 s for the registry, to go on with leftovers of an earlier life"
                );
            });
        }
        true
    }

    /// A batch is not used, and what it holds is waste.
    fn refuse_batch(&self, batch: &Batch, why: &str) {
        let ids: u64 = batch.names.iter().map(|rest| total(&rest.spans)).sum();
        self.hub.names.count_gone(|gone| {
            gone.reclaimed += ids;
            gone.wasted.dropped += ids;
        });
        let why = format!("leftovers of an earlier life are not used: {why}");
        lock(&self.hub.tally).status.leftovers = Some(why.clone());
        deferred_log::log(move || tracing::warn!(ids, "{why}"));
    }

    /// What is left of a name was granted, used or not. A store that is behind it has gone back, whichever store it is; where a
    /// witness saw the grants of other places, those of this place alone.
    fn remember_marks(&self, batch: &Batch) {
        let place = self.store.place();
        let is_any = !self.witnesses || self.reclaim.is_witness_new;
        let counts = |rest: &&NameRest| is_any || is_of_store(&rest.identity, &place, None);
        let names = batch.names.iter().filter(counts).filter(|_| Guard::LeftMarksKept.holds());
        self.hub.names.remember_marks(names.map(|rest| (rest.name.clone(), mark_of(&rest.spans))));
    }

    /// The same of what any process of this folder left in this place: a life may have left more under another number, where
    /// its file could not be read for once, or beside others. Looked at once, before the first grant is used.
    pub(super) fn remember_beside(&mut self) {
        let place = self.store.place();
        let Some(folder) = self.reclaim.beside.take() else { return };
        for batch in left_in(&folder).flatten() {
            let ours =
                |rest: &NameRest| is_of_store(&rest.identity, &place, None) && Guard::LeftMarksKept.holds();
            let names = batch.names.into_iter().filter(ours);
            self.hub.names.remember_marks(names.map(|rest| (rest.name, mark_of(&rest.spans))));
        }
    }

    /// Gives names what was left of them in this place. The clock had leapt so often when it was claimed.
    fn distribute(&mut self, batch: &Batch, place: &str, identity: Option<&str>, leaps: u64) {
        let is_ours = |rest: &&NameRest| is_of_store(&rest.identity, place, identity);
        let (ours, others): (Vec<_>, Vec<_>) = batch.names.iter().partition(is_ours);
        if !others.is_empty() {
            let others = Batch { names: others.into_iter().cloned().collect(), ..*batch };
            self.refuse_batch(&others, "another store granted them");
            self.remember_marks(&others);
        }
        #[cfg(test)]
        if let Some(act) = &mut self.before_reclaim {
            act();
        }
        let left = ours.into_iter().map(|rest| (rest.name.apart(), rest.spans.clone()));
        self.hub.names.reclaim(left, || self.hub.leaps() != leaps && Guard::LeapDropsClaimed.holds());
    }

    /// The clean stop: no call gets an id any more, and what was held is saved.
    pub(crate) fn stop(&mut self) {
        let (held, leaps) = deferred_log::collected(|| self.end_calls());
        // A waker may have forked: what is held is its parent's, and so are the files.
        if !(self.hub.forked() && Guard::SequencesForkedAtStop.holds()) {
            deferred_log::collected(|| self.keep(&held, leaps));
        }
    }

    /// Ends all calls, and takes what is held. The clock had leapt so often by then.
    fn end_calls(&mut self) -> (Vec<Held>, u64) {
        while self.hub.controls.next().is_some() {}
        // A leap that no turn has seen.
        self.hub.look();
        let leaps = self.hub.leaps();
        self.hub.names.keep_rests();
        let mut held = Vec::new();
        self.hub.names.each(|named| {
            let mut state = named.lock();
            state.ended = Some(named.word.load());
            let spans = named.void(&mut state);
            let wakers = named.end_all(&mut state, SequenceError::SHUTTING_DOWN);
            drop(state);
            wakers.wake();
            if !spans.is_empty() {
                held.push((named.clone(), spans));
            }
        });
        // After the words were renewed (I2 of the limits).
        self.hub.limits.void();
        (held, leaps)
    }

    fn keep(&mut self, held: &[Held], leaps: u64) {
        let hub = self.hub.clone();
        let rests = hub.names.take_rests();
        {
            let mut settled = Settled { hub: &hub, held, rests: &rests, is_saved: false };
            settled.is_saved = self.save(held, &rests, leaps);
        }
        if let Some(records) = &mut self.records {
            records.close();
        }
    }

    /// What was claimed and never given out, since the store did not say which one it is: it is left once more.
    fn pending(&mut self) -> Vec<NameRest> {
        let Some((batch, leaps)) = self.reclaim.claimed.take() else { return Vec::new() };
        if self.hub.leaps() == leaps || !Guard::LeapDropsClaimed.holds() {
            return batch.names.clone();
        }
        self.refuse_batch(&batch, "the clock leapt before the store said which one it is");
        Vec::new()
    }

    /// Writes a batch of what is held. The clock had leapt so often when it was taken. Whether it will be found.
    fn save(&mut self, held: &[Held], rests: &[(SequenceName, Vec<Span>)], leaps: u64) -> bool {
        let pending = self.pending();
        let Some(records) = &mut self.records else { return false };
        let known = self.known.known().or(self.reclaim.identity.as_deref());
        let identity: Arc<str> = store_text(&self.store.place(), known.unwrap_or_default()).into();
        let name_rest = |name: &SequenceName, spans: &[Span]| NameRest {
            name: name.clone(),
            identity: identity.clone(),
            spans: cut(spans).0,
        };
        let names: Vec<NameRest> = held
            .iter()
            .map(|(named, spans)| name_rest(&named.name, spans))
            .chain(rests.iter().map(|(name, spans)| name_rest(name, spans)))
            .filter(|rest| !rest.spans.is_empty())
            .chain(pending)
            .collect();
        if names.is_empty() {
            return true;
        }
        let file = match self.reclaim.take_file() {
            Ok(Some(file)) => Ok(file),
            Ok(None) => return false,
            Err(error) => Err(error.to_string()),
        };
        let lineage = match self.reclaim.lineage {
            Some(lineage) => Ok(lineage),
            None => begin(&mut **records),
        };
        // A copy of this process that stops as well writes the same numbers. Of the same file one of the two is claimed. A
        // file that has just begun is its own in each copy, and a leap tells that there may be two.
        self.hub.look();
        let is_void = self.hub.leaps() != leaps && Guard::LeapDropsSaved.holds();
        let lineage = if is_void { Err("the clock leapt while they were saved".to_owned()) } else { lineage };
        let saved = lineage.and_then(|Lineage { uuid, serial }| {
            let file = file?;
            let batch = Batch { uuid, serial, cluster: records.cluster(), names };
            file.write(&batch).map_err(|error| error.to_string())
        });
        if let Err(why) = &saved {
            let why = why.clone();
            deferred_log::log(move || {
                tracing::error!(why, "what is held of the sequences can't be saved and is wasted");
            });
        }
        saved.is_ok()
    }
}

/// What was held at a stop. When it is dropped it is counted, as waste after a panic of the registry's adaptor.
struct Settled<'a> {
    hub: &'a Hub,
    held: &'a [Held],
    rests: &'a [(SequenceName, Vec<Span>)],
    is_saved: bool,
}

impl Settled<'_> {
    /// How many ids of these were saved, and how many are wasted.
    fn count(&self, spans: &[Span]) -> (u64, u64) {
        let (kept, dropped) = cut(spans);
        if self.is_saved { (total(&kept), dropped) } else { (0, total(spans)) }
    }
}

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        for (named, spans) in self.held {
            let (saved, dropped) = self.count(spans);
            let books = &mut named.lock().books;
            books.saved += saved;
            books.waste.dropped += dropped;
        }
        self.hub.names.count_gone(|gone| {
            for (_, spans) in self.rests {
                let (saved, dropped) = self.count(spans);
                gone.saved += saved;
                gone.wasted.dropped += dropped;
            }
        });
    }
}

/// Those spans that a batch has room for, the longest, and how many ids the others have.
fn cut(spans: &[Span]) -> (Vec<Span>, u64) {
    if spans.len() <= MOST_RANGES {
        return (spans.to_vec(), 0);
    }
    let mut longest = spans.to_vec();
    longest.sort_unstable_by_key(|span| std::cmp::Reverse(span.count));
    let dropped = total(&longest[MOST_RANGES..]);
    longest.truncate(MOST_RANGES);
    (sorted(longest), dropped)
}
