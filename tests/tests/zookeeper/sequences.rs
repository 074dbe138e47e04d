//! Named sequences of an ensemble's registry, before there are any.

use anyhow::{Context, Result, ensure};
use xuid_tests::{Output, Server, Xuid, folder};

use crate::fixture::{Fixture, PATH, SOON};

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
