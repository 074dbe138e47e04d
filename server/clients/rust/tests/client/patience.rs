//! A call that gives up, and what goes on without it.

use std::time::Duration;

use xuid_client::{Client, ClientError, Options, Order, PrefetchOptions, PrefetchStats};
use xuid_protocol::{ArrayWriter, Bulk, Refusal, Status, reply_id, reply_ping};

use crate::fake::{Asked, Fake, Pair, Peer, quick, soon};
use crate::mill::until;

const HOUR: Duration = Duration::from_hours(1);

type Call = tokio::task::JoinHandle<Result<u64, ClientError>>;

/// A call in flight, and its request.
async fn in_flight(client: &Client, peer: &mut Peer) -> (Call, u64) {
    let client = client.clone();
    let call = tokio::spawn(async move { client.next(Order::Fresh).await });
    (call, peer.expect(Asked::Next(Order::Fresh)).await)
}

/// Ids may be this old, which is what a refill waits for.
fn hasty() -> PrefetchOptions {
    PrefetchOptions::new().max_age(Duration::from_millis(20)).wait(HOUR)
}

/// Several refills were given up.
fn gave_up(stats: PrefetchStats) -> bool {
    stats.failed_refills >= 5
}

#[tokio::test]
async fn the_impatience_of_a_prefetch_ends_no_call_but_its_own() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let (call, request_id) = in_flight(&client, &mut peer).await;
    let source = client.prefetch(hasty()).unwrap();
    // Nothing is answered for many times the age.
    until(|| gave_up(source.stats())).await;
    assert!(client.is_connected() && !fake.has_caller().await);
    peer.send(|out| reply_id(out, request_id, 1)).await;
    assert_eq!(soon(call).await.unwrap().unwrap(), 1);
    // Late runs find nobody, and the next calls their own replies.
    let script = async {
        loop {
            let (request_id, asked) = peer.ask().await.unwrap();
            match asked {
                Asked::Runs(bulk) => peer.send_runs(request_id, 1_000, bulk.count).await.unwrap(),
                Asked::Next(_) => return peer.send(|out| reply_id(out, request_id, 2)).await,
                other => panic!("{other:?}"),
            }
        }
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 2);
}

#[tokio::test]
async fn a_call_that_only_waited_for_room_ends_alone() {
    let fake = Fake::start(1).await;
    let options = quick().max_in_flight(1).timeout(Duration::from_millis(50));
    let (client, mut peer) = fake.pair(options).await;
    let minute = Duration::from_mins(1);
    let long = tokio::spawn({
        let client = client.clone();
        async move { client.array(1, Order::Any, minute).await }
    });
    let request_id = peer.expect(Asked::Array(Bulk::new(1, Order::Any, minute))).await;
    for _ in 0..3 {
        let error = soon(client.next(Order::Any)).await.unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
    }
    peer.send(|out| {
        let mut writer = ArrayWriter::begin(out, request_id, 1);
        writer.run(7, 1);
        writer.finish();
    })
    .await;
    assert_eq!(soon(long).await.unwrap().unwrap(), [7]);
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), peer.serve(8)) }).await;
    assert_eq!(next.unwrap(), 8, "what was never sent is not asked for");
}

#[tokio::test]
async fn a_reply_that_comes_after_its_call_gave_up_finds_nobody_and_gives_its_room_back() {
    let fake = Fake::start(1).await;
    let options = quick().max_in_flight(2).timeout(Duration::from_millis(300));
    let (client, mut peer) = fake.pair(options).await;
    let (late, request_id) = in_flight(&client, &mut peer).await;
    // The server is slow with one and quick with others: that is no silence.
    while !late.is_finished() {
        let script = async {
            let ping = peer.expect(Asked::Ping(vec![1])).await;
            peer.send(|out| reply_ping(out, ping, &[1])).await;
        };
        let (pong, ()) = soon(async { tokio::join!(client.ping(&[1]), script) }).await;
        pong.unwrap();
    }
    assert!(matches!(late.await.unwrap(), Err(ClientError::Timeout { .. })));
    peer.send(|out| reply_id(out, request_id, 1_000)).await;
    let ((a, one), (b, two)) = (in_flight(&client, &mut peer).await, in_flight(&client, &mut peer).await);
    peer.send(|out| reply_id(out, two, 2)).await;
    peer.send(|out| reply_id(out, one, 1)).await;
    assert_eq!((soon(a).await.unwrap().unwrap(), soon(b).await.unwrap().unwrap()), (1, 2));
}

