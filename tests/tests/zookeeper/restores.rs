//! The whole tree deleted, or put back to what it was: nobody is served by a registry that forgot what it granted.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::zookeeper::Backup;
use xuid_tests::{Ledger, Load, Server, clock, folder};

use crate::cluster;
use crate::fixture::{
    Fixture, OUT_OF_REACH, SOON, check_load, is_long, load, wait_all_refusing, wait_refusing,
};

/// A fenced registry serves again within this.
const FENCED: Duration = Duration::from_secs(150);
/// Enough of any order to be granted what lies in a spill, and far more than lies in memory.
const MUCH: u64 = 25_000_000;

/// What every worker is reserved until is as far ahead as a fence, or a second genesis, has to be.
fn ensure_out_of_reach(fixture: &Fixture) -> Result<()> {
    let now = clock::unix_ms();
    for (worker, listed) in fixture.workers()? {
        ensure!(listed.error.is_none(), "worker {worker}: {listed:?}");
        let ahead = Duration::from_millis(listed.reserved_until_ms.saturating_sub(now));
        ensure!(ahead > OUT_OF_REACH, "worker {worker} is free in {ahead:?}");
    }
    Ok(())
}

/// Backs the ensemble up while it is stopped for a moment; servers may run.
pub(crate) fn back_up(fixture: &mut Fixture) -> Result<Backup> {
    fixture.ensemble.stop_all()?;
    let backup = fixture.ensemble.backup()?;
    fixture.ensemble.start_all()?;
    fixture.ensemble.wait_serving(SOON)?;
    Ok(backup)
}

/// Puts the ensemble back to that; servers may run.
pub(crate) fn restore(fixture: &mut Fixture, backup: &Backup) -> Result<()> {
    fixture.ensemble.kill_all()?;
    fixture.ensemble.restore(backup)?;
    fixture.ensemble.start_all()?;
    fixture.ensemble.wait_serving(SOON)?;
    Ok(())
}

/// With two minutes to spare, waits until these serve again, and takes ids of all of them.
fn serve_again(servers: &[&Server], ledger: &mut Ledger) -> Result<()> {
    if !is_long() {
        return Ok(());
    }
    for server in servers {
        server.wait_ready_fresh(FENCED)?;
    }
    for server in servers {
        server.drain(MUCH, ledger)?;
    }
    println!("serves again: {}", ledger.check()?);
    Ok(())
}

fn finish(loads: Vec<Load>, ledger: &mut Ledger) -> Result<()> {
    let results = cluster::finish(loads, ledger)?;
    check_load(&results)?;
    ledger.check()?;
    Ok(())
}

#[test]
fn a_deleted_tree_serves_nobody_and_what_is_made_in_its_place_is_another_cluster() -> Result<()> {
    let fixture = Fixture::start()?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    let loads = vec![load(&first)?, load(&second)?];
    let delete = || {
        let gone =
            || Ok(fixture.tamper.delete_tree("/xuid").is_ok() && fixture.tamper.read("/xuid")?.is_none());
        clock::wait_until("the tree is deleted", SOON, gone)
    };
    delete()?;
    wait_all_refusing(&[&first, &second], &["there is no registry at", "xuid registry init", "restore it"])?;
    let said = Fixture::refused(fixture.serve("fresh")?)?;
    ensure!(said.contains("there is no registry at") && said.contains("xuid registry init"), "{said}");
    // At once: what the old servers hold might still be in use.
    let said = fixture.init(&[])?;
    println!("made again: {}", said.lines().last().unwrap_or_default());
    ensure!(said.contains("before") && said.contains("--floor now"), "{said}");
    ensure_out_of_reach(&fixture)?;
    wait_all_refusing(&[&first, &second], &["is cluster", "and was", "data folder"])?;
    let fresh = fixture.serve("fresh")?.start()?;
    wait_refusing(&fresh, &["no worker is free before"])?;
    let mut ledger = Ledger::default();
    finish(loads, &mut ledger)?;
    first.stop()?;
    let said = Fixture::refused(fixture.serve("first")?)?;
    ensure!(said.contains("cluster") && said.contains("first"), "{said}");
    serve_again(&[&fresh], &mut ledger)?;
    fresh.stop()?;
    // All windows of both have ended, so that the assertion is true.
    second.stop()?;
    delete()?;
    fixture.init(&["--floor", "now"])?;
    let third = fixture.server("third")?;
    third.drain(MUCH, &mut ledger)?;
    println!("made a third time: {}", ledger.check()?);
    Ok(())
}

