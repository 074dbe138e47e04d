//! Single nodes and sessions taken away under running servers: what is only a hint costs nothing, and a record that
//! cannot be believed costs its worker.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::proxy::{Proxy, Way};
use xuid_tests::{Ledger, Load, LoadResults, Server, clock};

use crate::cluster;
use crate::fixture::{Fixture, SOON, WINDOW_MAX, check_load, load, sum, wait_other_worker, worker};

/// Enough of any order to be granted all that lies in a spill of some seconds.
const MUCH: u64 = 25_000_000;

/// Ends the loads and says what they met; no id came twice.
fn finish(test: &str, loads: Vec<Load>) -> Result<Vec<LoadResults>> {
    let mut ledger = Ledger::default();
    let results = cluster::finish(loads, &mut ledger)?;
    let refusals: u64 = results.iter().map(|result| result.refusals).sum();
    println!("{test}: {}, {refusals} refusals", ledger.check()?);
    check_load(&results)?;
    Ok(results)
}

/// Waits until a server has renewed its window three times more.
fn wait_renewals(server: &Server) -> Result<()> {
    let reserved = || sum(server, &["xuid_windows_reserved_total"]);
    let before = reserved()?;
    clock::wait_until("three renewals", SOON, || Ok(reserved()? > before + 2.5))?;
    Ok(())
}

#[test]
fn a_session_that_ends_while_the_server_lives_is_followed_by_another_that_announces_it_again() -> Result<()> {
    let fixture = Fixture::start()?;
    let proxy = Proxy::start(fixture.ensemble.addr(0))?;
    let server = fixture.serve_at(&format!("zookeeper://{}/xuid", proxy.addr()), "data")?.start()?;
    server.wait_ready(SOON)?;
    let ours = worker(&server)?;
    let live = Fixture::node(&format!("live/{ours}"));
    let going_on = load(&server)?;
    // A fresh window of full length lasts longer than one session's end and the next one's beginning.
    wait_renewals(&server)?;
    for round in 0..3 {
        let before = fixture.tamper.expect(&live)?.stat.ephemeral_owner;
        proxy.set(Way::BlackHole);
        let gone =
            clock::wait_until("its announcement goes", SOON, || Ok(fixture.tamper.read(&live)?.is_none()))?;
        proxy.set(Way::Pass);
        let back =
            clock::wait_until("it is announced again", SOON, || Ok(fixture.tamper.read(&live)?.is_some()));
        let back = back.with_context(|| format!("{server}"))?;
        ensure!(fixture.tamper.expect(&live)?.stat.ephemeral_owner != before, "the session goes on");
        println!(
            "expired, round {round}: cut off, gone after {gone:?}, back {back:?} after it was let through"
        );
        wait_renewals(&server)?;
    }
    // The ensemble ends a session while its connection is fine.
    fixture.tamper.expire_owner(&live)?;
    clock::wait_until("it is announced again", SOON, || Ok(fixture.tamper.read(&live)?.is_some()))?;
    wait_renewals(&server)?;
    println!("{}", server.metrics()?.show("xuid_registry"));
    let (expired, sessions) = (
        sum(&server, &["xuid_registry_expirations_total"])?,
        sum(&server, &["xuid_registry_sessions_total"])?,
    );
    ensure!(expired > 0.5 && sessions > 4.5, "{expired} expirations, {sessions} sessions");
    ensure!(worker(&server)? == ours, "it changed its worker for a session");
    cluster::unharmed(&finish("expired", vec![going_on])?, &fixture.delay)?;
    server.stop().map(drop)
}

#[test]
fn a_registry_without_its_clock_says_so_and_a_fence_makes_it_again() -> Result<()> {
    let fixture = Fixture::start()?;
    let node = Fixture::node("clock");
    fixture.server("data")?.stop()?;
    ensure!(fixture.tamper.delete(&node)?);
    let server = fixture.server("data")?;
    server.drain(1_000, &mut Ledger::default())?;
    let log = server.stop()?;
    let told = log.lines().filter(|line| line.contains("the node `clock` of the registry can't be written"));
    ensure!(told.count() >= 1, "{log}");
    fixture.fence()?;
    fixture.tamper.expect(&node).map(drop)
}

#[test]
fn a_deleted_announcement_costs_nothing_and_gives_its_worker_to_nobody() -> Result<()> {
    let fixture = Fixture::start()?;
    let server = fixture.server("data")?;
    let ours = worker(&server)?;
    let going_on = load(&server)?;
    ensure!(
        fixture.tamper.delete(&Fixture::node(&format!("live/{ours}")))?,
        "worker {ours} was not announced"
    );
    let others =
        (0..4).map(|number| fixture.server(&format!("other-{number}"))).collect::<Result<Vec<_>>>()?;
    let loads: Vec<Load> = others.iter().map(load).collect::<Result<_>>()?;
    for other in &others {
        ensure!(worker(other)? != ours, "worker {ours} was given to another");
    }
    wait_renewals(&server)?;
    let said = Fixture::refused(fixture.serve("asking")?.arg("--worker").arg(ours.to_string()))?;
    ensure!(said.contains("is held by") || said.contains("was the last to hold it"), "{said}");
    ensure!(worker(&server)? == ours, "it left its worker for a hint");
    let results = finish("announcement deleted", loads.into_iter().chain([going_on]).collect())?;
    cluster::unharmed(&results, &fixture.delay)
}

