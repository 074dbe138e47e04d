//! Counts ids that came twice.

/// Runs of ids, as they came. Neighbours are joined, so that ids in order cost next to nothing.
#[derive(Debug, Default)]
pub(super) struct Census {
    runs: Vec<(u64, u64)>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) ids: u64,
    pub(super) duplicates: u64,
}

impl Census {
    /// Notes `count` ids from `first` on.
    pub(super) fn add(&mut self, first: u64, count: u32) {
        let end = first + u64::from(count);
        match self.runs.last_mut() {
            Some((_, last)) if *last == first => *last = end,
            _ => self.runs.push((first, end)),
        }
    }

    /// Takes over what another one noted.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.runs.append(&mut other.runs);
    }

    /// Sorts the runs and adds up where they overlap.
    pub(super) fn count(mut self) -> Verdict {
        self.runs.sort_unstable();
        let (mut ids, mut duplicates, mut reached) = (0, 0, 0);
        for (first, end) in self.runs {
            ids += end - first;
            duplicates += end.min(reached).saturating_sub(first);
            reached = reached.max(end);
        }
        Verdict { ids, duplicates }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn duplicates_are_counted_as_a_set_would(runs in prop::collection::vec((0u64..300, 1u32..20), 0..40)) {
            let (mut left, mut right, mut set) = (Census::default(), Census::default(), HashSet::new());
            let (mut ids, mut duplicates) = (0, 0);
            for (index, (first, count)) in runs.into_iter().enumerate() {
                if index % 2 == 0 { left.add(first, count) } else { right.add(first, count) }
                for id in first..first + u64::from(count) {
                    ids += 1;
                    duplicates += u64::from(!set.insert(id));
                }
            }
            left.merge(right);
            prop_assert_eq!(left.count(), Verdict { ids, duplicates });
        }
    }
}
