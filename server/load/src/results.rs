//! What one load thread got, and what all of them got together.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::flight::Sent;
use crate::schedule::Schedule;

/// A run that ends with this many requests unsent is recorded with them one by one; beyond that, in so many groups.
const AGES: u64 = 1 << 20;

/// Figures. Times are nanoseconds.
#[derive(Debug)]
pub struct Results {
    /// Ids of the replies.
    pub ids: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes.
    pub received: u64,
    /// Bytes.
    pub sent: u64,
    /// By name.
    pub refusals: BTreeMap<Cow<'static, str>, u64>,
    /// The text of one of them.
    pub refusal: Option<String>,
    /// From the start to the answer: the intended start in an open loop, else the moment of sending.
    pub latency: Histogram<u64>,
    /// Only in an open loop.
    pub open: Option<Open>,
    /// Sent and not answered by the end, and a while longer.
    pub unanswered: u64,
    /// Loads that ended before their time, and why.
    pub failures: BTreeMap<String, u64>,
    /// The server told so many connections to leave before the run was over.
    pub sent_away: u64,
}

/// The two parts of an open loop's latency, and what was never sent.
#[derive(Debug)]
pub struct Open {
    /// From the intended start to the sending.
    pub late: Histogram<u64>,
    /// From the sending to the answer: what a closed loop would have called latency.
    pub service: Histogram<u64>,
    /// Due within the measured time, and not sent by its end.
    pub unsent: u64,
}

fn histogram() -> Result<Histogram<u64>> {
    // 1 ns to 2 min at three digits: some 220 KB.
    Ok(Histogram::new_with_bounds(1, 120_000_000_000, 3)?)
}

impl Results {
    /// None yet, of an open loop or a closed one.
    ///
    /// # Errors
    /// A histogram could not be made.
    pub fn new(is_open: bool) -> Result<Self> {
        let open =
            if is_open { Some(Open { late: histogram()?, service: histogram()?, unsent: 0 }) } else { None };
        Ok(Self {
            ids: 0,
            requests: 0,
            received: 0,
            sent: 0,
            refusals: BTreeMap::new(),
            refusal: None,
            latency: histogram()?,
            open,
            unanswered: 0,
            failures: BTreeMap::new(),
            sent_away: 0,
        })
    }

    /// So many requests that were answered at `at`.
    #[inline]
    pub fn answered(&mut self, requests: u64, Sent { start, at: sent }: Sent, at: u64) {
        self.latency.saturating_record_n(at.saturating_sub(start), requests);
        if let Some(open) = &mut self.open {
            open.late.saturating_record_n(sent.saturating_sub(start), requests);
            open.service.saturating_record_n(at.saturating_sub(sent), requests);
        }
    }

    /// A request that is not answered at `at`: it has taken that long at least.
    pub fn gave_up(&mut self, sent: Sent, at: u64) {
        self.answered(1, sent, at);
        self.unanswered += 1;
    }

    /// The requests that were due from `from` to `to` and were not sent: each is as old as it is at `to`.
    pub fn never_sent(&mut self, mut schedule: Schedule, from: u64, to: u64) {
        let Some(open) = &mut self.open else { return };
        while schedule.due() < from.min(to) {
            schedule.advance();
        }
        let left = schedule.left_before(to);
        open.unsent += left;
        let group = left.div_ceil(AGES).max(1);
        let mut index = 0;
        while index < left {
            let count = group.min(left - index);
            let age = to - schedule.nth(index);
            self.latency.saturating_record_n(age, count);
            open.late.saturating_record_n(age, count);
            index += count;
        }
    }

    /// One request was refused.
    pub fn refused(&mut self, name: Option<&'static str>, text: impl std::fmt::Display) {
        let name = name.map_or_else(|| Cow::Owned(text.to_string()), Cow::Borrowed);
        *self.refusals.entry(name).or_default() += 1;
        if self.refusal.is_none() {
            self.refusal = Some(text.to_string());
        }
    }

    /// Why a load ended before its time.
    pub fn failed(&mut self, why: String) {
        *self.failures.entry(why).or_default() += 1;
    }

    /// Adds what another thread got.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        self.ids += other.ids;
        self.requests += other.requests;
        self.received += other.received;
        self.sent += other.sent;
        self.unanswered += other.unanswered;
        self.sent_away += other.sent_away;
        for (name, count) in other.refusals {
            *self.refusals.entry(name).or_default() += count;
        }
        for (why, count) in other.failures {
            *self.failures.entry(why).or_default() += count;
        }
        self.refusal = self.refusal.take().or(other.refusal);
        self.latency.add(other.latency)?;
        if let (Some(ours), Some(theirs)) = (&mut self.open, other.open) {
            ours.late.add(theirs.late)?;
            ours.service.add(theirs.service)?;
            ours.unsent += theirs.unsent;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_sent_is_as_old_as_it_is_at_the_end() {
        let mut results = Results::new(true).unwrap();
        // 1,000 a second from 0 on; the measured time is 1 s to 3 s, and nothing was sent at all.
        results.never_sent(Schedule::new(0, 1_000, 0, 1), 1_000_000_000, 3_000_000_000);
        assert_eq!((results.open.as_ref().unwrap().unsent, results.latency.len()), (2_000, 2_000));
        let [half, most] = [results.latency.value_at_quantile(0.5), results.latency.max()];
        assert!(
            half.abs_diff(1_000_000_000) < 2_000_000 && most.abs_diff(2_000_000_000) < 2_000_000,
            "{half} {most}"
        );
    }

    #[test]
    fn a_backlog_of_millions_is_counted_whole() {
        let mut results = Results::new(true).unwrap();
        results.never_sent(Schedule::new(0, 30_000_000, 0, 1), 0, 1_000_000_000);
        assert_eq!((results.open.as_ref().unwrap().unsent, results.latency.len()), (30_000_000, 30_000_000));
        assert!(results.latency.value_at_quantile(0.5).abs_diff(500_000_000) < 1_000_000);
    }

    #[test]
    fn refusals_are_counted_by_name_over_all_threads() {
        let mut all = Results::new(false).unwrap();
        for _ in 0..2 {
            let mut one = Results::new(false).unwrap();
            one.refused(Some("OVERLOADED"), "OVERLOADED: nothing left");
            one.refused(None, "status 80ff");
            all.merge(one).unwrap();
        }
        let counts: Vec<_> = all.refusals.iter().map(|(name, count)| (name.as_ref(), *count)).collect();
        assert_eq!(counts, [("OVERLOADED", 2), ("status 80ff", 2)]);
        assert_eq!(all.refusal.as_deref(), Some("OVERLOADED: nothing left"));
    }
}
