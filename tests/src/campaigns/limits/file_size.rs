//! Files may not be longer than so much (`RLIMIT_FSIZE`).

use std::path::Path;

use anyhow::Result;

use super::super::Tally;
use super::life;
use crate::{Ledger, Rng};

const WORDS: &[&str] = &["File too large", "os error 27"];
/// A registry has 1.3 MB, a spill 16.8 MB, and a log some thousand bytes.
const AROUND: [(u64, u64); 4] =
    [(0, 4_096), (4_096, 1_320_000), (1_320_000, 16_777_000), (16_770_000, 16_780_000)];

/// A life whose files may not grow so far, on a folder that is new or not, then one with enough.
pub(super) fn trial(home: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let data = home.join("data");
    if rng.below(2) == 0 {
        life::enough(&data, rng, ledger, tally)?;
    }
    let (from, to) = AROUND[rng.below(AROUND.len() as u64) as usize];
    let limit = from + rng.below(to - from);
    // The log is a file as well: where it is cut off, the reason is.
    let words = if limit < 64 * 1024 { &[] } else { WORDS };
    match life::start_short(life::limited(&data, "fsize", limit)?, words)? {
        None => tally.note("starts refused", 1),
        Some(server) => {
            life::load(&server, rng.millis(20, 500), ledger, tally)?;
            life::end(server, rng)?;
        }
    }
    life::enough(&data, rng, ledger, tally)
}
