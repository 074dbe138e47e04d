//! The campaign of mutants: every guard is taken out in turn, and each loss must be noticed.
//!
//! A trial is a mutant. One that histories can catch is looked for in histories of the seeds that the campaign
//! `simulation` runs, a fifth as long as those, and then in those of a theme. Of a named test of this binary the binary
//! is asked by name, as a child, so that a test which is gone or renamed is a failure. Models of loom and tests of
//! other packages are other builds: the line says where they are, and whoever runs the campaign runs those builds, too.

use std::process::Command;

use crate::testing::campaigns::{Tally, campaign};
use crate::testing::mutants::{Caught, MUTANTS, Mutant};

/// Within so many histories the loss of a guard must show.
const MOST: u64 = 5_000;

/// Of those, the first are of no theme in particular, and the rest of the one in which it is frequent.
const HALF: u64 = 2_500;

pub(crate) fn run() {
    campaign("mutants", MUTANTS.len() as u64, |n| match MUTANTS.get(n as usize) {
        Some(mutant) => hunt(mutant),
        None => Err(format!("there are {} mutants", MUTANTS.len())),
    });
}

fn hunt(mutant: &Mutant) -> Result<Tally, String> {
    let mut tally = Tally::default();
    tally.note("max_mutants", MUTANTS.len() as u64);
    let (by, after, sign) = match mutant.caught {
        Caught::History(theme, signs) => {
            let lives =
                || format!("mutant {} lives: no history of {MOST} says one of {signs:?}", mutant.name);
            let any = mutant.shows(None, signs, HALF);
            let its = || mutant.shows(Some(theme), signs, MOST - HALF).map(|(n, why)| (HALF + n, why));
            let (n, why) = any.or_else(its).ok_or_else(lives)?;
            tally.note("caught by histories", 1);
            tally.note("max_histories_needed", n + 1);
            ("simulated histories".to_owned(), n + 1, why)
        }
        Caught::Sequences(signs) => {
            let lives =
                || format!("mutant {} lives: no history of {MOST} of sequences says {signs:?}", mutant.name);
            let (n, why) = mutant.shows_in_sequences(signs, MOST).ok_or_else(lives)?;
            tally.note("caught by histories", 1);
            tally.note("max_histories_needed", n + 1);
            ("simulated histories of sequences".to_owned(), n + 1, why)
        }
        Caught::Test(path) => {
            child(path).map_err(|why| format!("mutant {} lives: {why}", mutant.name))?;
            tally.note("caught by tests", 1);
            (path.to_owned(), 0, "the test finds it".to_owned())
        }
        Caught::Model(path) => {
            tally.note("left to loom", 1);
            let by = format!("RUSTFLAGS=--cfg=loom cargo test -p xuid-engine --release --lib {path}");
            (by, 0, "see that build".to_owned())
        }
        Caught::TestOf(package, path) => {
            tally.note("left to other packages", 1);
            (format!("cargo test -p {package} {path}"), 0, "see that build".to_owned())
        }
    };
    let (name, keeps) = (mutant.name, mutant.keeps);
    println!("@mutant {name} | {keeps} {:?} | {by} | after {after} histories | {sign}", mutant.out);
    Ok(tally)
}

/// Runs one test of this binary by its name.
fn child(path: &str) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(this).args(["--exact", path]).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && text.contains("1 passed") {
        return Ok(());
    }
    Err(format!("{path} says {}", text.trim()))
}
