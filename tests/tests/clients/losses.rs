//! Servers that are killed, stopped, replaced or cut off while a client takes ids from them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xuid_tests::{Ending, Ledger, Relay, Serve, Server, clock, folder, process};

use crate::conform::{Program, ids, is_long, next};
use crate::languages::Language;

/// Long enough for any server to come back.
pub(crate) const PATIENT: u32 = 30_000;

const LIMIT: Duration = Duration::from_secs(30);

/// How many ids are asked for while something happens to the server.
fn load() -> u32 {
    if is_long() { 200_000 } else { 50_000 }
}

/// A server of this folder, at an address that one of before had.
pub(crate) fn again(data: &Path, addr: SocketAddr) -> Result<Server> {
    let addr = addr.to_string();
    let data = data.to_string_lossy();
    let arguments = ["serve", "--listen", &addr, "--admin", "127.0.0.1:0", "--data-dir", &data];
    Serve::exactly(arguments)?.start()
}

/// Waits until the server has issued so many ids more, and the request is under way.
fn under_way(server: &Server) -> Result<()> {
    let issued = || Ok::<_, anyhow::Error>(server.metrics()?.sum(&["xuid_issued_ids_total"]));
    let before = issued()?;
    clock::wait_until("the server issues", LIMIT, || Ok(issued()? > before + 500.0)).map(drop)
}

/// Adds the ids of an answer, which must be so many.
pub(crate) fn add(ledger: &mut Ledger, answer: &Value, count: u32) -> Result<()> {
    let found = ids(answer)?;
    ensure!(found.len() == count as usize, "{} ids of {count}", found.len());
    for id in found {
        ledger.add_id(id);
    }
    Ok(())
}

pub(crate) fn a_server_killed_and_back_issues_nothing_twice(language: Language) -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let server = Server::start(&data)?;
    let addr = server.addr;
    let mut program = Program::connected(language, &[addr], &json!({ "retry_for_ms": PATIENT }))?;
    let asked = program.begin(next(load(), 16))?;
    under_way(&server)?;
    ensure!(!program.is_done(asked), "all was taken before the server could be killed");
    server.kill()?;
    let server = again(&data, addr)?;
    add(&mut ledger, &program.success(asked)?, load())?;
    add(&mut ledger, &program.ask(&json!({ "do": "prefetch", "times": 10_000 }))?, 10_000)?;
    println!("{language:?}, killed and back: {}", ledger.check()?);
    program.finish()?;
    server.stop().map(drop)
}

pub(crate) fn a_server_that_drains_is_left_for_another_one(language: Language) -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let (left, right) = (Server::start(&data)?, Server::start(&data)?);
    let mut program = Program::start(language)?;
    let options = json!({ "retry_for_ms": PATIENT });
    let first = program.connect(&[left.addr, right.addr], &options)?;
    let (drained, other) =
        if first["server"] == left.addr.to_string() { (left, right) } else { (right, left) };
    let asked = program.begin(next(load(), 16))?;
    under_way(&drained)?;
    ensure!(!program.is_done(asked), "all was taken before the server could be stopped");
    drained.stop()?;
    add(&mut ledger, &program.success(asked)?, load())?;
    add(&mut ledger, &program.ask(&next(1_000, 16))?, 1_000)?;
    println!("{language:?}, drained: {}", ledger.check()?);
    program.finish()?;
    other.stop().map(drop)
}

pub(crate) fn a_server_replaced_by_one_of_another_cluster_yields_no_id(language: Language) -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let server = Server::start(&data)?;
    let addr = server.addr;
    let mut program = Program::start(language)?;
    let greeted = program.connect(&[addr], &json!({}))?;
    add(&mut ledger, &program.ask(&json!({ "do": "prefetch", "times": 100 }))?, 100)?;
    server.kill()?;
    let (_elsewhere, strange, _) = folder::fresh()?;
    let stranger = again(&strange, addr)?;
    let pinned = greeted["cluster"].as_str().context("no cluster")?.to_owned();
    let (failure, _) = clock::wait_for("the other cluster is refused", LIMIT, || {
        // The loss of the connection may be told first.
        let failure = program.refused(&next(1, 1))?;
        failure.is_any(&["wrong_cluster", "lost", "unreachable"])?;
        Ok((failure.kind == "wrong_cluster").then_some(failure))
    })?;
    ensure!(failure.whole.contains(&pinned), "it names the cluster {pinned}: {}", failure.whole);
    // What is held was issued by the cluster of before. When that has grown old there is nothing more.
    clock::wait_until("no id is held any more", LIMIT, || {
        let ticket = program.begin(json!({ "do": "prefetch", "times": 1 }))?;
        let answer = program.answer(ticket)?;
        let drawn = ids(&answer).unwrap_or_default();
        for id in &drawn {
            ledger.add_id(*id);
        }
        Ok(drawn.is_empty())
    })?;
    println!("{language:?}, replaced: {}", ledger.check()?);
    // With the cluster asked for, the stranger is refused at once.
    let mut late = Program::start(language)?;
    let servers = [addr.to_string()];
    let asked = json!({ "do": "connect", "servers": servers, "cluster": pinned });
    let refused = late.refused(&asked)?;
    refused.is_any(&["wrong_cluster", "refused"])?;
    ensure!(refused.whole.contains(&pinned), "{}", refused.whole);
    stranger.stop().map(drop)
}

pub(crate) fn a_server_stopped_for_ten_seconds_is_waited_for(language: Language) -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut ledger = Ledger::default();
    let options = json!({ "retry_for_ms": 2 * PATIENT, "timeout_ms": 2_000 });
    let mut program = Program::connected(language, &[server.addr], &options)?;
    let asked = program.begin(next(load(), 16))?;
    under_way(&server)?;
    process::freeze(server.child())?;
    // The subject is a pause that is longer than the patience of calls and link.
    clock::idle(Duration::from_secs(10));
    process::thaw(server.child())?;
    add(&mut ledger, &program.success(asked)?, load())?;
    println!("{language:?}, stopped: {}", ledger.check()?);
    program.finish()
}

pub(crate) fn a_reply_cut_in_the_middle_yields_no_id(language: Language) -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let relay = Relay::start(server.addr)?;
    let mut ledger = Ledger::default();
    let mut program = Program::connected(language, &[relay.addr()], &json!({}))?;
    let array = || json!({ "do": "array", "count": 10_000, "order": "any", "wait_ms": 5_000 });
    for bytes in [1, 15, 16, 23, 24, 40_000, 80_000 + 23] {
        relay.arm(bytes, Ending::Cut);
        program.refused(&array())?.is_any(&["lost"])?;
        ensure!(relay.wait_struck(LIMIT), "it was not cut after {bytes} bytes");
        add(&mut ledger, &program.ask(&array())?, 10_000)?;
    }
    // One that goes on trying is told nothing of it.
    let options = json!({ "retry_for_ms": PATIENT });
    let mut patient = Program::connected(language, &[relay.addr()], &options)?;
    relay.arm(40_000, Ending::Cut);
    add(&mut ledger, &patient.ask(&array())?, 10_000)?;
    ensure!(relay.wait_struck(LIMIT));
    println!("{language:?}, cut: {}", ledger.check()?);
    patient.finish()?;
    program.finish()
}
