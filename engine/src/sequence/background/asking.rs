//! Asking for grants: one commit for the names that are due, what the store and the witness said of each, and what
//! becomes of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::identity::Shows;
use super::teller::{Behind, Raise, Teller};
use super::witness::{Shown, Thrown, refusals, show};
use crate::clock::SECOND;
use crate::registry::ReadError;
use crate::sequence::chain::line::Wakers;
use crate::sequence::chain::span::Span;
use crate::sequence::error::SequenceError;
use crate::sequence::figures::GrantCounts;
use crate::sequence::names::named::{Named, Queued, Standing, State};
use crate::sequence::store::{Ask, Identity, MOST_ASKS, NewSequence, Outcome, SequenceSettings, StoreError};
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// How long a refusal of the store is remembered: a name that it does not have is looked up once a second at most.
const REMEMBERED: u64 = SECOND;

/// Names that the store did not have a second at most. More are not looked up: somebody tries names.
const MOST_ABSENT: u32 = 100;

/// A name that is asked for.
struct Asked {
    named: Arc<Named>,
    ask: Ask,
    /// Calls with a number below waited when it was asked.
    upto: u64,
}

/// A grant, before the witness has seen it.
#[derive(Debug, Clone, Copy)]
struct Grant {
    first: u64,
    end: u64,
    settings: SequenceSettings,
}

