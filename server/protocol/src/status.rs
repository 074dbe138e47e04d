//! How a request ended.

use std::fmt;

/// The status of a reply. Open: a later server may send a number that has no name here, and
/// [`Status::is_retryable`] holds for that one too.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

impl Status {
    /// Success.
    pub const OK: Self = Self(0);
    /// A body too short or too long, a field out of range, a request out of turn.
    pub const BAD_REQUEST: Self = Self(0x0001);
    /// No version in common.
    pub const VERSION: Self = Self(0x0002);
    /// An op that this server does not know.
    pub const UNKNOWN_OP: Self = Self(0x0003);
    /// A frame above `max_body`.
    pub const TOO_LARGE: Self = Self(0x0004);
    /// A count of 0, or above `max_count`.
    pub const COUNT: Self = Self(0x0005);
    /// The token is missing or wrong.
    pub const UNAUTHENTICATED: Self = Self(0x0006);
    /// The server is of another cluster than the client expects.
    pub const WRONG_CLUSTER: Self = Self(0x0007);
    /// The time bits of the layout, or the numbers of a sequence, ran out.
    pub const EXHAUSTED: Self = Self(0x0008);
    /// There is no sequence of that name.
    pub const NO_SEQUENCE: Self = Self(0x0009);
    /// There is a sequence of that name, with other settings.
    pub const EXISTS: Self = Self(0x000a);
    /// The client's token may not do this with that name.
    pub const FORBIDDEN: Self = Self(0x000b);
    /// Ordered ids were asked for, and those of this server are opaque.
    pub const NO_ORDER: Self = Self(0x000c);
    /// No window of ticks is held yet.
    pub const NOT_READY: Self = Self(0x8010);
    /// Nothing left within the wait.
    pub const OVERLOADED: Self = Self(0x8011);
    /// The clock is behind what was issued already.
    pub const CLOCK_BEHIND: Self = Self(0x8012);
    /// The window of ticks was lost, and another is being taken.
    pub const WINDOW_LOST: Self = Self(0x8013);
    /// The server is going.
    pub const SHUTTING_DOWN: Self = Self(0x8014);
    /// The server failed in a way of its own.
    pub const INTERNAL: Self = Self(0x8015);
    /// What is held of the sequence is used up, and its store does not answer.
    pub const STORE_AWAY: Self = Self(0x8016);
    /// The store of the sequences may have gone back, and waits for a fence.
    pub const STORE_BEHIND: Self = Self(0x8017);
    /// More ids a second than this client's limit allows.
    pub const RATE: Self = Self(0x801a);

    /// Every status that has a name, success first.
    pub const NAMED: [Self; 22] = [
        Self::OK,
        Self::BAD_REQUEST,
        Self::VERSION,
        Self::UNKNOWN_OP,
        Self::TOO_LARGE,
        Self::COUNT,
        Self::UNAUTHENTICATED,
        Self::WRONG_CLUSTER,
        Self::EXHAUSTED,
        Self::NO_SEQUENCE,
        Self::EXISTS,
        Self::FORBIDDEN,
        Self::NO_ORDER,
        Self::NOT_READY,
        Self::OVERLOADED,
        Self::CLOCK_BEHIND,
        Self::WINDOW_LOST,
        Self::SHUTTING_DOWN,
        Self::INTERNAL,
        Self::STORE_AWAY,
        Self::STORE_BEHIND,
        Self::RATE,
    ];

    /// The status of that number.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        Self(code)
    }

    /// Its number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Whether the same request may be tried again, here later or at another node: bit 15.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Its name in the specification, if this version knows it.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::OK => "OK",
            Self::BAD_REQUEST => "BAD_REQUEST",
            Self::VERSION => "VERSION",
            Self::UNKNOWN_OP => "UNKNOWN_OP",
            Self::TOO_LARGE => "TOO_LARGE",
            Self::COUNT => "COUNT",
            Self::UNAUTHENTICATED => "UNAUTHENTICATED",
            Self::WRONG_CLUSTER => "WRONG_CLUSTER",
            Self::EXHAUSTED => "EXHAUSTED",
            Self::NO_SEQUENCE => "NO_SEQUENCE",
            Self::EXISTS => "EXISTS",
            Self::FORBIDDEN => "FORBIDDEN",
            Self::NO_ORDER => "NO_ORDER",
            Self::NOT_READY => "NOT_READY",
            Self::OVERLOADED => "OVERLOADED",
            Self::CLOCK_BEHIND => "CLOCK_BEHIND",
            Self::WINDOW_LOST => "WINDOW_LOST",
            Self::SHUTTING_DOWN => "SHUTTING_DOWN",
            Self::INTERNAL => "INTERNAL",
            Self::STORE_AWAY => "STORE_AWAY",
            Self::STORE_BEHIND => "STORE_BEHIND",
            Self::RATE => "RATE",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "status {:04x}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:04x} {})", self.0, self.name().unwrap_or("?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_retryable_exactly_when_bit_15_of_its_number_is_set() {
        let retryable: Vec<_> = Status::NAMED.into_iter().filter(|status| status.is_retryable()).collect();
        assert_eq!(
            retryable,
            [
                Status::NOT_READY,
                Status::OVERLOADED,
                Status::CLOCK_BEHIND,
                Status::WINDOW_LOST,
                Status::SHUTTING_DOWN,
                Status::INTERNAL,
                Status::STORE_AWAY,
                Status::STORE_BEHIND,
                Status::RATE
            ]
        );
        assert!(Status::NAMED.iter().all(|status| status.name().is_some()));
    }

    #[test]
    fn an_unknown_status_still_says_whether_to_try_again() {
        let later = Status::from_code(0x80ff);
        assert!(later.is_retryable() && later.name().is_none());
        assert_eq!(later.to_string(), "status 80ff");
        assert!(!Status::from_code(0x00ff).is_retryable());
    }
}
