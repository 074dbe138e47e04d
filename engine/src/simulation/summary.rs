//! What happened, in figures: a simulation in which nothing goes wrong proves nothing.

/// What happened in one history, or in many.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Summary {
    pub(super) ids: u64,
    /// Lives with ordered ids.
    pub(super) ordered: u64,
    pub(super) switches: u64,
    pub(super) jumps: u64,
    pub(super) rollbacks: u64,
    pub(super) unknown: u64,
    pub(super) unknown_ours: u64,
    pub(super) conflicts: u64,
    pub(super) replayed: u64,
    pub(super) lives: u64,
    pub(super) refusals: Refusals,
    /// Nanoseconds from better times on until all nodes served; the longest.
    pub(super) recovery: u64,
    /// Nodes that could not have a worker.
    pub(super) starved: u64,
    pub(super) simulated: u64,
}

/// What refused calls said.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Refusals {
    pub(super) clock_behind: u64,
    pub(super) not_ready: u64,
    pub(super) overloaded: u64,
    pub(super) window_lost: u64,
    pub(super) exhausted: u64,
}

impl Summary {
    /// Each kind of trouble was met, so that the absence of failures means something.
    pub(super) fn check_that_enough_went_wrong(&self) {
        let Refusals { clock_behind, not_ready, overloaded, window_lost, exhausted } = self.refusals;
        for (what, count) in [
            ("switches of worker", self.switches),
            ("leaps", self.jumps),
            ("steps back", self.rollbacks),
            ("unknown outcomes", self.unknown),
            ("unknown outcomes that were ours", self.unknown_ours),
            ("conflicts", self.conflicts),
            ("ids from a spill", self.replayed),
            ("ordered lives", self.ordered),
            ("refusals while the clock was behind", clock_behind),
            ("refusals before a window", not_ready),
            ("refusals under load", overloaded),
            ("refusals of a lost window", window_lost),
            ("refusals outside the layout's time", exhausted),
        ] {
            assert!(count > 0, "no history had any {what}");
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ids += other.ids;
        self.ordered += other.ordered;
        self.switches += other.switches;
        self.jumps += other.jumps;
        self.rollbacks += other.rollbacks;
        self.unknown += other.unknown;
        self.unknown_ours += other.unknown_ours;
        self.conflicts += other.conflicts;
        self.replayed += other.replayed;
        self.lives += other.lives;
        self.refusals.add(&other.refusals);
        self.recovery = self.recovery.max(other.recovery);
        self.starved += other.starved;
        self.simulated += other.simulated;
    }
}

impl Refusals {
    pub(super) fn add(&mut self, other: &Self) {
        self.clock_behind += other.clock_behind;
        self.not_ready += other.not_ready;
        self.overloaded += other.overloaded;
        self.window_lost += other.window_lost;
        self.exhausted += other.exhausted;
    }
}
