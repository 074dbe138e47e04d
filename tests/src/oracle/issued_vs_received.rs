//! Both sides of one namespace over many lives: what servers logged before they sent it, and what clients got.
//!
//! # Invariants
//! - B1 no id is logged twice, over all lives of all servers;
//! - B2 no client got an id that another one got, or got before;
//! - B3 what a client got from a life that logs is in that life's own log.

use std::fmt;

use anyhow::{Result, bail};

use super::{EXAMPLES, Ledger, Received, Report, Run};

/// The two ledgers.
#[derive(Debug, Default)]
pub struct IssuedVsReceived {
    issued: Ledger,
    received: Ledger,
    unlogged: u64,
    examples: Vec<u64>,
}

impl IssuedVsReceived {
    /// Enters a life whose server logged.
    pub fn logged<'t>(&mut self, log: &[Run], of_each: impl IntoIterator<Item = &'t Received>) {
        let mut life = Ledger::default();
        for run in log {
            life.add(*run);
            self.issued.add(*run);
        }
        for received in of_each {
            self.received.add_received(received);
            for run in received.runs() {
                self.look_up(&life, *run);
            }
        }
    }

    /// Enters a life without a log: what clients got is all that is known of what it issued.
    pub fn unlogged<'t>(&mut self, of_each: impl IntoIterator<Item = &'t Received>) {
        for received in of_each {
            self.received.add_received(received);
            self.issued.add_received(received);
        }
    }

    fn look_up(&mut self, life: &Ledger, run: Run) {
        let absent = life.absent(run);
        self.unlogged += absent.len() as u64;
        let room = EXAMPLES - self.examples.len().min(EXAMPLES);
        self.examples.extend(absent.into_iter().take(room));
    }

    /// The sums.
    pub fn balance(&self) -> Balance {
        Balance {
            issued: self.issued.report(),
            received: self.received.report(),
            unlogged: self.unlogged,
            examples: self.examples.clone(),
        }
    }

    /// The sums, or an error that shows what is wrong.
    pub fn check(&self) -> Result<Balance> {
        let balance = self.balance();
        if !balance.is_clean() {
            bail!("DUPLICATES OR UNLOGGED IDS: {balance}");
        }
        Ok(balance)
    }
}

/// What [`IssuedVsReceived`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance {
    /// Of logs, and of clients where there was no log.
    pub issued: Report,
    /// Of clients.
    pub received: Report,
    /// Ids that a client got from a server whose log does not have them.
    pub unlogged: u64,
    /// Some of those.
    pub examples: Vec<u64>,
}

impl Balance {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.duplicates() == 0 && self.unlogged == 0
    }

    /// Repetitions on either side. One that was both logged and received twice counts on both.
    pub fn duplicates(&self) -> u64 {
        self.issued.duplicates + self.received.duplicates
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "issued {}; received {}; {} in no log", self.issued, self.received, self.unlogged)?;
        if !self.examples.is_empty() {
            write!(out, ", for example {:?}", self.examples)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, count: u32) -> Run {
        Run { first, count, stride: 1 }
    }

    fn received(runs: &[Run]) -> Received {
        let mut received = Received::default();
        for run in runs {
            received.push_run(*run);
        }
        received
    }

    /// A life that logged 100 ids, most of which two clients got, and one that does not log.
    fn honest() -> IssuedVsReceived {
        let mut account = IssuedVsReceived::default();
        account.logged(
            &[run(4090, 60), run(9000, 40)],
            &[received(&[run(4090, 50)]), received(&[run(9001, 39)])],
        );
        account.unlogged(&[received(&[run(20_000, 10)])]);
        account
    }

    #[test]
    fn what_was_logged_and_did_not_arrive_is_no_fault() {
        let balance = honest().check().unwrap();
        assert_eq!((balance.issued.ids, balance.received.ids), (110, 99));
    }

    #[test]
    fn a_duplicate_in_the_logs_alone_is_found() {
        let mut account = honest();
        // Nobody got it either time: 9000 is in the first life's log only.
        account.logged(&[run(9000, 1)], &[]);
        let balance = account.balance();
        assert_eq!((balance.issued.examples, balance.received.duplicates), (vec![9000], 0));
        assert!(account.check().is_err());
    }

    #[test]
    fn a_duplicate_between_a_log_and_a_client_of_a_life_without_one_is_found() {
        let mut account = honest();
        account.unlogged(&[received(&[run(9000, 1)])]);
        assert_eq!(account.balance().issued.examples, [9000]);
        assert!(account.check().is_err());
    }

    #[test]
    fn a_duplicate_among_clients_alone_is_found() {
        let mut account = honest();
        // Logged once, and two clients of that life got it.
        account.logged(&[run(30_000, 5)], &[received(&[run(30_000, 2)]), received(&[run(30_001, 1)])]);
        let balance = account.balance();
        assert_eq!((balance.issued.duplicates, balance.received.examples), (0, vec![30_001]));
        assert_eq!(balance.unlogged, 0);
        assert!(account.check().is_err());
    }

    #[test]
    fn an_id_that_no_log_of_its_life_has_is_found() {
        let mut account = honest();
        account.logged(&[run(30_000, 5)], &[received(&[run(30_003, 4)])]);
        let balance = account.balance();
        assert_eq!((balance.duplicates(), balance.unlogged), (0, 2));
        assert_eq!(balance.examples, [30_005, 30_006]);
        assert!(account.check().is_err());
        let mut account = honest();
        // Another life's log is no excuse.
        account.logged(&[run(40_000, 5)], &[received(&[run(9000, 1)])]);
        assert_eq!((account.balance().duplicates(), account.balance().unlogged), (0, 1));
    }
}
