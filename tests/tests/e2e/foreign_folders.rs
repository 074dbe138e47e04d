//! Folders that belong to something else: another layout, another cluster, another cluster's spill.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{
    Client, ClientError, Ledger, Order, Serve, Server, Xuid, clock, folder, hello_body, op, status,
};

#[test]
fn a_registry_of_another_layout_is_served_as_such_or_refused_with_both_shown() -> Result<()> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    Xuid::new(["registry", "init", "--layout", "42/9/12"])?.arg(&data).run()?.ok()?;
    let said = Serve::new(&data)?.arg("--layout").arg("41/10/12").run_to_exit()?;
    let said = format!("{}{}", said.stdout, said.stderr);
    ensure!(said.contains("42/9/12") && said.contains("41/10/12"), "both layouts are shown: {said}");
    println!("another layout: {}", said.lines().last().unwrap_or_default());
    // Without a wish of its own the server takes the layout of its registry.
    let server = Server::start(&data)?;
    let (mut client, hello) = Client::hello(server.addr)?;
    ensure!(hello.bits == (42, 9, 12), "{hello:?}");
    let mut ledger = Ledger::new(9, 12);
    for order in Order::ALL {
        ledger.extend(client.runs(100_000, Duration::from_secs(5), order)?);
    }
    let id = client.next(Order::Fresh)?;
    ledger.add_id(id);
    let decoded = client.decode(id)?;
    ensure!(decoded.unix_ms.abs_diff(clock::unix_ms()) < 1_000, "{decoded:?}");
    ensure!(decoded.worker < 512 && u64::from(decoded.worker) == id >> 12 & 0x1ff, "{decoded:?}");
    println!("another layout: {}", ledger.check()?);
    server.stop().map(drop)
}

#[test]
fn a_node_of_another_cluster_is_refused_with_both_shown() -> Result<()> {
    let home = TempDir::new()?;
    let (mine, other) = (home.path().join("mine"), home.path().join("other"));
    let mut clusters = Vec::new();
    for data in [&mine, &other] {
        let server = Server::start(data)?;
        let (_, hello) = Client::hello(server.addr)?;
        clusters.push(hello.cluster);
        server.stop()?;
    }
    ensure!(clusters[0] != clusters[1], "two registries are two clusters");
    fs::copy(other.join("node.json"), mine.join("node.json"))?;
    let said = Serve::new(&mine)?.run_to_exit()?.refused(1)?;
    println!("another cluster: {}", said.lines().last().unwrap_or_default());
    let plain: String = said.to_lowercase().chars().filter(|char| *char != '-').collect();
    for cluster in clusters {
        let hex = format!("{:032x}", u128::from_be_bytes(cluster));
        ensure!(plain.contains(&hex), "cluster {hex} is not shown: {said}");
    }
    Ok(())
}

#[test]
fn a_spill_of_another_cluster_is_set_aside_and_never_replayed() -> Result<()> {
    let home = TempDir::new()?;
    let (mine, other) = (home.path().join("mine"), home.path().join("other"));
    let mut ledger = Ledger::default();
    for data in [&mine, &other] {
        let server = Server::start(data)?;
        ledger.add_id(server.client()?.next(Order::Any)?);
        clock::idle(Duration::from_secs(3));
        server.stop()?;
    }
    for spill in folder::spills(&mine)? {
        fs::remove_file(spill)?;
    }
    for spill in folder::spills(&other)? {
        fs::copy(&spill, mine.join(spill.file_name().context("a name")?))?;
    }
    let server = Server::start(&mine)?;
    let mut client = server.client()?;
    for _ in 0..100 {
        ledger.extend(client.runs(100_000, Duration::from_secs(5), Order::Any)?);
    }
    let replayed = server.metrics()?.sum(&["replayed", "ids"]);
    ensure!(replayed < 1.0, "{replayed} ids of another cluster were replayed\n{server}");
    let refused: Vec<_> = folder::files(&mine, "spill")?;
    ensure!(
        refused.iter().any(|path| path.to_string_lossy().ends_with(".refused")),
        "nothing was set aside: {refused:?}\n{server}"
    );
    ensure!(server.log().contains("refused"), "the log does not say it\n{server}");
    println!("foreign spill: {}", ledger.check()?);
    server.stop().map(drop)
}

#[test]
fn a_client_that_expects_another_cluster_or_version_is_told_so() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    for (body, expected) in [
        (hello_body(1, 1, [7; 16]), status::WRONG_CLUSTER),
        (hello_body(7, 9, [0; 16]), status::VERSION),
        (hello_body(9, 7, [0; 16]), status::VERSION),
    ] {
        let mut client = Client::preface(server.addr)?;
        match client.call(op::HELLO, &body) {
            Err(ClientError::Refused(refusal))
                if refusal.status == expected
                    || (body[0] > body[2] && refusal.status == status::BAD_REQUEST) =>
            {
                ensure!(!refusal.text.is_empty());
                println!("hello refused: {refusal}");
            }
            other => anyhow::bail!("HELLO {body:?} was answered {other:?}"),
        }
        ensure!(client.read_to_end()?.is_empty(), "HELLO's errors close");
    }
    server.stop().map(drop)
}
