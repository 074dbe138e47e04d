//! Many requests on one connection, each with its own reply.

use std::time::Duration;

use tokio::task::JoinSet;
use xuid_client::{Breach, ClientError, Decoded, Limits, Order, Run};
use xuid_protocol::{
    ArrayWriter, Bulk, RunsWriter, reply_decode, reply_id, reply_info, reply_ping, reply_stats,
};

use crate::fake::{Asked, Fake, cluster_id, quick, soon};

const WAIT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn requests_of_many_tasks_are_in_flight_at_once_and_each_gets_its_own_reply() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let mut tasks = JoinSet::new();
    for id in 0..300 {
        let client = client.clone();
        tasks.spawn(async move { (id, client.decode(id).await.unwrap()) });
    }
    // Nothing is answered before everything was asked, and then in the opposite order.
    let mut open = Vec::new();
    while open.len() < 300 {
        let Some((request_id, Asked::Decode(id))) = peer.ask().await else { panic!("a DECODE should come") };
        open.push((request_id, id));
    }
    for (request_id, id) in open.into_iter().rev() {
        let decoded = Decoded { unix_ms: id * 2, worker: 3, sequence: id as u32 };
        peer.send(|out| reply_decode(out, request_id, decoded)).await;
    }
    while let Some(done) = soon(tasks.join_next()).await {
        let (id, decoded) = done.unwrap();
        assert_eq!(decoded, Decoded { unix_ms: id * 2, worker: 3, sequence: id as u32 });
    }
}

#[tokio::test]
async fn every_op_asks_what_the_caller_said_and_returns_what_the_server_did() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let served = client.served();
    assert_eq!((served.cluster, served.limits, &*served.version), (cluster_id(1), Limits::default(), "fake"));
    let bulk = Bulk { count: 5, wait_ms: 50, order: Order::Fresh };
    let script = async {
        let id = peer.expect(Asked::Next(Order::Ordered)).await;
        peer.send(|out| reply_id(out, id, 77)).await;
        let id = peer.expect(Asked::Array(bulk)).await;
        peer.send(|out| {
            let mut writer = ArrayWriter::begin(out, id, 5);
            writer.run(10, 3);
            writer.ids(&[99, 98]);
            writer.finish();
        })
        .await;
        let id = peer.expect(Asked::Runs(bulk)).await;
        peer.send(|out| {
            let mut writer = RunsWriter::begin(out, id, 5);
            writer.run(10, 3);
            writer.push(Run { first: 50, count: 2, stride: 8 });
            writer.finish();
        })
        .await;
        let id = peer.expect(Asked::Info).await;
        peer.send(|out| reply_info(out, id, r#"{"a":"1"}"#)).await;
        let id = peer.expect(Asked::Stats).await;
        peer.send(|out| reply_stats(out, id, "{}")).await;
        let id = peer.expect(Asked::Ping(b"x".to_vec())).await;
        peer.send(|out| reply_ping(out, id, b"x")).await;
        let id = peer.expect(Asked::Ping(b"y".to_vec())).await;
        peer.send(|out| reply_ping(out, id, b"z")).await;
    };
    let calls = async {
        assert_eq!(client.next(Order::Ordered).await.unwrap(), 77);
        assert_eq!(client.array(5, Order::Fresh, WAIT).await.unwrap(), [10, 11, 12, 99, 98]);
        let runs = client.runs(5, Order::Fresh, WAIT).await.unwrap();
        assert_eq!(runs.into_iter().flatten().collect::<Vec<_>>(), [10, 11, 12, 50, 58]);
        assert_eq!(client.info().await.unwrap(), r#"{"a":"1"}"#);
        assert_eq!(client.stats().await.unwrap(), "{}");
        client.ping(b"x").await.unwrap();
        let changed = client.ping(b"y").await.unwrap_err();
        assert!(matches!(changed, ClientError::Protocol { source: Breach::Echo, .. }), "{changed:?}");
    };
    soon(async { tokio::join!(script, calls) }).await;
}

#[tokio::test]
async fn a_large_array_arrives_whole_in_whatever_pieces() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let script = async {
        for _ in 0..3 {
            let (id, asked) = peer.ask().await.unwrap();
            assert!(matches!(asked, Asked::Array(_)));
            let mut frame = Vec::new();
            let mut writer = ArrayWriter::begin(&mut frame, id, 131_072);
            writer.run(id, 131_072);
            writer.finish();
            for piece in frame.chunks(50_001) {
                peer.send(|out| out.extend_from_slice(piece)).await;
                tokio::task::yield_now().await;
            }
        }
    };
    let calls = async {
        let (a, b, c) = tokio::join!(
            client.array(131_072, Order::Any, WAIT),
            client.array(131_072, Order::Any, WAIT),
            client.array(131_072, Order::Any, WAIT)
        );
        for ids in [a.unwrap(), b.unwrap(), c.unwrap()] {
            assert!(ids.len() == 131_072 && ids.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
    };
    soon(Box::pin(async { tokio::join!(script, calls) })).await;
}

#[tokio::test]
async fn no_more_requests_are_in_flight_than_both_sides_allow() {
    for (ours, theirs) in [(3, 1_024), (1_024, 3)] {
        let mut fake = Fake::start(1).await;
        fake.limits.max_in_flight = theirs;
        let (client, mut peer) = fake.pair(quick().max_in_flight(ours)).await;
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let client = client.clone();
            tasks.spawn(async move { client.next(Order::Any).await.unwrap() });
        }
        // One thread runs everything: after so many turns each task has done all it can without a reply.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        let mut buf = [0; 4_096];
        soon(peer.stream.readable()).await.unwrap();
        let received = peer.stream.peek(&mut buf).await.unwrap();
        assert_eq!(received, 3 * 16, "three frames of NEXT without a body");
        for id in 0..20 {
            peer.serve(id).await;
        }
        let mut ids: Vec<u64> = soon(tasks.join_all()).await;
        ids.sort_unstable();
        assert_eq!(ids, (0..20).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_disturbs_nobody_and_its_room_comes_back() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().max_in_flight(2)).await;
    let given_up = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Fresh).await }
    });
    let late = peer.expect(Asked::Next(Order::Fresh)).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    for id in 0..5 {
        let (next, ()) = tokio::join!(client.next(Order::Any), peer.serve(id));
        assert_eq!(next.unwrap(), id);
        if id == 2 {
            peer.send(|out| reply_id(out, late, 1_000)).await;
        }
    }
    // Two at once again: the late reply gave its room back.
    let (a, b, ()) = tokio::join!(client.next(Order::Any), client.next(Order::Any), async {
        let (a, _) = peer.ask().await.unwrap();
        let (b, _) = peer.ask().await.unwrap();
        peer.send(|out| reply_id(out, b, 21)).await;
        peer.send(|out| reply_id(out, a, 20)).await;
    });
    assert_eq!((a.unwrap(), b.unwrap()), (20, 21));
}