#[test]
fn a_reply_that_lies_there_at_the_end_of_its_time_counts_although_the_runtime_is_late() {
    let one_thread =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (servers, clients) = (one_thread(), one_thread());
    let timeout = Duration::from_millis(100);
    let (asked, is_asked) = tokio::sync::oneshot::channel();
    let (stopped, is_stopped) = tokio::sync::oneshot::channel();
    let fake = servers.block_on(Fake::start(1));
    let connect = Client::connect(fake.addr, quick().timeout(timeout));
    let serving = servers.spawn(async move {
        let mut peer = fake.greet().await;
        let request_id = peer.expect(Asked::Next(Order::Any)).await;
        asked.send(()).unwrap();
        is_stopped.await.unwrap();
        peer.send(|out| reply_id(out, request_id, 7)).await;
        // On a busy machine the client asks whether the link still lives.
        while let Some((request_id, Asked::Ping(bytes))) = peer.ask().await {
            peer.send(|out| reply_ping(out, request_id, &bytes)).await;
        }
    });
    clients.block_on(async {
        let client = soon(connect).await.unwrap();
        // The thread that reads stands still beyond the call's time, and then goes on with something else first. The
        // call is not its task.
        let hog = tokio::spawn(async move {
            is_asked.await.unwrap();
            stopped.send(()).unwrap();
            std::thread::sleep(timeout * 2);
            for _ in 0..20 {
                tokio::task::yield_now().await;
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        assert_eq!(soon(client.next(Order::Any)).await.unwrap(), 7);
        soon(hog).await.unwrap();
        assert!(client.is_connected());
    });
    servers.block_on(serving).unwrap();
}

#[tokio::test]
async fn a_silent_server_is_left_even_if_no_caller_had_the_patience_to_find_out() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().timeout(Duration::from_millis(100))).await;
    let (call, _) = in_flight(&client, &mut peer).await;
    call.abort();
    peer.expect(Asked::Ping(vec![])).await;
    peer.expect_end().await;
    assert!(!client.is_connected());
}

#[tokio::test]
async fn a_connection_without_requests_may_be_silent_for_as_long_as_it_likes() {
    let fake = Fake::start(1).await;
    let timeout = Duration::from_millis(150);
    let (client, mut peer) = fake.pair(quick().timeout(timeout)).await;
    for id in 0..3 {
        let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), peer.serve(id)) }).await;
        assert_eq!(next.unwrap(), id);
        tokio::time::sleep(timeout * 2).await;
        assert!(client.is_connected());
    }
    assert!(!fake.has_caller().await);
}

#[tokio::test]
async fn a_prefetch_leaves_a_silent_server_for_another_one_and_calls_in_flight_are_still_answered() {
    let Pair { a: _a, b, client, mut at_a } = Pair::start(Options::new()).await;
    let (call, request_id) = in_flight(&client, &mut at_a).await;
    let source = client.prefetch(hasty()).unwrap();
    let mut ids = source.ids();
    let script = async { b.greet().await.serve_runs(500).await };
    let (next, _) = soon(async { tokio::join!(ids.next(), script) }).await;
    assert_eq!(next.unwrap(), 500);
    at_a.send(|out| reply_id(out, request_id, 1)).await;
    assert_eq!(soon(call).await.unwrap().unwrap(), 1);
}

/// Its calls would wait for a connection to the other one, for as long as that may take.
#[tokio::test]
async fn a_server_that_is_silent_for_a_moment_is_not_left_for_one_that_was_not_there() {
    let Pair { a, b, client, at_a } = Pair::start(quick().timeout(Duration::from_mins(1))).await;
    // Nobody is there when it loses its server, and looks for another one.
    drop((b, at_a));
    until(|| !client.is_connected()).await;
    let script = async {
        let mut peer = a.greet().await;
        peer.serve(1).await;
        peer
    };
    let (next, mut at_a) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 1);
    let source = client.prefetch(hasty()).unwrap();
    until(|| gave_up(source.stats())).await;
    assert!(client.is_connected() && !a.has_caller().await, "it stays");
    let script = async {
        loop {
            match at_a.ask().await.unwrap() {
                (request_id, Asked::Next(_)) => return at_a.send(|out| reply_id(out, request_id, 2)).await,
                (_, Asked::Runs(_)) => {}
                (_, other) => panic!("{other:?}"),
            }
        }
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 2);
}

/// Nor for one that took the connection at the beginning, and said nothing.
#[tokio::test]
async fn a_server_that_did_not_answer_at_the_connect_is_gone_to_for_no_silence_and_no_refusal() {
    let (a, b) = (Fake::start(1).await, Fake::start(1).await);
    let connect = Client::connect_any([a.addr, b.addr], quick().timeout(Duration::from_mins(1)));
    let (client, mut at_a) = soon(async { tokio::join!(connect, a.greet()) }).await;
    let client = client.unwrap();
    let _silent = soon(b.accept()).await;
    let refusal = Refusal::new(Status::NOT_READY, "soon");
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), at_a.refuse(&refusal)) }).await;
    assert!(matches!(next, Err(ClientError::Refused { .. })), "{next:?}");
    assert!(client.is_connected());
    let source = client.prefetch(hasty()).unwrap();
    until(|| gave_up(source.stats())).await;
    assert!(client.is_connected() && !b.has_caller().await, "it stays");
}

