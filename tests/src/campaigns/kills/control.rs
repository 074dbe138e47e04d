//! Controls: what the campaign is there to find is done on purpose, and must be found.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::Tally;
use super::part::{MAIN, Part};
use super::plan::{End, LIGHT, Plan, Trouble};
use super::points::Kind;
use crate::load::{HEAVY, Job};
use crate::{Rng, folder};

/// A life of the release build that is killed.
fn killed(after: u64, jobs: &'static [Job]) -> Plan {
    let end = End::Killed(Duration::from_millis(after));
    Plan { has_crash_points: false, end, jobs, has_company: false, trouble: Trouble::None }
}

#[test]
fn extents_that_are_granted_twice_because_the_registry_went_back_are_found() -> Result<()> {
    let mut part = Part::new(Kind::Local, Tally::new("control"), 0)?;
    let mut rng = Rng::new(0);
    let registry = part.place.folder(MAIN).join("registry");
    let kept = part.place.folder("kept");
    part.live(MAIN, &killed(3_000, LIGHT), &mut rng)?;
    std::fs::copy(&registry, &kept)?;
    // Issues what the idle seconds left.
    part.live(MAIN, &killed(800, HEAVY), &mut rng)?;
    part.account.check()?;
    folder::overwrite(&kept, &registry)?;
    // What the folder knew would refuse it.
    for hint in folder::files(&part.place.folder(MAIN), "registry.known-")? {
        std::fs::remove_file(hint)?;
    }
    part.live(MAIN, &killed(800, HEAVY), &mut rng)?;
    let balance = part.account.balance();
    ensure!(balance.duplicates() > 0, "{balance}");
    Ok(())
}
