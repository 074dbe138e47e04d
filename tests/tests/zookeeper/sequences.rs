//! Named sequences of an ensemble's registry: before there are any, and after it was put back.

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Output, Server, Xuid, clock, folder};

use crate::fixture::{Fixture, PATH, SOON};
use crate::restores::{back_up, restore};

fn xuid(server: &Server, words: &[&str]) -> Result<Output> {
    let command = Xuid::new(["sequence"].iter().chain(words))?;
    command.arg("--server").arg(server.addr.to_string()).run()
}

/// Sessions at the ensemble.
fn connections(fixture: &Fixture) -> Result<u32> {
    let said = fixture.ensemble.srvr(0)?;
    let line = said.lines().find_map(|line| line.strip_prefix("Connections: "));
    Ok(line.context("no number of connections")?.trim().parse()?)
}

#[test]
fn an_ensemble_is_not_asked_for_sequences_before_one_is_wanted_and_has_no_node_before_one_is_created()
-> Result<()> {
    let fixture = Fixture::start()?;
    let off = fixture.serve("data")?.arg("--sequences").arg("off").start()?;
    off.wait_ready(SOON)?;
    let without = connections(&fixture)?;
    off.stop()?;
    let server = fixture.server("data")?;
    ensure!(connections(&fixture)? == without, "sequences have sessions that nobody asked for");
    ensure!(xuid(&server, &["show", "orders"])?.refused(1)?.contains("NO_SEQUENCE"));
    ensure!(connections(&fixture)? > without);
    ensure!(!fixture.tamper.children(PATH)?.contains(&"q".to_owned()), "a folder of no names");
    xuid(&server, &["create", "orders"])?.ok()?;
    ensure!(fixture.tamper.children(PATH)?.contains(&"q".to_owned()));
    ensure!(xuid(&server, &["next", "orders", "-n", "2"])?.ok()?.lines().eq(["1", "2"]));
    server.stop()?;
    ensure!(!folder::files(&fixture.folder("data"), "sequences.rest")?.is_empty());
    let server = fixture.server("data")?;
    ensure!(xuid(&server, &["next", "orders"])?.ok()?.trim() == "3");
    server.stop().map(drop)
}

/// Numbers that servers gave, none of them twice.
#[derive(Default)]
struct Had(HashSet<(String, u64)>);

impl Had {
    /// Some more of a name; `None` if that is refused.
    fn try_take(&mut self, server: &Server, name: &str, count: &str) -> Result<Option<Vec<u64>>> {
        let output = xuid(server, &["next", name, "-n", count])?;
        let numbers: Vec<u64> = output.stdout.lines().map(str::parse).collect::<Result<_, _>>()?;
        for number in &numbers {
            ensure!(self.0.insert((name.to_owned(), *number)), "{name} {number} came twice, at {server}");
        }
        Ok(output.ok().is_ok().then_some(numbers))
    }

    fn take(&mut self, server: &Server, name: &str, count: &str) -> Result<Vec<u64>> {
        self.try_take(server, name, count)?.with_context(|| format!("{name} is refused at {server}"))
    }
}

/// By the runbook, beside servers that run through it and hold numbers: one knows a name that was made since the backup, and the
/// other one makes it again.
#[test]
fn an_ensemble_that_is_put_back_repeats_no_number_beside_running_servers() -> Result<()> {
    /// Beyond all that was granted, and what the two servers hold.
    const ABOVE: u64 = 1_000_000;
    let mut fixture = Fixture::start()?;
    let (first, second) = (fixture.server("first")?, fixture.server("second")?);
    let all = [(&first, "orders"), (&second, "orders"), (&first, "strict"), (&second, "strict")];
    let mut had = Had::default();
    xuid(&first, &["create", "orders", "--step", "100"])?.ok()?;
    xuid(&first, &["create", "strict", "--strict"])?.ok()?;
    for (server, name) in all {
        had.take(server, name, "50")?;
    }
    let backup = back_up(&mut fixture)?;
    for (server, name) in all {
        server.wait_ready(SOON)?;
        (0..5).try_for_each(|_| had.take(server, name, "1000").map(drop))?;
    }
    let make_invoices = |server: &Server| xuid(server, &["create", "invoices", "--step", "100"]);
    make_invoices(&first)?.ok()?;
    had.take(&first, "invoices", "500")?;
    restore(&mut fixture, &backup)?;
    // What they hold may still be given; then the names are closed, and nothing is made.
    for (server, name) in all {
        let mut refused = || Ok(had.try_take(server, name, "100")?.is_none());
        clock::wait_until("it is refused", SOON, &mut refused)
            .with_context(|| format!("{name} at {server}"))?;
    }
    println!("put back: {}", make_invoices(&second)?.refused(1)?.trim());
    fixture.fence()?;
    let refused = make_invoices(&second)?.refused(1)?;
    ensure!(refused.contains("STORE_BEHIND"), "{refused}");
    let (command, above) = (["sequence", "fence", &fixture.url, "--margin", "0", "--yes"], ABOVE.to_string());
    println!("{}", Xuid::new(command)?.arg("--above").arg(&above).run()?.ok()?.trim());
    let made = || Ok(make_invoices(&second)?.ok().is_ok());
    clock::wait_until("names are made again", SOON, made)?;
    for (server, name) in all {
        let mut is_open = || Ok(had.try_take(server, name, "1")?.is_some_and(|numbers| numbers[0] >= ABOVE));
        clock::wait_until("it is open", SOON, &mut is_open).with_context(|| format!("{name} at {server}"))?;
        had.take(server, name, "2000")?;
    }
    // The first one may hold some of the name's first life, which nobody else was granted.
    had.take(&first, "invoices", "2000")?;
    let again = had.take(&second, "invoices", "2000")?;
    ensure!(again.iter().all(|number| *number >= ABOVE), "it began at {:?}", again.first());
    first.stop()?;
    second.stop().map(drop)
}
