//! A folder with a past: lives that left land in its spill, and lives that come after the damage.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::super::Tally;
use crate::{Ledger, Order, Rng, Serve, Server, clock};

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
        let home = TempDir::new()?;
        let data = home.path().join("data");
        let mut past = Self { data, ledger: Ledger::default(), left: 0, records: Vec::new(), _home: home };
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
            for id in client.array(1 + rng.below(200) as u32, Duration::from_secs(5), order)? {
                self.ledger.add_id(id);
            }
        }
        // A stop would wait for it.
        drop(client);
        clock::idle(rng.millis(5, 40));
        self.stop(server)
    }

    /// Starts a server, or returns what it said when it refused as it should.
    pub(super) fn start(&self) -> Result<Result<Server, String>> {
        match Serve::new(&self.data)?.start() {
            Ok(server) => Ok(Ok(server)),
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(!said.contains("panicked"), "a panic: {said}");
                ensure!(said.contains("ended with Some(1)"), "neither served nor refused: {said}");
                Ok(Err(said))
            }
        }
    }

    /// Takes everything that the server found in its spill, and some fresh ids, and ends it. Returns how many of the ids
    /// that the stop before had left were not found.
    pub(super) fn serve_what_is_left(
        &mut self,
        server: Server,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<u64> {
        tally.recovered(server.born().elapsed().as_millis() as u64);
        let found = count(&server, "xuid_spill_inherited_ids")?;
        let begin = clock::now();
        loop {
            server.drain(BURST, &mut self.ledger)?;
            let spent = count(&server, "xuid_spill_replayed_ids")? + count(&server, "xuid_wasted_ids")?;
            if spent >= found {
                break;
            }
            ensure!(begin.elapsed() < SPENT, "{spent} of {found} ids were served within {SPENT:?}\n{server}");
        }
        let replayed = count(&server, "xuid_spill_replayed_ids")?;
        tally.note("replayed ids", replayed);
        let mut client = server.client()?;
        for order in Order::ALL {
            for id in client.array(100, Duration::from_secs(5), order).with_context(|| format!("{server}"))? {
                self.ledger.add_id(id);
            }
        }
        drop(client);
        let lost = self.expected(&server, tally).saturating_sub(found);
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

    /// Ids that a server should find in the spill: those of the records from the mark on. Where its log tells no mark, it
    /// opened none, and all that was left is missing.
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

#[expect(clippy::cast_sign_loss, reason = "counters are whole numbers from 0 on")]
fn count(server: &Server, name: &str) -> Result<u64> {
    Ok(server.metrics()?.sum(&[name]) as u64)
}
