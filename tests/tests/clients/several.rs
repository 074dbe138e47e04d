//! Several servers: where a client begins, when it returns, and what it does not take from a stranger among them.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xuid_tests::{Server, clock, folder};

use crate::conform::{Program, next};
use crate::languages::Language;
use crate::losses::{PATIENT, add, again};

const LIMIT: Duration = Duration::from_secs(30);

/// By chance, so many clients begin at the same one of two servers once in 2^63 times.
const CLIENTS: usize = 64;

pub(crate) fn clients_begin_at_any_of_their_servers(language: Language) -> Result<()> {
    let (_home, data, _) = folder::fresh()?;
    let (left, right) = (Server::start(&data)?, Server::start(&data)?);
    let servers = [left.addr, right.addr];
    let mut program = Program::start(language)?;
    let mut begun = BTreeSet::new();
    for _ in 0..CLIENTS {
        let greeted = program.connect(&servers, &json!({}))?;
        begun.insert(greeted["server"].as_str().context("no server")?.to_owned());
        if begun.len() == servers.len() {
            break;
        }
    }
    ensure!(begun == servers.iter().map(ToString::to_string).collect(), "{begun:?} of {servers:?}");
    program.finish()
}

pub(crate) fn a_client_returns_to_its_first_choice(language: Language) -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let (left, right) = (Server::start(&data)?, Server::start(&data)?);
    let mut program = Program::start(language)?;
    let options = json!({ "return_after_ms": 200, "retry_for_ms": PATIENT });
    let greeted = program.connect(&[left.addr, right.addr], &options)?;
    let (first, other) =
        if greeted["server"] == left.addr.to_string() { (left, right) } else { (right, left) };
    let addr = first.addr;
    first.kill()?;
    add(&mut ledger, &program.ask(&next(100, 16))?, 100)?;
    let restarted = again(&data, addr)?;
    let issued = || Ok::<_, anyhow::Error>(restarted.metrics()?.sum(&["xuid_issued_ids_total"]));
    let before = issued()?;
    clock::wait_until("it is back at the server that it began at", LIMIT, || {
        add(&mut ledger, &program.ask(&next(1, 1))?, 1)?;
        Ok(issued()? > before)
    })?;
    add(&mut ledger, &program.ask(&next(1_000, 16))?, 1_000)?;
    println!("{language:?}, back: {}", ledger.check()?);
    program.finish()?;
    other.stop()?;
    restarted.stop().map(drop)
}

pub(crate) fn nothing_held_is_handed_out_once_a_stranger_was_met(language: Language) -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let server = Server::start(&data)?;
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut program = Program::connected(language, &[server.addr, free], &json!({}))?;
    let (_elsewhere, strange, _) = folder::fresh()?;
    let stranger = again(&strange, free)?;
    // A refill may be on its way when the last id is drawn.
    clock::wait_until("ids are held", LIMIT, || {
        let answer = program.ask(&json!({ "do": "prefetch", "times": 100 }))?;
        add(&mut ledger, &answer, 100)?;
        Ok(answer["held"].as_u64().context("how many are held?")? > 0)
    })?;
    server.kill()?;
    clock::wait_until("the other cluster is refused", LIMIT, || {
        // The loss of the connection may be told first.
        let failure = program.refused(&next(1, 1))?;
        failure.is_any(&["wrong_cluster", "lost", "unreachable"])?;
        Ok(failure.kind == "wrong_cluster")
    })?;
    for _ in 0..3 {
        let failure = program.refused(&json!({ "do": "prefetch", "times": 1 }))?;
        failure.is_any(&["wrong_cluster", "lost", "unreachable", "timeout"])?;
    }
    println!("{language:?}, a stranger: {}", ledger.check()?);
    program.finish()?;
    stranger.stop().map(drop)
}
