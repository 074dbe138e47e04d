//! What the supervisor thinks of the clocks, and how often it changed its mind.

/// What the supervisor makes of the clocks; durations in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Engine time is the wall.
    #[default]
    Steady,
    /// Engine time is a little ahead and stands until the wall has reached it.
    Stand {
        /// How far.
        lead: u64,
    },
    /// Engine time is ahead and runs slowly.
    CatchUp {
        /// How far.
        lead: u64,
    },
    /// Engine time is too far ahead and stands: a switch is wanted, to a worker whose mark is at most `now - lead`.
    Behind {
        /// How far.
        lead: u64,
    },
    /// The wall leapt forward and is not followed yet; engine time goes on by boot time.
    Ahead {
        /// How far the wall is above what boot time, or the second clock, explains.
        by: u64,
    },
}

impl Verdict {
    /// One word for logs and metrics: `steady`, `stand`, `catch_up`, `behind` or `ahead`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Stand { .. } => "stand",
            Self::CatchUp { .. } => "catch_up",
            Self::Behind { .. } => "behind",
            Self::Ahead { .. } => "ahead",
        }
    }

    /// How far engine time is ahead of what it follows, in nanoseconds.
    #[must_use]
    pub fn lead(&self) -> u64 {
        match self {
            Self::Stand { lead } | Self::CatchUp { lead } | Self::Behind { lead } => *lead,
            Self::Steady | Self::Ahead { .. } => 0,
        }
    }

    /// Whether it says the same, however far.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// How often each verdict was entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdicts {
    /// [`Verdict::Steady`], the one at the start not counted.
    pub steady: u64,
    /// [`Verdict::Stand`].
    pub stand: u64,
    /// [`Verdict::CatchUp`].
    pub catch_up: u64,
    /// [`Verdict::Behind`].
    pub behind: u64,
    /// [`Verdict::Ahead`].
    pub ahead: u64,
}

impl Verdicts {
    /// The counts under the verdicts' [names](Verdict::name).
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("steady", self.steady),
            ("stand", self.stand),
            ("catch_up", self.catch_up),
            ("behind", self.behind),
            ("ahead", self.ahead),
        ]
    }

    /// All together.
    pub(crate) fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Steady => &mut self.steady,
            Verdict::Stand { .. } => &mut self.stand,
            Verdict::CatchUp { .. } => &mut self.catch_up,
            Verdict::Behind { .. } => &mut self.behind,
            Verdict::Ahead { .. } => &mut self.ahead,
        } += 1;
    }
}

/// The present verdict, and what came before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// The verdict of the last reading.
    pub verdict: Verdict,
    /// The boot time of the reading in which a verdict of its kind was first seen, without another one since.
    pub since: u64,
    /// The boot time of the reading in which the clocks ceased to be steady; of the last time, if they are steady now.
    pub unsteady_since: u64,
    /// How often each verdict was entered.
    pub entered: Verdicts,
}

impl Course {
    /// Takes a verdict in. Returns whether it is of another kind than the last one.
    pub(super) fn note(&mut self, verdict: Verdict, boot: u64) -> bool {
        let changed = !verdict.is_like(&self.verdict);
        if changed {
            self.entered.count(&verdict);
            if self.verdict == Verdict::Steady {
                self.unsteady_since = boot;
            }
            self.since = boot;
        }
        self.verdict = verdict;
        changed
    }
}
