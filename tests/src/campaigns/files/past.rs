//! A folder with a past: lives that left land in its spill, and lives that come after the damage.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::super::Tally;
use crate::http::Metrics;
use crate::{Ledger, Order, Rng, Serve, Server, clock, folder};

/// What is left of a spill is served within this, a burst that spends it; some 10 to 100 ms when nothing else runs.
const SPENT: Duration = Duration::from_secs(10);
const BURST: u64 = 100_000;

/// The folder, what was issued on it, and what its spill holds.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) data: PathBuf,
    pub(super) ledger: Ledger,
    /// Ids that the last clean stop left in the spill.
    pub(super) left: u64,
    /// Index and ids of each record of the spill at that stop, as the specification of the file says it.
    records: Vec<(u64, u64)>,
    _home: TempDir,
}

impl Past {
    /// Two lives that were stopped, and sometimes one that was killed between them.
    pub(super) fn live(rng: &mut Rng) -> Result<Self> {
        let (home, data, ledger) = folder::fresh()?;
        let mut past = Self { data, ledger, left: 0, records: Vec::new(), _home: home };
        past.a_life(rng)?;
        if rng.below(4) == 0 {
            let server = Server::start(&past.data)?;
            server.drain(20_000, &mut past.ledger)?;
            server.kill()?;
        }
        past.a_life(rng)?;
        ensure!(past.left > 0, "a clean stop leaves land in the spill");
        Ok(past)
    }

    fn a_life(&mut self, rng: &mut Rng) -> Result<()> {
        let server = Server::start(&self.data)?;
        let mut client = server.client()?;
        for order in Order::ALL {
            self.ledger.extend(client.array(1 + rng.below(200) as u32, Duration::from_secs(5), order)?);
        }
        // A stop would wait for it.
        drop(client);
        clock::idle(rng.millis(5, 40));
        self.stop(server)
    }

    /// Starts a server, or returns what it said when it refused as it should.
    pub(super) fn start(&self) -> Result<Result<Server, String>> {
        Serve::new(&self.data)?.start_or_refuse()
    }

    /// Takes everything that the server found in its spill, and some fresh ids, and ends it. Returns how many of the
    /// ids that the stop before had left were not found.
    pub(super) fn serve_what_is_left(
        &mut self,
        server: Server,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<u64> {
        tally.recovered(server.born().elapsed().as_millis() as u64);
        let found = whole(&server.metrics()?, &["xuid_spill_inherited_ids"]);
        let begin = clock::now();
        let spent = loop {
            server.drain(BURST, &mut self.ledger)?;
            let spent = Spent::on(&server.metrics()?);
            if spent.is_all_of(found) {
                break spent;
            }
            ensure!(begin.elapsed() < SPENT, "{spent:?} of {found} ids within {SPENT:?}\n{server}");
        };
        tally.note("replayed ids", spent.replayed);
        let mut client = server.client()?;
        for order in Order::ALL {
            let ids = client.array(100, Duration::from_secs(5), order);
            self.ledger.extend(ids.with_context(|| format!("{server}"))?);
        }
        drop(client);
        let lost = spent.lost_of(self.expected(&server, tally), found);
        if rng.below(3) == 0 {
            server.kill()?;
            self.left = 0;
            self.records.clear();
        } else {
            self.stop(server)?;
        }
        Ok(lost)
    }

    /// A clean stop, which tells what it leaves.
    fn stop(&mut self, server: Server) -> Result<()> {
        let log = server.stop()?;
        ensure!(!log.contains("panicked"), "{log}");
        let left =
            log.split_once("left_for_the_next_start=").with_context(|| format!("no word of it:\n{log}"))?;
        let digits: String = left.1.chars().take_while(char::is_ascii_digit).collect();
        self.left = digits.parse()?;
        self.records = records(&fs::read(self.data.join("spill-0"))?);
        Ok(())
    }

    /// Ids that a server should find in the spill: those of the records from the mark on. Where its log tells no mark,
    /// it opened none, and all that was left is missing.
    ///
    /// A grant that is under way at a clean stop moves the mark after the stop has counted what it leaves: such ids are
    /// lost by the stop and not by the damage, and are noted.
    fn expected(&self, server: &Server, tally: &mut Tally) -> u64 {
        let log = server.log();
        let mark = log.split_once("spill opened").and_then(|(_, rest)| rest.split_once(" mark="));
        let mark = mark.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
        let Some(mark) = mark else { return self.left };
        let from_mark: u64 =
            self.records.iter().filter(|(index, _)| *index >= mark).map(|(_, ids)| ids).sum();
        tally.note("ids of grants under way at a stop", self.left.saturating_sub(from_mark));
        from_mark
    }
}

/// The records of a spill file: 32 bytes each from 8,192 on, ids a tick at offset 8, ticks at 12, the index at 16.
fn records(file: &[u8]) -> Vec<(u64, u64)> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let slots = file.get(8_192..).unwrap_or_default().chunks_exact(32);
    let used = slots.filter(|slot| slot.iter().any(|byte| *byte != 0));
    used.map(|slot| (number(&slot[16..24]), number(&slot[8..12]) * number(&slot[12..16]))).collect()
}