#[test]
fn an_ensemble_restored_under_running_servers_serves_nobody_until_it_is_fenced() -> Result<()> {
    let mut fixture = Fixture::start()?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    let mut ledger = Ledger::default();
    let loads = vec![load(&first)?, load(&second)?];
    // Some land lies in both spills when the copy is made, and is issued after it.
    clock::idle(Duration::from_secs(4));
    let backup = back_up(&mut fixture)?;
    for server in [&first, &second] {
        server.wait_ready(SOON)?;
        server.drain(MUCH, &mut ledger)?;
    }
    let replayed = first.replayed()? + second.replayed()?;
    println!("restored, running: {replayed} replayed before");
    ensure!(replayed > 1e6, "nothing was replayed: the attack hits nothing");
    restore(&mut fixture, &backup)?;
    wait_all_refusing(&[&first, &second], &["restored from a backup", "xuid registry fence"])?;
    ensure!(!fixture.is_open()?, "nobody closed the registry");
    ensure!(fixture.show()?.contains("it is closed"), "{}", fixture.show()?);
    let said = Fixture::refused(fixture.serve("fresh")?)?;
    ensure!(said.contains("xuid registry fence"), "{said}");
    finish(loads, &mut ledger)?;
    second.stop()?;
    let said = Fixture::refused(fixture.serve("second")?)?;
    ensure!(said.contains("xuid registry fence"), "{said}");
    fixture.fence()?;
    ensure!(fixture.is_open()?);
    ensure_out_of_reach(&fixture)?;
    // One that ran all the time, one that begins anew with what it had, and one that is new.
    let (second, fresh) = (fixture.serve("second")?.start()?, fixture.serve("fresh")?.start()?);
    wait_all_refusing(&[&first, &second, &fresh], &["no worker is free before"])?;
    let aside = folder::files(&fixture.folder("second"), "spill-")?;
    ensure!(aside.iter().any(|path| path.to_string_lossy().contains(".refused")), "{aside:?}");
    serve_again(&[&first, &second, &fresh], &mut ledger)?;
    println!("restored, running: {}", ledger.check()?);
    Ok(())
}

#[test]
fn an_ensemble_restored_to_before_a_fence_is_not_taken_for_a_fenced_one() -> Result<()> {
    let mut fixture = Fixture::start()?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    let backup = back_up(&mut fixture)?;
    let loads = vec![load(&first)?, load(&second)?];
    fixture.fence()?;
    // They know of the fence now.
    wait_all_refusing(&[&first, &second], &["no worker is free before"])?;
    restore(&mut fixture, &backup)?;
    wait_all_refusing(&[&first, &second], &["restored from a backup", "xuid registry fence"])?;
    ensure!(!fixture.is_open()?, "nobody closed the registry");
    let said = Fixture::refused(fixture.serve("fresh")?)?;
    ensure!(said.contains("xuid registry fence"), "{said}");
    // The ensemble counts from the backup's changes on, and its clock tells this fence from the ended era.
    fixture.fence()?;
    ensure_out_of_reach(&fixture)?;
    wait_all_refusing(&[&first, &second], &["no worker is free before"])?;
    let mut ledger = Ledger::default();
    finish(loads, &mut ledger)?;
    serve_again(&[&first, &second], &mut ledger)?;
    println!("restored to before a fence: {}", ledger.check()?);
    Ok(())
}

/// Init, backup, a fence by an ensemble whose clock is a day ahead, restore, the clock right, a fence.
#[test]
fn a_fence_that_was_made_while_the_ensemble_s_clock_was_fast_is_put_right_by_one_more() -> Result<()> {
    let mut fixture = Fixture::without_registry()?;
    fixture.ensemble.with_clock()?;
    fixture.ensemble.stop_all()?;
    fixture.ensemble.start_all()?;
    fixture.ensemble.wait_serving(SOON)?;
    let shift =
        |fixture: &Fixture, by_ms| fixture.ensemble.clock().context("no clock")?.shift(by_ms).map(drop);
    fixture.init(&[])?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    let loads = vec![load(&first)?];
    let backup = back_up(&mut fixture)?;
    shift(&fixture, 86_400_000)?;
    let fenced = fixture.registry("fence")?.arg("--yes").run()?;
    fenced.ok()?;
    ensure!(fenced.stderr.contains("the clock of the ensemble says"), "{}", fenced.stderr);
    wait_all_refusing(&[&first, &second], &["no worker is free before"])?;
    second.stop()?;
    fixture.ensemble.kill_all()?;
    shift(&fixture, 0)?;
    restore(&mut fixture, &backup)?;
    wait_refusing(&first, &["restored from a backup", "xuid registry fence"])?;
    ensure!(!fixture.is_open()?, "nobody closed the registry");
    fixture.fence()?;
    // One that ran all the time, and one that knows the fast fence from its folder only.
    let second = fixture.serve("second")?.start()?;
    wait_all_refusing(&[&first, &second], &["no worker is free before"])?;
    ensure!(fixture.is_open()?, "the fence was undone");
    ensure_out_of_reach(&fixture)?;
    let mut ledger = Ledger::default();
    finish(loads, &mut ledger)?;
    serve_again(&[&first, &second], &mut ledger)?;
    println!("fenced by a fast clock: {}", ledger.check()?);
    Ok(())
}

