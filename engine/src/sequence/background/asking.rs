//! Asking for grants: one commit for the names that are due, the witness's look at each grant, and its use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::teller::{Raise, Teller};
use super::witness::{Shown, Thrown, Unseen, own_marks, refusals, show};
use crate::clock::SECOND;
use crate::registry::sequences::{NO_SEQUENCE, answers};
use crate::sequence::chain::line::Wakers;
use crate::sequence::chain::span::Span;
use crate::sequence::figures::GrantCounts;
use crate::sequence::names::named::{Named, Queued, Standing, State};
use crate::sequence::store::{Ask, MOST_ASKS, Outcome, SequenceSettings};
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// Names that the store did not have a second at most. More are not looked up: somebody tries names.
const MOST_ABSENT: u32 = 100;

/// The same, where a name counts whose caller asked for no absent one in that second: a caller that tries names keeps no name of
/// another one waiting.
const MOST_ABSENT_OF_ALL: u32 = 1_000;

/// How often a store, or a witness, that failed is looked at while no name needs it.
const LOOKS: u64 = 10 * SECOND;

/// A name that is asked for.
pub(super) struct Asked {
    pub(super) named: Arc<Named>,
    pub(super) ask: Ask,
    /// Calls with a number below waited when it was asked.
    upto: u64,
}