/// Where the ids went that a server found in its spill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spent {
    /// Granted, whether they could be read or not.
    replayed: u64,
    /// Of these, those that could not.
    unread: u64,
    /// Overwritten before they could be granted. Other waste is of ids that left the spill, or were never in it.
    wasted: u64,
}

impl Spent {
    fn on(page: &Metrics) -> Self {
        let cause = |name: &str| whole(page, &["xuid_wasted_ids", name]);
        Self {
            replayed: whole(page, &["xuid_spill_replayed_ids"]),
            unread: cause("\"grant\""),
            wasted: cause("\"spill\""),
        }
    }

    /// Whether nothing of it is in the spill any more: what was found is granted first.
    fn is_all_of(self, found: u64) -> bool {
        self.replayed + self.wasted >= found
    }

    /// Of the ids that should have been found, those that were not, or were and did not come back out.
    fn lost_of(self, expected: u64, found: u64) -> u64 {
        expected.saturating_sub(found.min(self.replayed.saturating_sub(self.unread)))
    }
}

#[expect(clippy::cast_sign_loss, reason = "counters are whole numbers from 0 on")]
fn whole(page: &Metrics, words: &[&str]) -> u64 {
    page.sum(words) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(replayed: u64, spill: u64, thread: u64) -> Spent {
        spent_of(replayed, 0, spill, thread)
    }

    fn spent_of(replayed: u64, grant: u64, spill: u64, thread: u64) -> Spent {
        Spent::on(&Metrics::parse(&format!(
            "xuid_spill_replayed_ids_total {replayed}\n\
             xuid_wasted_ids_total{{cause=\"thread\"}} {thread}\n\
             xuid_wasted_ids_total{{cause=\"trimmed\"}} 7\n\
             xuid_wasted_ids_total{{cause=\"spill\"}} {spill}\n\
             xuid_wasted_ids_total{{cause=\"grant\"}} {grant}\n"
        )))
    }

    #[test]
    fn waste_of_threads_does_not_stand_for_ids_that_are_still_in_the_spill() {
        assert!(!spent(600, 0, 5_000).is_all_of(1_000));
        assert!(spent(1_000, 0, 0).is_all_of(1_000));
        assert!(spent(600, 400, 0).is_all_of(1_000));
        assert!(!spent_of(600, 400, 0, 0).is_all_of(1_000));
    }

    #[test]
    fn what_was_found_and_never_came_back_out_is_lost() {
        assert_eq!(spent(1_000, 0, 9).lost_of(1_000, 1_000), 0);
        assert_eq!(spent(600, 400, 9).lost_of(1_000, 1_000), 400);
        assert_eq!(spent(900, 0, 9).lost_of(1_000, 900), 100);
        assert_eq!(spent_of(1_000, 400, 0, 9).lost_of(1_000, 1_000), 400);
        // What this life itself spilled comes back, too.
        assert_eq!(spent(3_000, 0, 9).lost_of(1_000, 900), 100);
    }
}
