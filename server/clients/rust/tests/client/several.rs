//! Several servers of one cluster, or of two.

use std::time::Duration;

use tokio::time::timeout;
use xuid_client::{Client, ClientError, Order, Status};
use xuid_protocol::{Refusal, reply_error, reply_id};

use crate::fake::{Fake, cluster_id, quick, soon};

/// Two servers, a client of both, and their ends of the connections.
async fn two(a: &Fake, b: &Fake) -> (Result<Client, ClientError>, crate::fake::Peer, crate::fake::Peer) {
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
    let (a, b) = (Fake::start(1).await, Fake::start(1).await);
    let (client, mut at_a, mut at_b) = two(&a, &b).await;
    let client = client.unwrap();
    at_b.expect_end().await;
    let (next, ()) = tokio::join!(client.next(Order::Any), at_a.serve(1));
    assert_eq!(next.unwrap(), 1, "the first of the list that answers");
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
    let options = quick().connect_timeout(Duration::from_mins(10));
    let connect = Client::connect_any([a.addr, b.addr, c.addr], options);
    let (client, at_a, _, _) = soon(async { tokio::join!(connect, a.greet(), b.greet(), c.greet()) }).await;
    let client = client.unwrap();
    // From now on b is connected to, by the kernel's leave, and says nothing.
    drop((at_a, a));
    let serving = async {
        loop {
            let mut peer = c.accept().await;
            let Some((request_id, _)) = peer.try_hello().await else { continue };
            if peer.try_welcome(request_id, c.cluster, c.limits).await.is_err() {
                continue;
            }
            while let Some((request_id, _)) = peer.ask().await {
                peer.send(|out| reply_id(out, request_id, 3)).await;
            }
        }
    };
    let calls = async {
        loop {
            match timeout(Duration::from_millis(200), client.next(Order::Any)).await {
                Err(_) | Ok(Err(ClientError::Lost { .. })) => {}
                Ok(outcome) => return outcome,
            }
        }
    };
    let next = soon(async {
        tokio::select! {
            next = calls => next,
            () = serving => unreachable!("it serves without an end"),
        }
    });
    assert_eq!(next.await.unwrap(), 3);
}

#[tokio::test]
async fn a_server_that_became_another_cluster_is_refused_when_it_is_needed() {
    let (a, b) = (Fake::start(1).await, Fake::start(1).await);
    let (client, at_a, _) = two(&a, &b).await;
    let client = client.unwrap();
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
