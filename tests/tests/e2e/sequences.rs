//! Named sequences end to end: numbers are issued once, ascend, and have no gaps over clean restarts.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Client, Order, Output, Serve, Server, Xuid, clock, folder, process};

const SEQ_NEXT: u8 = 0x30;
const SEQ_ARRAY: u8 = 0x31;

/// A byte of length, and the name.
fn named(name: &str) -> Vec<u8> {
    let mut body = vec![name.len() as u8];
    body.extend(name.as_bytes());
    body
}

fn next(client: &mut Client, name: &str) -> Result<u64> {
    let body = client.call(SEQ_NEXT, &named(name))?;
    Ok(u64::from_le_bytes(body[..8].try_into()?))
}

/// So many ordered numbers within 5 s.
fn array(client: &mut Client, name: &str, count: u32) -> Result<Vec<u64>> {
    let mut body = count.to_le_bytes().to_vec();
    body.extend(5_000_u32.to_le_bytes());
    body.extend([2, 0, 0, 0]);
    body.extend(named(name));
    let reply = client.call(SEQ_ARRAY, &body)?;
    let (numbers, rest) = reply[8..].as_chunks::<8>();
    ensure!(numbers.len() == count as usize && rest.is_empty(), "{} numbers of {count}", numbers.len());
    Ok(numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect())
}

fn xuid(server: &Server, words: &[&str]) -> Result<Output> {
    Xuid::new(["sequence"].iter().chain(words))?.arg("--server").arg(server.addr.to_string()).run()
}

/// A server with named sequences on its data folder, as every server has them.
fn serve(data: &Path) -> Result<Server> {
    Server::start(data)
}

/// The same, where a request for one number waits as long as those for many do: on a slow disk a grant takes its time.
fn serve_patiently(data: &Path) -> Result<Server> {
    Serve::new(data)?.arg("--wait").arg("5s").start()
}

/// Whether a thread for sequences runs.
fn has_begun(server: &Server) -> Result<bool> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid()))?;
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task?.path().join("comm"));
    let names = tasks.map(name).collect::<std::io::Result<Vec<_>>>()?;
    Ok(names.iter().any(|name| name.starts_with("xuid-teller") || name.starts_with("xuid-keeper")))
}

/// Numbers of all names, each taken by threads at one server; each thread's ascend.
fn load(addr: SocketAddr, names: &[&'static str], rounds: u32) -> Result<Vec<(&'static str, Vec<u64>)>> {
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let names = names.to_vec();
            thread::spawn(move || -> Result<_> {
                let mut client = Client::connect(addr)?;
                let mut found = Vec::new();
                for name in names {
                    let mut numbers = Vec::new();
                    for round in 0..rounds {
                        if round % 3 == 0 {
                            numbers.push(next(&mut client, name)?);
                        } else {
                            numbers.extend(array(&mut client, name, 1 + round * 37 % 500)?);
                        }
                    }
                    ensure!(numbers.is_sorted_by(|one, other| one < other), "{name} does not ascend");
                    found.push((name, numbers));
                }
                Ok(found)
            })
        })
        .collect();
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.join().ok().context("a client panicked")??);
    }
    Ok(all)
}

#[test]
fn two_servers_on_one_folder_issue_no_number_twice_and_one_that_dies_leaves_a_bounded_gap() -> Result<()> {
    const NAMES: [&str; 3] = ["orders", "users", "invoices"];
    let (_home, data, _) = folder::fresh()?;
    let (left, right) = (serve_patiently(&data)?, serve_patiently(&data)?);
    for name in NAMES {
        xuid(&left, &["create", name])?.ok()?;
    }
    let mut seen: [BTreeSet<u64>; 3] = Default::default();
    let mut take = |servers: &[&Server]| -> Result<u64> {
        let loads: Vec<_> = servers
            .iter()
            .map(|server| server.addr)
            .map(|addr| thread::spawn(move || load(addr, &NAMES, 60)))
            .collect();
        for load in loads {
            for (name, numbers) in load.join().ok().context("a load panicked")?? {
                let at = NAMES.iter().position(|known| *known == name).unwrap_or_default();
                for number in numbers {
                    ensure!(seen[at].insert(number), "{number} of {name} came twice");
                }
            }
        }
        Ok(seen.iter().map(|numbers| numbers.len() as u64).sum())
    };
    take(&[&left, &right])?;
    left.kill()?;
    let reborn = serve_patiently(&data)?;
    let taken = take(&[&reborn, &right])?;
    println!("sequences: {taken} numbers of 3 names from two servers, one killed; none twice");
    reborn.stop()?;
    right.stop()?;
    let last = serve_patiently(&data)?;
    take(&[&last])?;
    Ok(())
}

