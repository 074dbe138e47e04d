//! Our servers beside Leaf's and tinyid's own, all on one row.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use xuid_tests::{Order, Serve, Server as XuidServer, Sql, Xuid, folder};

use crate::fixture::{Ranges, Server, on_both};
use crate::shapes::{leaf_table, leaf_takes, tiny_id_table, tinyid_takes};

on_both!(leaf_s_own_servers_and_ours_share_a_row, tinyid_s_own_servers_and_ours_share_a_row);

/// Segments that each of the other programs takes.
const TAKES: usize = 30;
/// Numbers of a request: many, so that our servers ask for new ones all the time.
const COUNT: u32 = 20_000;
const WAIT: Duration = Duration::from_secs(20);

/// What our servers issued, and what the others were granted.
struct Shared {
    ours: Vec<u64>,
    theirs: Ranges,
}

/// Two of our servers and two of the other programs, until those have taken their segments.
fn beside(
    server: &Server,
    (table, name): (&'static str, &'static str),
    takes: impl Fn(&mut Sql) -> Option<(u64, u64)> + Sync,
) -> Shared {
    let url = server.url().to_string();
    let init = Xuid::new(["sequence", "init", &url, "--sequence-table", table]).unwrap().run().unwrap();
    assert!(init.ok().unwrap().contains("xuid_store"), "{}", init.stdout);
    let homes = [folder::fresh().unwrap(), folder::fresh().unwrap()];
    let start = |(_, data, _): &(_, std::path::PathBuf, _)| -> XuidServer {
        let serve = Serve::new(data).unwrap().arg("--sequences").arg(&url);
        serve.arg("--sequence-table").arg(table).start().unwrap()
    };
    let servers: Vec<XuidServer> = homes.iter().map(start).collect();
    let left = AtomicUsize::new(2);
    let (left, takes) = (&left, &takes);
    let shared = thread::scope(|scope| {
        let others: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let (mut sql, mut ranges) = (server.sql(), Ranges::default());
                    while ranges.count(name) < TAKES {
                        if let Some((first, end)) = takes(&mut sql) {
                            ranges.add(name, first, end);
                        }
                    }
                    left.fetch_sub(1, Ordering::Relaxed);
                    ranges
                })
            })
            .collect();
        let ours: Vec<_> = servers
            .iter()
            .map(|xuid| {
                scope.spawn(move || {
                    let (mut client, mut numbers) = (xuid.client().unwrap(), Vec::new());
                    while numbers.is_empty() || left.load(Ordering::Relaxed) > 0 {
                        numbers.extend(client.seq_array(name, COUNT, WAIT, Order::Ordered).unwrap());
                    }
                    assert!(numbers.is_sorted(), "one server's numbers ascend");
                    numbers
                })
            })
            .collect();
        let mut theirs = Ranges::default();
        for other in others {
            theirs.join(other.join().unwrap());
        }
        Shared { ours: ours.into_iter().flat_map(|one| one.join().unwrap()).collect(), theirs }
    });
    for xuid in servers {
        xuid.stop().unwrap();
    }
    shared
}

/// No number is there twice. How many of the others' there are that fit, and the lowest of all.
fn check(shared: &Shared, name: &str, fits: impl Fn(u64) -> bool) -> u64 {
    let ours: BTreeSet<u64> = shared.ours.iter().copied().collect();
    assert_eq!(ours.len(), shared.ours.len(), "our servers issued a number twice");
    assert!(ours.iter().all(|number| fits(*number)));
    // Their ranges lie apart from each other.
    let theirs = shared.theirs.total(name);
    let mut lowest = ours.first().copied().unwrap_or(u64::MAX);
    for (first, end) in shared.theirs.of(name) {
        let both = ours.range(first..end).next();
        assert_eq!(both, None, "theirs too: [{first}, {end})");
        lowest = (first..end).find(|number| fits(*number)).map_or(lowest, |number| lowest.min(number));
    }
    println!("{} numbers of ours, {theirs} granted to the others", ours.len());
    lowest
}

fn leaf_s_own_servers_and_ours_share_a_row(server: &mut Server) {
    leaf_table(server);
    let shared = beside(server, ("leaf", "order"), |sql| Some(leaf_takes(sql)));
    assert_eq!(check(&shared, "order", |_| true), 1, "a row of max_id 1 begins at 1");
}

fn tinyid_s_own_servers_and_ours_share_a_row(server: &mut Server) {
    tiny_id_table(server);
    let shared = beside(server, ("tinyid", "test_odd"), tinyid_takes);
    assert_eq!(check(&shared, "test_odd", |number| number % 2 == 1), 3, "a row of max_id 1 begins above 1");
}