#[test]
fn a_mark_made_again_as_it_was_at_first_gives_nothing_of_its_spill_back() -> Result<()> {
    let fixture = Fixture::start()?;
    let server = fixture.server("data")?;
    let marks = fixture.tamper.dump(&Fixture::node("s"))?;
    clock::idle(Duration::from_secs(5));
    server.stop()?;
    let mut ledger = Ledger::default();
    let server = fixture.server("data")?;
    server.drain(MUCH, &mut ledger)?;
    let replayed = server.replayed()?;
    ensure!(replayed > 1e6, "nothing was replayed: the attack hits nothing");
    server.kill()?;
    let (path, data) = marks.nodes().nth(1).context("a spill without a mark")?;
    ensure!(fixture.tamper.delete(path)?);
    fixture.tamper.create(path, data)?;
    let server = fixture.server("data")?;
    server.drain(MUCH, &mut ledger)?;
    println!(
        "mark made again: {replayed} replayed before, {} after: {}",
        server.replayed()?,
        ledger.check()?
    );
    ensure!(sum(&server, &["xuid_spill_refused_files_total"])? > 0.5, "the spill was not refused\n{server}");
    let log = server.stop()?;
    let said = log.lines().find(|line| line.contains("spill") && line.contains("refused"));
    println!("mark made again: {}", said.with_context(|| format!("the log does not say it:\n{log}"))?);
    Ok(())
}

/// What is done to `w/N`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    Flipped,
    Deleted,
    SetBack,
    MadeAgain,
    MadeAgainAsAtGenesis,
}

/// Does that to the record of the worker that a server under load holds, and looks at everybody.
fn strike(kind: Damage) -> Result<()> {
    let fixture = Fixture::start()?;
    let genesis = fixture.tamper.dump(&Fixture::node("w"))?;
    let server = fixture.server("data")?;
    let ours = worker(&server)?;
    let path = Fixture::node(&format!("w/{ours}"));
    let going_on = load(&server)?;
    let old = fixture.tamper.expect(&path)?.data;
    wait_renewals(&server)?;
    ensure!(fixture.tamper.expect(&path)?.data != old, "the record did not move");
    match kind {
        Damage::Flipped => {
            let mut data = fixture.tamper.expect(&path)?.data;
            data[32] ^= 0x10;
            fixture.tamper.write(&path, &data).map(drop)?;
        }
        Damage::SetBack => fixture.tamper.write(&path, &old).map(drop)?,
        Damage::Deleted => ensure!(fixture.tamper.delete(&path)?),
        Damage::MadeAgain => {
            let data = fixture.tamper.expect(&path)?.data;
            ensure!(fixture.tamper.delete(&path)?);
            fixture.tamper.create(&path, &data)?;
        }
        Damage::MadeAgainAsAtGenesis => {
            let data = genesis.nodes().find(|(found, _)| *found == path).context("it was there")?.1;
            ensure!(fixture.tamper.delete(&path)?);
            fixture.tamper.create(&path, data)?;
        }
    }
    // At once, while its holder still uses the window up.
    let said = Fixture::refused(fixture.serve("asking")?.arg("--worker").arg(ours.to_string()))?;
    ensure!(said.contains(&format!("worker {ours}")), "{said}");
    let others =
        (0..3).map(|number| fixture.server(&format!("other-{number}"))).collect::<Result<Vec<_>>>()?;
    let mut loads: Vec<Load> = others.iter().map(load).collect::<Result<_>>()?;
    loads.push(going_on);
    wait_other_worker(&server, ours)?;
    clock::idle(WINDOW_MAX);
    for any in others.iter().chain([&server]) {
        ensure!(worker(any)? != ours, "worker {ours} is used after its record was {kind:?}");
    }
    let listed = fixture.workers()?;
    let why = listed[&ours].error.as_deref().context("`xuid workers` shows a sound record")?;
    let show = fixture.show()?;
    let damage = show.lines().find(|line| line.trim_start().starts_with("damage"));
    println!("{kind:?}: workers: {why}\n{kind:?}: show: {}", damage.context("no damage is shown")?.trim());
    ensure!(damage.is_some_and(|line| line.contains(&format!("worker {ours}"))), "{show}");
    ensure!(sum(&server, &["xuid_worker_switches_total", "unreadable"])? > 0.5, "{server}");
    let said = Fixture::refused(fixture.serve("asking")?.arg("--worker").arg(ours.to_string()))?;
    ensure!(said.contains(&format!("worker {ours}")), "{said}");
    // Its successor is there before the window ends, so nobody waits.
    cluster::unharmed(&finish(&format!("{kind:?}"), loads)?, &fixture.delay)?;
    server.stop().map(drop)
}

macro_rules! struck {
    ($($name:ident, $kind:ident;)*) => {
        $(#[test]
        fn $name() -> Result<()> {
            strike(Damage::$kind)
        })*
    };
}

struck! {
    a_record_with_flipped_bits_is_left_by_its_holder_and_used_by_nobody, Flipped;
    a_deleted_record_is_left_by_its_holder_and_used_by_nobody, Deleted;
    a_record_set_back_by_hand_is_left_by_its_holder_and_used_by_nobody, SetBack;
    a_record_made_again_with_its_last_bytes_is_left_by_its_holder_and_used_by_nobody, MadeAgain;
    a_record_made_again_as_it_was_at_genesis_is_left_by_its_holder_and_used_by_nobody, MadeAgainAsAtGenesis;
}
