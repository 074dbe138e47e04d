//! Ids asked for ahead of need, from one server.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};
use xuid_client::{Client, ClientError, Ids, Options, Order, Prefetch, PrefetchOptions, Status};
use xuid_protocol::Refusal;

use crate::fake::{Asked, Fake, quick, soon};
use crate::mill::{Mill, until};

const LONG: Duration = Duration::from_secs(15);

#[expect(clippy::disallowed_methods, reason = "the age of an id is measured against real time")]
fn now() -> Instant {
    Instant::now()
}

async fn source(mill: &Mill, options: PrefetchOptions) -> Prefetch {
    let client = soon(Client::connect(mill.addr, quick())).await.unwrap();
    client.prefetch(options).unwrap()
}

/// Nothing grows old, and nobody gives up.
fn patient() -> PrefetchOptions {
    PrefetchOptions::new().max_age(Duration::from_mins(10)).wait(LONG)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn whatever_handle_takes_them_ids_come_once_and_are_all_accounted_for() {
    let mill = Mill::start(0).await;
    let source = source(&mill, patient()).await;
    let takers: Vec<_> = (0..4)
        .map(|part| {
            let mut ids = source.ids();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                for round in 0..40_000_u32 {
                    // One of them is impatient: it gives calls up, and takes what there is.
                    if part == 0 && round % 3 == 0 {
                        taken.extend(
                            tokio::time::timeout(Duration::ZERO, ids.next()).await.ok().map(Result::unwrap),
                        );
                        taken.extend(ids.try_next());
                    } else {
                        taken.push(ids.next().await.unwrap());
                    }
                }
                taken
            })
        })
        .collect();
    let mut all = Vec::new();
    for taker in takers {
        all.extend(soon(taker).await.unwrap());
    }
    let issued = all.len() as u64;
    let unique: BTreeSet<_> = all.into_iter().collect();
    assert_eq!(unique.len() as u64, issued, "an id came twice");
    assert!(unique.last().unwrap() < &mill.given(), "from the server and nowhere else");
    let stats = source.stats();
    assert_eq!((stats.issued, stats.failed_refills), (issued, 0), "{stats:?}");
    assert_eq!(stats.received, stats.issued + stats.held, "what handles had left is held again: {stats:?}");
}

#[tokio::test]
async fn what_grew_old_is_wasted_in_the_hand_and_in_the_pool_and_never_comes_out() {
    let mill = Mill::start(0).await;
    let age = Duration::from_millis(60);
    let source = source(&mill, PrefetchOptions::new().max_age(age).wait(LONG).ahead(100, 100)).await;
    let mut ids = source.ids();
    for _ in 0..5 {
        let since = now();
        soon(ids.next()).await.unwrap();
        // Half of the 100 went to the hand.
        until(|| source.stats().held == 0).await;
        let (given, grown) = (mill.given(), since.elapsed());
        let next = soon(ids.next()).await.unwrap();
        assert!(next >= given, "{next} was asked for {grown:?} ago and is still handed out");
    }
    drop(ids);
    let stats = source.stats();
    assert!(stats.wasted_by_age >= 5 * 98, "{stats:?}");
    assert_eq!(stats.received, stats.issued + stats.wasted_by_age + stats.held, "{stats:?}");
}

#[tokio::test]
async fn a_runtime_that_is_never_yielded_to_hands_out_nothing_that_grew_old() {
    let mill = Mill::start(0).await;
    let age = Duration::from_millis(300);
    let source = source(&mill, PrefetchOptions::new().max_age(age).wait(LONG).ahead(50_000, 50_000)).await;
    let mut ids = source.ids();
    soon(ids.next()).await.unwrap();
    // A hot loop, so that many ids lie open in the hand.
    let mut last = None;
    for _ in 0..10_000 {
        last = ids.try_next();
    }
    assert!(last.is_some());
    // From here on no task runs: nothing new comes, and what is held was asked for before.
    let since = now();
    while since.elapsed() < age {
        std::thread::sleep(age / 50);
    }
    assert_eq!(ids.try_next(), None, "asked for more than {:?} ago", since.elapsed());
    let stats = source.stats();
    assert_eq!((stats.held, stats.received), (0, stats.issued + stats.wasted_by_age), "{stats:?}");
}

#[tokio::test]
async fn nobody_who_takes_nothing_is_refilled() {
    let mill = Mill::start(0).await;
    let age = Duration::from_millis(20);
    let source = source(&mill, PrefetchOptions::new().max_age(age).wait(LONG)).await;
    for used in 1..=10 {
        until(|| {
            let stats = source.stats();
            stats.refills >= used
                && stats.refills == mill.asked().len() as u64
                && stats.wasted_by_age + stats.issued == stats.received
        })
        .await;
        let asked = mill.asked().len();
        tokio::time::sleep(age * 2).await;
        assert_eq!(mill.asked().len(), asked, "growing old asks for none");
        // Given back at once: the rest grows old in the pool.
        assert!(soon(source.ids().next()).await.is_ok());
    }
    // One a use, unless it grew old on its way to a process that was not run.
    let asked = mill.asked();
    assert!(asked.len() <= 15 && asked.iter().all(|count| *count == 16), "{asked:?}");
}

