//! Ends of connections, and what comes after.

use std::time::Duration;

use xuid_client::{ClientError, Options, Order, Status};
use xuid_protocol::{Refusal, reply_bye, reply_id, reply_ping};

use crate::fake::{Asked, Fake, quick, soon};

#[tokio::test]
async fn a_lost_reply_is_an_error_and_the_next_call_reconnects() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let (lost, ()) = tokio::join!(client.next(Order::Any), async {
        peer.expect(Asked::Next(Order::Any)).await;
        drop(peer);
    });
    let lost = lost.unwrap_err();
    assert!(matches!(lost, ClientError::Lost { .. }) && lost.is_retryable(), "{lost:?}");
    let (next, mut peer) = soon(async {
        tokio::join!(client.next(Order::Any), async {
            let mut peer = fake.greet().await;
            peer.serve(5).await;
            peer
        })
    })
    .await;
    assert_eq!(next.unwrap(), 5);
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.serve(6));
    assert_eq!(next.unwrap(), 6, "and keeps the new connection");
}

#[tokio::test]
async fn everybody_in_flight_is_told_when_the_connection_ends() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.next(Order::Any).await })
        })
        .collect();
    for _ in 0..50 {
        peer.expect(Asked::Next(Order::Any)).await;
    }
    drop(peer);
    for call in calls {
        let outcome = soon(call).await.unwrap();
        assert!(matches!(outcome, Err(ClientError::Lost { .. })), "{outcome:?}");
    }
}

#[tokio::test]
async fn with_retries_allowed_a_lost_reply_is_asked_for_again() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().retry_for(Duration::from_secs(15))).await;
    let script = async {
        peer.expect(Asked::Next(Order::Any)).await;
        drop(peer);
        let mut peer = fake.greet().await;
        peer.overload(Duration::from_millis(3)).await;
        peer.overload(Duration::ZERO).await;
        peer.serve(9).await;
        peer
    };
    let (next, mut peer) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 9);
    let hopeless = Refusal::new(Status::EXHAUSTED, "the time bits ran out");
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.refuse(&hopeless));
    assert!(!next.unwrap_err().is_retryable(), "what will not pass is not asked again");
}

#[tokio::test]
async fn a_pause_beyond_the_time_for_retries_ends_them() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().retry_for(Duration::from_secs(15))).await;
    let hour = Duration::from_hours(1);
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), peer.overload(hour)) }).await;
    assert_eq!(next.unwrap_err().retry_after(), hour);
}

#[tokio::test]
async fn after_goaway_what_is_in_flight_is_finished_and_the_rest_goes_elsewhere() {
    let fake = Fake::start(1).await;
    let (client, mut old) = fake.pair(quick()).await;
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Fresh).await }
    });
    let open = old.expect(Asked::Next(Order::Fresh)).await;
    old.goaway().await;
    // Until GOAWAY has arrived, calls still come here, as they may: it is what a PING behind it would show.
    let mut new = loop {
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.next(Order::Any).await }
        });
        let peer = tokio::select! {
            mut peer = fake.greet() => {
                peer.serve(2).await;
                Some(peer)
            }
            asked = old.ask() => {
                let (request_id, _) = asked.expect("a request");
                old.send(|out| reply_id(out, request_id, 2)).await;
                None
            }
        };
        assert_eq!(soon(call).await.unwrap().unwrap(), 2);
        if let Some(peer) = peer {
            break peer;
        }
    };
    assert!(!first.is_finished(), "the first one is still in flight");
    old.send(|out| reply_id(out, open, 1)).await;
    assert_eq!(soon(first).await.unwrap().unwrap(), 1);
    old.expect_end().await;
    let (next, ()) = tokio::join!(client.next(Order::Any), new.serve(3));
    assert_eq!(next.unwrap(), 3);
}

