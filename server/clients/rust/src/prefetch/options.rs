//! What a caller may choose about prefetching.

use std::time::Duration;

use crate::error::ClientError;

/// How much is held ahead, how old it may be, and how long a caller waits. Checked by
/// [`Client::prefetch`](crate::Client::prefetch).
///
/// ```
/// use std::time::Duration;
/// use xuid_client::PrefetchOptions;
/// let options = PrefetchOptions::new().max_age(Duration::from_millis(200)).ahead(64, 100_000);
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct PrefetchOptions {
    pub(super) least: u32,
    pub(super) most: u32,
    pub(super) max_age: Duration,
    pub(super) wait: Duration,
}

impl Default for PrefetchOptions {
    fn default() -> Self {
        Self { least: 16, most: 1 << 20, max_age: Duration::from_secs(1), wait: Duration::from_secs(1) }
    }
}

impl PrefetchOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many ids are held ahead: at least the first number, and up to the second as use demands. Too small a least,
    /// and the first calls after a pause wait; too large, and a quiet user wastes as many every
    /// [`max_age`](PrefetchOptions::max_age). Too small a most, and a hot loop waits for round trips; too large costs
    /// waste at its end: a million ids are a quarter of a second of one worker. Defaults to 16 and 1,048,576.
    #[must_use]
    pub fn ahead(mut self, least: u32, most: u32) -> Self {
        self.least = least;
        self.most = most;
        self
    }

    /// How long after it was asked for an id may still be handed out, besides the age it has at the server. Older ones
    /// are wasted. A thread of the source sees to that, whatever the caller's runtime does; a handle looks at the clock
    /// besides, once in up to 1,024 ids after a hot loop, and at each id where ids were taken 50 us apart and more.
    ///
    /// What this does not cover is a time in which the process or the machine is stopped, or in which the thread is not
    /// given a processor. If such a time begins after a handle's look at the clock, the ids up to its next look may
    /// come out older by that time: at most 1,023 of a handle in a hot loop, until the thread has run, and the one id
    /// that a slower caller was taking. A look counts the time in which the machine was suspended on Linux, and
    /// elsewhere only where the system's clock does; the thread's sleep does not count it.
    ///
    /// Too short, and much is; too long, and ids look older than the rows they name. A refill
    /// that takes longer than this is given up; the connection and other calls go on. Defaults to 1 s.
    #[must_use]
    pub fn max_age(mut self, limit: Duration) -> Self {
        self.max_age = limit;
        self
    }

    /// How long [`Ids::next`](crate::Ids::next) may wait when nothing is held. Too short, and a fail-over shows as an
    /// error; too long, and callers hang when all servers are away. Defaults to 1 s.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        let invalid = |name, found, allowed| Err(ClientError::Invalid { name, found, allowed });
        let ms = |span: Duration| span.as_millis().min(u128::from(u64::MAX)) as u64;
        if self.least == 0 {
            return invalid("prefetch least", 0, "1 or more");
        }
        if self.most < self.least {
            return invalid("prefetch most", u64::from(self.most), "the least or more");
        }
        if self.max_age < Duration::from_millis(1) || self.max_age > Duration::from_hours(1) {
            return invalid("prefetch max_age in ms", ms(self.max_age), "1 ms to an hour");
        }
        if self.wait > Duration::from_hours(1) {
            return invalid("prefetch wait in ms", ms(self.wait), "up to an hour");
        }
        Ok(())
    }
}
