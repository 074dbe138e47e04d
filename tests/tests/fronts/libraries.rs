//! Libraries of four languages, with their default options, at one counter.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Rng, process};

use crate::{LONG, serve};

/// Numbers of each library.
const NUMBERS: usize = 25_000;

/// Where `tests/run` has put the libraries.
fn installed() -> Result<PathBuf> {
    let home = std::env::var_os("XUID_REDIS_CLIENTS");
    home.map(PathBuf::from)
        .context("XUID_REDIS_CLIENTS names the folder of Redis libraries: tests/run fronts sets it")
}

fn program(name: &str) -> Result<Command> {
    let (home, source) = (installed()?, Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/redis"));
    let mut command;
    match name {
        "redis_py" => {
            command = Command::new(home.join("python/bin/python"));
            command.arg(source.join("redis_py.py"));
        }
        "go_redis" => command = Command::new(home.join("go-redis")),
        script => {
            command = Command::new("node");
            command.arg(home.join("node").join(format!("{script}.mjs")));
        }
    }
    Ok(command)
}

/// What a library got.
fn numbers_of(name: &str, port: u16, key: &str) -> Result<Vec<u64>> {
    let mut command = program(name)?;
    command.args([&port.to_string(), key, &NUMBERS.to_string()]);
    let (code, stdout, stderr) = process::run(command, LONG)?;
    ensure!(code == Some(0), "{name} says: {stderr}{stdout}");
    stdout.lines().map(|line| Ok(line.parse()?)).collect()
}

#[test]
fn libraries_of_four_languages_get_ascending_numbers_of_one_counter_and_none_twice() -> Result<()> {
    let server = serve()?;
    let port = server.resp()?.port();
    let key = format!("test:{}", Rng::from_env("libraries").below(1_000_000));
    let names = ["redis_py", "node_redis", "ioredis", "go_redis"];
    let workers: Vec<_> = names
        .map(|name| {
            let key = key.clone();
            thread::spawn(move || numbers_of(name, port, &key))
        })
        .into_iter()
        .collect();
    let mut all = Vec::new();
    for (worker, name) in workers.into_iter().zip(names) {
        let mine = worker.join().ok().context("a thread panicked")?.with_context(|| name.to_owned())?;
        ensure!(mine.len() >= NUMBERS, "{name} got {}", mine.len());
        // Of several connections each ascends by itself: this one has a pool, and uses one connection at a time here.
        ensure!(mine.is_sorted(), "{name}: its numbers descend");
        all.extend(mine);
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    ensure!(all.len() == count, "{} numbers came twice", count - all.len());
    println!("{count} numbers up to {:?}", all.last());
    server.stop().map(drop)
}
