//! Prefetched ids while one of two servers fails.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use xuid_client::{Client, PrefetchOptions, PrefetchStats};

use crate::fake::{quick, soon};
use crate::mill::{Mill, Mood};

/// No call may fail, however long it takes.
const WAIT: Duration = Duration::from_secs(15);

/// What a stall may add on a machine that is busy with other things.
const NOISE: Duration = Duration::from_millis(900);

#[expect(clippy::disallowed_methods, reason = "a stall is measured in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Takes ids one by one, does that to the first of two servers on the way, and goes on until the second one has served
/// a while. Returns the longest that a `next` took; no id may come twice, and no call may fail.
async fn longest_stall(max_age: Duration, harm: impl Fn(&Mill)) -> (Duration, PrefetchStats) {
    let (a, b) = (Mill::start(1).await, Mill::start(2).await);
    let client = soon(Client::connect_any([a.addr, b.addr], quick())).await.unwrap();
    let source =
        client.prefetch(PrefetchOptions::new().max_age(max_age).wait(WAIT).ahead(16, 1_000)).unwrap();
    let mut ids = source.ids();
    let (mut taken, mut longest) = (BTreeSet::new(), Duration::ZERO);
    let mut take = async |count: usize| {
        for _ in 0..count {
            let begin = now();
            let id = soon(ids.next()).await.unwrap();
            longest = longest.max(begin.elapsed());
            assert!(taken.insert(id), "{id:x} came twice");
        }
        taken.last().is_some_and(|id| id >> 48 == 2)
    };
    assert!(!take(20_000).await, "the first server is used first");
    harm(&a);
    while !take(1_000).await {}
    take(20_000).await;
    assert_eq!(&*client.served().server, b.addr.to_string());
    drop(ids);
    let stats = source.stats();
    assert_eq!(stats.received, stats.issued + stats.wasted_by_age + stats.held, "{stats:?}");
    (longest, stats)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_stalls_nobody_for_longer_than_a_connect() {
    let (stall, stats) = longest_stall(Duration::from_mins(10), Mill::kill).await;
    assert!(stall < NOISE, "{stall:?}, {stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_ready_is_left_at_once_whatever_pause_it_asks_for() {
    let (stall, stats) = longest_stall(Duration::from_mins(10), |a| a.mood(Mood::NotReady)).await;
    assert!(stall < NOISE && stats.failed_refills > 0, "{stall:?}, {stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_goaway_is_left_without_a_failure() {
    let (stall, stats) = longest_stall(Duration::from_mins(10), |a| a.mood(Mood::GoesAway)).await;
    assert!(stall < NOISE, "{stall:?}, {stats:?}");
    assert_eq!(stats.failed_refills, 0, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_stalls_nobody_for_longer_than_an_id_may_be_old() {
    let age = Duration::from_millis(500);
    // The timeout of other calls is 10 s.
    let (stall, stats) = longest_stall(age, |a| a.mood(Mood::Silent)).await;
    // The age, and what the refill may wait at the server.
    assert!(stall < age + Duration::from_millis(50) + NOISE, "{stall:?}, {stats:?}");
    assert!(stats.failed_refills > 0, "{stats:?}");
}
