//! redis-cli and redis-benchmark.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Server, process};

use crate::{LONG, connect, serve};

fn cli(server: &Server, words: &[&str]) -> Result<String> {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.resp()?.port().to_string()]).args(words);
    let (code, stdout, stderr) = process::run(command, LONG)?;
    ensure!(code == Some(0), "redis-cli says: {stderr}{stdout}");
    Ok(stdout.trim().to_owned())
}

#[test]
fn redis_cli_counts_looks_and_is_told_what_is_wrong() -> Result<()> {
    let server = serve()?;
    ensure!(cli(&server, &["INCR", "counter:a"])? == "1");
    ensure!(cli(&server, &["-3", "INCRBY", "counter:a", "9"])? == "10");
    ensure!(cli(&server, &["GET", "counter:a"])? == "10");
    ensure!(cli(&server, &["--scan", "--pattern", "counter:*"])? == "counter:a");
    ensure!(cli(&server, &["DEL", "counter:a"])?.contains("a sequence only rises"));
    ensure!(cli(&server, &["INCR", "unknown"])?.starts_with("NOSEQ "));
    let id = cli(&server, &["XUID.NEXT", "@fresh"])?;
    ensure!(cli(&server, &["XUID.DECODE", &id])?.contains("unix_ms"), "{id}");
    server.stop().map(drop)
}

/// Runs so many INCR and returns what redis-benchmark says of its rate.
fn benchmark(server: &Server, pipeline: &str, more: &[&str]) -> Result<String> {
    let mut command = Command::new("redis-benchmark");
    command.args([
        "-p",
        &server.resp()?.port().to_string(),
        "-t",
        "incr",
        "-n",
        "20000",
        "-P",
        pipeline,
        "--csv",
    ]);
    command.args(more);
    let (code, stdout, stderr) = process::run(command, LONG)?;
    ensure!(code == Some(0) && !stderr.contains("Error"), "redis-benchmark says: {stderr}{stdout}");
    Ok(stdout.lines().last().context("no line")?.to_owned())
}

#[test]
fn redis_benchmark_gets_as_many_numbers_as_it_asks_for() -> Result<()> {
    let server = serve()?;
    let mut client = connect(&server)?;
    let mut expected = 0;
    for pipeline in ["1", "16", "100"] {
        println!("-P {pipeline}: {}", benchmark(&server, pipeline, &[])?);
        expected += 20_000;
        let counted = client.call(&["INCR", "counter:__rand_int__"])?.integer()?;
        expected += 1;
        ensure!(counted >= expected, "{counted} after {expected} increments");
    }
    println!("-r 100: {}", benchmark(&server, "16", &["-r", "100"])?);
    let names = client.call(&["DBSIZE"])?.integer()?;
    ensure!(names > 50 && names <= 101, "{names} counters");
    server.stop().map(drop)
}
