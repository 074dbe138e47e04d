//! Numbers of named sequences, and what a server may answer them with.

use std::error::Error;
use std::time::Duration;

use xuid_client::{Breach, ClientError, NewSequence, Order, Run, SequenceChanges, Status};
use xuid_protocol::{ArrayWriter, Bulk, Op, Refusal, RunsWriter, reply_sequence, seq_id_reply};

use crate::fake::{Asked, Fake, Pair, Peer, quick, soon};

const WAIT: Duration = Duration::from_millis(50);

fn orders() -> String {
    "orders".to_owned()
}

fn bulk(count: u32, order: Order) -> Bulk {
    Bulk { count, wait_ms: 50, order }
}

fn run(first: u64, count: u32, stride: u32) -> Run {
    Run { first, count, stride }
}

/// Answers the next request, a `SEQ_NEXT`.
async fn serve_next(peer: &mut Peer, number: u64) {
    let request_id = peer.expect(Asked::SeqNext(orders())).await;
    peer.send(|out| out.extend(seq_id_reply(request_id, number))).await;
}

/// Answers the next request with these runs.
async fn serve_runs(peer: &mut Peer, expected: Asked, runs: &[Run]) {
    let request_id = peer.expect(expected).await;
    let count = runs.iter().map(|run| run.count).sum();
    peer.send(|out| {
        let mut writer = RunsWriter::of_sequence(out, request_id, count);
        for run in runs {
            writer.push(*run);
        }
        writer.finish();
    })
    .await;
}

/// Answers the next request in JSON.
async fn serve_json(peer: &mut Peer, expected: Asked, op: Op, json: &str) {
    let request_id = peer.expect(expected).await;
    peer.send(|out| reply_sequence(out, op, request_id, json)).await;
}

#[tokio::test]
async fn numbers_come_one_by_one_and_in_runs_with_their_stride() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let sequence = client.sequence("orders");

    let (number, ()) = tokio::join!(sequence.next(), serve_next(&mut peer, 7));
    assert_eq!(number.unwrap(), 7);

    let script = async {
        let request_id = peer.expect(Asked::SeqArray(orders(), bulk(3, Order::Ordered), false)).await;
        peer.send(|out| {
            let mut writer = ArrayWriter::of_sequence(out, request_id, 3);
            writer.ids(&[8, 9, 20]);
            writer.finish();
        })
        .await;
    };
    let (numbers, ()) = tokio::join!(sequence.array(3, WAIT), script);
    assert_eq!(numbers.unwrap(), [8, 9, 20]);

    let (two, any) = ([run(21, 2, 3), run(101, 3, 3)], sequence.clone().any());
    let asked = Asked::SeqRuns(orders(), bulk(5, Order::Any), false);
    let (runs, ()) = tokio::join!(any.runs(5, WAIT), serve_runs(&mut peer, asked, &two));
    let numbers: Vec<u64> = runs.unwrap().into_iter().flatten().collect();
    assert_eq!(numbers, [21, 24, 101, 104, 107]);

    let asked = Asked::SeqRuns(orders(), bulk(5, Order::Ordered), true);
    let one = [run(110, 5, 3)];
    let (found, ()) = tokio::join!(sequence.contiguous(5, WAIT), serve_runs(&mut peer, asked, &one));
    assert_eq!(found.unwrap(), one[0]);
}

