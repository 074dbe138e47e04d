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
pub(crate) struct Deadlines(Mutex<BinaryHeap<Reverse<Deadline>>>);

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
    /// Notes a call, one of so many that wait. Whether it is the first one to end.
    pub(super) fn note(&self, named: &Arc<Named>, waiter: &Arc<Waiter>, waiting: u64) -> bool {
        let deadline =
            Deadline { boot: waiter.deadline, waiter: Arc::downgrade(waiter), named: Arc::downgrade(named) };
        let mut deadlines = lock(&self.0);
        let is_first = deadlines.peek().is_none_or(|Reverse(first)| deadline.boot < first.boot);
        deadlines.push(Reverse(deadline));
        // Calls that went away leave theirs.
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        if deadlines.len() >= FEW && deadlines.len() / 2 > waiting {
            deadlines.retain(|Reverse(deadline)| deadline.waiter.strong_count() > 0);
        }
        is_first
    }

    /// Calls whose time is over, and when the next one's is.
    #[expect(clippy::type_complexity, reason = "a list of pairs, and a time")]
    pub(crate) fn overdue(&self, boot: u64) -> (Vec<(Arc<Named>, Arc<Waiter>)>, Option<u64>) {
        let mut deadlines = lock(&self.0);
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

    #[test]
    fn calls_that_went_away_leave_little() {
        let hub = Hub::new(SequenceConfig::default(), Arc::new(SystemClock)).unwrap();
        let name = SequenceName::new("a").unwrap();
        let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
        let named = hub.names.find_or_make(&name, make).unwrap();
        for _ in 0..100_000 {
            let place = hub.places.take().unwrap();
            let waiter = named.lock().line.join(Demand::ordered(1), u64::MAX, place);
            hub.watch(&named, &waiter);
            named.give_up(&waiter);
        }
        assert!(lock(&hub.deadlines.0).len() <= FEW);
    }
}
