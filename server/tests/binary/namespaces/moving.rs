//! Moving in from another generator: ids above its last one, and workers that it keeps for a while.

use std::path::Path;

use serde_json::Value;
use xuid_engine::clock::{Clock, SystemClock};

use crate::support::{Server, failure, run, stdout, until};

/// Twitter's epoch.
const TWITTER_MS: u64 = 1_288_834_974_657;

fn now_ms() -> u64 {
    SystemClock.read().wall / 1_000_000
}

/// An id of Twitter's layout, so many milliseconds from now.
fn twitter_id(ahead_ms: u64) -> u64 {
    (now_ms() + ahead_ms - TWITTER_MS) << 22 | 5 << 12 | 7
}

fn init(folder: &Path, more: &[&str]) -> Value {
    let args = ["registry", "init", folder.to_str().unwrap(), "--json"];
    serde_json::from_str(&stdout(&run(&[&args[..], more].concat()))).unwrap()
}

fn ids(server: &Server, count: usize) -> Vec<u64> {
    let args = ["next", "-n", &count.to_string(), "--order", "fresh", "--server", &server.addr.to_string()];
    stdout(&run(&args)).lines().map(|id| id.parse().unwrap()).collect()
}

#[test]
fn every_id_is_above_the_last_one_of_another_generator() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    // Its clock was two seconds fast.
    let last = twitter_id(2_000);
    let made = init(&folder, &["--layout", "twitter", "--after-id", &last.to_string()]);
    let floor = made["floor"].as_u64().unwrap();
    assert_eq!(floor, (last >> 22) + 1);
    let first: u64 = made["first_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(first, floor << 22, "that lies ahead of the clock, so it is the first id to come");
    let server = Server::start(&folder, &[], &[]);
    until("the floor is past", || {
        run(&["next", "--order", "fresh", "--server", &server.addr.to_string()]).status.success()
    });
    assert!(ids(&server, 1_000).iter().all(|id| *id > last && *id >= first));
}

#[test]
fn a_last_id_far_ahead_is_refused_with_an_epoch_that_works() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let last = twitter_id(3_600_000).to_string();
    let text = folder.to_str().unwrap();
    let args = ["registry", "init", text, "--layout", "twitter", "--after-id", &last];
    let (code, said) = failure(&run(&args));
    assert!(code == Some(2) && said.contains("--after-id") && said.contains("125 s"), "{said}");
    assert!(!folder.exists(), "nothing was made");
    let epoch = said.split("works is ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(epoch.parse::<u64>().unwrap() < TWITTER_MS - 3_400_000, "{said}");
    let made = init(&folder, &["--layout", "twitter", "--epoch", &epoch, "--after-id", &last]);
    assert_eq!(made["layout"]["epoch_ms"].to_string().trim_matches('"'), epoch);
    assert!(made["first_id"].as_str().unwrap().parse::<u64>().unwrap() > last.parse().unwrap());
}

#[test]
fn a_counter_goes_on_in_ids_and_what_leaves_no_id_above_it_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let made = init(&folder, &["--after-id", "1234567890"]);
    assert_eq!(made["floor"], 1_234_567_890_u64 / (1 << 22) + 1);
    let first: u64 = made["first_id"].as_str().unwrap().parse().unwrap();
    let server = Server::start(&folder, &[], &[]);
    let got = ids(&server, 100);
    assert!(got.iter().all(|id| *id >= first && first > 1_234_567_890), "{got:?}");

    let other = home.path().join("other");
    for (id, words) in [
        ("9007199254740991", &["--after-id", "no id above"][..]),
        ("9223372036854775808", &["9223372036854775808", "after-id"]),
    ] {
        let args = ["registry", "init", other.to_str().unwrap(), "--layout", "js", "--after-id", id];
        let (code, said) = failure(&run(&args));
        assert!(code == Some(2) && words.iter().all(|word| said.contains(word)), "{said}");
    }
    assert!(!other.exists());
}