#[test]
fn clean_restarts_leave_no_gap() -> Result<()> {
    let (_home, data, _) = folder::fresh()?;
    let mut answered = 0;
    for life in 0..8_u32 {
        let server = serve(&data)?;
        if life == 0 {
            xuid(&server, &["create", "orders", "--step", "300"])?.ok()?;
        }
        let mut client = server.client()?;
        for number in array(&mut client, "orders", 100 + life * 50)? {
            answered += 1;
            ensure!(number == answered, "{number} where {answered} was next, in life {life}");
        }
        answered += 1;
        ensure!(next(&mut client, "orders")? == answered);
        drop(client);
        server.stop()?;
    }
    println!("sequences: {answered} numbers over 8 lives, without a gap");
    Ok(())
}

#[test]
fn the_commands_create_show_list_use_alter_and_end_a_sequence() -> Result<()> {
    let (_home, data, _) = folder::fresh()?;
    let server = serve(&data)?;
    let unknown = xuid(&server, &["next", "orders"])?.refused(1)?;
    ensure!(unknown.contains("NO_SEQUENCE") && unknown.contains("xuid sequence create"), "{unknown}");
    xuid(&server, &["create", "orders", "--start", "10", "--increment", "5", "--remainder", "3"])?.ok()?;
    xuid(&server, &["create", "orders", "--start", "10", "--increment", "5", "--remainder", "3"])?.ok()?;
    ensure!(xuid(&server, &["create", "orders"])?.refused(1)?.contains("EXISTS"));
    ensure!(xuid(&server, &["create", "@any"])?.refused(2)?.contains("begins with @"));
    let numbers = xuid(&server, &["next", "orders", "-n", "3"])?;
    ensure!(numbers.ok()?.lines().eq(["13", "18", "23"]), "{}", numbers.ok()?);
    let shown = xuid(&server, &["show", "orders", "--json"])?.json()?;
    ensure!(shown["issued"] == "3" && shown["increment"] == "5" && shown["state"] == "ready", "{shown}");
    xuid(&server, &["alter", "orders", "--step", "7", "--description", "of the shop"])?.ok()?;
    let list = xuid(&server, &["list", "ord", "--json"])?.json()?;
    ensure!(list[0]["step"] == "7" && list.as_array().is_some_and(|list| list.len() == 1), "{list}");
    let retired = xuid(&server, &["retire", "orders", "--json"])?.json()?;
    let number = |name: &str| retired[name].as_str().and_then(|text| text.parse::<u64>().ok());
    ensure!(number("next").zip(number("last")).is_some_and(|(next, last)| next == last + 1), "{retired}");
    let metrics = server.metrics()?;
    for (up, is) in [("store_up", 1.0), ("witness_up", 1.0), ("waits_for_fence", 0.0)] {
        let told = metrics.sum(&[&format!("xuid_sequence_{up}")]);
        ensure!((told - is).abs() < 0.5, "{up} is {told}");
    }
    for all in ["xuid_sequence_issued_total", "xuid_sequence_all_issued_total"] {
        let issued = metrics.sum(&[all]);
        ensure!((issued - 3.0).abs() < 0.5, "{issued} numbers by {all}");
    }
    let ready = server.wait_ready(Duration::from_secs(5))?;
    ensure!(ready.starts_with("ready"), "{ready}");
    Ok(())
}

#[test]
fn a_server_does_nothing_for_sequences_before_one_is_asked_for_and_makes_nothing_before_one_is_created()
-> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let server = serve(&data)?;
    ledger.add_id(server.client()?.next(Order::Any)?);
    server.metrics()?;
    server.wait_ready(Duration::from_secs(5))?;
    ensure!(!has_begun(&server)?, "a thread runs for sequences that nobody asked for");
    let unknown = xuid(&server, &["next", "orders"])?.refused(1)?;
    ensure!(unknown.contains("NO_SEQUENCE"), "{unknown}");
    ensure!(xuid(&server, &["list", "--json"])?.json()? == serde_json::json!([]));
    ensure!(has_begun(&server)?);
    server.stop()?;
    let made = folder::files(&data, "sequences")?;
    ensure!(made.is_empty(), "{made:?} were made for no sequence");
    // A folder of before, in which there is no file of sequences.
    let server = serve(&data)?;
    xuid(&server, &["create", "orders"])?.ok()?;
    ensure!(next(&mut server.client()?, "orders")? == 1);
    server.stop()?;
    ensure!(!folder::files(&data, "sequences")?.is_empty());
    // A server that is not asked for the name leaves what another one left.
    let server = serve(&data)?;
    ledger.add_id(server.client()?.next(Order::Any)?);
    ensure!(!has_begun(&server)?);
    server.stop()?;
    let server = serve(&data)?;
    ensure!(next(&mut server.client()?, "orders")? == 2);
    server.stop()?;
    let off = Serve::new(&data)?.arg("--sequences").arg("off").start()?;
    let refused = xuid(&off, &["next", "orders"])?.refused(1)?;
    ensure!(refused.contains("UNKNOWN_OP") && refused.contains("sequences is off"), "{refused}");
    off.stop()?;
    ledger.check().map(drop)
}

