//! How many ids a handle gives out between two looks at clock and process.
//!
//! A hit looks at neither, so the run in a handle is opened a piece at a time. A caller that takes ids in a hot loop
//! gets long pieces, for which a look costs nothing; a caller that takes its time gets pieces of one id, so that each
//! id is looked after.

use std::time::Duration;

use crate::moment::Moment;

/// The longest piece. A look takes about 0.1 us: 0.1 ns an id.
pub(super) const LONGEST: u32 = 1_024;

/// A piece that lasted longer is followed by one of a single id.
pub(super) const SPAN: Duration = Duration::from_micros(50);

/// The piece that a handle is at.
#[derive(Debug)]
pub(super) struct Piece {
    len: u32,
    begun: Moment,
}

impl Piece {
    pub(super) fn new(now: Moment) -> Self {
        Self { len: 0, begun: now }
    }

    /// Ends the piece and begins another; how long that one is.
    pub(super) fn next(&mut self, now: Moment) -> u32 {
        let is_quick = now.saturating_duration_since(self.begun) <= SPAN;
        self.len = if is_quick { (self.len * 2).clamp(1, LONGEST) } else { 1 };
        self.begun = now;
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_in_a_hot_loop_and_are_one_id_for_a_caller_that_takes_its_time() {
        let mut now = Moment::now();
        let mut piece = Piece::new(now);
        let mut quick = || {
            now += SPAN / 2;
            piece.next(now)
        };
        let lens: Vec<u32> = (0..12).map(|_| quick()).collect();
        assert_eq!(lens[..3], [1, 2, 4]);
        assert_eq!(lens[10..], [LONGEST; 2]);
        for _ in 0..3 {
            now += SPAN * 2;
            assert_eq!(piece.next(now), 1);
        }
    }
}
