//! What is asked of a front, and what its texts mean.

use std::time::Duration;

use crate::client::{ClientError, Order};
use crate::status;

pub(super) type Result<T> = std::result::Result<T, ClientError>;

/// How many there are to be in a reply, and how they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One, by the shortest request of the front.
    One,
    /// A list.
    List,
    /// Runs.
    Runs,
    /// One run.
    Piece,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// A sequence and the distance of its numbers; none: ids.
    pub sequence: Option<(&'a str, u64)>,
    /// How many.
    pub count: u32,
    /// In which order. By RESP, numbers are always ordered.
    pub order: Order,
    /// How long they may take, where the front has a word for that.
    pub wait: Duration,
    /// How they come.
    pub form: Form,
}

/// As the texts of the fronts say it.
pub(super) fn order_name(order: Order) -> &'static str {
    match order {
        Order::Any => "any",
        Order::Fresh => "fresh",
        Order::Ordered => "ordered",
    }
}

/// The status whose name this is, with or without what joins its words.
pub(super) fn status_named(name: &str) -> Result<u16> {
    let name: String = name.chars().filter(|char| *char != '_').collect();
    let known = [
        ("BADREQUEST", status::BAD_REQUEST),
        ("COUNT", status::COUNT),
        ("EXHAUSTED", status::EXHAUSTED),
        ("NOORDER", status::NO_ORDER),
        ("NOTREADY", status::NOT_READY),
        ("OVERLOADED", status::OVERLOADED),
        ("CLOCKBEHIND", status::CLOCK_BEHIND),
        ("WINDOWLOST", status::WINDOW_LOST),
        ("SHUTTINGDOWN", status::SHUTTING_DOWN),
        ("STOREAWAY", status::STORE_AWAY),
        ("STOREBEHIND", status::STORE_BEHIND),
    ];
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, status)| *status).ok_or(ClientError::Broken("an error of an unknown name"))
}

/// All ids of a run, as texts or numbers told them.
pub(super) fn run(first: u64, count: u64, stride: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |at| first + at * stride)
}

/// Exactly what was asked for.
pub(super) fn exactly(numbers: Vec<u64>, wanted: &Wanted<'_>) -> Result<Vec<u64>> {
    if numbers.len() != wanted.count as usize {
        return Err(ClientError::Broken("all or nothing: the count differs"));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_statuses_of_their_names() {
        assert_eq!(status_named("STORE_AWAY").unwrap(), status::STORE_AWAY);
        assert_eq!(status_named("STOREAWAY").unwrap(), status::STORE_AWAY);
        assert!(matches!(status_named("NEVER"), Err(ClientError::Broken(_))));
    }
}