#[test]
fn a_closed_sequence_is_behind_in_every_answer_until_its_name_is_fenced() -> Result<()> {
    let (home, original, _) = folder::fresh()?;
    let server = serve(&original)?;
    for name in ["orders", "users"] {
        xuid(&server, &["create", name, "--step", "100"])?.ok()?;
        next(&mut server.client()?, name)?;
    }
    server.stop()?;
    // A copy that becomes a cluster of its own: the other one goes on to grant.
    let data = home.path().join("copy");
    folder::copy(&original, &data)?;
    Xuid::new(["registry", "adopt", "--yes"])?.arg(&data).run()?.ok()?;
    let server = serve(&data)?;
    for words in [
        &["next", "orders"][..],
        &["show", "orders"],
        &["create", "orders"],
        &["create", "others"],
        &["alter", "orders", "--step", "7"],
        &["retire", "orders"],
    ] {
        let said = xuid(&server, words)?.refused(1)?;
        ensure!(said.contains("STORE_BEHIND") && said.contains("`xuid sequence fence`"), "{words:?}: {said}");
    }
    server.stop()?;
    let fence =
        |words: &[&str]| words.iter().fold(Xuid::new(["sequence", "fence"])?.arg(&data), Xuid::arg).run();
    let one = fence(&["orders", "--above", "5000", "--margin", "0", "--yes"])?;
    // One grant or two were made of it.
    let raised = ["orders  101 -> 5000", "orders  201 -> 5000"];
    ensure!(raised.contains(&one.ok()?.trim()), "{}", one.stdout);
    let server = serve(&data)?;
    ensure!(xuid(&server, &["next", "orders"])?.ok()?.trim() == "5000");
    ensure!(xuid(&server, &["next", "users"])?.refused(1)?.contains("STORE_BEHIND"));
    server.stop()?;
    fence(&["--yes"])?.ok()?;
    let server = serve(&data)?;
    // The margin is ten steps.
    ensure!(["1101", "1201"].contains(&xuid(&server, &["next", "users"])?.ok()?.trim()));
    xuid(&server, &["create", "others"])?.ok()?;
    // It may have been there before, and was used.
    let first = xuid(&server, &["next", "others"])?.ok()?.trim().to_owned();
    ensure!(first == "1000", "it begins where a mark of 0 is raised to, and at {first}");
    server.stop()?;
    let empty = tempfile::TempDir::new()?;
    Server::start(empty.path())?.stop()?;
    let said = Xuid::new(["sequence", "fence"])?.arg(empty.path()).arg("--yes").run()?.refused(1)?;
    ensure!(said.contains("has no sequences"), "{said}");
    ensure!(folder::files(empty.path(), "sequences")?.is_empty(), "a fence made a file of sequences");
    // It takes the place of one that is lost.
    let said = Xuid::new(["sequence", "fence"])?
        .arg(empty.path())
        .arg("--new-start")
        .arg("9000")
        .arg("--yes")
        .run()?;
    said.ok()?;
    let server = serve(empty.path())?;
    xuid(&server, &["create", "orders"])?.ok()?;
    let first = xuid(&server, &["next", "orders"])?.ok()?.trim().to_owned();
    ensure!(first == "9000", "it begins at {first}");
    server.stop()?;
    Ok(())
}

/// Lists that are asked for and not read cost their own connection its time, and the server no memory.
#[test]
fn lists_that_nobody_reads_hold_up_no_neighbour_and_no_memory() -> Result<()> {
    const SEQ_INFO: u8 = 0x38;
    const SEQ_LIST: u8 = 0x39;
    const NAMES: u32 = 1_000;
    let server = Serve::fresh()?.start()?;
    let mut maker = server.client()?;
    for n in 0..NAMES {
        let mut body = named(&format!("{n:0100}"));
        body.extend(br#"{"description":"\u0001\"\u0002"}"#);
        maker.push(0x3a, &body);
    }
    maker.flush()?;
    for _ in 0..NAMES {
        ensure!(maker.recv()?.status == 0, "a sequence was not made");
    }
    let mut list = NAMES.to_le_bytes().to_vec();
    list.extend([0, 0]);
    let before = process::rss_anon(server.pid())?;
    let mut greedy = server.client()?;
    (0..1_000).for_each(|_| _ = greedy.push(SEQ_LIST, &list));
    greedy.flush()?;
    let mut neighbour = server.client()?;
    let begun = clock::now();
    for _ in 0..20 {
        neighbour.call(SEQ_INFO, &named(&format!("{:0100}", 7)))?;
    }
    let took = begun.elapsed();
    let grown = process::rss_anon(server.pid())?.saturating_sub(before);
    println!("20 questions beside 1,000 lists took {took:?}; {} KiB more", grown >> 10);
    ensure!(grown < 64 << 20, "{grown} bytes for lists that nobody reads");
    ensure!(greedy.recv()?.status == 0, "the first list");
    Ok(())
}
