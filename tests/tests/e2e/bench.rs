//! `xuid bench` against a real server: what a person or a script reads off it.

use anyhow::{Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use xuid_tests::{Serve, Server, Xuid};

fn bench(server: &Server, args: &[&str]) -> Result<Xuid> {
    let address = server.addr.to_string();
    Xuid::new(["bench", "--server", &address, "--seconds", "1", "--warmup", "0", "--json"].iter().chain(args))
}

fn number(json: &Value, key: &str) -> f64 {
    json[key].as_f64().unwrap_or(-1.0)
}

#[test]
fn every_way_to_ask_is_measured_and_no_id_comes_twice() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    for args in [
        &["--connections", "4", "--pipeline", "8"][..],
        &["--connections", "3", "--threads", "2", "--order", "ordered"],
        &["--count", "64", "--wait", "1000"],
        &["--count", "256", "--runs"],
    ] {
        let json = bench(&server, args)?.arg("--verify").run()?.json()?;
        println!("bench {args:?}: {json}");
        ensure!(json["duplicates"] == 0 && json["unverified_ids"] == 0, "{args:?}: {json}");
        ensure!(
            number(&json, "verified_ids") >= number(&json, "ids"),
            "the check for duplicates missed some: {json}"
        );
        ensure!(json["mode"] == "closed" && json["asked_rate"].is_null(), "{json}");
        let told =
            ["p50_us", "p90_us", "p99_us", "p999_us", "p9999_us", "max_us"].map(|key| number(&json, key));
        ensure!(told[0] > 0.0 && told.is_sorted(), "percentiles out of order: {json}");
        let (ids, requests) = (number(&json, "ids"), number(&json, "requests"));
        ensure!((ids - requests * number(&json["settings"], "count")).abs() < 0.5 && ids > 1_000.0, "{json}");
        ensure!(number(&json, "bytes_received_per_second") > 0.0, "{json}");
    }
    server.stop().map(drop)
}

#[test]
fn a_timetable_is_kept_and_told_apart_from_a_closed_loop() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let json = bench(&server, &["--rate", "5000"])?.run()?.json()?;
    println!("bench at 5,000 requests a second: {json}");
    ensure!(json["mode"] == "open" && json["asked_rate"] == 5_000, "{json}");
    // Every request of the second is in the figures, whether it was sent or not.
    ensure!((number(&json, "samples") - 5_000.0).abs() <= 2.0, "{json}");
    ensure!(number(&json["late"], "max_us") >= 0.0 && number(&json["service"], "p50_us") > 0.0, "{json}");
    ensure!(number(&json, "p50_us") >= number(&json["service"], "p50_us") * 0.99, "{json}");
    server.stop().map(drop)
}

#[test]
fn who_asks_for_too_much_sees_refusals_by_name() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    // 131,072 fresh ids are 32 ms of one worker's land, and here they may take 1 ms.
    let greedy = ["--count", "131072", "--runs", "--order", "fresh", "--wait", "1"];
    let told = bench(&server, &greedy)?.run()?;
    let json: Value = serde_json::from_str(&told.stdout)?;
    println!("bench that asks for too much: {json}");
    ensure!(number(&json["refusals"], "OVERLOADED") > 0.0, "{told:?}");
    ensure!(json["refused"] == json["refusals"]["OVERLOADED"], "{told:?}");
    ensure!(told.code == Some(i32::from(json["ids"] == 0)), "a run without any id fails: {told:?}");
    // Above what the server allows at all, the load does not even begin.
    let said = bench(&server, &["--count", "5000000"])?.run()?.refused(2)?;
    ensure!(said.contains("--count") && said.contains("131072"), "{said}");
    server.stop().map(drop)
}

#[test]
fn servers_of_one_registry_are_loaded_together_and_strangers_are_refused() -> Result<()> {
    let home = TempDir::new()?;
    let (data, other) = (home.path().join("data"), home.path().join("other"));
    let (left, right) = (Server::start(&data)?, Server::start(&data)?);
    let stranger = Serve::new(&other)?.start()?;
    let both = format!("{},{}", left.addr, right.addr);
    let args = ["bench", "--server", &both, "--seconds", "1", "--warmup", "0", "--verify", "--json"];
    let json = Xuid::new(args)?.run()?.json()?;
    println!("bench on two servers: {json}");
    ensure!(json["duplicates"] == 0 && json["settings"]["server"] == both.as_str(), "{json}");
    let issued = |server: &Server| Ok::<_, anyhow::Error>(server.metrics()?.sum(&["issued", "ids"]));
    ensure!(issued(&left)? > 100.0 && issued(&right)? > 100.0, "one of them was left out");
    let mixed = format!("{},{}", left.addr, stranger.addr);
    let said = Xuid::new(["bench", "--server", &mixed])?.run()?.refused(1)?;
    ensure!(said.matches("cluster").count() >= 2 && said.contains(&stranger.addr.to_string()), "{said}");
    for server in [left, right, stranger] {
        server.stop()?;
    }
    Ok(())
}

#[test]
fn numbers_of_a_sequence_are_measured_and_none_comes_twice() -> Result<()> {
    let server = Serve::fresh()?.arg("--sequences").arg("registry").start()?;
    let address = server.addr.to_string();
    let said = bench(&server, &["--sequence", "orders"])?.run()?.refused(1)?;
    ensure!(said.contains(&format!("xuid sequence create orders --server {address}")), "{said}");
    Xuid::new(["sequence", "create", "orders", "--server", &address])?.run()?.ok()?;
    for (args, request) in [
        (&["--connections", "4", "--pipeline", "8", "--threads", "2"][..], "SEQ_NEXT"),
        (&["--count", "64", "--wait", "1000"], "SEQ_ARRAY"),
        (&["--count", "256", "--runs", "--order", "any"], "SEQ_RUNS"),
    ] {
        let json = bench(&server, args)?.arg("--sequence").arg("orders").arg("--verify").run()?.json()?;
        println!("bench of a sequence {args:?}: {json}");
        ensure!(json["duplicates"] == 0 && json["unverified_ids"] == 0, "{args:?}: {json}");
        ensure!(json["settings"]["request"] == request && json["settings"]["sequence"] == "orders", "{json}");
        ensure!(number(&json, "ids") > 1_000.0, "{json}");
    }
    server.stop()?;
    for args in [&[][..], &["--order", "any"], &["--count", "100", "--runs"], &["--rate", "1000"]] {
        let embedded = ["bench", "--embedded", "--sequence", "orders", "--seconds", "1", "--threads", "2"];
        let json = Xuid::new(embedded.iter().chain(args))?.arg("--verify").arg("--json").run()?.json()?;
        println!("bench of an embedded sequence {args:?}: {json}");
        ensure!(json["duplicates"] == 0 && number(&json, "ids") > 900.0, "{args:?}: {json}");
    }
    Ok(())
}
