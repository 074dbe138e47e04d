//! Moving in from another generator, which is written down here: it and the servers issue side by side with workers of
//! their own, and then the servers alone have all. `XUID_LONG=1` takes ten million ids.

use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{FakeClock, Ledger, Order, Serve, Server, Xuid, clock, folder};

/// Twitter's epoch, which bwmarrin's library has as well.
const EPOCH_MS: u64 = 1_288_834_974_657;

/// Ids of all generators together.
fn many() -> u64 {
    if std::env::var_os("XUID_LONG").is_some() { 10_000_000 } else { 600_000 }
}

/// A generator as that library is: 41 bits of milliseconds, 10 of the node and 12 of a step, which begins anew each
/// millisecond; when the steps of one are used up it waits for the next.
struct Snowflake {
    node: u64,
    time: u64,
    step: u64,
}

impl Snowflake {
    fn new(node: u64) -> Self {
        Self { node, time: 0, step: 0 }
    }

    fn generate(&mut self) -> u64 {
        let mut now = clock::unix_ms() - EPOCH_MS;
        if now == self.time {
            self.step = (self.step + 1) & 0xfff;
            if self.step == 0 {
                while now <= self.time {
                    now = clock::unix_ms() - EPOCH_MS;
                }
            }
        } else {
            self.step = 0;
        }
        self.time = now;
        now << 22 | self.node << 12 | self.step
    }
}

fn worker(id: u64) -> u64 {
    id >> 12 & 0x3ff
}

