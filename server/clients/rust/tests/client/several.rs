//! Several servers of one cluster, or of two.

use std::time::Duration;

use tokio::time::timeout;
use xuid_client::{Client, ClientError, Order, Status};
use xuid_protocol::{Refusal, reply_error, reply_id};

use crate::fake::{Asked, Fake, Pair, Peer, cluster_id, moved_on, quick, soon};
use crate::mill::Mill;

/// Two servers, a client of both, and their ends of the connections.
async fn two(a: &Fake, b: &Fake) -> (Result<Client, ClientError>, Peer, Peer) {
    let connect = Client::connect_any([a.addr, b.addr], quick().reconnect_rounds(2));
    soon(async { tokio::join!(connect, a.greet(), b.greet()) }).await
}

#[tokio::test]
async fn servers_of_two_clusters_are_refused_with_both_ids_shown() {
    let (a, b) = (Fake::start(0xaa).await, Fake::start(0xbb).await);
    let (client, mut at_a, mut at_b) = two(&a, &b).await;
    let error = client.unwrap_err();
    assert!(matches!(error, ClientError::ClustersDiffer { .. }) && !error.is_retryable(), "{error:?}");
    let text = error.to_string();
    for part in [&a.cluster.to_string(), &b.cluster.to_string(), &a.addr.to_string(), &b.addr.to_string()] {
        assert!(text.contains(part), "{text}");
    }
    at_a.expect_end().await;
    at_b.expect_end().await;
}

#[tokio::test]
async fn the_next_server_takes_the_place_of_one_that_dies() {
    let Pair { a, b, client, mut at_a } = Pair::start(quick().reconnect_rounds(2)).await;
    let (next, ()) = tokio::join!(client.next(Order::Any), at_a.serve(1));
    assert_eq!(next.unwrap(), 1);
    drop((at_a, a));
    let script = async {
        let mut peer = b.greet().await;
        peer.serve(2).await;
        peer
    };
    let call = async {
        loop {
            // The end of the connection may reach this call or be known before it.
            match client.next(Order::Any).await {
                Err(ClientError::Lost { .. }) => {}
                outcome => return outcome,
            }
        }
    };
    let (next, _peer) = soon(async { tokio::join!(call, script) }).await;
    assert_eq!(next.unwrap(), 2);
    assert_eq!(&*client.served().server, b.addr.to_string());
}

#[tokio::test]
async fn callers_that_give_up_on_a_silent_server_get_to_the_one_behind_it() {
    let (a, b, c) = (Fake::start(1).await, Fake::start(1).await, Fake::start(1).await);
    let options = quick().connect_timeout(Duration::from_secs(1));
    let connect = Client::connect_any([a.addr, b.addr, c.addr], options);
    let (client, at_a, at_b, at_c) =
        soon(async { tokio::join!(connect, a.greet(), b.greet(), c.greet()) }).await;
    let client = client.unwrap();
    let (mut fakes, home) = ([a, b, c], client.served().server.clone());
    fakes.sort_by_key(|fake| fake.addr.to_string() != *home);
    let [first, b, c] = fakes;
    drop((at_a, at_b, at_c, first));
    let serving = async {
        // The one that is dialed first says nothing, and the other one serves.
        let (_silent, server) = tokio::select! {
            silent = b.accept() => (silent, &c),
            silent = c.accept() => (silent, &b),
        };
        server.greet().await.serve(3).await;
    };
    let calls = async {
        loop {
            match timeout(Duration::from_millis(200), client.next(Order::Any)).await {
                Err(_) | Ok(Err(ClientError::Lost { .. })) => {}
                Ok(outcome) => return outcome,
            }
        }
    };
    let (next, ()) = soon(async { tokio::join!(calls, serving) }).await;
    assert_eq!(next.unwrap(), 3);
}

#[tokio::test]
async fn a_server_that_became_another_cluster_is_refused_when_it_is_needed() {
    let Pair { a, b, client, at_a } = Pair::start(quick().reconnect_rounds(2)).await;
    drop((at_a, a));
    let script = async {
        for _ in 0..2 {
            b.greet_as(cluster_id(9)).await.expect_end().await;
        }
    };
    let call = async {
        loop {
            match client.next(Order::Any).await.unwrap_err() {
                ClientError::Lost { .. } => {}
                other => return other,
            }
        }
    };
    let (error, ()) = soon(async { tokio::join!(call, script) }).await;
    let text = error.to_string();
    assert!(matches!(error, ClientError::ClustersDiffer { .. }), "{text}");
    assert!(text.contains(&cluster_id(1).to_string()) && text.contains(&cluster_id(9).to_string()), "{text}");
}

#[tokio::test]
async fn one_server_that_answers_is_enough() {
    let (dead, b) = (Fake::start(1).await, Fake::start(1).await);
    let addrs = [dead.addr, b.addr];
    drop(dead);
    let (client, mut peer) =
        soon(async { tokio::join!(Client::connect_any(addrs, quick()), b.greet()) }).await;
    let client = client.unwrap();
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.serve(1));
    assert_eq!(next.unwrap(), 1);
}