#[tokio::test]
async fn a_hot_loop_is_given_more_at_a_time_and_only_a_pause_takes_it_back() {
    let mill = Mill::start(0).await;
    let source = source(&mill, PrefetchOptions::new().max_age(Duration::from_millis(100)).wait(LONG)).await;
    let mut ids = source.ids();
    soon(async {
        while mill.asked().iter().all(|count| *count < 50_000) {
            for _ in 0..1_000 {
                ids.next().await.unwrap();
            }
        }
    })
    .await;
    let asked = mill.asked();
    assert!(asked[0] == 16 && asked.len() < 1_000, "{asked:?}");
    until(|| source.stats().held == 0).await;
    let before = mill.asked().len();
    drop(ids);
    assert!(soon(source.ids().next()).await.is_ok());
    // What the loop still had asked for may have been under way.
    assert!(mill.asked()[before..].iter().all(|count| *count < 50_000), "{:?}", &mill.asked()[before..]);
}

#[tokio::test]
async fn without_a_server_it_goes_on_with_what_it_holds_then_says_why_not_and_recovers() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().reconnect_rounds(1)).await;
    let options = PrefetchOptions::new().max_age(Duration::from_mins(10)).wait(Duration::from_millis(200));
    let source = client.prefetch(options.ahead(20, 20)).unwrap();
    let mut ids = source.ids();
    assert_eq!(soon(peer.serve_runs(100)).await, 20);
    until(|| source.stats().held == 20).await;
    drop(peer);
    let away = async {
        loop {
            // Takes the call and hangs up, as a server in its start would.
            fake.accept().await;
        }
    };
    let call = async {
        for id in 100..120 {
            assert_eq!(ids.next().await.unwrap(), id);
        }
        ids.next().await.unwrap_err()
    };
    let error = tokio::select! { () = away => unreachable!(), error = soon(call) => error };
    assert!(matches!(error, ClientError::Lost { .. }) && error.is_retryable(), "{error:?}");
    assert!(source.failure().is_some() && source.stats().failed_refills > 0);
    assert_eq!(first_of_a_server_that_is_back(&fake, &mut ids).await, 500);
    assert!(source.failure().is_none());
}

/// The first id that comes when the server gives those from 500 on.
async fn first_of_a_server_that_is_back(fake: &Fake, ids: &mut Ids) -> u64 {
    let back = async {
        // Calls that were taken and not answered come first.
        loop {
            let mut peer = fake.accept().await;
            let Some((request_id, _)) = peer.try_hello().await else { continue };
            if peer.try_welcome(request_id, fake.cluster, fake.limits).await.is_ok() {
                peer.serve_runs(500).await;
                break peer;
            }
        }
    };
    let call = async {
        loop {
            if let Ok(id) = ids.next().await {
                break id;
            }
        }
    };
    let (_peer, id) = soon(async { tokio::join!(back, call) }).await;
    id
}

/// Longer than any call of a test waits for.
const STALL: Duration = Duration::from_secs(10);

/// What reads an application's log, and stands still so long where it is told of a dial or of a refill, or panics.
struct Reader {
    stall: Option<Duration>,
}

