//! When to try again after a failure: at once where another server is next, after a pause where all had their turn.

use std::time::Duration;

use super::backoff::Backoff;
use crate::error::ClientError;
use crate::options::Options;

/// The longest that a server's word is believed. Asking once more a minute harms no server, and a wrong number of
/// milliseconds would stop a client for weeks.
const LONGEST_WORD: Duration = Duration::from_mins(1);

/// The pauses between the attempts of one caller.
#[derive(Debug)]
pub(crate) struct Retries {
    backoff: Backoff,
    /// Servers besides the one in use.
    others: usize,
    /// Of these, how many may still be gone to without a pause.
    left: usize,
}

impl Retries {
    pub(crate) fn new(options: &Options, servers: usize) -> Self {
        let others = servers.saturating_sub(1);
        Self { backoff: Backoff::new(options.first_pause, options.longest_pause), others, left: others }
    }

    /// How long to wait before the next attempt; `moves`: at another server. What a server says about itself does not
    /// hold for another one, so a failure that leads to another server costs no pause until all of them failed.
    pub(crate) fn pause(&mut self, error: &ClientError, moves: bool) -> Duration {
        if moves && self.left > 0 {
            self.left -= 1;
            return Duration::ZERO;
        }
        self.left = self.others;
        // The server's word, and a random part on top, so that not everybody comes back at once.
        self.backoff.pause().saturating_add(error.retry_after().min(LONGEST_WORD))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xuid_protocol::{ErrorReply, Status};

    use super::*;

    fn refused(status: Status) -> ClientError {
        let error = ErrorReply { status, retry_after_ms: 500, text: "so it is".into() };
        ClientError::refused(&Arc::from("a"), &error)
    }

    #[test]
    fn every_other_server_is_tried_before_the_first_pause_and_again_after_it() {
        let mut retries = Retries::new(&Options::new(), 3);
        let ms = Duration::from_millis;
        for _ in 0..4 {
            assert_eq!(retries.pause(&refused(Status::NOT_READY), true), Duration::ZERO);
            assert_eq!(retries.pause(&ClientError::lost(&Arc::from("b"), None), true), Duration::ZERO);
            assert!(retries.pause(&refused(Status::WINDOW_LOST), true) >= ms(500));
        }
    }

    #[test]
    fn a_server_that_names_a_pause_of_weeks_is_asked_again_in_a_minute() {
        let error = ErrorReply { status: Status::OVERLOADED, retry_after_ms: u32::MAX, text: "".into() };
        let error = ClientError::refused(&Arc::from("a"), &error);
        let pause = Retries::new(&Options::new(), 1).pause(&error, false);
        assert!((LONGEST_WORD..LONGEST_WORD * 2).contains(&pause), "{pause:?}");
    }

    #[test]
    fn one_server_alone_or_one_that_is_stayed_with_is_never_asked_again_without_a_pause() {
        let ms = Duration::from_millis;
        let (mut alone, mut several) = (Retries::new(&Options::new(), 1), Retries::new(&Options::new(), 3));
        for _ in 0..4 {
            assert!(alone.pause(&refused(Status::NOT_READY), true) >= ms(500));
            assert!(several.pause(&refused(Status::OVERLOADED), false) >= ms(500));
        }
    }
}