#[tokio::test]
async fn a_server_that_never_answers_does_not_keep_the_others_waiting() {
    let (deaf, b) = (Fake::start(1).await, Fake::start(1).await);
    let options = quick().connect_timeout(Duration::from_mins(10));
    // The deaf one takes the connection and says nothing.
    let connect = Client::connect_any([deaf.addr, b.addr], options);
    let (client, mut silent, mut peer) =
        soon(async { tokio::join!(connect, deaf.accept(), b.greet()) }).await;
    let client = client.unwrap();
    silent.hello().await;
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.serve(1));
    assert_eq!(next.unwrap(), 1);
}

#[tokio::test]
async fn hello_carries_the_expected_cluster_and_its_refusal_is_the_callers() {
    let fake = Fake::start(1).await;
    let options = quick().cluster(cluster_id(7)).token(*b"s3cret").client_name("billing");
    let script = async {
        let mut peer = fake.accept().await;
        let (request_id, greeting) = peer.hello().await;
        assert_eq!((greeting.cluster, &*greeting.client), (cluster_id(7), "billing"));
        assert_eq!(greeting.token, b"s3cret");
        let refusal =
            Refusal::new(Status::WRONG_CLUSTER, "this server is of cluster 01, and the client expects 07");
        peer.send(|out| reply_error(out, request_id, 0x01, &refusal)).await;
        peer.expect_end().await;
    };
    let (client, ()) = soon(async { tokio::join!(Client::connect(fake.addr, options), script) }).await;
    let error = client.unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: Status::WRONG_CLUSTER, .. }), "{error:?}");
    assert!(!error.is_retryable() && error.to_string().contains("expects 07"), "{error}");
}

#[tokio::test]
async fn a_server_of_another_cluster_than_expected_is_not_believed() {
    let fake = Fake::start(1).await;
    let connect = Client::connect(fake.addr, quick().cluster(cluster_id(7)));
    // It should have refused.
    let (client, mut peer) = soon(async { tokio::join!(connect, fake.greet()) }).await;
    let error = client.unwrap_err();
    let ClientError::WrongCluster { found, expected, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*found, *expected), (cluster_id(1), cluster_id(7)));
    assert!(!error.is_retryable() && error.to_string().contains(&fake.addr.to_string()), "{error}");
    peer.expect_end().await;
}

#[tokio::test]
async fn a_connection_may_be_waited_for_without_an_end() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().connect_timeout(Duration::MAX).timeout(Duration::MAX)).await;
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.serve(1));
    assert_eq!(next.unwrap(), 1);
}

#[tokio::test]
async fn clients_of_one_list_begin_at_different_servers() {
    let (a, b) = (Mill::start(1).await, Mill::start(2).await);
    let mut begun = std::collections::BTreeSet::new();
    // Forty at one server by chance: once in 2^39.
    for _ in 0..40 {
        let client = soon(Client::connect_any([a.addr, b.addr], quick())).await.unwrap();
        begun.insert(client.served().server.to_string());
        client.close().await;
    }
    assert_eq!(begun.len(), 2, "{begun:?}");
}

#[tokio::test]
async fn a_client_that_had_to_leave_goes_back_to_its_first_choice() {
    let options = quick().retry_for(Duration::from_secs(15)).return_after(Duration::from_millis(100));
    let Pair { a, b, client, at_a } = Pair::start(options).await;
    let mut stand_in = moved_on(&client, at_a, &b).await;
    let open = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Fresh).await }
    });
    let asked = stand_in.expect(Asked::Next(Order::Fresh)).await;
    // No call is made: it opens a connection to its first choice by itself, and moves there.
    let mut back = a.greet().await;
    let home = a.addr.to_string();
    crate::mill::until(|| *client.served().server == *home).await;
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), back.serve(2)) }).await;
    assert_eq!(next.unwrap(), 2);
    stand_in.send(|out| reply_id(out, asked, 3)).await;
    assert_eq!(soon(open).await.unwrap().unwrap(), 3);
    stand_in.expect_end().await;
    // There it stays.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!a.has_caller().await && !b.has_caller().await);
}

#[tokio::test]
async fn the_first_choice_is_tried_again_until_it_is_there_and_of_the_same_cluster() {
    let options = quick().retry_for(Duration::from_secs(15)).return_after(Duration::from_millis(20));
    let Pair { a, b, client, at_a } = Pair::start(options).await;
    let mut stand_in = moved_on(&client, at_a, &b).await;
    drop(soon(a.accept()).await);
    soon(a.greet_as(cluster_id(9))).await.expect_end().await;
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), stand_in.serve(2)) }).await;
    assert_eq!(next.unwrap(), 2, "the one in use goes on meanwhile");
    let _back = soon(a.greet()).await;
    stand_in.expect_end().await;
    assert_eq!(*client.served().server, *a.addr.to_string());
}

#[tokio::test]
async fn a_dropped_client_goes_nowhere_any_more() {
    let options = quick().retry_for(Duration::from_secs(15)).return_after(Duration::from_millis(50));
    let Pair { a, b, client, at_a } = Pair::start(options).await;
    drop(moved_on(&client, at_a, &b).await);
    drop(client);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!a.has_caller().await);
}
