//! What keeps ids from coming twice, by name, so that a test can take one guard out and must then find a duplicate.
//!
//! In an ordinary build every guard holds, which the compiler knows: [`Guard::is_out`] costs nothing there.

/// A guard that a negative control can take out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Only a worker whose mark is not above the clock is chosen.
    MarkNotAhead,
    /// A window begins at the mark it replaces, or later (U2).
    WindowAfterMark,
    /// No window reaches further than two minutes beyond the registry's time.
    FurthestWindow,
    /// An unknown outcome is "not ours" until a re-read shows our token and operation (U2).
    UnknownIsNotOurs,
    /// The re-read compares the token.
    OwnToken,
    /// The re-read compares the operation.
    OwnOperation,
    /// What is handed back begins after the last tick of which a plot was cut.
    HandBackWholeTicks,
    /// What is handed back is cut no more.
    HandBackLast,
    /// Nothing is cut above E (U6).
    NotAboveClock,
    /// E goes back at a switch of worker only.
    ClockBackAtSwitch,
    /// A mark is moved before its extents are used (U4).
    MarkFirst,
    /// A spill that was opened is read from the registry's mark on, and not from what its file says (U4).
    MarkOfRegistry,
    /// A grant begins at the registry's mark as it is now (U4).
    GrantAtMark,
    /// An ordered id is above all before it.
    OrderedRises,
}

#[cfg(test)]
thread_local! {
    static OUT: std::cell::RefCell<Vec<Guard>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Guard {
    /// Whether a test took it out, in this thread.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a constant, but in tests")]
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "it names the guard"))]
    pub(crate) fn is_out(self) -> bool {
        #[cfg(test)]
        return OUT.with_borrow(|out| out.contains(&self));
        #[cfg(not(test))]
        false
    }

    /// Does something without these guards.
    #[cfg(test)]
    pub(crate) fn without<T>(guards: &[Self], body: impl FnOnce() -> T) -> T {
        OUT.set(guards.to_vec());
        let result = body();
        OUT.set(Vec::new());
        result
    }
}