/// A store that is away for long would have all callers wait for a connection each time that one asks for a number.
#[tokio::test]
async fn no_refusal_leads_again_soon_to_a_server_that_was_silent_for_long() {
    let options = quick().connect_timeout(Duration::from_secs(1));
    let Pair { a, b: _silent, client, mut at_a } = Pair::start(options).await;
    let refusal = Refusal::new(Status::STORE_AWAY, "away").retry_after(Duration::from_secs(1));
    let (number, ()) = soon(async { tokio::join!(client.next(Order::Any), at_a.refuse(&refusal)) }).await;
    assert!(number.is_err() && !client.is_connected(), "it is left once");
    let script = async {
        let mut at_a = a.greet().await;
        at_a.serve(1).await;
        at_a
    };
    let (next, mut at_a) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 1);
    let (number, ()) = soon(async { tokio::join!(client.next(Order::Any), at_a.refuse(&refusal)) }).await;
    assert!(number.is_err() && client.is_connected(), "and not again at once");
}

#[tokio::test]
async fn a_server_that_lives_and_waits_with_a_next_keeps_its_connection_and_a_longer_call() {
    let fake = Fake::start(1).await;
    let timeout = Duration::from_millis(200);
    let (client, mut peer) = fake.pair(quick().timeout(timeout)).await;
    let wait = Duration::from_secs(15);
    let long = tokio::spawn({
        let client = client.clone();
        async move { client.array(1, Order::Any, wait).await }
    });
    let array = peer.expect(Asked::Array(Bulk::new(1, Order::Any, wait))).await;
    // It answers neither for five times the timeout, and nothing is left of the timeout's silence but PINGs.
    let (next, request_id) = in_flight(&client, &mut peer).await;
    let mut pings = 0;
    while pings < 10 {
        let ping = peer.expect(Asked::Ping(vec![])).await;
        peer.send(|out| reply_ping(out, ping, &[])).await;
        pings += 1;
    }
    assert!(
        matches!(soon(next).await.unwrap(), Err(ClientError::Timeout { .. })),
        "the call itself gives up"
    );
    peer.send(|out| {
        reply_id(out, request_id, 8);
        let mut writer = ArrayWriter::begin(out, array, 1);
        writer.run(7, 1);
        writer.finish();
    })
    .await;
    assert_eq!(soon(long).await.unwrap().unwrap(), [7]);
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), peer.serve(9)) }).await;
    assert_eq!(next.unwrap(), 9);
}

#[tokio::test]
async fn a_server_that_answers_nothing_but_pings_is_left_for_another_one() {
    let options = quick().timeout(Duration::from_millis(200));
    let Pair { a: _a, b, client, mut at_a } = Pair::start(options).await;
    let (call, _) = in_flight(&client, &mut at_a).await;
    let ping = at_a.expect(Asked::Ping(vec![])).await;
    at_a.send(|out| reply_ping(out, ping, &[])).await;
    assert!(matches!(soon(call).await.unwrap(), Err(ClientError::Timeout { .. })));
    let script = async { b.greet().await.serve(5).await };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 5);
}

#[tokio::test]
async fn a_server_is_not_left_while_a_long_reply_comes() {
    let timeout = Duration::from_millis(400);
    let Pair { a: _a, b, client, mut at_a } = Pair::start(quick().timeout(timeout)).await;
    let late = tokio::spawn({
        let client = client.clone();
        async move { client.array(5, Order::Any, Duration::ZERO).await }
    });
    let request_id = at_a.expect(Asked::Array(Bulk::new(5, Order::Any, Duration::ZERO))).await;
    let mut reply = Vec::new();
    let mut writer = ArrayWriter::begin(&mut reply, request_id, 5);
    writer.ids(&[1, 2, 3, 4, 5]);
    writer.finish();
    for part in [&reply[..30], &reply[30..40]] {
        at_a.send(|out| out.extend_from_slice(part)).await;
        tokio::time::sleep(timeout / 2).await;
    }
    assert!(matches!(soon(late).await.unwrap(), Err(ClientError::Timeout { .. })));
    at_a.send(|out| out.extend_from_slice(&reply[40..])).await;
    let script = async {
        let mut asked = at_a.ask().await.unwrap();
        if let (request_id, Asked::Ping(_)) = asked {
            at_a.send(|out| reply_ping(out, request_id, &[])).await;
            asked = at_a.ask().await.unwrap();
        }
        assert_eq!(asked.1, Asked::Next(Order::Any));
        at_a.send(|out| reply_id(out, asked.0, 6)).await;
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 6);
    assert!(!b.has_caller().await);
}

#[tokio::test]
async fn a_long_wait_in_flight_does_not_lengthen_the_silence_that_ends_a_connection() {
    let fake = Fake::start(1).await;
    let timeout = Duration::from_millis(100);
    let (client, mut peer) = fake.pair(quick().timeout(timeout)).await;
    let wait = Duration::from_secs(5);
    let long = tokio::spawn({
        let client = client.clone();
        async move { client.array(1, Order::Any, wait).await }
    });
    peer.expect(Asked::Array(Bulk::new(1, Order::Any, wait))).await;
    // From here on the server is dead without a word. This one is due now, and the silence lasts ten times the timeout.
    let error = soon(client.next(Order::Any)).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
    tokio::time::sleep(timeout * 10).await;
    assert!(!client.is_connected(), "the connection lives on beside a request that may wait for 5 s");
    drop(long);
}