impl Subscriber for Reader {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["xuid_client::fleet", "xuid_client::prefetch"].iter().any(|of| metadata.target().starts_with(of))
    }

    fn event(&self, event: &Event<'_>) {
        let stall = self.stall.unwrap_or_else(|| panic!("told of {:?}", event.metadata().target()));
        std::thread::sleep(stall);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_reader_of_the_log_that_panics_or_stands_still_costs_no_call_and_no_refill() {
    let fake = Fake::start(1).await;
    let client = fake.lost_by(quick().reconnect_rounds(1)).await;
    // So long that a busy machine has two dials fail meanwhile.
    let source = client.prefetch(patient().wait(Duration::from_secs(2)).ahead(20, 20)).unwrap();
    let mut ids = source.ids();
    let away = async {
        loop {
            fake.accept().await;
        }
    };
    let without = async {
        for reader in [Dispatch::new(Reader { stall: None }), Dispatch::new(Reader { stall: Some(STALL) })] {
            let _reader = tracing::dispatcher::set_default(&reader);
            let begin = now();
            let called = client.next(Order::Any).await.unwrap_err();
            let refilled = ids.next().await.unwrap_err();
            for error in [called, refilled] {
                let ClientError::Lost { source, .. } = &error else { panic!("{error:?}") };
                assert!(source.as_ref().is_none_or(|why| !why.to_string().contains("panicked")), "{error:?}");
            }
            assert!(begin.elapsed() < STALL, "a call waited for who reads the log");
        }
    };
    tokio::select! { () = away => unreachable!(), () = soon(without) => {} }
    assert!(source.stats().failed_refills > 1, "{:?}", source.stats());
    assert_eq!(first_of_a_server_that_is_back(&fake, &mut ids).await, 500);
    assert!(source.failure().is_none());
}

/// A writer that asks what it writes of.
struct Asks(Client, Arc<Prefetch>);

impl std::fmt::Write for Asks {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        let (client, source, (tell, told)) = (self.0.clone(), Arc::clone(&self.1), mpsc::channel());
        std::thread::spawn(move || {
            tell.send((client.is_connected(), source.stats(), source.ids().try_next()))
        });
        told.recv_timeout(LONG).map(|_| ()).map_err(|_| std::fmt::Error)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_writes_a_client_down_gets_nothing_of_it_under_a_lock() {
    let mill = Mill::start(0).await;
    let client = soon(Client::connect(mill.addr, quick())).await.unwrap();
    let source = Arc::new(client.prefetch(patient()).unwrap());
    let (ids, sequence) = (source.ids(), client.sequence("orders"));
    let mut asks = Asks(client.clone(), Arc::clone(&source));
    std::fmt::write(&mut asks, format_args!("{client:?} {sequence:?} {source:?} {ids:?}")).unwrap();
}

#[tokio::test]
async fn what_will_not_pass_is_told_at_once_and_tried_again_only_when_somebody_asks() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let source = client.prefetch(patient()).unwrap();
    let mut ids = source.ids();
    let hopeless = Refusal::new(Status::EXHAUSTED, "the time bits ran out");
    for _ in 0..3 {
        // The wait is 15 s, and the error does not take it.
        let begin = now();
        let (next, ()) = soon(async { tokio::join!(ids.next(), peer.refuse(&hopeless)) }).await;
        assert!(matches!(next, Err(ClientError::Refused { status: Status::EXHAUSTED, .. })), "{next:?}");
        assert!(begin.elapsed() < LONG / 2);
        assert_eq!(ids.try_next(), None);
        let asked = tokio::time::timeout(Duration::from_millis(30), peer.ask()).await;
        assert!(asked.is_err(), "{asked:?} came without anybody asking");
    }
    let (next, _) = soon(async { tokio::join!(ids.next(), peer.serve_runs(7)) }).await;
    assert_eq!(next.unwrap(), 7);
}

#[tokio::test]
async fn a_server_that_has_not_so_many_is_asked_for_fewer() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let source = client.prefetch(patient().ahead(16, 1_000)).unwrap();
    let mut ids = source.ids();
    let mut counts = Vec::new();
    let script = async {
        for _ in 0..3 {
            peer.serve_runs(counts.iter().map(|count| 1_000 * count).sum::<u64>()).await;
        }
        // Whatever it asks for now, and then less.
        let mut refused = 0;
        loop {
            let (request_id, asked) = peer.ask().await.unwrap();
            let Asked::Runs(bulk) = asked else { panic!("{asked:?}") };
            counts.push(u64::from(bulk.count));
            if bulk.count <= 16 {
                peer.send_runs(request_id, 1 << 40, bulk.count).await.unwrap();
                return refused;
            }
            refused += 1;
            let busy = Refusal::new(Status::OVERLOADED, "nothing left");
            peer.send(|out| xuid_protocol::reply_error(out, request_id, 0x12, &busy)).await;
        }
    };
    let call = async { while ids.next().await.unwrap() < 1 << 40 {} };
    let (refused, ()) = soon(async { tokio::join!(script, call) }).await;
    assert!(refused > 0, "{counts:?}");
}

#[tokio::test]
async fn the_end_of_the_source_ends_its_handles_its_refills_and_its_hold_on_the_connection() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(Options::new()).await;
    let source = client.prefetch(patient()).unwrap();
    drop(client);
    let mut ids = source.ids();
    let mut waiting = source.ids();
    assert_eq!(soon(peer.serve_runs(1)).await, 16);
    assert!(soon(ids.next()).await.is_ok());
    let waiting = tokio::spawn(async move {
        while waiting.next().await.is_ok() {}
        waiting.next().await
    });
    // What the second one did not find is asked for, and never answered.
    assert!(matches!(soon(peer.ask()).await, Some((_, Asked::Runs(_)))));
    drop(source);
    assert_eq!(ids.try_next(), None, "the rest of the run in its hand is nobody's");
    assert!(matches!(soon(ids.next()).await, Err(ClientError::Closed)));
    assert!(matches!(soon(waiting).await.unwrap(), Err(ClientError::Closed)));
    peer.expect_end().await;
}