/// Ids of several old generators.
fn old_ids(nodes: &[u64], each: u64) -> Vec<u64> {
    let ids = |node: u64| {
        let mut generator = Snowflake::new(node);
        (0..each).map(|_| generator.generate()).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(move || ids(*node))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// Takes ids of a server until it has so many, and checks each.
fn ours(server: &Server, count: u64, ledger: &mut Ledger, is_right: impl Fn(u64) -> bool) -> Result<u64> {
    let (mut client, mut taken) = (server.client()?, 0);
    while taken < count {
        for order in Order::ALL {
            for run in client.runs(5_000, std::time::Duration::from_secs(10), order)? {
                let last = run.first + u64::from(run.count) - 1;
                ensure!(is_right(run.first) && is_right(last), "{run:?} of worker {}", worker(run.first));
                taken += u64::from(run.count);
                ledger.add(run);
            }
        }
    }
    Ok(taken)
}

fn init(data: &Path, more: &[&str]) -> Result<String> {
    let init = Xuid::new(["registry", "init", "--layout", "twitter"])?.arg(data);
    Ok(more.iter().fold(init, Xuid::arg).run()?.ok()?.to_owned())
}

#[test]
fn an_old_generator_and_servers_issue_side_by_side_and_then_the_servers_alone() -> Result<()> {
    let (_home, data, _) = folder::fresh()?;
    let mut ledger = Ledger::new(10, 12);
    let nodes = [0, 7, 511];
    let each = many() / 12;
    let before = old_ids(&nodes, each);
    let cut = *before.iter().max().context("none")?;
    let said = init(&data, &["--closed", "0..512", "--after-id", &cut.to_string()])?;
    println!("moving in: {}", said.lines().last().unwrap_or_default());

    // Side by side: no moment without ids of either.
    let server = Server::start(&data)?;
    let (beside, taken) = thread::scope(|scope| {
        let old = scope.spawn(|| old_ids(&nodes, each));
        let taken = ours(&server, many() / 4, &mut ledger, |id| id > cut && worker(id) >= 512);
        (old.join().unwrap_or_default(), taken)
    });
    taken?;
    for id in before.into_iter().chain(beside.iter().copied()) {
        ledger.add_id(id);
    }
    println!("moving in, side by side: {}", ledger.check()?);

    // The old ones have stopped. Beside the running server their workers are opened.
    let last = *beside.iter().max().context("none")?;
    let open = |workers: &str| -> Result<Xuid> {
        let open = Xuid::new(["registry", "open", "--workers", workers, "--after-id", &last.to_string()])?;
        Ok(open.arg(&data))
    };
    let said = open("0..512")?.run()?.refused(2)?;
    ensure!(said.contains("--yes") && said.contains("issued no id above"), "{said}");
    let said = open("500..513")?.arg("--yes").run()?.refused(2)?;
    ensure!(said.contains("not closed") && said.contains("512"), "{said}");
    println!("moving in: {}", open("0..512")?.arg("--yes").run()?.ok()?.trim());
    let said = open("0..1")?.arg("--yes").run()?.refused(2)?;
    ensure!(said.contains("not closed"), "{said}");
    ours(&server, many() / 4, &mut ledger, |id| id > cut && worker(id) >= 512)?;
    // Nobody may take one for 125 s.
    let early = Serve::new(&data)?.arg("--worker").arg("7").run_to_exit()?.refused(1)?;
    ensure!(early.contains('7') && early.contains("ahead of the clock"), "{early}");
    let wall = FakeClock::new()?;
    wall.shift(130_000)?;
    for node in nodes {
        let later = wall.over(Serve::new(&data)?.arg("--worker").arg(node.to_string())).start()?;
        // Some come from the spill that the one before left.
        ours(&later, many() / 12, &mut ledger, |id| id > last && nodes.contains(&worker(id)))?;
        let fresh = later.client()?.next(Order::Fresh)?;
        ensure!(worker(fresh) == node, "{fresh}");
        ledger.add_id(fresh);
        later.end(node != 7)?;
    }
    println!("moving in, alone: {}", ledger.check()?);
    server.stop()?;
    Ok(())
}

#[test]
fn servers_take_no_closed_worker_and_say_so_where_all_are() -> Result<()> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    init(&data, &["--workers", "8", "--closed", "0..6"])?;
    let servers = [Server::start(&data)?, Server::start(&data)?];
    let mut held: Vec<_> = Vec::new();
    for server in &servers {
        held.push(worker(server.client()?.next(Order::Fresh)?));
    }
    held.sort_unstable();
    ensure!(held == [6, 7], "{held:?}");
    let said = Serve::new(&data)?.arg("--worker").arg("3").run_to_exit()?.refused(1)?;
    ensure!(said.contains("closed") && said.contains("xuid registry open"), "{said}");
    for server in servers {
        server.stop()?;
    }
    let show = Xuid::new(["registry", "show"])?.arg(&data).run()?;
    ensure!(show.ok()?.contains("closed    6"), "{}", show.ok()?);
    let listed = Xuid::new(["workers", "--all", "--data-dir"])?.arg(&data).run()?;
    ensure!(listed.ok()?.contains("5       closed") && listed.ok()?.contains("6 closed"), "{}", listed.ok()?);
    let inspected = Xuid::new(["inspect"])?.arg(&data).run()?;
    ensure!(inspected.ok()?.contains("6 closed"), "{}", inspected.ok()?);

    // A fence keeps them closed.
    Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run()?.ok()?;
    let show = Xuid::new(["registry", "show", "--json"])?.arg(&data).run()?.json()?;
    ensure!(show["closed"] == 6, "{show}");

    let all = home.path().join("all");
    init(&all, &["--workers", "4", "--closed", "0..4"])?;
    let server = Serve::new(&all)?.start()?;
    clock::wait_until("it says why", std::time::Duration::from_secs(20), || {
        Ok(server.log().contains("is closed, as another generator has it"))
    })?;
    let refused = server.client()?.next(Order::Any);
    ensure!(refused.is_err(), "{refused:?}");
    server.kill()?;
    Ok(())
}

#[test]
fn a_registry_of_a_part_of_the_workers_serves_those_and_names_them() -> Result<()> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    // 22 bits of worker: four million records otherwise.
    let part = ["registry", "init", "--layout", "36/22/5,tick=10ms", "--workers", "4000000..4000008"];
    let made = Xuid::new(part)?.arg(&data).run()?;
    ensure!(made.ok()?.contains("4000000..4000008"), "{}", made.ok()?);
    let said = Serve::new(&data)?.arg("--worker").arg("5").run_to_exit()?.refused(2)?;
    ensure!(said.contains("4000000 to 4000007"), "{said}");
    let mut seen = std::collections::HashSet::new();
    for life in 0..3 {
        let server = Serve::new(&data)?.arg("--worker").arg("4000007").start()?;
        let mut client = server.client()?;
        for id in client.array(3_000, std::time::Duration::from_secs(10), Order::Fresh)? {
            ensure!(seen.insert(id), "{id} came twice");
            ensure!(id >> 5 & 0x3f_ffff == 4_000_007, "{id}");
        }
        let id = client.next(Order::Fresh)?;
        let known =
            Xuid::new(["provenance", "--json", &id.to_string(), "--data-dir"])?.arg(&data).run()?.json()?;
        ensure!(known["issued"] == "maybe" && known["worker"] == 4_000_007, "{known}");
        let other = (id & !(0x3f_ffff << 5) | 3_999_999 << 5).to_string();
        let known = Xuid::new(["provenance", "--json", &other, "--data-dir"])?.arg(&data).run()?.json()?;
        ensure!(known["verdict"] == "impossible", "{known}");
        let told = Xuid::new(["decode", &other, "--server", &server.addr.to_string()])?.run()?;
        ensure!(told.ok()?.contains("first worker there is 4000000"), "{}", told.ok()?);
        // The last one: after a kill its worker would have to be waited for.
        server.end(life != 2)?;
    }
    let server = Server::start(&data)?;
    let id = server.client()?.next(Order::Fresh)?;
    ensure!((4_000_000..4_000_008).contains(&(id >> 5 & 0x3f_ffff)), "{id}");
    server.stop()?;
    Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run()?.ok()?;
    let listed = Xuid::new(["workers", "--all", "--json", "--data-dir"])?.arg(&data).run()?;
    ensure!(listed.ok()?.lines().count() == 8 && listed.ok()?.contains("4000003"), "{}", listed.ok()?);

    for (flag, text, words) in [
        ("--workers", "5..5", "A..B"),
        ("--workers", "1000..2000", "0..1024"),
        ("--closed", "1000..1025", "0..1024"),
        ("--closed", "7", "A..B"),
    ] {
        let said =
            Xuid::new(["registry", "init", flag, text])?.arg(home.path().join("none")).run()?.refused(2)?;
        ensure!(said.contains(flag) && said.contains(text) && said.contains(words), "{flag} {text}: {said}");
    }
    Ok(())
}
