//! When what failed is tried again: after 0.2, 0.4, 0.8 s, then each second, with jitter, so that the processes of a
//! cluster do not come back at once.

use crate::clock::SECOND;

const FIRST: u64 = SECOND / 5;

/// One thing that may have failed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Retry {
    /// Boot time.
    pub(crate) at: u64,
    failures: u32,
}

impl Retry {
    /// It failed. `jitter` is any number.
    pub(crate) fn failed(&mut self, boot: u64, jitter: u64) {
        let wait = (FIRST << self.failures.min(8)).min(SECOND);
        self.at = boot + wait - jitter % (wait / 10);
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_and_begin_anew() {
        let mut retry = Retry::default();
        for ms in [200, 400, 800, 1_000, 1_000] {
            retry.failed(7, 0);
            assert_eq!(retry.at, 7 + ms * 1_000_000);
        }
        retry.failed(0, u64::MAX);
        assert!((SECOND * 9 / 10..SECOND).contains(&retry.at), "{}", retry.at);
        assert!(retry.has_failed());
        retry.succeeded();
        assert!(!retry.has_failed() && retry.at == 0);
    }
}
