//! Copies of disks and of the registry, taken at any time and put back later.

use crate::sys::atomics::lock;
use crate::testing::simulation::history::{History, MS, SECOND};

/// Copies that are kept of each kind: the oldest go.
const KEPT: usize = 4;

/// A clock that was ever further ahead than this may have reserved what a fence at the right time does not cover.
const AHEAD: u64 = 30 * SECOND;

impl History {
    pub(crate) fn copy_disk(&mut self, node: usize) {
        let Some(copy) = self.nodes[node].copy_disk() else { return };
        self.disks.push((node, copy));
        if self.disks.len() > KEPT {
            self.disks.remove(0);
        }
    }

    /// A copy of some node's disk becomes the disk of this one.
    pub(crate) fn restore_disk(&mut self, node: usize) {
        if self.disks.is_empty() || self.nodes[node].process.is_some() || self.nodes[node].disk.is_none() {
            return;
        }
        let at = self.rng.below(self.disks.len() as u64) as usize;
        let (from, copy) = if self.rng.chance(50) { self.disks.remove(at) } else { self.disks[at].clone() };
        self.tally.trouble("disks restored from another node's copy", u64::from(from != node));
        self.say(|| format!("node {node} gets a copy of the disk of node {from}"));
        if from != node {
            let most = self.nodes[from].most;
            lock(&self.exchange.oracle).inherits(node, from, most);
        }
        self.nodes[node].restore_disk(copy);
    }

    /// The registry is copied, or put back to what it was; and so are disks.
    pub(crate) fn restoring(&mut self, node: usize) {
        match self.rng.below(12) {
            0..6 => {
                self.backups.push(self.exchange.store.copy());
                if self.backups.len() > KEPT {
                    let at = self.rng.below(KEPT as u64) as usize;
                    self.backups.swap_remove(at);
                }
            }
            6 | 7 => self.copy_disk(node),
            8 => {
                self.crash(node);
                self.restore_disk(node);
            }
            9 => {
                self.stop(node);
                self.start(node);
            }
            10 => self.restore_registry(),
            _ => self.crash(node),
        }
    }

    /// Whether a fence at the right time covers whatever was granted.
    fn is_reach_known(&self) -> bool {
        if self.exchange.store.is_local() {
            return self.nodes.iter().all(|node| node.clock.most_ahead() < AHEAD);
        }
        self.has_clock && self.clock_right
    }

    /// The registry is put back to an older copy, and fenced. A folder's processes are gone by then, since a fence
    /// waits for them; those of other hosts run on.
    fn restore_registry(&mut self) {
        if self.backups.is_empty() || !self.is_reach_known() {
            return;
        }
        let at = self.rng.below(self.backups.len() as u64) as usize;
        let copy = self.backups[at].clone();
        let local = self.exchange.store.is_local();
        if local {
            self.leave_the_folder();
        } else {
            // It is away until it is fenced.
            let away = self.rng.magnitude(MS, 10 * SECOND);
            self.restart_registry(away);
            let alive = self.nodes.iter().filter(|node| node.process.is_some()).count() as u64;
            self.tally.trouble("lives through a restore", alive);
        }
        let fence = (!self.unfenced).then(|| self.time.now());
        let restored = self.exchange.store.restore(&copy, fence);
        self.say(|| format!("the registry is restored, fenced at {fence:?}: {restored:?}"));
        let what = match (restored, local) {
            (Err(_), _) => "restores that failed",
            (Ok(()), true) => "local registries restored and fenced",
            (Ok(()), false) => "registries in memory restored and fenced",
        };
        self.tally.trouble(what, 1);
        if fence.is_some() && self.rng.chance(60) {
            // No worker is free before what the fence keeps clear is over.
            self.pass(126 * SECOND);
        }
    }

    /// Everybody who uses the folder stops, or is killed.
    fn leave_the_folder(&mut self) {
        for node in 0..self.nodes.len() {
            if self.rng.chance(50) {
                self.stop(node);
            }
            self.nodes[node].crash(false);
        }
    }
}
