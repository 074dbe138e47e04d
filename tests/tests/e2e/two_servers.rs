//! Two servers on one folder: each has its own worker and its own spill, and no id is issued by both.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::{Job, Ledger, Load, Order, Server, Work, clock, folder};

/// The workers of a few ids of each order.
fn workers(server: &Server, ledger: &mut Ledger) -> Result<BTreeSet<u32>> {
    let mut client = server.client()?;
    let mut seen = BTreeSet::new();
    for order in Order::ALL {
        for id in client.array(200, Duration::from_secs(2), order)? {
            ledger.add_id(id);
            seen.insert(client.decode(id)?.worker);
        }
    }
    Ok(seen)
}

fn jobs() -> Vec<Job> {
    vec![
        Job::new(Work::Next(32), Order::Any),
        Job::new(Work::Array(2_000), Order::Ordered),
        Job::new(Work::Runs(100_000), Order::Any),
    ]
}

#[test]
fn two_servers_on_one_folder_share_neither_worker_nor_spill_nor_id() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let (left, right) = (Server::start(&data)?, Server::start(&data)?);
    let (of_left, of_right) = (workers(&left, &mut ledger)?, workers(&right, &mut ledger)?);
    println!("two servers: workers {of_left:?} and {of_right:?}");
    ensure!(of_left.is_disjoint(&of_right), "both hold {of_left:?} and {of_right:?}");
    let spills = folder::spills(&data)?;
    ensure!(spills.len() == 2, "two spill files, not {spills:?}");
    // An idle while, so that both have something in their spills.
    clock::idle(Duration::from_secs(3));
    let loads = [Load::start(left.addr, &jobs()), Load::start(right.addr, &jobs())];
    clock::wait_until("both issue", Duration::from_secs(30), || {
        Ok(loads.iter().all(|load| load.ids() > 1_000_000))
    })?;
    // One dies and is replaced while the other goes on.
    left.kill()?;
    let reborn = Server::start(&data)?;
    let again = Load::start(reborn.addr, &jobs());
    clock::wait_until("the third issues", Duration::from_secs(30), || Ok(again.ids() > 1_000_000))?;
    let [first, second] = loads;
    for load in [first, second, again] {
        ensure!(load.finish(&mut ledger)? > 1_000_000);
    }
    println!("two servers: {}", ledger.check()?);
    let (of_reborn, of_right) = (workers(&reborn, &mut ledger)?, workers(&right, &mut ledger)?);
    ensure!(of_reborn.is_disjoint(&of_right), "both hold {of_reborn:?} and {of_right:?}");
    // Both stop cleanly and hand back; whoever comes next takes over either spill.
    right.stop()?;
    reborn.stop()?;
    let (left, right) = (Server::start(&data)?, Server::start(&data)?);
    let loads = [Load::start(left.addr, &jobs()), Load::start(right.addr, &jobs())];
    clock::wait_until("both issue again", Duration::from_secs(30), || {
        Ok(loads.iter().all(|load| load.ids() > 1_000_000))
    })?;
    for load in loads {
        load.finish(&mut ledger)?;
    }
    println!("two servers: {}", ledger.check()?);
    Ok(())
}

#[test]
fn a_server_that_was_frozen_past_its_window_issues_nothing_twice() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let (frozen, other) = (Server::start(&data)?, Server::start(&data)?);
    let loads = [Load::start(frozen.addr, &jobs()), Load::start(other.addr, &jobs())];
    clock::wait_until("both issue", Duration::from_secs(30), || {
        Ok(loads.iter().all(|load| load.ids() > 1_000_000))
    })?;
    xuid_tests::process::freeze(frozen.child())?;
    // First windows are 2 s long: this one is over when the process goes on.
    clock::idle(Duration::from_secs(8));
    let third = Server::start(&data)?;
    let (before, late) = (loads[0].ids(), Load::start(third.addr, &jobs()));
    xuid_tests::process::thaw(frozen.child())?;
    clock::wait_until("all three issue", Duration::from_secs(30), || {
        Ok(loads[0].ids() > before + 1_000_000 && late.ids() > 1_000_000)
    })?;
    let [first, second] = loads;
    for load in [first, second, late] {
        load.finish(&mut ledger)?;
    }
    println!("frozen: {}", ledger.check()?);
    Ok(())
}
