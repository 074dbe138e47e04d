//! Bytes of the registry turn bad: one copy of a record, both copies, anything anywhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Ledger, Order, Rng, Serve, Xuid, folder};

/// Both copies of every record begin at multiples of this.
const SECTOR: u64 = 512;

/// The largest file of the registry: the one with the records.
fn records(data: &Path) -> Result<PathBuf> {
    let mut files = folder::files(data, "registry")?;
    if files.is_empty() {
        files = folder::files(&data.join("registry"), "")?;
    }
    files.sort_by_key(|path| fs::metadata(path).map_or(0, |meta| meta.len()));
    files.pop().context("no registry file")
}

/// Starts, takes some ids by each way, dies. Says whether it served; a refusal must be an orderly one.
fn live(data: &Path, ledger: &mut Ledger) -> Result<bool> {
    let Ok(server) = Serve::new(data)?.start_or_refuse()? else { return Ok(false) };
    let mut client = server.client()?;
    for order in Order::ALL {
        ledger.extend(client.array(300, Duration::from_secs(5), order)?);
    }
    ledger.extend(client.runs(20_000, Duration::from_secs(5), Order::Any)?);
    server.kill()?;
    ledger.check()?;
    Ok(true)
}

/// Sectors that hold something, and a few of the others.
fn sectors(file: &Path, rng: &mut Rng, empty: usize) -> Result<Vec<u64>> {
    let bytes = fs::read(file)?;
    let all = bytes.len() as u64 / SECTOR;
    let used = |sector: &u64| {
        let begin = (sector * SECTOR) as usize;
        bytes[begin..begin + SECTOR as usize].iter().any(|byte| *byte != 0)
    };
    // All workers have a record from genesis on: take the first of the file and a random choice of the rest.
    let mut chosen: BTreeSet<u64> = (0..all).filter(used).take(6).collect();
    for _ in 0..empty {
        chosen.insert(rng.below(all));
    }
    Ok(chosen.into_iter().collect())
}

#[test]
fn any_damaged_sector_of_the_registry_is_survived_or_refused_and_repeats_nothing() -> Result<()> {
    let mut rng = Rng::from_env("registry damage");
    let (_home, data, mut ledger) = folder::fresh()?;
    ensure!(live(&data, &mut ledger)?);
    let file = records(&data)?;
    let (mut served, mut refused) = (0, 0);
    for sector in sectors(&file, &mut rng, 30)? {
        let offset = sector * SECTOR + rng.below(64);
        folder::flip(&file, offset, 8)?;
        let lives = live(&data, &mut ledger).with_context(|| format!("sector {sector} damaged"))?;
        served += u32::from(lives);
        if !lives {
            // Taking the damage back is no restore of an older state: nothing ran in between.
            refused += 1;
            folder::flip(&file, offset, 8)?;
        }
        ensure!(live(&data, &mut ledger)?, "it does not serve after sector {sector} was damaged");
    }
    println!("registry damage: {served} sectors survived, {refused} refused, {}", ledger.check()?);
    ensure!(served > 0, "every damage was refused: two copies are of no use");
    Ok(())
}

#[test]
fn a_worker_with_both_copies_damaged_is_unusable_and_the_rest_goes_on() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    ensure!(live(&data, &mut ledger)?);
    let worker = *ledger.report().workers.first().context("one worker")?;
    let file = records(&data)?;
    // The record's two copies are the sectors that change when the worker is used once more.
    let before = fs::read(&file)?;
    ensure!(live(&data, &mut ledger)?);
    let after = fs::read(&file)?;
    ensure!(before.len() == after.len(), "everything is laid out at genesis");
    let changed: BTreeSet<u64> =
        (0..after.len()).filter(|at| before[*at] != after[*at]).map(|at| at as u64 / SECTOR).collect();
    println!("registry damage: sectors {changed:?} changed with worker {worker}");
    ensure!(!changed.is_empty());
    for sector in &changed {
        folder::flip(&file, sector * SECTOR, SECTOR as usize)?;
    }
    let used: BTreeSet<u64> = ledger.report().workers.into_iter().collect();
    let mut later = Ledger::default();
    ensure!(live(&data, &mut later)?, "the other workers are as good as before");
    println!("registry damage: {used:?} before, {:?} afterwards", later.report().workers);
    ensure!(
        later.report().workers.iter().all(|worker| !used.contains(worker)),
        "a lost record was made again"
    );
    ledger.merge(&later);
    ledger.check()?;
    let shown = Xuid::new(["workers"])?.arg("--data-dir").arg(&data).run()?;
    println!("registry damage: {}", shown.ok()?.lines().take(4).collect::<Vec<_>>().join(" | "));
    let said = Xuid::new(["inspect"])?.arg(&data).run()?.refused(1)?;
    ensure!(said.contains("is unreadable") && said.contains("not all of it"), "{said}");
    Ok(())
}

#[test]
fn a_truncated_or_empty_registry_is_refused_and_never_made_again() -> Result<()> {
    for keep in [0, 100, 512, 4096, 100_000] {
        let (_home, data, mut ledger) = folder::fresh()?;
        ensure!(live(&data, &mut ledger)?);
        let file = records(&data)?;
        folder::shorten(&file, keep)?;
        if let Ok(server) = Serve::new(&data)?.start_or_refuse()? {
            // A part that is missing makes only its own records unusable; what is left must repeat nothing.
            ledger.extend(server.client()?.runs(20_000, Duration::from_secs(5), Order::Any)?);
            ensure!(keep > 0, "an empty registry was served\n{server}");
        }
        ledger.check()?;
    }
    Ok(())
}

#[test]
fn a_folder_that_lost_its_registry_is_not_begun_again() -> Result<()> {
    let (home, data, mut ledger) = folder::fresh()?;
    ensure!(live(&data, &mut ledger)?);
    let file = records(&data)?;
    fs::rename(&file, home.path().join("lost"))?;
    let said = Serve::new(&data)?.run_to_exit()?.refused(1)?;
    println!("registry damage: lost registry: {}", said.lines().last().unwrap_or_default());
    ensure!(!file.exists(), "it began another registry beside the node that remembers the first");
    fs::rename(home.path().join("lost"), &file)?;
    ensure!(live(&data, &mut ledger)?, "the file is back where it was, and no copy");
    Ok(())
}