#[tokio::test]
async fn a_request_that_crosses_a_goaway_and_is_not_answered_is_repeated_at_once_without_retries() {
    let fake = Fake::start(1).await;
    // An hour's pause would show, and one round of connecting is enough.
    let hour = Duration::from_hours(1);
    let (client, mut old) = fake.pair(Options::new().backoff(hour, hour).reconnect_rounds(1)).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.next(Order::Any).await })
        })
        .collect();
    // One is answered, the others are read, and the connection ends.
    old.serve(100).await;
    for _ in 1..20 {
        old.expect(Asked::Next(Order::Any)).await;
    }
    old.goaway().await;
    drop(old);
    let mut new = fake.greet().await;
    for id in 1..20 {
        new.serve(id).await;
    }
    let mut ids = Vec::new();
    for call in calls {
        ids.push(soon(call).await.unwrap().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..20).chain([100]).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_server_that_always_leaves_without_an_answer_is_an_error_after_the_rounds_allowed() {
    let fake = Fake::start(1).await;
    let (client, peer) = fake.pair(quick().reconnect_rounds(2)).await;
    let script = async {
        let mut peer = peer;
        for links in 1.. {
            peer.expect(Asked::Next(Order::Any)).await;
            peer.goaway().await;
            drop(peer);
            if links == 3 {
                break;
            }
            peer = fake.greet().await;
        }
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert!(matches!(next, Err(ClientError::Lost { .. })), "{next:?}");
    assert!(!fake.has_caller().await, "three links were enough");
}

#[tokio::test]
async fn an_idle_connection_told_to_go_is_closed_and_another_made_only_when_needed() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    peer.goaway().await;
    peer.expect_end().await;
    assert!(!fake.has_caller().await, "nobody asked for anything");
    let (next, ()) = soon(async {
        tokio::join!(client.next(Order::Any), async {
            fake.greet().await.serve(4).await;
        })
    })
    .await;
    assert_eq!(next.unwrap(), 4);
}

#[tokio::test]
async fn a_server_that_comes_back_within_the_rounds_allowed_is_waited_for() {
    let fake = Fake::start(1).await;
    let (client, peer) = fake.pair(quick().reconnect_rounds(5)).await;
    drop(peer);
    let script = async {
        for _ in 0..4 {
            // Hangs up before HELLO is answered, as a server in its start would.
            fake.accept().await.hello().await;
        }
        fake.greet().await.serve(6).await;
    };
    let call = async {
        loop {
            // The end of the first connection may reach this call or be known before it.
            match client.next(Order::Any).await {
                Err(ClientError::Lost { .. }) => {}
                outcome => return outcome,
            }
        }
    };
    let (next, ()) = soon(async { tokio::join!(call, script) }).await;
    assert_eq!(next.unwrap(), 6);
}

#[tokio::test]
async fn many_callers_share_one_failed_dial() {
    let fake = Fake::start(1).await;
    let client = fake.lost_by(quick().reconnect_rounds(1)).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.next(Order::Any).await })
        })
        .collect();
    fake.accept().await.hello().await;
    for call in calls {
        let outcome = soon(call).await.unwrap();
        assert!(matches!(outcome, Err(ClientError::Lost { .. })), "{outcome:?}");
    }
    assert!(!fake.has_caller().await, "one dial was enough for all");
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_the_dial_to_those_that_wait_for_it() {
    let fake = Fake::start(1).await;
    let client = fake.lost_by(quick()).await;
    let [first, second] = [(); 2].map(|()| {
        let client = client.clone();
        tokio::spawn(async move { client.next(Order::Any).await })
    });
    let mut dialed = fake.accept().await;
    let (request_id, _) = dialed.hello().await;
    first.abort();
    assert!(soon(first).await.unwrap_err().is_cancelled());
    dialed.welcome(request_id, fake.cluster, fake.limits).await;
    dialed.serve(7).await;
    assert_eq!(soon(second).await.unwrap().unwrap(), 7);
    assert!(!fake.has_caller().await, "one dial was enough for both");
}

#[tokio::test]
async fn callers_with_less_patience_than_a_dial_takes_get_a_connection_all_the_same() {
    let fake = Fake::start(1).await;
    let client = fake.lost_by(quick()).await;
    let server = async {
        let mut dialed = fake.accept().await;
        let (request_id, _) = dialed.hello().await;
        // A round trip of its own for TCP, for TLS and for HELLO; a call has one.
        tokio::time::sleep(Duration::from_millis(500)).await;
        dialed.welcome(request_id, fake.cluster, fake.limits).await;
        dialed.serve(7).await;
    };
    let caller = async {
        loop {
            let call = client.next(Order::Any);
            if let Ok(outcome) = tokio::time::timeout(Duration::from_millis(200), call).await {
                return outcome;
            }
        }
    };
    let (outcome, ()) = soon(async { tokio::join!(caller, server) }).await;
    assert_eq!(outcome.unwrap(), 7);
}

