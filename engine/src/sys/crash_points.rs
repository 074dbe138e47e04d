//! Named points at which the crash-point build of the server kills itself, as a machine would that dies just there.
//!
//! Passed on whatever thread does the work, through `crash_point!`, which is nothing without the feature
//! `crash-points`. The variable `XUID_CRASH_POINT` arms one point: `handed-back:1` is SIGKILL at its first pass, `list`
//! is for [`Armed::List`].
//!
//! # Invariants
//! - P1 a thread that has struck goes no further, not even for the moment until the signal takes the process;
//! - P2 a process strikes once, at the pass that was asked for and at no other;
//! - P3 a point that is not armed does nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// The variable that arms a point.
pub const VARIABLE: &str = "XUID_CRASH_POINT";

macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)+) => {
        /// A point. What is named is done, and nothing after it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Point {
            $($(#[$doc])* $point,)+
        }

        impl Point {
            /// All of them, in the order of a life.
            pub const ALL: &[Self] = &[$(Self::$point,)+];

            /// Its name in the variable.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)+
                }
            }
        }
    };
}

points! {
    /// The blocks of a local registry are set aside, and nothing is in them.
    GenesisAllocated = "genesis-allocated",
    /// Header and records are written, and not synced.
    GenesisWritten = "genesis-written",
    /// All of it is synced, under a name that no process looks for.
    GenesisSynced = "genesis-synced",
    /// The registry has its name, which the folder may forget.
    GenesisNamed = "genesis-named",
    /// A seat in the data folder is locked.
    SeatTaken = "seat-taken",
    /// The first copy of a record is written.
    CopyOneWritten = "copy-one-written",
    /// The first copy is synced.
    CopyOneSynced = "copy-one-synced",
    /// The second copy is written.
    CopyTwoWritten = "copy-two-written",
    /// The second copy is synced, and the call has not returned.
    CopyTwoSynced = "copy-two-synced",
    /// A session with the ensemble was begun.
    SessionNew = "session-new",
    /// A transaction is built and not sent.
    MultiUnsent = "multi-unsent",
    /// A transaction was answered, and the answer not looked at.
    MultiAnswered = "multi-answered",
    /// The connection or the session with the ensemble was lost, and no call has met that yet.
    SessionLost = "session-lost",
    /// A spill's file is there, empty and locked, under a name that no process looks for.
    SpillCreated = "spill-created",
    /// Its header is written, and the registry knows nothing of it.
    SpillLaidOut = "spill-laid-out",
    /// The registry has a mark for it.
    SpillMarked = "spill-marked",
    /// It has its name, which the folder may forget.
    SpillNamed = "spill-named",
    /// A worker's first window is stored, and the minter does not have it.
    Claimed = "claimed",
    /// A renewal is about to be stored.
    RenewalUnsent = "renewal-unsent",
    /// A renewal came back, and what became of it was not found out.
    RenewalUnsettled = "renewal-unsettled",
    /// A further window is stored, and the minter does not have it.
    WindowExtended = "window-extended",
    /// What a second left is out of ring and queue, and in no file.
    TurnedOver = "turned-over",
    /// It is in the file, and not synced.
    Appended = "appended",
    /// A spill's mark is moved, and the extents below it were not read.
    MarkMoved = "mark-moved",
    /// Granted extents are read, and in neither queue nor ring.
    ExtentsRead = "extents-read",
    /// A caller that waited has its ids, and did nothing with them.
    TicketAnswered = "ticket-answered",
    /// The ids of a reply are logged, and the reply is not written.
    ReplyLogged = "reply-logged",
    /// Half of a reply's bytes are written.
    ReplyPartWritten = "reply-part-written",
    /// All of a reply's bytes are written.
    ReplyWritten = "reply-written",
    /// A clean stop refuses every caller.
    StopRefused = "stop-refused",
    /// The minter is sealed.
    StopSealed = "stop-sealed",
    /// Ring, queue and begun tick are swept into memory.
    StopSwept = "stop-swept",
    /// What was swept is in the spill's file, and not synced.
    StopAppended = "stop-appended",
    /// It is synced.
    StopSynced = "stop-synced",
    /// A window is about to be handed back.
    HandBackUnsent = "hand-back-unsent",
    /// A window was handed back.
    HandedBack = "handed-back",
}

/// What the variable says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// Nothing: it is not set.
    Never,
    /// The names of all points are to be printed.
    List,
    /// This point, at this pass, counted from 1.
    At(Point, u64),
}

impl Armed {
    /// Reads what the variable says.
    ///
    /// # Errors
    /// It names no point, or no pass.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "list" {
            return Ok(Self::List);
        }
        let fail =
            || format!("{VARIABLE} is {text}, and should be list, or a point and a pass: handed-back:1");
        let (name, pass) = text.split_once(':').ok_or_else(fail)?;
        let point = Point::ALL.iter().find(|point| point.name() == name).ok_or_else(fail)?;
        let pass = pass.parse().ok().filter(|pass| *pass > 0).ok_or_else(fail)?;
        Ok(Self::At(*point, pass))
    }
}

/// The variable as it was at the first look.
///
/// # Errors
/// See [`Armed::parse`].
pub fn armed() -> Result<Armed, String> {
    static ARMED: OnceLock<Result<Armed, String>> = OnceLock::new();
    let read = || std::env::var(VARIABLE).map_or(Ok(Armed::Never), |text| Armed::parse(&text));
    ARMED.get_or_init(read).clone()
}

/// Whether this pass of the point is the one to strike at. Counts the pass.
#[must_use]
pub fn is_due(point: Point) -> bool {
    static PASSES: AtomicU64 = AtomicU64::new(0);
    match armed() {
        // Relaxed: which of two threads passes first is as good either way.
        Ok(Armed::At(armed, pass)) if armed == point => PASSES.fetch_add(1, Ordering::Relaxed) + 1 == pass,
        _ => false,
    }
}

/// Ends the process as `kill -9` does.
pub fn strike() -> ! {
    // It fails for no process that may signal itself; and if it did, nothing more is done here (P1).
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// Passes a point.
pub fn point(point: Point) {
    if is_due(point) {
        strike();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_point_has_a_name_of_its_own_that_arms_it() {
        let names: HashSet<&str> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
        for point in Point::ALL {
            assert_eq!(Armed::parse(&format!("{}:7", point.name())), Ok(Armed::At(*point, 7)));
        }
        assert_eq!(Armed::parse("list"), Ok(Armed::List));
    }

    #[test]
    fn what_names_no_point_or_no_pass_is_refused() {
        for text in ["", "claimed", "claimed:", "claimed:0", "claimed:-1", "unclaimed:1", "claimed:1:2"] {
            assert!(Armed::parse(text).is_err(), "{text}");
        }
    }
}
