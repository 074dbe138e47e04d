//! The teller: the one thread that asks the store, the witness, and the registry about leftovers.
//!
//! A turn answers some questions, takes the names that are due (those with callers waiting first) and asks for up to 64 of them
//! in one commit. It does its work in a function without a loop ([`Teller::turn`]), so that a simulation can drive it.
//!
//! # Invariants
//! - Q1 a grant is used after the store said that it is durable, and never handed back;
//! - Q2 an unknown outcome is never a grant;
//! - Q5 with a witness, a grant is used after the witness took it as unseen;
//! - I1 what an earlier life left is claimed before the first grant is asked for, so that ordered ids begin with it;
//! - I2 a panic costs the grants of its turn, and ends no thread.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::identity::{FOLDER, KnownIdentity, NO_WITNESS};
use super::rest::Reclaim;
use crate::clock::SECOND;
use crate::registry::sequences::SequenceRecords;
use crate::sequence::figures::Trouble;
use crate::sequence::name::SequenceName;
use crate::sequence::names::control::Control;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::named::{Named, Queued};
use crate::sequence::names::retry::Retry;
use crate::sequence::store::Store;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// Longest wait between two turns.
const IDLE: Duration = Duration::from_secs(1);

/// Questions that are answered before names are asked for again: whoever asks without end holds up nobody's ids.
const MOST_QUESTIONS: usize = 16;

/// How long they take, and the one under way, where callers wait for ids.
const MOST_ANSWERING: u64 = SECOND / 200;

/// The teller.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Teller {
    pub(super) hub: Arc<Hub>,
    pub(super) store: Box<dyn Store>,
    pub(super) records: Option<Box<dyn SequenceRecords>>,
    /// Grants are shown to the witness.
    pub(super) witnesses: bool,
    /// By all processes that take from the store.
    pub(super) is_witness_shared: bool,
    pub(super) known: KnownIdentity,
    pub(super) reclaim: Reclaim,
    /// A folder that was not looked at yet.
    late: Option<PathBuf>,
    pub(super) store_retry: Retry,
    pub(super) witness_retry: Retry,
    /// The store let somebody wait in vain.
    pub(super) hang: Option<Hang>,
    /// Which store it is could not be written down, and that was told.
    pub(super) is_forgetful: bool,
    /// A person vouched for the store: its marks may lie below what was seen of it.
    pub(super) is_accepted: bool,
    /// What closed the store's names.
    pub(super) behind: Option<Behind>,
    /// Names whose next ask waits, and until when.
    pub(super) later: Vec<(u64, Arc<Named>)>,
    /// Marks of the store that are to be raised when the grants of the turn are used.
    pub(super) raises: Vec<Raise>,
    /// Names that the store did not have, in the second that began then.
    pub(super) absents: (u64, u32),
    /// Boot time.
    maintained: u64,
    /// Boot time at which the store or the witness failed, or was looked at since.
    pub(super) looked: u64,
    /// Boot time before which no question is answered: one panicked.
    questions_at: u64,
    jitter: u64,
    /// What a test does behind each grant that is used.
    #[cfg(test)]
    pub(crate) behind_grant: Option<Box<dyn FnMut() + Send>>,
    /// And before leftovers are given to their names.
    #[cfg(test)]
    pub(crate) before_reclaim: Option<Box<dyn FnMut() + Send>>,
}

/// A store that fails, and is long about it.
#[derive(Debug, Clone)]
pub(super) struct Hang {
    /// Boot time until which no question is asked.
    until: u64,
    why: String,
    /// It answers, but for this row, which another program has locked.
    row: Option<SequenceName>,
}

/// A mark of the store that lies below what was granted before.
pub(super) struct Raise {
    pub(super) named: Arc<Named>,
    pub(super) from: u64,
    /// It got no numbers yet, and asks again.
    pub(super) asks: bool,
}

/// Why nothing is granted until a fence.
#[derive(Debug, Clone)]
pub(super) struct Behind {
    pub(super) why: String,
    /// When the store was fenced last, as it told then; another answer opens it again, if it is the identity that fits.
    pub(super) fenced: Option<String>,
    /// A mark went back; the identity alone says nothing.
    pub(super) by_mark: bool,
    /// Boot time at which it is looked at again.
    pub(super) look_at: u64,
}