#[tokio::test]
async fn a_call_that_nobody_polls_holds_up_no_other() {
    let fake = Fake::start(1).await;
    let client = fake.lost_by(quick()).await;
    // As of a `select!` whose other branch asks a second time, because the first one takes so long.
    let mut first = Box::pin(client.next(Order::Any));
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut first).await.is_err());
    let server = async { fake.greet().await.serve(7).await };
    let (second, ()) = soon(async { tokio::join!(client.next(Order::Any), server) }).await;
    assert_eq!(second.unwrap(), 7);
    drop(first);
}

#[tokio::test]
async fn a_search_ends_when_the_last_client_is_dropped() {
    let fake = Fake::start(1).await;
    let client = fake.lost_by(quick()).await;
    assert!(tokio::time::timeout(Duration::from_millis(1), client.next(Order::Any)).await.is_err());
    let dialed = fake.accept().await;
    drop(client);
    // The search would go on with the next round.
    drop(dialed);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!fake.has_caller().await, "the search goes on without a client");
}

#[tokio::test]
async fn closing_ends_the_search_for_a_server_and_tells_all_that_wait_for_it() {
    let fake = Fake::start(1).await;
    // Nothing else would end it.
    let client = fake.lost_by(quick().connect_timeout(Duration::from_hours(1))).await;
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.next(Order::Any).await })
        })
        .collect();
    let mut late = fake.accept().await;
    late.hello().await;
    soon(client.close()).await;
    for call in calls {
        let outcome = soon(call).await.unwrap();
        assert!(matches!(outcome, Err(ClientError::Closed)), "{outcome:?}");
    }
    late.expect_end().await;
}

#[tokio::test]
async fn closing_ends_a_pause_at_once_though_its_bye_is_answered_late() {
    let fake = Fake::start(1).await;
    let hour = Duration::from_hours(1);
    let (client, mut peer) = fake.pair(quick().timeout(hour).retry_for(hour)).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    peer.overload(Duration::from_secs(50)).await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    // A server answers what is in flight before it: here that lasts.
    peer.expect(Asked::Bye).await;
    let outcome = soon(call).await.unwrap();
    assert!(matches!(outcome, Err(ClientError::Closed)), "{outcome:?}");
    closing.abort();
}

#[tokio::test]
async fn closing_ends_a_call_that_pauses_between_two_attempts() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().retry_for(Duration::from_hours(1))).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    peer.overload(Duration::from_secs(50)).await;
    let bye = async {
        let request_id = peer.expect(Asked::Bye).await;
        peer.send(|out| reply_bye(out, request_id)).await;
    };
    soon(async { tokio::join!(client.close(), bye) }).await;
    let outcome = soon(call).await.unwrap();
    assert!(matches!(outcome, Err(ClientError::Closed)), "{outcome:?}");
}

#[tokio::test]
async fn a_server_that_stays_away_is_an_error_after_the_rounds_allowed() {
    let fake = Fake::start(1).await;
    let addr = fake.addr;
    let (client, peer) = fake.pair(quick().reconnect_rounds(3)).await;
    drop((peer, fake));
    // Refused at once, so that three rounds are short.
    let gone = loop {
        match soon(client.next(Order::Any)).await.unwrap_err() {
            ClientError::Lost { .. } => {}
            other => break other,
        }
    };
    assert!(matches!(gone, ClientError::Unreachable { .. }) && gone.is_retryable(), "{gone:?}");
    assert!(gone.to_string().contains(&addr.to_string()), "{gone}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_after_the_timeout() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().timeout(Duration::from_millis(30))).await;
    let (next, _) = tokio::join!(client.next(Order::Any), peer.expect(Asked::Next(Order::Any)));
    let late = next.unwrap_err();
    assert!(matches!(late, ClientError::Timeout { .. }) && late.is_retryable(), "{late:?}");
    peer.expect(Asked::Ping(vec![])).await;
    peer.expect_end().await;
    let (next, ()) = soon(async {
        tokio::join!(client.next(Order::Any), async {
            fake.greet().await.serve(4).await;
        })
    })
    .await;
    assert_eq!(next.unwrap(), 4);
}

/// The other call falls due first, and its silence ends the connection.
#[tokio::test]
async fn what_waits_at_a_server_that_said_goaway_and_vanished_is_asked_for_elsewhere() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().timeout(Duration::from_millis(100))).await;
    let wait = Duration::from_mins(1);
    let (runs, next, ()) = soon(async {
        tokio::join!(client.runs(1, Order::Any, wait), client.next(Order::Any), async {
            peer.ask().await.expect("a request");
            peer.ask().await.expect("another one");
            peer.goaway().await;
            fake.greet().await.serve_runs(4).await;
        })
    })
    .await;
    assert_eq!(runs.unwrap()[0].first, 4);
    assert!(matches!(next, Err(ClientError::Timeout { .. })), "{next:?}");
}