/// What was changed while the clock was right shows that it is behind now.
#[test]
fn a_clock_of_the_ensemble_that_is_wrong_is_told_by_init_and_before_a_fence() -> Result<()> {
    let mut fixture = Fixture::without_registry()?;
    fixture.ensemble.with_clock()?;
    let set = |fixture: &mut Fixture, by_ms| {
        fixture.ensemble.stop_all()?;
        fixture.ensemble.clock().context("no clock")?.shift(by_ms).map(drop)?;
        fixture.ensemble.start_all()?;
        fixture.ensemble.wait_serving(SOON).map(drop)
    };
    set(&mut fixture, 3_600_000)?;
    let made = fixture.registry("init")?.arg("--workers").arg("8").run()?;
    ensure!(made.ok().is_ok() && made.stderr.contains("the clock of the ensemble says"), "{}", made.stderr);
    ensure!(made.stderr.contains("xuid registry fence"), "{}", made.stderr);
    set(&mut fixture, 0)?;
    // Without an answer nothing is done, and the clock was told.
    let asked = fixture.registry("fence")?.run()?;
    ensure!(asked.ok().is_err() && asked.stderr.contains("It says 20"), "{}", asked.stderr);
    let fenced = fixture.registry("fence")?.arg("--yes").run()?;
    let told = "later than the clock of the ensemble says";
    ensure!(fenced.ok().is_ok() && fenced.stderr.contains(told), "{}", fenced.stderr);
    ensure!(!fenced.stderr.contains("and that of this host"), "{}", fenced.stderr);
    Ok(())
}

/// CRC-32C, bit by bit: an implementation of its own.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| crc >> 1 ^ 0x82f6_3b78 & (crc & 1).wrapping_neg();
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

/// What stands in a node's folder of the past may be damaged, or of another time: it stops that node, and no other.
#[test]
fn what_one_folder_remembers_of_the_registry_stops_nobody_else() -> Result<()> {
    let fixture = Fixture::start()?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    first.stop()?;
    let memory = folder::files(&fixture.folder("first"), "registry.zookeeper-")?;
    let [path] = &memory[..] else { anyhow::bail!("{memory:?}") };
    let text = fs::read_to_string(path)?;
    let (checksum, json) = text.split_once('\n').context("no line of its own for the checksum")?;
    ensure!(u32::from_str_radix(checksum, 16)? == crc32c(json.as_bytes()), "{text}");
    // A version that the ensemble does not have yet: first with the old checksum, then with a right one.
    let at = json.rfind("\"version\":").context("no version of a node")? + 10;
    let lying = format!("{}9{}", &json[..at], &json[at..]);
    fs::write(path, format!("{checksum}\n{lying}"))?;
    let first = fixture.server("first")?;
    first.stop()?;
    fs::write(path, format!("{:08x}\n{lying}", crc32c(lying.as_bytes())))?;
    let said = Fixture::refused(fixture.serve("first")?)?;
    ensure!(said.contains("restored from a backup") && said.contains("registry.zookeeper-"), "{said}");
    ensure!(fixture.is_open()?, "one folder closed the registry");
    let third = fixture.server("third")?;
    let mut ledger = Ledger::default();
    for server in [&second, &third] {
        server.drain(1_000, &mut ledger)?;
    }
    // As the refusal says.
    fs::remove_file(path)?;
    fixture.server("first")?.drain(1_000, &mut ledger)?;
    println!("a folder that lies: {}", ledger.check()?);
    Ok(())
}