#[tokio::test]
async fn what_is_asked_about_a_name_is_json_both_ways() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let sequence = client.sequence("orders");
    let object = r#"{"name":"orders","next":"1"}"#;

    let asked = Asked::SeqInfo(orders());
    let (info, ()) = tokio::join!(sequence.info(), serve_json(&mut peer, asked, Op::SeqInfo, object));
    assert_eq!(info.unwrap(), object);

    let asked = Asked::SeqList(10, "or".to_owned(), "oranges".to_owned());
    let list = client.sequences("or", "oranges", 10);
    let (list, ()) = tokio::join!(list, serve_json(&mut peer, asked, Op::SeqList, "[]"));
    assert_eq!(list.unwrap(), "[]");

    let settings = NewSequence::new().start(1_000).strict(true);
    let asked = Asked::SeqCreate(orders(), r#"{"start":"1000","strict":true}"#.to_owned());
    let script = serve_json(&mut peer, asked, Op::SeqCreate, object);
    assert_eq!(tokio::join!(sequence.create(&settings), script).0.unwrap(), object);

    let changes = SequenceChanges::new().last(999);
    let asked = Asked::SeqAlter(orders(), r#"{"last":"999"}"#.to_owned());
    let script = serve_json(&mut peer, asked, Op::SeqAlter, object);
    assert_eq!(tokio::join!(sequence.alter(&changes), script).0.unwrap(), object);
}

#[tokio::test]
async fn a_name_that_cannot_be_one_is_told_before_anything_is_sent() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    for name in ["", "@any", "orders ", "or\nders", &"x".repeat(129)] {
        let error = client.sequence(name).next().await.unwrap_err();
        assert!(matches!(error, ClientError::Name { .. }) && !error.is_retryable(), "{error:?}");
        assert!(error.source().is_some());
    }
    let error = client.sequences(&"x".repeat(129), "", 1).await.unwrap_err();
    assert!(matches!(error, ClientError::Invalid { name: "prefix", found: 129, .. }), "{error:?}");
    let sequence = client.sequence("orders");
    let (number, ()) = tokio::join!(soon(sequence.next()), serve_next(&mut peer, 1));
    assert_eq!(number.unwrap(), 1, "the first thing that the server was asked");
}

/// A server closes after a request that is longer than it takes, whoever else waits there.
#[tokio::test]
async fn settings_that_no_server_takes_are_refused_before_anything_is_sent() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let sequence = client.sequence("orders");
    let text = "x".repeat(4_096);
    let settings = NewSequence::new().description(&text);
    let changes = SequenceChanges::new().description(&text);
    for refused in [soon(sequence.create(&settings)).await, soon(sequence.alter(&changes)).await] {
        let error = refused.unwrap_err();
        assert!(matches!(error, ClientError::Invalid { name: "settings", .. }), "{error:?}");
    }
    // The longest that every server takes.
    let settings = NewSequence::new().description(&text["1orders".len() + r#"{"description":""}"#.len()..]);
    let asked = Asked::SeqCreate(orders(), settings.to_string());
    let script = serve_json(&mut peer, asked, Op::SeqCreate, "{}");
    assert_eq!(tokio::join!(soon(sequence.create(&settings)), script).0.unwrap(), "{}");
}

#[tokio::test]
async fn a_contiguous_call_that_gets_two_runs_ends_the_connection() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let script = async {
        let asked = Asked::SeqRuns(orders(), bulk(4, Order::Ordered), true);
        serve_runs(&mut peer, asked, &[run(1, 2, 1), run(9, 2, 1)]).await;
        peer.expect_end().await;
    };
    let sequence = client.sequence("orders");
    let (found, ()) = soon(async { tokio::join!(sequence.contiguous(4, WAIT), script) }).await;
    assert!(matches!(found, Err(ClientError::Protocol { source: Breach::Seams(2), .. })), "{found:?}");
}

#[tokio::test]
async fn a_call_is_tried_again_exactly_where_bit_15_is_set() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().retry_for(Duration::from_secs(10))).await;
    let sequence = client.sequence("orders");
    for status in Status::NAMED[1..].iter().copied() {
        let refusal = Refusal { closes: false, ..Refusal::new(status, "so it is") };
        let script = async {
            peer.refuse(&refusal).await;
            if status.is_retryable() {
                serve_next(&mut peer, 5).await;
            }
        };
        let (number, ()) = soon(async { tokio::join!(sequence.next(), script) }).await;
        match number {
            Ok(5) => assert!(status.is_retryable(), "{status}"),
            Err(ClientError::Refused { status: found, .. }) => assert_eq!(found, status),
            other => panic!("{status}: {other:?}"),
        }
        assert!(client.is_connected(), "{status}");
    }
}

#[tokio::test]
async fn a_server_whose_store_is_away_is_left_for_another_one_that_may_hold_numbers() {
    let Pair { a: _a, b, client, mut at_a } = Pair::start(quick().retry_for(Duration::from_secs(10))).await;
    let script = async {
        at_a.refuse(&Refusal::new(Status::STORE_AWAY, "away").retry_after(Duration::from_mins(1))).await;
        serve_next(&mut b.greet().await, 9).await;
    };
    let sequence = client.sequence("orders");
    let (number, ()) = soon(async { tokio::join!(sequence.next(), script) }).await;
    assert_eq!(number.unwrap(), 9);
}