/// A grant, before the witness has seen it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) settings: SequenceSettings,
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
        let asked = match self.note_own_records(asked, boot) {
            Ok(asked) => asked,
            Err((why, asked)) => return self.wait_for_witness(&why, &asked, boot),
        };
        if asked.is_empty() {
            return;
        }
        let has_floor = self.is_watched() && Guard::GrantAboveFloor.holds();
        if has_floor {
            self.remember_beside();
        }
        let floor = |asked: &Asked| if has_floor { asked.named.lock().mark } else { 0 };
        let asks = asked.iter().map(|asked| Ask { floor: floor(asked), ..asked.ask.clone() });
        let asks: Vec<Ask> = asks.collect();
        let leaps = self.hub.leaps();
        if self.is_child() {
            return;
        }
        let mut outcomes = Vec::with_capacity(asks.len());
        // The witness may have taken its time.
        let boot = self.hub.now();
        let identity = self.store.grant(&asks, &mut outcomes);
        let now = self.hub.now();
        lock(&self.hub.tally).store.record(Duration::from_nanos(now.saturating_sub(boot)));
        // An adaptor that answers for fewer has a defect, and what it may have done is not known.
        outcomes.resize(asks.len(), Outcome::Unknown { why: "the store's adaptor gave no answer".into() });
        self.judge_store(&outcomes, boot, now);
        let mut counts = GrantCounts::default();
        let (mut grants, mut behind, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for (asked, outcome) in asked.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Granted { first, end, settings } => {
                    grants.push((asked, Grant { first, end, settings }));
                }
                Outcome::Behind { next } => behind.push((asked, next)),
                Outcome::Absent => absent.push(asked.named),
                other => self.without_grant(&asked, other, &mut counts, now),
            }
        }
        counts.absent += self.absent(absent, now);
        if self.hub.forked() {
            return;
        }
        if let Some(grants) = self.of_the_right_store(identity, grants, &behind, &mut counts, now) {
            self.use_unseen(grants, leaps, &mut counts);
        }
        self.raise_marks();
        if !self.hub.forked() {
            add(&mut lock(&self.hub.tally).grants, &counts);
        }
    }

    /// Wakes those whose calls are done, before the teller waits for the store or the witness again. Whether it goes on in a
    /// child that one of them forked, which asks for nothing.
    pub(super) fn is_child(&self) -> bool {
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
            let is_late = self.comes_late(&state, boot);
            // Who only tried is gone, and may try again: what nobody waits for stands in nobody's way.
            if is_late && state.line.is_empty() && state.retry.at <= boot {
                state.queued = Queued::No;
                continue;
            }
            if state.retry.at > boot || is_late {
                let retry_at = state.retry.at.max(boot + SECOND / 10);
                drop(state);
                // In the next second, and not all in its first moment: others are due then, too.
                let next = (boot / SECOND + 1) * SECOND;
                let at = if is_late { retry_at.max(next + self.jitter() % (SECOND / 2)) } else { retry_at };
                self.later.push((at, named));
                continue;
            }
            let ask = Ask { name: named.name.clone(), count: want.count, least: want.least, floor: 0 };
            let upto = state.line.next_number();
            drop(state);
            asked.push(Asked { named, ask, upto });
        }
        asked
    }

    /// Whether so many names were absent in this second that a new one waits for the next.
    fn comes_late(&self, state: &State, boot: u64) -> bool {
        let (second, absent) = self.absents;
        if state.settings.is_some() || second != boot / SECOND || absent < MOST_ABSENT {
            return false;
        }
        // What an earlier life was granted numbers of is no trial.
        let of_one = state.untold.as_deref().map(|(_, of_one)| of_one);
        let is_tried = of_one.map_or(state.mark == 0, |of_one| of_one.was_absent_in(second));
        is_tried || absent >= MOST_ABSENT_OF_ALL
    }

    /// After the witness failed it is tried with a read first, so that no more grants are thrown away meanwhile.
    fn is_witness_there(&mut self, asked: &[Asked], boot: u64) -> bool {
        if !self.witnesses || !self.witness_retry.has_failed() {
            return true;
        }
        let Err(why) = self.look_at_witness(asked[0].ask.name.as_str()) else { return true };
        self.wait_for_witness(&why, asked, boot);
        false
    }

    /// They are asked for again once the witness is there.
    fn wait_for_witness(&mut self, why: &str, asked: &[Asked], boot: u64) {
        self.witness_failed(why, boot);
        for asked in asked {
            self.again(&asked.named);
        }
    }

    /// Whether the witness answers; else why it does not.
    fn look_at_witness(&mut self, name: &str) -> Result<(), String> {
        self.records.as_mut().map_or(Ok(()), |records| answers(&mut **records, name))
    }

    /// Where no name needs what failed, nothing else would find out that it is back. Not often: it may hang, and a stop waits
    /// for it.
    pub(super) fn look_whether_back(&mut self, boot: u64) {
        if boot.saturating_sub(self.looked) < LOOKS {
            return;
        }
        self.looked = boot;
        if self.store_retry.has_failed() {
            let found = self.store.identity().map_err(|error| error.to_string());
            let now = self.hub.now();
            self.note_hang(found.as_ref().err().map(String::as_str), None, boot, now);
            match found {
                Ok(_) => self.store_answered(),
                Err(why) => self.store_failed(&why, now),
            }
        }
        if self.witnesses && self.witness_retry.has_failed() {
            match self.look_at_witness(NO_SEQUENCE) {
                Ok(()) => self.witness_answered(),
                Err(why) => self.witness_failed(&why, boot),
            }
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

    /// What a witness of one host saw before a grant is asked for, the store had granted by then: a mark of it, which this process
    /// may not know, or not any more. What other hosts were granted below it, or above it, the witness does not know. Names whose
    /// record waits for a person are refused; the others are returned. Where the witness is away, the error says why.
    fn note_own_records(&mut self, asked: Vec<Asked>, boot: u64) -> Result<Vec<Asked>, (String, Vec<Asked>)> {
        let is_needed =
            self.witnesses && !self.is_witness_shared && !self.is_accepted && Guard::OwnRecordIsMark.holds();
        let Some(records) = self.records.as_mut().filter(|_| is_needed) else { return Ok(asked) };
        let names: Vec<&str> = asked.iter().map(|asked| asked.ask.name.as_str()).collect();
        let seen = own_marks(&mut **records, &names);
        let is_away = |seen: &Result<u64, Unseen>| match seen {
            Err(Unseen::Away(why)) => Some(why.clone()),
            _ => None,
        };
        if let Some(why) = seen.iter().find_map(is_away) {
            return Err((why, asked));
        }
        let mut good = Vec::with_capacity(asked.len());
        for (asked, seen) in asked.into_iter().zip(seen) {
            match seen {
                Ok(seen) => {
                    let mut state = asked.named.lock();
                    state.mark = state.mark.max(seen);
                    drop(state);
                    good.push(asked);
                }
                Err(Unseen::Away(why) | Unseen::Refused(why)) => Self::refuse_name(&asked.named, &why, boot),
            }
        }
        Ok(good)
    }

    /// Whether the store answered at all.
    fn judge_store(&mut self, outcomes: &[Outcome], asked: u64, now: u64) {
        let why = outcomes.iter().map(|outcome| match outcome {
            Outcome::Away { why } | Outcome::Unknown { why } => Some(why),
            _ => None,
        });
        let why = why.collect::<Option<Vec<_>>>().and_then(|whys| whys.first().map(|why| &***why));
        self.note_hang(why, None, asked, now);
        match why.filter(|_| !self.store.was_contended()) {
            Some(why) => {
                self.store_failed(why, now);
                // Rows that another program has locked: others may be had at once.
                if !self.store.was_silent() {
                    self.store_retry.at = now;
                }
            }
            None => self.store_answered(),
        }
    }

    /// A name that was asked for is asked for again.
    pub(super) fn again(&self, named: &Arc<Named>) {
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
        let is_witness_new = self.reclaim.is_witness_new;
        let Some(records) = self.records.as_mut() else { return };
        let one = |(asked, grant): &(Asked, Grant)| {
            let mut one = Shown::new(asked.ask.name.clone(), grant.first, grant.end);
            let state = asked.named.lock();
            (one.mark, one.goes_above) = (state.mark, grant.settings.strict || asked.named.is_strict(&state));
            one.is_first = is_witness_new && state.books.granted == 0;
            drop(state);
            one
        };
        let mut shown: Vec<Shown> = grants.iter().map(one).collect();
        let before = self.hub.now();
        show(&mut **records, &mut shown);
        let now = self.hub.now();
        lock(&self.hub.tally).witness.record(Duration::from_nanos(now.saturating_sub(before)));
        let verdicts: HashMap<_, _> = shown.into_iter().map(|one| (one.name, one.verdict)).collect();
        // Before a call is done that shall find it so. A witness that said anything of one of them is there.
        let whys = verdicts.values().flatten().map(|verdict| match verdict {
            Err(Thrown::Away(why)) => Some(why.as_str()),
            _ => None,
        });
        match whys.collect::<Option<Vec<_>>>().and_then(|whys| whys.first().copied()) {
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
                Some(Err(Thrown::Full(why))) => {
                    counts.unwitnessed += 1;
                    asked.named.lock().in_doubt = true;
                    Self::refuse_without_room(&asked.named, &why, now);
                }
                Some(Err(Thrown::Away(_) | Thrown::Contended)) => {
                    counts.unwitnessed += 1;
                    self.later(&asked.named, now, true);
                }
                None => self.later(&asked.named, now, true),
            }
        }
    }

    /// What the store says of a name.
    pub(super) fn learn(&self, named: &Named, state: &mut State, settings: SequenceSettings) {
        if named.learn(state, settings) {
            self.hub.limits.void();
        }
    }

    /// Uses a grant, unless the clock leapt since it was asked for: it had leapt so often then.
    pub(super) fn apply(&mut self, asked: &Asked, grant: Grant, leaps: u64, counts: &mut GrantCounts) {
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
        let goes_above = named.is_strict(&state) || !self.is_witness_shared || self.reclaim.is_witness_new;
        if goes_above && first < mark && Guard::GrantAboveOwn.holds() {
            // Without a witness of all, a store that went back, or a registry that was opened too low after a fence. What this process
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
