//! What a request asks of the age and the order of its ids.

/// The third choice of NEXT, ARRAY and RUNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Order {
    /// May come from the server's reserve, never older than its `max_age`. The fastest.
    #[default]
    Any = 0,
    /// A timestamp of now, never from the reserve.
    Fresh = 1,
    /// Greater than every ordered id that this node answered with before.
    Ordered = 2,
}

impl Order {
    /// Every order.
    pub const ALL: [Self; 3] = [Self::Any, Self::Fresh, Self::Ordered];

    /// The order of that number.
    #[must_use]
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Any),
            1 => Some(Self::Fresh),
            2 => Some(Self::Ordered),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }
}
