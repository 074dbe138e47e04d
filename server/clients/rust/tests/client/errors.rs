//! What a caller can tell errors apart by.

use std::error::Error;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use xuid_client::{Breach, Client, ClientError, Options, Order, PrefetchOptions, Status};
use xuid_protocol::{ArrayWriter, HelloReply, Refusal, reply_error, reply_hello, reply_id, reply_ping};

use crate::fake::{Asked, Fake, cluster_id, hello_reply, quick, soon};

#[tokio::test]
async fn a_refusal_carries_status_pause_and_text_and_keeps_the_connection() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let later = Status::from_code(0x80ff);
    for status in Status::NAMED[1..].iter().copied().chain([later]) {
        let refusal = Refusal::new(status, "so it is").retry_after(Duration::from_millis(70));
        let (next, ()) = tokio::join!(client.next(Order::Any), peer.refuse(&refusal));
        let error = next.unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: found, .. } if found == status), "{error:?}");
        assert_eq!(error.is_retryable(), status.is_retryable());
        assert_eq!(error.retry_after(), Duration::from_millis(70));
        assert!(error.to_string().contains("so it is") && error.to_string().contains(&status.to_string()));
    }
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.serve(8));
    assert_eq!(next.unwrap(), 8);
}

#[tokio::test]
async fn an_array_of_another_length_ends_the_connection() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let script = async {
        let (request_id, _) = peer.ask().await.unwrap();
        peer.send(|out| {
            let mut writer = ArrayWriter::begin(out, request_id, 4);
            writer.run(1, 4);
            writer.finish();
        })
        .await;
        peer.expect_end().await;
    };
    let call = client.array(5, Order::Any, Duration::ZERO);
    let (array, ()) = soon(async { tokio::join!(call, script) }).await;
    let error = array.unwrap_err();
    let ClientError::Protocol { source: Breach::Count { asked: 5, answered: 4 }, .. } = error else {
        panic!("{error:?}")
    };
    assert!(!error.is_retryable() && error.source().unwrap().to_string().contains("5 ids were asked for"));
}

#[tokio::test]
async fn a_reply_longer_than_what_was_asked_for_is_refused_by_its_header() {
    const ROOM: u32 = xuid_protocol::REPLY_ROOM;
    for (op, longest) in [(0x90, ROOM), (0x91, 80 + ROOM), (0x92, 160 + ROOM)] {
        let mut fake = Fake::start(1).await;
        fake.limits.max_count = u32::MAX;
        let (client, mut peer) = fake.pair(quick()).await;
        let script = async {
            // The header of a longer one, to the call and then to nobody, and not a byte of the body.
            let (request_id, _) = peer.ask().await.unwrap();
            peer.send(|out| {
                out.extend((longest + 1).to_le_bytes());
                out.extend([op, 0, 0, 0]);
                out.extend(request_id.to_le_bytes());
            })
            .await;
            peer.expect_end().await;
        };
        let call = async {
            match op {
                0x90 => client.next(Order::Any).await.map(drop),
                0x91 => client.array(10, Order::Any, Duration::ZERO).await.map(drop),
                _ => client.runs(10, Order::Any, Duration::ZERO).await.map(drop),
            }
        };
        let (outcome, ()) = soon(async { tokio::join!(call, script) }).await;
        let text = format!("{outcome:?}");
        assert!(matches!(outcome, Err(ClientError::Protocol { .. })), "{op:x}: {text}");
        assert!(text.contains(&longest.to_string()), "{op:x}: {text}");
    }
}

#[tokio::test]
async fn a_number_of_64_bits_is_no_id() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), peer.serve(1 << 63)) }).await;
    assert!(matches!(next, Err(ClientError::Protocol { source: Breach::Bytes(_), .. })), "{next:?}");
}

#[tokio::test]
async fn replies_to_nobody_or_of_another_op_end_the_connection() {
    for case in 0..3 {
        let fake = Fake::start(1).await;
        let (client, mut peer) = fake.pair(quick()).await;
        let script = async {
            let request_id = peer.expect(Asked::Next(Order::Any)).await;
            peer.send(|out| match case {
                0 => reply_id(out, request_id + 1, 1),
                1 => reply_ping(out, request_id, &[0; 8]),
                _ => out.extend_from_slice(&[0; 16]),
            })
            .await;
            peer.expect_end().await;
        };
        let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
        let error = next.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{case}: {error:?}");
    }
}

