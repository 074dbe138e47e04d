//! When calls end that no thread is parked for: the keeper ends them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, Weak};

use super::named::Named;
use crate::sequence::chain::line::Waiter;
use crate::sys::atomics::lock;

/// So many that are over do not matter.
const FEW: usize = 1_024;

/// Those of all names.
#[derive(Default)]
pub(crate) struct Deadlines(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    all: BinaryHeap<Reverse<Deadline>>,
    /// When there are so many, those of calls that went away are thrown out. Twice as many as the last time left, since those of
    /// calls that are done and were not looked at stay.
    look_at: usize,
}

/// When a call's time is over.
struct Deadline {
    boot: u64,
    waiter: Weak<Waiter>,
    named: Weak<Named>,
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.boot == other.boot
    }
}

impl Eq for Deadline {}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.boot.cmp(&other.boot)
    }
}

impl Deadlines {
    /// Notes a call. Whether it is the first one to end.
    pub(super) fn note(&self, named: &Arc<Named>, waiter: &Arc<Waiter>) -> bool {
        let deadline =
            Deadline { boot: waiter.deadline, waiter: Arc::downgrade(waiter), named: Arc::downgrade(named) };
        let noted = &mut *lock(&self.0);
        let is_first = noted.all.peek().is_none_or(|Reverse(first)| deadline.boot < first.boot);
        noted.all.push(Reverse(deadline));
        if noted.all.len() >= noted.look_at.max(FEW) {
            noted.all.retain(|Reverse(deadline)| deadline.waiter.strong_count() > 0);
            noted.look_at = 2 * noted.all.len();
        }
        is_first
    }

    /// Calls whose time is over, and when the next one's is.
    #[expect(clippy::type_complexity, reason = "a list of pairs, and a time")]
    pub(crate) fn overdue(&self, boot: u64) -> (Vec<(Arc<Named>, Arc<Waiter>)>, Option<u64>) {
        let deadlines = &mut lock(&self.0).all;
        let mut over = Vec::new();
        loop {
            let next = deadlines.peek().map(|Reverse(first)| first.boot);
            if next.is_none_or(|next| next > boot) {
                return (over, next);
            }
            let Some(Reverse(Deadline { waiter, named, .. })) = deadlines.pop() else { continue };
            // One that was served is gone, or over.
            over.extend(named.upgrade().zip(waiter.upgrade()));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::sequence::name::SequenceName;
    use crate::sequence::names::hub::Hub;
    use crate::sequence::numbers::Demand;
    use crate::sequence::settings::SequenceConfig;
    use crate::sys::fork_word::GenerationWord;

    /// A hub and a name of it.
    fn hub_and_name() -> (Arc<Hub>, Arc<Named>) {
        let hub = Hub::new(SequenceConfig::default(), Arc::new(SystemClock)).unwrap();
        let name = SequenceName::new("a").unwrap();
        let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
        let named = hub.names.find_or_make(&name, make).unwrap();
        (hub, named)
    }

    #[test]
    fn calls_that_went_away_leave_little() {
        let (hub, named) = hub_and_name();
        for _ in 0..100_000 {
            let place = hub.places.take().unwrap();
            let waiter = named.lock().line.join(Demand::ordered(1), u64::MAX, place);
            hub.watch(&named, &waiter);
            named.give_up(&waiter);
        }
        assert!(lock(&hub.deadlines.0).all.len() <= FEW);
    }

    /// As where one grant serves very many, and each caller asks again before the others have looked.
    #[test]
    fn calls_that_are_done_and_were_not_looked_at_are_not_passed_over_for_each_that_comes() {
        let (hub, named) = hub_and_name();
        let mut done = Vec::new();
        let mut looks = 0;
        for _ in 0..20_000 {
            let waiter = named.lock().line.join(Demand::ordered(1), u64::MAX, hub.places.take().unwrap());
            let before = lock(&hub.deadlines.0).look_at;
            hub.watch(&named, &waiter);
            looks += u32::from(lock(&hub.deadlines.0).look_at != before);
            drop(waiter.finish(hub.refusal(0)));
            done.push(waiter);
        }
        assert!((1..10).contains(&looks), "{looks}");
    }
}
