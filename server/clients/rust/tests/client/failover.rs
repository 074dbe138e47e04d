//! Where a call goes when its server fails it, and where it does not.

use std::time::Duration;

use xuid_client::{Client, ClientError, Options, Order, Status};
use xuid_protocol::{Refusal, reply_id};

use crate::fake::{Asked, Pair, quick, soon};
use crate::mill::Mill;

const HOUR: Duration = Duration::from_hours(1);

fn patient() -> Options {
    quick().retry_for(Duration::from_secs(15))
}

#[tokio::test]
async fn a_call_refused_for_what_its_server_lacks_goes_to_the_next_one_at_once() {
    let lacks = [Status::NOT_READY, Status::WINDOW_LOST, Status::SHUTTING_DOWN, Status::INTERNAL];
    for status in lacks.into_iter().chain([Status::CLOCK_BEHIND]) {
        let Pair { a, b, client, mut at_a } = Pair::start(patient()).await;
        let script = async {
            // An hour: whoever waits as this server says is too late for the next one.
            at_a.refuse(&Refusal::new(status, "not here").retry_after(HOUR)).await;
            b.greet().await.serve(2).await;
            at_a.expect_end().await;
        };
        let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
        assert_eq!(next.unwrap(), 2, "{status}");
        assert!(!a.has_caller().await, "{status}: it was not asked again");
    }
}

#[tokio::test]
async fn without_retries_the_caller_sees_the_refusal_and_the_next_call_goes_elsewhere() {
    let Pair { b, client, mut at_a, .. } = Pair::start(quick()).await;
    let refusal = Refusal::new(Status::NOT_READY, "no window yet");
    let (next, ()) = tokio::join!(client.next(Order::Any), at_a.refuse(&refusal));
    assert!(matches!(next, Err(ClientError::Refused { status: Status::NOT_READY, .. })), "{next:?}");
    let script = async { b.greet().await.serve(3).await };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 3);
}

#[tokio::test]
async fn what_is_in_flight_at_a_server_that_is_left_is_still_answered() {
    let Pair { a: _a, b, client, mut at_a } = Pair::start(patient()).await;
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Fresh).await }
    });
    let open = at_a.expect(Asked::Next(Order::Fresh)).await;
    let script = async {
        at_a.refuse(&Refusal::new(Status::WINDOW_LOST, "another is being taken")).await;
        b.greet().await.serve(2).await;
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 2);
    at_a.send(|out| reply_id(out, open, 1)).await;
    assert_eq!(soon(first).await.unwrap().unwrap(), 1);
    at_a.expect_end().await;
}

#[tokio::test]
async fn a_server_that_is_merely_busy_is_stayed_with() {
    let Pair { a: _a, b, client, mut at_a } = Pair::start(patient()).await;
    let behind = Refusal::new(Status::CLOCK_BEHIND, "15 ms").retry_after(Duration::from_millis(15));
    let script = async {
        at_a.overload(Duration::from_millis(2)).await;
        at_a.refuse(&behind).await;
        at_a.serve(1).await;
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 1);
    assert!(!b.has_caller().await);
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_a_request_costs_the_call_nothing_but_time() {
    let Pair { a, b, client, mut at_a } = Pair::start(patient()).await;
    let script = async {
        at_a.expect(Asked::Next(Order::Any)).await;
        drop((at_a, a));
        b.greet().await.serve(2).await;
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 2);
}

#[tokio::test]
async fn a_silent_server_is_left_for_the_next_one() {
    let Pair { a, b, client, mut at_a } = Pair::start(patient().timeout(Duration::from_millis(50))).await;
    let script = async {
        at_a.expect(Asked::Next(Order::Any)).await;
        b.greet().await.serve(2).await;
        at_a.expect(Asked::Ping(vec![])).await;
        at_a.expect_end().await;
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 2);
    assert!(!a.has_caller().await);
}

#[tokio::test]
async fn when_all_servers_refuse_each_is_asked_once_before_the_pause() {
    let Pair { a, b, client, mut at_a } = Pair::start(patient()).await;
    let refusal = Refusal::new(Status::NOT_READY, "no window yet").retry_after(Duration::from_millis(5));
    let script = async {
        at_a.refuse(&refusal).await;
        for fake in [&b, &a, &b] {
            fake.greet().await.refuse(&refusal).await;
        }
        a.greet().await.serve(7).await;
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert_eq!(next.unwrap(), 7);
    // And with the pause beyond the time for retries it ends, after a lap.
    let Pair { a: _a, b, client, mut at_a } = Pair::start(patient()).await;
    let refusal = refusal.retry_after(HOUR);
    let script = async {
        at_a.refuse(&refusal).await;
        b.greet().await.refuse(&refusal).await;
    };
    let (next, ()) = soon(async { tokio::join!(client.next(Order::Any), script) }).await;
    assert!(matches!(next, Err(ClientError::Refused { status: Status::NOT_READY, .. })), "{next:?}");
}

#[tokio::test]
async fn a_caller_of_what_no_server_has_does_not_take_the_others_from_server_to_server() {
    let (a, b) = (Mill::start(1).await, Mill::start(2).await);
    let client = soon(Client::connect_any([a.addr, b.addr], patient())).await.unwrap();
    for _ in 0..100 {
        let fresh = soon(client.next(Order::Fresh)).await;
        assert!(matches!(fresh, Err(ClientError::Refused { status: Status::NOT_READY, .. })), "{fresh:?}");
        let any = soon(client.runs(1, Order::Any, Duration::ZERO)).await;
        assert_eq!(any.unwrap().len(), 1);
    }
    // Each once to compare clusters, and once to see whether it has what the other one has not.
    assert_eq!(a.connections() + b.connections(), 4);
    // A server that is stayed with is not asked again without a pause, which is beyond the time for retries.
    assert_eq!(a.refused() + b.refused(), 101);
}