impl Teller {
    pub(crate) fn new(
        hub: Arc<Hub>,
        store: Box<dyn Store>,
        records: Option<Box<dyn SequenceRecords>>,
        known: KnownIdentity,
        mut reclaim: Reclaim,
    ) -> Self {
        let witnesses = hub.config.witness && records.is_some() && store.may_go_back();
        let described = records.as_ref().filter(|_| witnesses).map(|records| records.describe());
        let is_witness_shared = described.as_ref().is_some_and(|described| {
            let is_shared = hub.config.is_witness_shared.unwrap_or_else(|| kind_of(described) != FOLDER);
            is_shared || !Guard::UnsharedIsWatched.holds()
        });
        {
            let status = &mut lock(&hub.tally).status;
            status.store = store.describe();
            status.witness.clone_from(&described);
            status.is_proof = is_witness_shared || !store.may_go_back();
            status.identity = known.known().map(str::to_owned);
        }
        let jitter = getrandom::u64().unwrap_or(7);
        let witness =
            records.as_ref().filter(|_| witnesses).map(|records| witness_text(&**records, is_witness_shared));
        let witness = witness.unwrap_or_else(|| NO_WITNESS.to_owned());
        let known = known.with_witness(store.may_go_back().then_some(witness)).unproven(!is_witness_shared);
        // It has not seen what was granted before.
        reclaim.is_witness_new |= witnesses && known.has_witness_missed();
        let mut teller = Self {
            hub,
            store,
            records,
            witnesses,
            is_witness_shared,
            known,
            reclaim,
            late: None,
            store_retry: Retry::default(),
            witness_retry: Retry::default(),
            hang: None,
            is_forgetful: false,
            is_accepted: false,
            behind: None,
            later: Vec::new(),
            raises: Vec::new(),
            absents: (0, 0),
            maintained: 0,
            looked: 0,
            questions_at: 0,
            jitter,
            #[cfg(test)]
            behind_grant: None,
            #[cfg(test)]
            before_reclaim: None,
        };
        teller.stay_closed();
        teller
    }

    /// It looks at this folder when it begins to run.
    pub(crate) fn with_late(self, folder: Option<PathBuf>) -> Self {
        Self { late: folder, ..self }
    }

    /// Looks at a folder that the builder did not look at. What is wrong with it keeps no name from being served, since
    /// the store cannot go back.
    fn open_late(&mut self) {
        let Some(folder) = self.late.take() else { return };
        if let Err(error) = xuid_spill::make_folder(&folder) {
            deferred_log::log(move || tracing::error!(%error, "the folder of the sequences can't be made"));
        }
        match KnownIdentity::open(Some(&folder)) {
            Ok(known) => self.known = known,
            Err(error) => {
                let path = folder.display().to_string();
                deferred_log::log(
                    move || tracing::error!(path, %error, "sequences.store can't be read, and stays as it is"),
                );
            }
        }
        let why;
        (self.reclaim, why) = Reclaim::open_late(Some(&folder));
        let status = &mut lock(&self.hub.tally).status;
        status.identity = self.known.known().map(str::to_owned);
        status.leftovers = why;
    }

    /// Turns until the sequences are closed, then stops cleanly.
    pub(crate) fn run(mut self) {
        self.hub.teller.adopt_current();
        deferred_log::collected(|| self.open_late());
        loop {
            let wait = self.turn_whatever_happens();
            // A line, or a waker, is a stranger's code, which may fork: the child goes on here, and ends.
            if self.hub.forked() {
                std::mem::forget(self);
                return;
            }
            if self.hub.is_closed() {
                break;
            }
            self.hub.teller.wait(wait);
        }
        self.stop_whatever_happens();
        if self.hub.forked() {
            std::mem::forget(self);
        }
    }

    fn stop_whatever_happens(&mut self) {
        let stopped = catch_unwind(AssertUnwindSafe(|| self.stop()));
        if stopped.is_err() && !self.hub.forked() {
            self.hub.panics.add(1);
            // Before the line, which may fork.
            let close = || self.records.as_mut().map(|records| records.close());
            let _ = catch_unwind(AssertUnwindSafe(close));
            deferred_log::log(|| {
                tracing::error!(
                    "the thread that asks the store panicked in its stop; what was held is wasted"
                );
            });
        }
    }

    /// A turn that waits for nothing that failed.
    #[cfg(test)]
    pub(crate) fn turn_now(&mut self) {
        (self.store_retry.at, self.witness_retry.at) = (0, 0);
        for (at, named) in &mut self.later {
            (*at, named.lock().retry.at) = (0, 0);
        }
        self.turn();
    }