impl Teller {
    /// Asks for the names that are due, 64 at most.
    pub(super) fn ask(&mut self) {
        // Those who got leftovers do not wait for the witness.
        if self.is_child() {
            return;
        }
        let boot = self.hub.now();
        let asked = self.collect(boot);
        let asked = self.without_refused(asked, boot);
        if asked.is_empty() || !self.is_witness_there(&asked, boot) {
            return;
        }
        let asks: Vec<Ask> = asked.iter().map(|asked| asked.ask.clone()).collect();
        let leaps = self.hub.leaps();
        if self.is_child() {
            return;
        }
        let mut outcomes = Vec::with_capacity(asks.len());
        let identity = self.store.grant(&asks, &mut outcomes);
        let now = self.hub.now();
        lock(&self.hub.tally).store.record(Duration::from_nanos(now.saturating_sub(boot)));
        // An adaptor that answers for fewer has a defect, and what it may have done is not known.
        outcomes.resize(asks.len(), Outcome::Unknown { why: "the store's adaptor gave no answer".into() });
        self.judge_store(&outcomes, boot, now);
        let mut counts = GrantCounts::default();
        let (mut grants, mut absent) = (Vec::new(), Vec::new());
        for (asked, outcome) in asked.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Granted { first, end, settings } => {
                    grants.push((asked, Grant { first, end, settings }));
                }
                Outcome::Absent { .. } => absent.push(asked.named),
                other => self.without_grant(&asked, other, &mut counts, now),
            }
        }
        counts.absent += absent.len() as u64;
        self.absent(absent, now);
        if self.hub.forked() {
            return;
        }
        if let Some(grants) = self.of_the_right_store(identity, grants, &mut counts, now) {
            self.use_unseen(grants, leaps, &mut counts);
        }
        self.raise_marks();
        if !self.hub.forked() {
            add(&mut lock(&self.hub.tally).grants, &counts);
        }
    }

    /// Wakes those whose calls are done, before the teller waits for the store or the witness again. Whether it goes on in a
    /// child that one of them forked, which asks for nothing.
    fn is_child(&self) -> bool {
        deferred_log::say_collected();
        self.hub.forked()
    }

    /// What is asked for the names that are due. Those that need nothing any more leave the queue.
    fn collect(&mut self, boot: u64) -> Vec<Asked> {
        let mut asked = Vec::new();
        for named in self.hub.take_due(MOST_ASKS) {
            let mut state = named.lock();
            // A name that callers wait for stands among the calm ones, too, if it was due before. It is asked for once.
            if !matches!(state.queued, Queued::Calm | Queued::Urgent) && Guard::AskedOnce.holds() {
                continue;
            }
            let Some(want) = named.want(&mut state, boot, &self.hub.config) else {
                state.queued = Queued::No;
                continue;
            };
            state.queued = Queued::Asking;
            let is_new = state.settings.is_none();
            let is_late = is_new && self.has_many_absent(boot);
            // Who only tried is gone, and may try again: what nobody waits for stands in nobody's way.
            if is_late && state.line.is_empty() && state.retry.at <= boot {
                state.queued = Queued::No;
                continue;
            }
            if state.retry.at > boot || is_late {
                let at = state.retry.at.max(boot + SECOND / 10);
                drop(state);
                self.later.push((at, named));
                continue;
            }
            let ask = Ask { name: named.name.clone(), count: want.count, least: want.least };
            let upto = state.line.next_number();
            drop(state);
            asked.push(Asked { named, ask, upto });
        }
        asked
    }

    fn has_many_absent(&self, boot: u64) -> bool {
        self.absents.0 == boot / SECOND && self.absents.1 >= MOST_ABSENT
    }

    /// After the witness failed it is tried with a read first, so that no more grants are thrown away meanwhile.
    fn is_witness_there(&mut self, asked: &[Asked], boot: u64) -> bool {
        if !self.witnesses || !self.witness_retry.has_failed() {
            return true;
        }
        let Some(records) = &mut self.records else { return true };
        let mut found = Vec::new();
        records.read(&[asked[0].ask.name.as_str()], &mut found);
        match found.pop() {
            Some(Err(ReadError::Unavailable { why } | ReadError::Foreign { why })) => {
                self.witness_failed(&why, boot);
                for asked in asked {
                    self.again(&asked.named);
                }
                false
            }
            _ => true,
        }
    }

    /// Those but for names whose record of the witness waits for a person still: what they are granted would be thrown
    /// away.
    fn without_refused(&mut self, asked: Vec<Asked>, boot: u64) -> Vec<Asked> {
        let Some(records) = self.records.as_mut().filter(|_| self.witnesses) else { return asked };
        let was_refused = |asked: &Asked| matches!(asked.named.lock().standing, Standing::Refused { .. });
        let (doubtful, mut good): (Vec<_>, Vec<_>) = asked.into_iter().partition(was_refused);
        if doubtful.is_empty() {
            return good;
        }
        let names: Vec<&str> = doubtful.iter().map(|asked| asked.ask.name.as_str()).collect();
        let whys = refusals(&mut **records, &names);
        for (asked, why) in doubtful.into_iter().zip(whys) {
            match why {
                Some(why) => Self::refuse_name(&asked.named, &why, boot),
                None => good.push(asked),
            }
        }
        good
    }

    /// Whether the store answered at all.
    fn judge_store(&mut self, outcomes: &[Outcome], asked: u64, now: u64) {
        let why = outcomes.iter().map(|outcome| match outcome {
            Outcome::Away { why } | Outcome::Unknown { why } => Some(why),
            _ => None,
        });
        let why = why.collect::<Option<Vec<_>>>().and_then(|whys| whys.first().map(|why| &***why));
        self.note_hang(why, None, asked, now);
        match why {
            Some(why) => self.store_failed(why, now),
            None => self.store_answered(),
        }
    }

    /// A name that was asked for is asked for again.
    fn again(&self, named: &Arc<Named>) {
        let mut state = named.lock();
        state.queued = Queued::No;
        let urgent = !state.line.is_empty();
        self.hub.enqueue(named, &mut state, urgent);
    }

    /// The same after a wait.
    pub(super) fn later(&mut self, named: &Arc<Named>, boot: u64, in_doubt: bool) {
        let jitter = self.jitter();
        let mut state = named.lock();
        state.retry.failed(boot, jitter);
        state.in_doubt |= in_doubt;
        let at = state.retry.at;
        drop(state);
        self.later.push((at, named.clone()));
    }

    fn without_grant(&mut self, asked: &Asked, outcome: Outcome, counts: &mut GrantCounts, boot: u64) {
        let named = &asked.named;
        match outcome {
            Outcome::Unknown { .. } if !Guard::UnknownIsNoGrant.holds() => {
                let settings = named.lock().settings.unwrap_or_default();
                let first = named.lock().mark.max(1);
                let grant = Grant { first, end: first + asked.ask.count.max(settings.step), settings };
                self.apply(asked, grant, self.hub.leaps(), counts);
            }
            // Q2.
            Outcome::Unknown { .. } => {
                counts.unknown += 1;
                self.later(named, boot, true);
            }
            Outcome::Away { .. } => {
                counts.away += 1;
                self.later(named, boot, false);
            }
            Outcome::Exhausted { settings } => {
                counts.exhausted += 1;
                let mut state = named.lock();
                self.learn(named, &mut state, settings);
                drop(state);
                Self::refuse(
                    named,
                    Standing::Exhausted { until: boot + REMEMBERED },
                    SequenceError::EXHAUSTED,
                );
            }
            Outcome::Refused { why } => {
                counts.refused += 1;
                Self::refuse_name(named, &why, boot);
            }
            Outcome::Granted { .. } | Outcome::Absent { .. } => {}
        }
    }

    /// The store has no such names: those that may be are created, and the callers of the others are told so.
    fn absent(&mut self, absent: Vec<Arc<Named>>, boot: u64) {
        // A row that vanished is never made again: it would begin at 1. Of a name that an earlier life left numbers of, there was
        // one; a witness knows how far it came, wherever that was.
        let (witnesses, hub) = (self.witnesses, self.hub.clone());
        let had_row = |named: &Named| {
            let state = named.lock();
            let was_seen = state.settings.is_some();
            was_seen || (!witnesses && (state.mark > 0 || hub.names.was_forgotten(&named.name)))
        };
        let creates =
            |named: &Named| self.hub.config.create.iter().any(|pattern| pattern.fits(named.name.as_str()));
        let (new, absent): (Vec<_>, Vec<_>) =
            absent.into_iter().partition(|named| creates(named) && !had_row(named));
        for named in absent {
            if had_row(&named) {
                let name = named.name.clone();
                deferred_log::log(
                    move || tracing::error!(%name, "the row of this sequence is gone from the store"),
                );
            }
            self.refuse_absent(&named, boot);
        }
        if new.is_empty() || self.is_child() {
            return;
        }
        let settings = SequenceSettings { step: self.hub.config.step, ..SequenceSettings::default() };
        let row =
            |named: &Arc<Named>| (named.name.clone(), NewSequence { settings, ..NewSequence::default() });
        let made = self.store.create_all(&new.iter().map(row).collect::<Vec<_>>());
        // What an adaptor with a defect does not answer is asked for again.
        let made = made.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for (named, made) in new.into_iter().zip(made) {
            match made {
                Some(Ok(_) | Err(StoreError::Exists(_))) => self.again(&named),
                None | Some(Err(StoreError::Away { .. } | StoreError::Unknown { .. })) => {
                    self.later(&named, boot, false);
                }
                Some(Err(StoreError::Closed { .. })) => {
                    let error = SequenceError::store_behind(Duration::from_secs(1));
                    Self::refuse(&named, Standing::Refused { until: boot + REMEMBERED }, error);
                }
                Some(Err(error)) => {
                    let name = named.name.clone();
                    deferred_log::log(
                        move || tracing::error!(%name, %error, "the sequence could not be created"),
                    );
                    self.refuse_absent(&named, boot);
                }
            }
        }
    }

    /// The callers of a name are told that there is none, and it is not looked up again at once.
    fn refuse_absent(&mut self, named: &Named, boot: u64) {
        if self.absents.0 != boot / SECOND {
            self.absents = (boot / SECOND, 0);
        }
        self.absents.1 += 1;
        Self::refuse(named, Standing::Absent { until: boot + REMEMBERED }, SequenceError::NO_SEQUENCE);
    }

    /// A name that waits for a person is asked for again in a second at the earliest.
    fn refuse_name(named: &Named, why: &str, boot: u64) {
        let (name, why) = (named.name.clone(), why.to_owned());
        deferred_log::log(move || tracing::error!(%name, why, "this sequence is refused"));
        let error = SequenceError::store_behind(Duration::from_secs(1));
        Self::refuse(named, Standing::Refused { until: boot + REMEMBERED }, error);
    }

    /// All who wait for a name are refused for whom too little is held, and those who come in the next second.
    fn refuse(named: &Named, standing: Standing, error: SequenceError) {
        let mut state = named.lock();
        (state.standing, state.queued) = (standing, Queued::No);
        state.retry.succeeded();
        let wakers = named.end_all(&mut state, error);
        drop(state);
        wakers.wake();
    }

    /// Without a witness the store's identity is watched, and that marks do not go back. Grants of another store are
    /// thrown away, and nothing is granted until a fence.
    fn of_the_right_store(
        &mut self,
        identity: Option<Identity>,
        grants: Vec<(Asked, Grant)>,
        counts: &mut GrantCounts,
        boot: u64,
    ) -> Option<Vec<(Asked, Grant)>> {
        if grants.is_empty() {
            return Some(grants);
        }
        let watched = !self.witnesses && self.store.may_go_back() && !self.hub.config.lossless;
        let why = match &identity {
            Some(identity) => self.look_at_identity(identity, watched),
            None if watched => Some("the store did not say which one it is".to_owned()),
            None => None,
        };
        if watched && let Some(identity) = &identity {
            self.remember_beside(&identity.current);
        }
        let by_mark = why.is_none();
        let went_back = |(asked, grant): &(Asked, Grant)| {
            let mark = asked.named.lock().mark;
            (watched && grant.first < mark).then(|| {
                format!("the mark of '{}' went back from {mark} to {}", asked.named.name, grant.first)
            })
        };
        let Some(why) = why.or_else(|| grants.iter().find_map(went_back)) else { return Some(grants) };
        counts.behind += grants.len() as u64;
        let fenced = identity.and_then(|identity| identity.fenced);
        self.close_names(&why, Behind { fenced, by_mark, look_at: boot + SECOND });
        for (asked, _) in grants {
            self.again(&asked.named);
        }
        None
    }

    /// Shows grants to the witness, and uses those that it had not seen (Q5). The clock had leapt so often when they were
    /// asked for.
    fn use_unseen(&mut self, grants: Vec<(Asked, Grant)>, leaps: u64, counts: &mut GrantCounts) {
        let is_used = !self.witnesses || !Guard::WitnessFirst.holds();
        if is_used {
            for (asked, grant) in &grants {
                self.apply(asked, *grant, leaps, counts);
            }
        }
        if is_used || grants.is_empty() || self.is_child() {
            return;
        }
        let Some(records) = self.records.as_mut() else { return };
        let one = |(asked, grant): &(Asked, Grant)| {
            let mut one = Shown::new(asked.ask.name.clone(), grant.first, grant.end);
            one.goes_above = grant.settings.strict || asked.named.is_strict(&asked.named.lock());
            one
        };
        let mut shown: Vec<Shown> = grants.iter().map(one).collect();
        let before = self.hub.now();
        show(&mut **records, &mut shown);
        let now = self.hub.now();
        lock(&self.hub.tally).witness.record(Duration::from_nanos(now.saturating_sub(before)));
        let verdicts: HashMap<_, _> = shown.into_iter().map(|one| (one.name, one.verdict)).collect();
        // Before a call is done that shall find it so.
        let away = verdicts.values().flatten().find_map(|verdict| match verdict {
            Err(Thrown::Away(why)) => Some(why.as_str()),
            _ => None,
        });
        match away {
            Some(why) => self.witness_failed(why, now),
            None => self.witness_answered(),
        }
        for (asked, grant) in grants {
            match verdicts.get(&asked.ask.name).cloned().flatten() {
                Some(Ok(())) => self.apply(&asked, grant, leaps, counts),
                Some(Err(Thrown::Seen { from })) => {
                    counts.seen += 1;
                    self.seen_before(&asked.named, grant, from);
                }
                Some(Err(Thrown::Late { from })) => {
                    counts.late += 1;
                    self.ask_above(&asked.named, from);
                }
                Some(Err(Thrown::Refused(why))) => {
                    counts.unwitnessed += 1;
                    asked.named.lock().in_doubt = true;
                    Self::refuse_name(&asked.named, &why, now);
                }
                Some(Err(Thrown::Away(_))) => {
                    counts.unwitnessed += 1;
                    self.later(&asked.named, now, true);
                }
                None => self.later(&asked.named, now, true),
            }
        }
    }

    /// The store went back.
    fn seen_before(&mut self, named: &Arc<Named>, grant: Grant, from: u64) {
        let (name, first, end) = (named.name.clone(), grant.first, grant.end);
        deferred_log::log(move || {
            tracing::error!(%name, first, end, from, "the store granted numbers that were granted before; they are not used");
        });
        self.ask_above(named, from);
    }

    /// The store's mark is to be raised to what was seen, and the name asks again.
    fn ask_above(&mut self, named: &Arc<Named>, from: u64) {
        self.raises.push(Raise { named: named.clone(), from, asks: true });
    }

    /// Raises the marks that lie below what was granted before. When one of them had no answer, or a stop waits, no other one
    /// is tried.
    fn raise_marks(&mut self) {
        let mut is_over = false;
        for Raise { named, from, asks } in std::mem::take(&mut self.raises) {
            let boot = self.hub.now();
            if self.is_child() {
                return;
            }
            let mut is_raised = false;
            if !is_over && !self.hub.is_closed() {
                match self.store.raise_open(&named.name, from) {
                    Ok(_) => is_raised = true,
                    Err(error @ (StoreError::Away { .. } | StoreError::Unknown { .. }))
                        if self.store.was_silent() =>
                    {
                        self.store_failed(&error.to_string(), self.hub.now());
                        is_over = true;
                    }
                    Err(_) => {}
                }
            }
            match asks {
                true if is_raised => self.again(&named),
                true => self.later(&named, boot, true),
                false => {}
            }
        }
    }

    /// What the store says of a name.
    fn learn(&self, named: &Named, state: &mut State, settings: SequenceSettings) {
        if named.learn(state, settings) {
            self.hub.limits.void();
        }
    }

    /// Uses a grant, unless the clock leapt since it was asked for: it had leapt so often then.
    fn apply(&mut self, asked: &Asked, grant: Grant, leaps: u64, counts: &mut GrantCounts) {
        let Asked { named, upto, .. } = asked;
        let Grant { first, end, settings } = grant;
        let span = Span::of_grant(first, end, &settings);
        let mut state = named.lock();
        // Under the lock (I2 of the hub): also between two grants of a batch other threads see leaps.
        if self.hub.leaps() != leaps && Guard::LeapDropsSegment.holds() {
            drop(state);
            counts.leapt += 1;
            return self.again(named);
        }
        self.learn(named, &mut state, settings);
        let mark = state.mark;
        let goes_above = named.is_strict(&state) || !self.witnesses || self.reclaim.is_witness_new;
        if goes_above && first < mark && Guard::GrantAboveOwn.holds() {
            // Without a witness, a store that went back, or a registry that was opened too low after a fence. What this process
            // was granted is higher.
            drop(state);
            counts.late += 1;
            return self.ask_above(named, mark);
        }
        counts.granted += 1;
        state.count_grant(end, span.map_or(0, |span| span.count));
        (state.standing, state.queued, state.in_doubt) = (Standing::Open, Queued::No, false);
        state.retry.succeeded();
        let wakers = match span {
            None => Wakers::default(),
            Some(span) if named.is_strict(&state) => named.deal(&mut state, span, *upto),
            Some(span) => named.append(&mut state, span),
        };
        self.hub.activate(named, &mut state);
        let boot = self.hub.clock.read().boot;
        if named.want(&mut state, boot, &self.hub.config).is_some() {
            let urgent = !state.line.is_empty();
            self.hub.enqueue(named, &mut state, urgent);
        }
        drop(state);
        wakers.wake();
        #[cfg(test)]
        if let Some(act) = &mut self.behind_grant {
            act();
        }
        if first < mark {
            // Numbers that come late, after a fail-over, are not for ordered calls: the store goes on above the others.
            self.raises.push(Raise { named: named.clone(), from: mark, asks: false });
        }
    }

    /// Notes which store answered. Why its grants are not used, if they are not.
    pub(super) fn look_at_identity(&mut self, found: &Identity, watched: bool) -> Option<String> {
        let shows = self.known.shows(found);
        {
            let status = &mut lock(&self.hub.tally).status;
            status.identity = Some(found.current.clone());
            status.is_identity_recorded = found.recorded.is_some();
        }
        if watched && let Shows::Other(why) = shows {
            return Some(why);
        }
        let store = found.current.clone();
        if let Err(error) = self.known.learn(found) {
            let why = format!("the folder can't remember which store it is: {error}");
            // Once: it is tried with each answer.
            if !std::mem::replace(&mut self.is_forgetful, true) {
                let why = why.clone();
                deferred_log::log(move || tracing::error!(store, "{why}"));
            }
            // The next life would go on with the store that was left, whatever that had lost.
            return watched.then_some(why).filter(|_| Guard::IdentityIsKept.holds());
        }
        self.is_forgetful = false;
        match shows {
            Shows::Known => {}
            Shows::First => deferred_log::log(move || tracing::info!(store, "the store of the sequences")),
            Shows::Fenced | Shows::Other(_) => {
                lock(&self.hub.tally).identity_changes += 1;
                deferred_log::log(move || tracing::warn!(store, "the store of the sequences is another one"));
            }
        }
        None
    }

    /// Nothing is granted until a fence; what is held is used up.
    fn close_names(&mut self, why: &str, behind: Behind) {
        self.behind = Some(behind);
        {
            let tally = &mut *lock(&self.hub.tally);
            tally.status.behind = Some(why.to_owned());
            tally.identity_changes += 1;
        }
        let told = why.to_owned();
        deferred_log::log(move || {
            tracing::error!(
                why = told,
                "the store may have gone back: nothing is granted until `xuid sequence fence`"
            );
        });
        let error = SequenceError::store_behind(Duration::from_secs(1));
        self.hub.names.each(|named| {
            let wakers = named.end_all(&mut named.lock(), error);
            wakers.wake();
        });
    }

    /// While the store waits for a fence, it is asked once a second whether there was one.
    pub(super) fn look_if_behind(&mut self, boot: u64) -> Option<Duration> {
        let behind = self.behind.as_mut()?;
        if boot < behind.look_at {
            return Some(Duration::from_nanos(behind.look_at - boot));
        }
        behind.look_at = boot + SECOND;
        let behind = behind.clone();
        let Ok(found) = self.store.identity() else { return Some(Duration::from_secs(1)) };
        let was_fenced = found.fenced != behind.fenced;
        let is_open = match self.known.shows(&found) {
            Shows::Fenced => true,
            Shows::Known | Shows::First => was_fenced || !behind.by_mark,
            Shows::Other(_) => false,
        };
        if !is_open {
            return Some(Duration::from_secs(1));
        }
        if let Some(why) = self.look_at_identity(&found, true) {
            lock(&self.hub.tally).status.behind = Some(why);
            return Some(Duration::from_secs(1));
        }
        self.open_names();
        None
    }

    /// The store is gone on with.
    pub(super) fn open_names(&mut self) {
        self.behind = None;
        lock(&self.hub.tally).status.behind = None;
        deferred_log::log(|| tracing::warn!("the store of the sequences is gone on with"));
    }
}

fn add(sum: &mut GrantCounts, more: &GrantCounts) {
    sum.granted += more.granted;
    sum.seen += more.seen;
    sum.late += more.late;
    sum.unwitnessed += more.unwitnessed;
    sum.behind += more.behind;
    sum.leapt += more.leapt;
    sum.unknown += more.unknown;
    sum.away += more.away;
    sum.absent += more.absent;
    sum.exhausted += more.exhausted;
    sum.refused += more.refused;
}
