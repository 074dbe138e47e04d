//! What a caller can ask of an id's age.

/// The order of the ids of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Order {
    /// Any unspent ids: the last two seconds' at light load, from the reserve under a burst, never older than
    /// `max_age`. The fastest.
    #[default]
    Any,
    /// Of a tick at most 10 ms before the call.
    Fresh,
    /// Greater than every ordered id that this engine returned before the call.
    Ordered,
}
