//! What must never be, noted as it happens and judged at a history's end.

use std::collections::BTreeMap;
use std::ops::Range;

use xuid_id::Layout;

use crate::testing::crash_images::twice;

/// Consecutive ids that a caller got.
#[derive(Debug, Clone, Copy)]
struct Issued {
    first: u64,
    len: u32,
    node: usize,
}

/// Ticks of a worker that the registry's record says were granted to a node.
#[derive(Debug)]
struct Owned {
    worker: u32,
    node: usize,
    ticks: Range<u64>,
}

/// An oracle that takes note of an id a second time so many runs later must say so.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    #[default]
    Nothing,
    /// The first id of the `n`th run from now is reported once more.
    Twice(u64),
}

/// Knows all that was granted and issued, over all nodes and lives.
#[derive(Debug)]
pub(crate) struct Oracle {
    layout: Layout,
    issued: Vec<Issued>,
    owned: Vec<Owned>,
    /// Nodes that got a copy of the disk of another, and with it whatever that one had been granted.
    heirs: Vec<(usize, usize)>,
    /// The highest tick that E had reached at those others by then.
    inherited: BTreeMap<usize, u64>,
    wrong: Option<String>,
    /// Ids issued.
    pub(crate) ids: u64,
    /// Ids that came twice, once there is a verdict.
    pub(crate) duplicates: u64,
    /// Of all that was issued, in its order.
    pub(crate) digest: u64,
    /// A lie, for the test of the oracle itself.
    pub(crate) plant: Plant,
}

impl Oracle {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            issued: Vec::new(),
            owned: Vec::new(),
            heirs: Vec::new(),
            inherited: BTreeMap::new(),
            wrong: None,
            ids: 0,
            duplicates: 0,
            digest: 0,
            plant: Plant::Nothing,
        }
    }

    /// Something that must not be; the first such is kept.
    pub(crate) fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }

    /// `node` got a copy of the disk of `other`: what is in its spill may be of either, or of whoever `other` inherited
    /// from. `most` is the highest tick that E ever reached at `other`.
    pub(crate) fn inherits(&mut self, node: usize, other: usize, most: u64) {
        let theirs = self.inherited.get(&other).copied().unwrap_or(0).max(most);
        let ours = self.inherited.entry(node).or_default();
        *ours = theirs.max(*ours);
        let theirs = self.heirs.iter().filter(|(heir, _)| *heir == other).map(|(_, from)| *from);
        let from: Vec<usize> = theirs.chain([other]).collect();
        self.heirs.extend(from.into_iter().map(|from| (node, from)));
    }

    /// A worker's record was moved by a node.
    pub(crate) fn moved(&mut self, node: usize, worker: u32, from: u64, to: u64) {
        if from < to {
            return self.granted(node, worker, from..to);
        }
        for owned in self.owned.iter_mut().filter(|owned| owned.worker == worker) {
            if owned.ticks.end > to && owned.node != node {
                let text = format!("node {node} handed back worker {worker} to {to}, which is {owned:?}");
                self.wrong.get_or_insert(text);
            }
            owned.ticks.end = owned.ticks.end.min(to).max(owned.ticks.start);
        }
        self.owned.retain(|owned| !owned.ticks.is_empty());
    }

    fn granted(&mut self, node: usize, worker: u32, ticks: Range<u64>) {
        let last = self.owned.iter_mut().rfind(|owned| owned.worker == worker);
        match last {
            Some(last) if last.ticks.end > ticks.start => {
                let text = format!("worker {worker} {ticks:?} was granted to node {node} after {last:?}");
                self.wrong.get_or_insert(text);
            }
            Some(last) if last.node == node && last.ticks.end == ticks.start => last.ticks.end = ticks.end,
            _ => self.owned.push(Owned { worker, node, ticks }),
        }
    }

    /// A caller of `node` got a run; `most` is the highest tick that E ever reached there.
    pub(crate) fn issued(&mut self, node: usize, first: u64, len: u32, most: u64) {
        self.ids += u64::from(len);
        for word in [node as u64, first, u64::from(len)] {
            // As FNV mixes.
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        if let Plant::Twice(left) = &mut self.plant {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.plant = Plant::Nothing;
                self.issued.push(Issued { first, len: 1, node });
            }
        }
        match self.issued.last_mut() {
            Some(last) if last.node == node && last.first + u64::from(last.len) == first => last.len += len,
            _ => self.issued.push(Issued { first, len, node }),
        }
        let parts = self.layout.decode(crate::Id::new(first));
        let owns = |owned: &Owned| {
            owned.worker == parts.worker
                && owned.ticks.contains(&parts.tick)
                && (owned.node == node || self.heirs.contains(&(node, owned.node)))
        };
        if !self.owned.iter().rev().any(owns) {
            self.wrong(|| format!("node {node} issued {parts:?} and does not own that tick"));
        }
        let most = self.inherited.get(&node).copied().unwrap_or(0).max(most);
        if parts.tick > most {
            self.wrong(|| format!("node {node} issued {parts:?} while E never passed tick {most}"));
        }
    }

    /// All that was issued, in ascending order.
    pub(crate) fn spans(&mut self) -> Vec<Range<u64>> {
        self.issued.sort_unstable_by_key(|issued| issued.first);
        let span = |issued: &Issued| issued.first..issued.first + u64::from(issued.len);
        self.issued.iter().map(span).collect()
    }

    /// The verdict: an id that came twice, or else whatever else was wrong.
    pub(crate) fn verdict(&mut self) -> Result<(), String> {
        let spans = self.spans();
        self.duplicates = twice(spans);
        for pair in self.issued.windows(2) {
            if pair[0].first + u64::from(pair[0].len) > pair[1].first {
                let parts = self.layout.decode(crate::Id::new(pair[1].first));
                let (one, other) = (pair[0].node, pair[1].node);
                return Err(format!("an id came twice, from node {one} and node {other}: {parts:?}"));
            }
        }
        self.wrong.take().map_or(Ok(()), Err)
    }
}