#[tokio::test]
async fn the_last_clone_closes_the_connection() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(Options::new()).await;
    let clone = client.clone();
    drop(client);
    let (next, ()) = tokio::join!(clone.next(Order::Any), peer.serve(1));
    assert_eq!(next.unwrap(), 1);
    drop(clone);
    peer.expect_end().await;
}

#[tokio::test]
async fn closing_says_bye_and_ends_every_clone() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(Options::new()).await;
    let clone = client.clone();
    let script = async {
        let request_id = peer.expect(Asked::Bye).await;
        peer.send(|out| reply_bye(out, request_id)).await;
        peer.expect_end().await;
    };
    soon(async { tokio::join!(client.close(), script) }).await;
    assert!(matches!(clone.next(Order::Any).await, Err(ClientError::Closed)));
    assert!(!fake.has_caller().await);
}

#[tokio::test]
async fn closing_ends_what_is_in_flight_on_a_link_that_was_left() {
    let fake = Fake::start(1).await;
    let (client, mut old) = fake.pair(quick()).await;
    let left = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Fresh).await }
    });
    old.expect(Asked::Next(Order::Fresh)).await;
    // Behind GOAWAY, so that the client has read it when the PING is answered.
    let (ping, ()) = tokio::join!(client.ping(&[1]), async {
        let request_id = old.expect(Asked::Ping(vec![1])).await;
        old.goaway().await;
        old.send(|out| reply_ping(out, request_id, &[1])).await;
    });
    ping.unwrap();
    let (next, mut new) = tokio::join!(client.next(Order::Any), async {
        let mut new = fake.greet().await;
        new.serve(2).await;
        new
    });
    assert_eq!(next.unwrap(), 2);
    let bye = async {
        let request_id = new.expect(Asked::Bye).await;
        new.send(|out| reply_bye(out, request_id)).await;
    };
    soon(async { tokio::join!(client.close(), bye) }).await;
    let outcome = soon(left).await.unwrap();
    assert!(matches!(outcome, Err(ClientError::Closed)), "{outcome:?}");
    old.expect_end().await;
}

#[tokio::test]
async fn a_connection_ends_with_the_runtime_that_made_it_and_the_next_call_knows() {
    let (client, peer, addr) = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fake = Fake::start(1).await;
            let (client, peer) = fake.pair(quick().reconnect_rounds(1)).await;
            (client, peer, fake.addr)
        })
    })
    .join()
    .unwrap();
    drop(peer);
    // Not a timeout: nobody waits for a task that is gone. The port may be another test's by now, which hangs up.
    let error = soon(client.next(Order::Any)).await.unwrap_err();
    let is_away = matches!(error, ClientError::Unreachable { .. } | ClientError::Lost { .. });
    assert!(is_away, "{error:?} of {addr}");
}

/// Begins a search in a runtime of its own, which nobody drives any more.
fn begin_search_elsewhere(client: &xuid_client::Client) -> tokio::runtime::Runtime {
    let client = client.clone();
    let begin = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let call = async { tokio::time::timeout(Duration::from_millis(50), client.next(Order::Any)).await };
        assert!(runtime.block_on(call).is_err());
        runtime
    };
    std::thread::spawn(begin).join().unwrap()
}

#[tokio::test]
async fn a_search_that_went_with_its_runtime_is_begun_anew() {
    let fake = Fake::start(1).await;
    let client = fake.lost_by(quick()).await;
    begin_search_elsewhere(&client).shutdown_background();
    drop(fake.accept().await);
    let server = async { fake.greet().await.serve(7).await };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), server) }).await;
    assert_eq!(next.unwrap(), 7);
}
