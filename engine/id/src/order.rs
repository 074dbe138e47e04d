//! What a caller asks of the age and the order of ids.

/// The order of the ids of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Order {
    /// Any unspent ids: the last two seconds' at light load, from the reserve under a burst, never older than
    /// `max_age`. The fastest.
    #[default]
    Any = 0,
    /// Of a tick at most 10 ms before the call, never from the reserve.
    Fresh = 1,
    /// Greater than every ordered id that the same engine, or server, returned before the call.
    Ordered = 2,
}

impl Order {
    /// Every order.
    pub const ALL: [Self; 3] = [Self::Any, Self::Fresh, Self::Ordered];

    /// Its name on the command line: `any`, `fresh` or `ordered`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Fresh => "fresh",
            Self::Ordered => "ordered",
        }
    }

    /// The order of that number, as the wire has it.
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
