//! Several servers on one folder, which come and go under load.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::Tally;
use super::super::trials::caught;
use super::life;
use crate::{Ledger, Load, Rng, Server, clock};

/// Two to four at a time, and as many lives each.
const MOST: u64 = 3;
const LIVES: u64 = 3;

/// All of them at once, each with a few lives, then one alone.
pub(super) fn trial(home: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let data = home.join("data");
    let servers = 2 + rng.below(MOST);
    let lanes: Vec<Rng> = (0..servers).map(|_| Rng::new(rng.word())).collect();
    // The first starts of all of them meet on an empty folder.
    let results = std::thread::scope(|scope| {
        let lanes: Vec<_> = lanes.into_iter().map(|rng| scope.spawn(|| lane(&data, rng))).collect();
        lanes.into_iter().map(|lane| lane.join().map_err(std::panic::resume_unwind)).collect::<Vec<_>>()
    });
    // All that any of them received, before the first of them that failed is told.
    let mut played = Ok(());
    for lane in results {
        let Ok((mine, refused, lived)) = lane;
        ledger.merge(&mine);
        *tally += &refused;
        played = played.and(lived);
    }
    played?;
    tally.note("lives beside others", servers * LIVES);
    life::enough(&data, rng, ledger, tally)
}

/// One server's lives: what they issued and refused, and how they went.
fn lane(data: &Path, mut rng: Rng) -> (Ledger, Tally, Result<()>) {
    let (mut ledger, mut tally) = (Ledger::default(), Tally::default());
    let lived = caught(|| lives(data, &mut rng, &mut ledger, &mut tally));
    (ledger, tally, lived)
}

fn lives(data: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    for life in 0..LIVES {
        let server = Server::start(data).with_context(|| format!("life {life} beside others"))?;
        let load = Load::start(server.addr, &life::JOBS);
        clock::idle(rng.millis(20, 400));
        // Under load: what is on its way at that moment is lost, and nobody's.
        let ended = life::end(server, rng);
        for result in load.enter(ledger)? {
            life::refused(&result, tally);
        }
        ended?;
        clock::idle(if rng.below(3) == 0 { rng.millis(0, 50) } else { Duration::ZERO });
    }
    Ok(())
}