    /// Its waits are those of this seed.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn set_jitter(&mut self, jitter: u64) {
        self.jitter = jitter;
    }

    pub(crate) fn turn_whatever_happens(&mut self) -> Duration {
        // A question that panics keeps no name from being asked for, and the next one waits.
        match self.whatever_happens(Self::answer_some) {
            Some(false) => return Duration::ZERO,
            Some(true) => {}
            None => self.questions_at = self.hub.clock.read().boot + SECOND,
        }
        self.whatever_happens(Self::ask_some).unwrap_or(IDLE)
    }

    /// A part of a turn; `None` if it panics.
    fn whatever_happens<T>(&mut self, part: fn(&mut Self) -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(|| part(self)));
        if done.is_err() && !self.hub.forked() {
            self.hub.panics.add(1);
            self.after_panic();
            deferred_log::log(|| {
                tracing::error!(
                    "the thread that asks the store panicked, and goes on; what it asked for may be wasted"
                );
            });
        }
        done.ok()
    }

    /// Names that were being asked for are due again, after a wait: it may go on so.
    pub(crate) fn after_panic(&mut self) {
        self.raises.clear();
        let (boot, hub) = (self.hub.clock.read().boot, self.hub.clone());
        let waits: HashSet<_> = self.later.iter().map(|(_, named)| Arc::as_ptr(named)).collect();
        let mut asked = Vec::new();
        hub.names.each(|named| {
            if named.lock().queued == Queued::Asking && !waits.contains(&Arc::as_ptr(named)) {
                asked.push(named.clone());
            }
        });
        for named in &asked {
            self.later(named, boot, true);
        }
    }

    /// Answers, asks, and says how long there is nothing to do.
    #[cfg(test)]
    pub(crate) fn turn(&mut self) -> Duration {
        if self.answer_some() { self.ask_some() } else { Duration::ZERO }
    }

    /// Answers some questions. Whether the turn goes on.
    fn answer_some(&mut self) -> bool {
        // In a line of before.
        if self.hub.forked() {
            return false;
        }
        let begun = self.hub.clock.read().boot;
        if begun < self.questions_at {
            return true;
        }
        for _ in 0..MOST_QUESTIONS {
            // A row that another program has locked is waited for, too.
            let spent = self.hub.clock.read().boot.saturating_sub(begun);
            if spent >= SECOND || spent >= MOST_ANSWERING && self.hub.has_urgent() {
                break;
            }
            let Some(control) = self.hub.controls.next() else { break };
            // Who asked need not wait for the next answer.
            deferred_log::collected(|| self.answer(control));
            // A stop need not wait for a store that does not answer, once for each question.
            if self.hub.forked() || self.hub.is_closed() {
                return false;
            }
        }
        true
    }

    /// Asks for the names that are due, and says how long there is nothing to do.
    fn ask_some(&mut self) -> Duration {
        // In the line of a panic, or in a waker of what that ended.
        if self.hub.forked() {
            return Duration::ZERO;
        }
        let wait = deferred_log::collected(|| self.ask_for_names());
        if self.hub.forked() {
            Duration::ZERO
        } else if self.hub.controls.is_empty() {
            wait
        } else {
            wait.min(until(self.questions_at, self.hub.clock.read().boot))
        }
    }

    /// Asks for the names that are due, and says how long there is nothing to ask for.
    fn ask_for_names(&mut self) -> Duration {
        let boot = self.hub.now();
        self.requeue(boot);
        if let Some(wait) = self.wait_for_store(boot) {
            return wait;
        }
        // What was granted before is used, whatever the store lost since.
        if !self.reclaim_first() {
            return until(self.store_retry.at.max(boot + SECOND / 10), boot);
        }
        if let Some(wait) = self.look_if_behind(boot) {
            return wait;
        }
        if self.hub.has_due() {
            self.ask();
            // There may be more, and questions come first.
            return if self.hub.has_due() {
                self.wait_for_store(self.hub.now()).unwrap_or_default()
            } else {
                self.idle(boot)
            };
        }
        if boot.saturating_sub(self.maintained) >= SECOND {
            self.maintained = boot;
            self.look_whether_back(boot);
            self.store.maintain();
            // Where only leftovers need them, nothing waits for them before the stop.
            let are_needed = self.witnesses || !self.store.may_go_back();
            if let Some(records) = self.records.as_mut().filter(|_| are_needed) {
                records.maintain();
            }
        }
        self.idle(boot)
    }

    /// How long to wait for the store, or the witness, that failed a moment ago.
    fn wait_for_store(&self, boot: u64) -> Option<Duration> {
        let at = self.store_retry.at.max(self.witness_retry.at);
        (boot < at).then(|| until(at, boot))
    }

    fn idle(&self, boot: u64) -> Duration {
        self.later.iter().map(|(at, _)| until(*at, boot)).min().unwrap_or(IDLE)
    }

    /// Names whose wait is over are due again.
    fn requeue(&mut self, boot: u64) {
        for (_, named) in self.later.extract_if(.., |(at, _)| *at <= boot) {
            let mut state = named.lock();
            if state.queued == Queued::Asking {
                state.queued = Queued::No;
                let urgent = !state.line.is_empty();
                self.hub.enqueue(&named, &mut state, urgent);
            }
        }
    }

    pub(super) fn jitter(&mut self) -> u64 {
        // A step of a linear congruential generator (Knuth's constants): only processes of a cluster are to differ.
        self.jitter =
            self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.jitter >> 33
    }

    /// The store did not answer, or its answer was lost.
    pub(super) fn store_failed(&mut self, why: &str, boot: u64) {
        let jitter = self.jitter();
        let is_news = !self.store_retry.has_failed();
        self.store_retry.failed(boot, jitter);
        let tally = &mut *lock(&self.hub.tally);
        let since = *tally.store_since.get_or_insert(boot);
        tally.retry_at = self.store_retry.at;
        tally.status.store_trouble = Some(trouble(why, since, boot));
        if is_news {
            self.looked = boot;
            let (store, why) = (tally.status.store.clone(), why.to_owned());
            deferred_log::log(move || {
                tracing::warn!(
                    store,
                    why,
                    "the store of the sequences is away; ids go on until what is held is used up"
                );
            });
        }
    }

    /// The store was asked something, from `asked` to `now`; `why` it failed, and which row it was to change.
    pub(super) fn note_hang(&mut self, why: Option<&str>, row: Option<SequenceName>, asked: u64, now: u64) {
        let row = row.filter(|_| !self.store.was_silent());
        match why.filter(|_| now.saturating_sub(asked) >= SECOND) {
            Some(why) if row.is_some() || self.store.was_silent() => {
                self.hang = Some(Hang { until: now + SECOND, why: why.to_owned(), row });
            }
            // One row that is locked stays so, whatever becomes of others.
            _ => _ = self.hang.take_if(|hang| hang.row.is_none()),
        }
    }

    /// Why this is not asked now: it would wait for a store that hangs, or for a row that another program has locked, behind those
    /// before it.
    pub(super) fn hangs(&self, control: &Control) -> Option<&str> {
        let boot = self.hub.clock.read().boot;
        let concerns = |hang: &&Hang| {
            boot < hang.until && (hang.row.is_none() || hang.row.as_ref() == control.changes())
        };
        self.hang.as_ref().filter(concerns).map(|hang| &*hang.why)
    }

    pub(super) fn store_answered(&mut self) {
        if !self.store_retry.has_failed() {
            return;
        }
        self.store_retry.succeeded();
        let tally = &mut *lock(&self.hub.tally);
        (tally.store_since, tally.status.store_trouble) = (None, None);
        let store = tally.status.store.clone();
        deferred_log::log(move || tracing::info!(store, "the store of the sequences is back"));
    }

    pub(super) fn witness_failed(&mut self, why: &str, boot: u64) {
        let jitter = self.jitter();
        let is_news = !self.witness_retry.has_failed();
        self.witness_retry.failed(boot, jitter);
        let tally = &mut *lock(&self.hub.tally);
        let since = *tally.witness_since.get_or_insert(boot);
        tally.retry_at = self.witness_retry.at;
        tally.status.witness_trouble = Some(trouble(why, since, boot));
        if is_news {
            self.looked = boot;
            let why = why.to_owned();
            deferred_log::log(move || {
                tracing::warn!(
                    why,
                    "the witness of the sequences is away; nothing is granted until it is back"
                );
            });
        }
    }

    pub(super) fn witness_answered(&mut self) {
        if self.witness_retry.has_failed() {
            self.witness_retry.succeeded();
            let tally = &mut *lock(&self.hub.tally);
            (tally.witness_since, tally.status.witness_trouble) = (None, None);
            deferred_log::log(|| tracing::info!("the witness of the sequences is back"));
        }
    }
}

/// Which witness these records are: of which kind, and of which cluster. Both may be the same in a folder and an ensemble. Whether
/// all show it their grants is told where it is not as usual: what one that did not see all took for a gap is none.
fn witness_text(records: &dyn SequenceRecords, is_shared: bool) -> String {
    let described = records.describe();
    let kind = kind_of(&described);
    let of = match (kind == FOLDER, is_shared) {
        (true, true) => " of all",
        (false, false) => " of some",
        _ => "",
    };
    // Where it is may change.
    format!("{kind} {}{of}", records.cluster())
}

/// The kind of registry that a description begins with.
fn kind_of(described: &str) -> &str {
    described.split([' ', ':']).next().unwrap_or_default()
}

/// How long it is until `at`; not longer than a thread may sleep.
fn until(at: u64, boot: u64) -> Duration {
    Duration::from_nanos(at.saturating_sub(boot)).min(IDLE)
}

fn trouble(why: &str, since: u64, boot: u64) -> Trouble {
    Trouble { why: why.to_owned(), lasts: Duration::from_nanos(boot.saturating_sub(since)) }
}
