//! Faults in the middle of things, and what disks do by themselves.

use crate::testing::simulation::history::{History, MS, SECOND, WORKERS};
use crate::testing::support::faults::{Armed, FaultKind, Point};

impl History {
    fn armed(&mut self, fails: bool) -> Armed {
        let spill_or_folder =
            [Point::Spill, if self.exchange.store.is_local() { Point::Folder } else { Point::Spill }];
        let share = self.rng.below(256) as u8;
        if fails {
            let point = self.rng.pick(&spill_or_folder);
            return Armed {
                point,
                after: self.rng.magnitude(1, 16) as u32 - 1,
                kind: FaultKind::Fail(share),
            };
        }
        let [spill, folder] = spill_or_folder;
        let point = self.rng.pick(&[Point::Clock, Point::Registry, spill, folder, folder]);
        let most = if point == Point::Clock { 256 } else { 16 };
        let after = self.rng.magnitude(1, most) as u32 - 1;
        let kind = match self.rng.below(100) {
            0..65 => FaultKind::Kill(share),
            65..95 => FaultKind::Pause(self.rng.magnitude(MS, 200 * SECOND)),
            _ => FaultKind::Panic,
        };
        Armed { point, after, kind }
    }

    /// A node is killed or stopped in the middle of something: of whatever comes, of a clean stop, or of a start.
    pub(crate) fn inject(&mut self, node: usize) {
        let armed = self.armed(false);
        let kind = self.rng.below(10);
        self.say(|| format!("node {node}: {armed:?}, kind {kind}"));
        match kind {
            0..6 => self.nodes[node].faults.arm(Some(armed)),
            6 | 7 => {
                self.nodes[node].faults.arm(Some(Armed { after: armed.after / 4, ..armed }));
                self.stop(node);
            }
            _ => {
                if kind == 8 {
                    self.crash(node);
                } else {
                    self.stop(node);
                }
                self.nodes[node].next_fault = Some(armed);
                self.start(node);
            }
        }
    }

    /// What killed a process in the middle of a write may be what takes the power away.
    pub(crate) fn power_follows(&mut self) {
        for node in 0..self.nodes.len() {
            if !std::mem::take(&mut self.nodes[node].cut_off) || self.rng.chance(25) {
                continue;
            }
            if self.exchange.store.is_local() {
                self.black_out();
            } else {
                self.nodes[node].cut_power();
                self.nodes[node].clock.reboot();
            }
        }
    }

    /// A disk fails in a write or a sync, loses what was not synced, or rots.
    pub(crate) fn disk(&mut self, node: usize) {
        let kind = self.rng.below(10);
        self.say(|| format!("node {node}: its disk, kind {kind}"));
        match kind {
            0..4 => {
                let armed = self.armed(true);
                if kind == 0 {
                    // In the clean stop, whose sync is the only one that counts.
                    self.nodes[node].faults.arm(Some(Armed { after: armed.after % 3, ..armed }));
                    self.stop(node);
                } else {
                    self.nodes[node].faults.arm(Some(armed));
                }
            }
            4 => self.nodes[node].rot(),
            5 => self.rot_registry(),
            6 => {
                if self.exchange.store.is_local() {
                    self.black_out();
                } else {
                    self.nodes[node].crash(true);
                    self.nodes[node].clock.reboot();
                }
            }
            7 => {
                self.nodes[node].crash(false);
                // A process whose registry's disk failed goes on only where it begins anew.
                self.start(node);
            }
            8 => {
                self.stop(node);
                self.nodes[node].rot();
                self.start(node);
            }
            _ => self.stop(node),
        }
    }

    /// One of the two copies of a record, or of the header, rots; of a record sometimes both.
    fn rot_registry(&mut self) {
        if !self.exchange.store.is_local() {
            return;
        }
        let record = self.rng.chance(80).then(|| self.rng.below(u64::from(WORKERS) + 16) as u32);
        let bit = self.rng.below(512 * 8) as usize;
        // Of the header always the same copy: without both, nobody can do anything but fence.
        let copy = if record.is_none() { usize::from(self.clock_right) } else { self.rng.below(2) as usize };
        let zeros = self.rng.chance(30);
        // Both copies of a record of which nothing can be believed any more; one such a history is enough.
        let both = record.is_some() && self.exchange.readable() == WORKERS && self.rng.chance(20);
        let spoil = |sector: &mut [u8]| {
            if zeros {
                sector.fill(0);
            } else {
                sector[bit / 8] ^= 1 << (bit % 8);
            }
        };
        self.exchange.store.rot(record, copy, spoil);
        if both {
            self.exchange.store.rot(record, 1 - copy, spoil);
        }
        self.tally.trouble("rotten sectors of a registry", 1);
        self.say(|| format!("copy {copy} of record {record:?} rots"));
    }
}
