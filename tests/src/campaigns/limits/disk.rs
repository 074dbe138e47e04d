//! A disk that is too small, or gets full while a server runs on it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::super::Tally;
use super::life;
use crate::folder::Mount;
use crate::{Ledger, Rng, Serve, clock};

/// A registry has 1.3 MB, a spill 16.8 MB: sizes around both.
const MOST_KIB: u64 = 40 * 1024;
/// Trials for which this user may not mount a disk.
pub(super) const NOT_TRIED: &str = "scenes full disk not tried";
const WORDS: &[&str] = &["No space", "os error 28"];

/// Lives on a disk of a random size that is filled at a random moment, then one with room.
pub(super) fn trial(home: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let place = home.join("disk");
    // Every other disk is one that a registry hardly fits into.
    let most = if rng.below(2) == 0 { 2 * 1024 } else { MOST_KIB };
    let kib = 16 + rng.below(most);
    let Some(mount) = Mount::tmpfs(&place, &format!("{kib}k"))? else {
        tally.note(NOT_TRIED, 1);
        return Ok(());
    };
    let (data, ballast) = (mount.dir().join("data"), mount.dir().join("ballast"));
    for _ in 0..2 + rng.below(2) {
        let full_first = rng.below(3) == 0;
        if full_first {
            mount.fill("ballast")?;
        }
        match life::start_short(Serve::new(&data)?, WORDS)? {
            None => tally.note("starts refused", 1),
            Some(server) => {
                life::load(&server, rng.millis(5, 300), ledger, tally)?;
                mount.fill("ballast")?;
                // Now and then a second idles away, so that land is appended to a spill on the full disk.
                clock::idle(if rng.below(3) == 0 { rng.millis(1_000, 2_500) } else { Duration::ZERO });
                life::load(&server, rng.millis(5, 300), ledger, tally)?;
                life::end(server, rng)?;
            }
        }
        if ballast.exists() && rng.below(2) == 0 {
            fs::remove_file(&ballast)?;
        }
    }
    // Room is made by a larger disk in the same place: the folder stays what it is.
    mount.resize("64m")?;
    if ballast.exists() {
        fs::remove_file(&ballast)?;
    }
    life::enough(&data, rng, ledger, tally)
}
