//! Prefetched ids while one of two servers fails.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use xuid_client::{Client, ClientError, Order, PrefetchOptions, PrefetchStats};

use crate::fake::{Asked, Fake, Pair, cluster_id, moved_on, quick, soon};
use crate::mill::{Mill, Mood};

/// No call may fail, however long it takes.
const WAIT: Duration = Duration::from_secs(15);

/// What a stall may add on a machine that is busy with other things.
const NOISE: Duration = Duration::from_millis(900);

#[expect(clippy::disallowed_methods, reason = "a stall is measured in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Takes ids one by one, does that to the server in use on the way, and goes on until the other one has served a
/// while. Returns the longest that a `next` took; no id may come twice, and no call may fail.
async fn longest_stall(max_age: Duration, harm: impl Fn(&Mill)) -> (Duration, PrefetchStats) {
    let (a, b) = (Mill::start(1).await, Mill::start(2).await);
    let client = soon(Client::connect_any([a.addr, b.addr], quick())).await.unwrap();
    let is_at_a = *client.served().server == *a.addr.to_string();
    let (a, b) = if is_at_a { (a, b) } else { (b, a) };
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
        taken.range(b.land()..).next().is_some_and(|id| *id < b.land() + (1 << 48))
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

#[tokio::test]
async fn what_is_held_is_dropped_when_the_server_turns_out_to_be_of_another_cluster() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().reconnect_rounds(1)).await;
    let source =
        client.prefetch(PrefetchOptions::new().ahead(16, 64).max_age(Duration::from_mins(10))).unwrap();
    let (mut one, mut other) = (source.ids(), source.ids());
    let taking = async { (one.next().await.unwrap(), other.next().await.unwrap()) };
    let (taken, _) = soon(async { tokio::join!(taking, peer.serve_runs(1)) }).await;
    assert_eq!(taken.0.min(taken.1), 1);
    drop(peer);
    // By a call, which the source knows nothing of.
    let call = async {
        loop {
            match client.next(Order::Any).await.unwrap_err() {
                ClientError::Lost { .. } => {}
                error => return error,
            }
        }
    };
    let strange = async { fake.greet_as(cluster_id(9)).await.expect_end().await };
    let (error, ()) = soon(async { tokio::join!(call, strange) }).await;
    assert!(matches!(error, ClientError::ClustersDiffer { .. }), "{error:?}");
    // In a handle and in the pool.
    assert_eq!((one.try_next(), other.try_next()), (None, None));
    let stats = source.stats();
    assert_eq!((stats.issued + stats.wasted_by_age, stats.held), (stats.received, 0), "{stats:?}");
    // The server of before is back, and what it gives now is good.
    let taking = async {
        loop {
            match one.next().await {
                Ok(id) => return id,
                Err(error) => assert!(matches!(error, ClientError::ClustersDiffer { .. }), "{error:?}"),
            }
        }
    };
    let back = async {
        let mut peer = fake.greet().await;
        peer.serve_runs(1_000).await;
        peer
    };
    let (id, _peer) = soon(async { tokio::join!(taking, back) }).await;
    assert!(id >= 1_000, "{id}");
}

#[tokio::test]
async fn ids_that_were_on_their_way_when_another_cluster_was_met_are_dropped_as_well() {
    let options = quick().retry_for(Duration::from_secs(15)).return_after(Duration::from_millis(50));
    let Pair { a, b, client, at_a } = Pair::start(options).await;
    let mut stand_in = moved_on(&client, at_a, &b).await;
    let source = client.prefetch(PrefetchOptions::new().max_age(Duration::from_mins(10))).unwrap();
    let mut ids = source.ids();
    assert_eq!(ids.try_next(), None);
    let (asked, runs) = soon(stand_in.ask()).await.unwrap();
    let Asked::Runs(bulk) = runs else { panic!("{runs:?} instead of RUNS") };
    soon(a.greet_as(cluster_id(9))).await.expect_end().await;
    // The client has read the greeting before it closed.
    stand_in.send_runs(asked, 1, bulk.count).await.unwrap();
    let (next, second) = soon(async { tokio::join!(ids.next(), stand_in.serve_runs(5_000)) }).await;
    assert!(second > 0 && next.as_ref().is_ok_and(|id| *id >= 5_000), "{next:?}");
    assert_eq!(source.stats().wasted_by_age, u64::from(bulk.count));
}