#[tokio::test]
async fn a_close_of_the_client_drops_what_is_held_in_pool_and_handles() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(Options::new()).await;
    let source = client.prefetch(patient().ahead(100, 100)).unwrap();
    let mut ids = source.ids();
    let (next, _) = soon(async { tokio::join!(ids.next(), peer.serve_runs(1)) }).await;
    assert_eq!(next.unwrap(), 1);
    // So that the id that comes next lies open in the handle.
    while ids.try_next().unwrap() < 20 {}
    drop(peer);
    soon(client.close()).await;
    assert_eq!((ids.try_next(), source.ids().try_next()), (None, None));
    assert!(matches!(soon(ids.next()).await, Err(ClientError::Closed)));
    let stats = source.stats();
    assert_eq!((stats.issued, stats.held, stats.wasted_at_end), (20, 0, 80), "{stats:?}");
}

#[tokio::test]
async fn handles_outlive_the_runtime_of_their_source_and_know_it() {
    let (mut ids, _source) = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mill = Mill::start(0).await;
            let source = source(&mill, patient()).await;
            let mut ids = source.ids();
            soon(ids.next()).await.unwrap();
            (ids, source)
        })
    })
    .join()
    .unwrap();
    assert!(matches!(soon(ids.next()).await, Err(ClientError::Closed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_take_ids_without_a_runtime_and_tasks_are_kept_from_blocking() {
    let mill = Mill::start(0).await;
    let source = source(&mill, patient()).await;
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let mut ids = source.ids();
            std::thread::spawn(move || -> Vec<_> {
                (0..20_000).map(|_| ids.blocking_next().unwrap()).collect()
            })
        })
        .collect();
    let taken = soon(tokio::task::spawn_blocking(|| {
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    }))
    .await
    .unwrap();
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 40_000);
    // A thread made for blocking may.
    let mut ids = source.ids();
    let ids = soon(tokio::task::spawn_blocking(move || ids.blocking_next().map(|_| ids))).await.unwrap();
    assert!(ids.is_ok());
    let mut ids = source.ids();
    let in_a_task = tokio::spawn(async move { ids.blocking_next() });
    assert!(soon(in_a_task).await.unwrap_err().is_panic());
}

#[tokio::test]
async fn a_blocked_thread_is_told_after_its_wait_that_there_is_nothing() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let source = client.prefetch(patient().wait(Duration::from_millis(40))).unwrap();
    let mut ids = source.ids();
    let blocked = std::thread::spawn(move || (ids.blocking_next(), ids));
    let request = soon(peer.ask()).await;
    assert!(matches!(request, Some((_, Asked::Runs(_)))), "{request:?}");
    let (blocked, mut ids) = soon(tokio::task::spawn_blocking(|| blocked.join().unwrap())).await.unwrap();
    let error = blocked.unwrap_err();
    assert!(matches!(error, ClientError::NotYet { .. }) && error.is_retryable(), "{error:?}");
    let error = soon(ids.next()).await.unwrap_err();
    assert!(matches!(error, ClientError::NotYet { .. }), "{error:?}");
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let mill = Mill::start(0).await;
    let client = soon(Client::connect(mill.addr, quick())).await.unwrap();
    let defaults = PrefetchOptions::new;
    for options in [
        defaults().ahead(0, 10),
        defaults().ahead(11, 10),
        defaults().max_age(Duration::ZERO),
        defaults().max_age(Duration::MAX),
        defaults().wait(Duration::MAX),
    ] {
        let error = client.prefetch(options).unwrap_err();
        assert!(matches!(error, ClientError::Invalid { .. }), "{error:?}");
    }
}

/// As where the system has no thread left: a thread's stack would be larger than all addresses that there are.
#[test]
fn a_name_that_no_thread_can_look_up_fails_a_call_and_a_refill_and_ends_neither_for_good() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all();
        builder
    };
    let (with, without) = (runtime().build().unwrap(), runtime().thread_stack_size(1 << 47).build().unwrap());
    let client = with.block_on(async {
        let fake = Fake::start(1).await;
        let server = format!("localhost:{}", fake.addr.port());
        let (client, peer) =
            soon(async { tokio::join!(Client::connect(server, quick()), fake.greet()) }).await;
        drop((peer, fake));
        let client = client.unwrap();
        while client.is_connected() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        client
    });
    let source = without.block_on(async {
        let source = client.prefetch(PrefetchOptions::new().wait(Duration::from_secs(1))).unwrap();
        let error = soon(source.ids().next()).await.unwrap_err();
        assert!(!matches!(error, ClientError::Closed), "nobody closed it: {error}");
        source
    });
    let call = without.block_on(async { tokio::spawn(async move { client.next(Order::Any).await }).await });
    assert!(matches!(call, Ok(Err(ClientError::Unreachable { .. }))), "{call:?}");
    drop(source);
}