/// A server that issues what it left in its spill, while the ensemble is put back to before that.
fn restored_while_stopped(with_memory: bool) -> Result<(Fixture, Ledger)> {
    let mut fixture = Fixture::start()?;
    let mut ledger = Ledger::default();
    let server = fixture.server("data")?;
    server.drain(1_000, &mut ledger)?;
    clock::idle(Duration::from_secs(5));
    server.stop()?;
    let backup = back_up(&mut fixture)?;
    let server = fixture.server("data")?;
    server.drain(MUCH, &mut ledger)?;
    let replayed = server.replayed()?;
    println!("restored, stopped: {replayed} replayed before");
    ensure!(replayed > 1e6, "nothing was replayed: the attack hits nothing");
    server.kill()?;
    restore(&mut fixture, &backup)?;
    if !with_memory {
        for path in folder::files(&fixture.folder("data"), "registry.zookeeper-")? {
            fs::remove_file(path)?;
        }
    }
    Ok((fixture, ledger))
}

#[test]
fn an_ensemble_restored_while_everybody_was_stopped_is_known_by_what_a_folder_remembers() -> Result<()> {
    let (fixture, mut ledger) = restored_while_stopped(true)?;
    let said = Fixture::refused(fixture.serve("data")?)?;
    ensure!(said.contains("restored from a backup") && said.contains("xuid registry fence"), "{said}");
    // It saw nothing itself: others may know better.
    ensure!(fixture.is_open()?, "a folder's memory closed the registry for everybody");
    // Asking again changes nothing.
    Fixture::refused(fixture.serve("data")?)?;
    fixture.fence()?;
    ensure_out_of_reach(&fixture)?;
    let server = fixture.serve("data")?.start()?;
    wait_refusing(&server, &["no worker is free before"])?;
    serve_again(&[&server], &mut ledger)?;
    println!("restored, stopped: {}", ledger.check()?);
    Ok(())
}

/// The control of the test before: what it attacks with does repeat ids where nothing remembers.
#[test]
fn a_restore_that_nothing_remembers_repeats_ids() -> Result<()> {
    let (fixture, mut ledger) = restored_while_stopped(false)?;
    ledger.check()?;
    let server = fixture.server("data")?;
    server.drain(MUCH, &mut ledger)?;
    let duplicates = ledger.report().duplicates;
    println!("restored, forgotten: {duplicates} duplicates");
    ensure!(duplicates > 1_000_000, "this attack repeats nothing, so its tests prove nothing");
    Ok(())
}

#[test]
fn a_tree_put_back_by_hand_serves_nobody_until_it_is_fenced() -> Result<()> {
    let fixture = Fixture::start()?;
    // The worst copy: nothing was granted yet, so that every version in it fits the nodes that are made anew.
    let copy = fixture.tamper.dump("/xuid")?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    let loads = vec![load(&first)?, load(&second)?];
    let gone = || Ok(fixture.tamper.delete_tree("/xuid").is_ok() && fixture.tamper.read("/xuid")?.is_none());
    clock::wait_until("the tree is deleted", SOON, gone)?;
    fixture.tamper.write_back(&copy)?;
    let said = Fixture::refused(fixture.serve("fresh")?)?;
    ensure!(said.contains("made again") && said.contains("xuid registry fence"), "{said}");
    wait_all_refusing(&[&first, &second], &["xuid registry fence"])?;
    let show = fixture.show()?;
    ensure!(show.contains("made again"), "{show}");
    let mut ledger = Ledger::default();
    finish(loads, &mut ledger).context("before the fence")?;
    fixture.fence()?;
    ensure_out_of_reach(&fixture)?;
    wait_all_refusing(&[&first, &second], &["no worker is free before"])?;
    serve_again(&[&first, &second], &mut ledger)
}

#[test]
fn a_fence_that_nobody_needed_costs_two_minutes_and_no_id_comes_twice() -> Result<()> {
    let fixture = Fixture::start()?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    let loads = vec![load(&first)?, load(&second)?];
    clock::idle(Duration::from_secs(3));
    let said = fixture.fence()?;
    ensure!(said.contains("2 spills given up"), "{said}");
    let begin = clock::now();
    wait_all_refusing(&[&first, &second], &["no worker is free before"])?;
    println!("fenced under load: all windows were used up after {:?}", begin.elapsed());
    ensure_out_of_reach(&fixture)?;
    let third = fixture.serve("third")?.start()?;
    wait_refusing(&third, &["no worker is free before"])?;
    let mut ledger = Ledger::default();
    finish(loads, &mut ledger)?;
    serve_again(&[&first, &second, &third], &mut ledger)?;
    println!("fenced under load: {}", ledger.check()?);
    Ok(())
}