#[tokio::test]
async fn an_error_about_the_whole_connection_reaches_everybody_in_flight() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let script = async {
        for _ in 0..2 {
            peer.expect(Asked::Next(Order::Any)).await;
        }
        let refusal = Refusal::new(Status::BAD_REQUEST, "a frame was begun and not finished in 30 s");
        peer.send(|out| reply_error(out, 0, 0x10, &refusal)).await;
        peer.expect_end().await;
    };
    let calls = async { tokio::join!(client.next(Order::Any), client.next(Order::Any)) };
    let ((a, b), ()) = Box::pin(soon(async { tokio::join!(calls, script) })).await;
    for outcome in [a, b] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: Status::BAD_REQUEST, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_port_that_speaks_something_else_or_nothing_is_an_error_that_names_it() {
    let fake = Fake::start(1).await;
    let script = async {
        let mut peer = fake.accept().await;
        peer.hello().await;
        peer.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        peer.expect_end().await;
    };
    let (client, ()) = soon(async { tokio::join!(Client::connect(fake.addr, quick()), script) }).await;
    let error = client.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
    assert!(error.to_string().contains(&fake.addr.to_string()), "{error}");
    let words = error.source().unwrap().to_string();
    assert!(words.contains("HTTP/1.1 400 Bad Request") && !words.contains('\\'), "{words}");

    let addr = fake.addr;
    drop(fake);
    let error = soon(Client::connect(addr, quick())).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_of_a_version_that_was_not_offered_is_refused() {
    let fake = Fake::start(1).await;
    let script = async {
        let mut peer = fake.accept().await;
        let (request_id, _) = peer.hello().await;
        let mut reply = Vec::new();
        let hello = HelloReply { version: 2, server: "2.0", ..hello_reply(cluster_id(1), fake.limits) };
        reply_hello(&mut reply, request_id, &hello);
        peer.stream.write_all(&reply).await.unwrap();
        peer.expect_end().await;
    };
    let (client, ()) = soon(async { tokio::join!(Client::connect(fake.addr, quick()), script) }).await;
    let error = client.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { source: Breach::Version(2), .. }), "{error:?}");
}

#[tokio::test]
async fn options_and_arguments_out_of_range_are_told_before_anything_is_sent() {
    let long = "x".repeat(256);
    for options in [
        quick().client_name(long.as_str()),
        quick().token(long.as_bytes()),
        quick().max_in_flight(0),
        quick().reconnect_rounds(0),
        quick().timeout(Duration::ZERO),
        quick().connect_timeout(Duration::ZERO),
    ] {
        let error = Client::connect("127.0.0.1:1", options).await.unwrap_err();
        assert!(matches!(error, ClientError::Invalid { .. }), "{error:?}");
    }
    let none = Client::connect_any(Vec::<String>::new(), quick()).await.unwrap_err();
    assert!(matches!(none, ClientError::Invalid { name: "servers", .. }), "{none:?}");
    let fake = Fake::start(1).await;
    let (client, _peer) = fake.pair(quick()).await;
    let error = client.ping(&[0; 1_025]).await.unwrap_err();
    assert!(matches!(error, ClientError::Invalid { name: "ping", found: 1_025, .. }), "{error:?}");
}

#[tokio::test]
async fn pauses_without_an_end_are_no_panic() {
    let fake = Fake::start(1).await;
    let forever = Duration::MAX;
    let options =
        Options::new().backoff(forever, forever).retry_for(forever).connect_timeout(forever).timeout(forever);
    let (client, mut peer) = fake.pair(options).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    peer.overload(Duration::from_millis(1)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!call.is_finished(), "it waits for ever, as it was told: {:?}", call.await);
}

#[tokio::test]
async fn a_prefetch_with_pauses_without_an_end_is_not_closed() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(Options::new().backoff(Duration::MAX, Duration::MAX)).await;
    let source = client.prefetch(PrefetchOptions::new().wait(Duration::from_millis(300))).unwrap();
    peer.overload(Duration::from_millis(1)).await;
    let error = soon(source.ids().next()).await.unwrap_err();
    assert!(!matches!(error, ClientError::Closed), "{error:?}");
}

#[tokio::test]
async fn a_text_of_a_server_stands_in_one_line_of_a_log() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let text = "\u{1b}[2J\n2026-11-23T00:00:00Z ERROR billing: forged";
    let refusal = Refusal::new(Status::EXHAUSTED, text);
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.refuse(&refusal));
    let said = next.unwrap_err().to_string();
    assert!(!said.contains(char::is_control), "{said:?}");
}
