//! What a forked child gets of its parent's client: an error at once, whatever the parent's threads were doing.

#![expect(unsafe_code, reason = "only a hook between fork and exec runs code in a forked child without libc")]

mod namespaces;
mod wakers;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use xuid_client::{
    Client, ClientError, NewSequence, Order, Prefetch, PrefetchOptions, PrefetchStats, SequenceChanges,
};
use xuid_protocol::reply_ping;

use crate::fake::{Asked, Fake, Peer, quick, soon};
use crate::mill::Mill;

/// The outcome of a future that has it at once.
fn at_once<T>(what: impl Future<Output = T>) -> Option<T> {
    match pin!(what).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of an outcome")]
fn is_forked<T>(outcome: Option<Result<T, ClientError>>) -> bool {
    matches!(outcome, Some(Err(ClientError::Forked { .. })))
}

/// Every call of a child; the names of those that did not refuse.
fn calls(client: &Client, source: &Prefetch) -> Vec<&'static str> {
    let wait = Duration::from_millis(50);
    let (mut ids, blocking) = (source.ids(), &mut source.ids());
    let sequence = client.sequence("orders");
    let outcomes = [
        ("next", is_forked(at_once(client.next(Order::Any)))),
        ("array", is_forked(at_once(client.array(1, Order::Any, wait)))),
        ("runs", is_forked(at_once(client.runs(1, Order::Any, wait)))),
        ("decode", is_forked(at_once(client.decode(1)))),
        ("info", is_forked(at_once(client.info()))),
        ("stats", is_forked(at_once(client.stats()))),
        ("provenance", is_forked(at_once(client.provenance(1)))),
        ("ping", is_forked(at_once(client.ping(b"")))),
        ("sequences", is_forked(at_once(client.sequences("", "", 1)))),
        ("Sequence::next", is_forked(at_once(sequence.next()))),
        ("Sequence::array", is_forked(at_once(sequence.array(1, wait)))),
        ("Sequence::runs", is_forked(at_once(sequence.runs(1, wait)))),
        ("Sequence::contiguous", is_forked(at_once(sequence.contiguous(1, wait)))),
        ("Sequence::info", is_forked(at_once(sequence.info()))),
        ("Sequence::create", is_forked(at_once(sequence.create(&NewSequence::new())))),
        ("Sequence::alter", is_forked(at_once(sequence.alter(&SequenceChanges::new())))),
        ("prefetch", is_forked(Some(client.prefetch(PrefetchOptions::new())))),
        ("is_connected", !client.is_connected()),
        ("served", client.served().limits.max_count > 0),
        ("close", at_once(client.close()).is_some()),
        ("Ids::next", is_forked(at_once(ids.next()))),
        ("Ids::try_next", ids.try_next().is_none()),
        ("Ids::blocking_next", is_forked(Some(blocking.blocking_next()))),
        ("Prefetch::stats", source.stats() == PrefetchStats::default()),
        ("Prefetch::failure", matches!(source.failure(), Some(ClientError::Forked { .. }))),
    ];
    outcomes.into_iter().filter(|(_, refuses)| !refuses).map(|(name, _)| name).collect()
}

/// Answers the call in flight, and returns when the reply lies there: the answer to another one has come behind it.
async fn serve_unpolled(client: &Client, peer: &mut Peer, id: u64) {
    peer.serve(id).await;
    let (pong, ()) = soon(async {
        tokio::join!(client.ping(&[1]), async {
            let request_id = peer.expect(Asked::Ping(vec![1])).await;
            peer.send(|out| reply_ping(out, request_id, &[1])).await;
        })
    })
    .await;
    pong.unwrap();
}

/// Where the socket of a client is heard of no more, a reply is found when its time is over.
async fn assert_heard(client: &Client, peer: &mut Peer) {
    let begin = tokio::time::Instant::now();
    let (id, ()) = soon(async { tokio::join!(client.next(Order::Any), peer.serve(7)) }).await;
    assert_eq!(id.unwrap(), 7);
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

/// Where a child that is made next writes what it has to say.
fn childs_file() -> PathBuf {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    let name = format!("xuid-client-forked-{}-{}", std::process::id(), FORKS.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name)
}

/// What `work` says in a forked child.
fn in_a_child(mut work: impl FnMut() -> String + Send + Sync + 'static) -> String {
    let file = childs_file();
    let theirs = file.clone();
    let mut command = Command::new("true");
    let hook = move || {
        // What hangs there ends with that, and is told apart.
        alarm(20);
        std::fs::write(&theirs, work())
    };
    // SAFETY: the hook allocates and writes a file, which glibc allows in a forked child. That it takes no lock of the
    // client, which another thread may have held at the fork, is what the tests are about.
    unsafe { command.pre_exec(hook) };
    let ended = command.status().unwrap();
    assert!(ended.success(), "a child: {ended}");
    let said = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_lay_there_unread_at_a_fork_is_the_parents() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let call = Arc::new(Mutex::new(Box::pin({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    })));
    assert!(at_once(call.lock().unwrap().as_mut()).is_none());
    serve_unpolled(&client, &mut peer, 7).await;
    let theirs = Arc::clone(&call);
    let child = in_a_child(move || format!("{:?}", at_once(theirs.lock().unwrap().as_mut())));
    assert!(child.contains("Forked"), "the child got {child}");
    assert_eq!(at_once(call.lock().unwrap().as_mut()).unwrap().unwrap(), 7);
}

/// Each was woken and not polled since: there is room, a link is found, the time to wait is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_goes_on_in_a_child_is_refused_whatever_it_waited_for() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().max_in_flight(1)).await;
    let next = || {
        let client = client.clone();
        let mut call = Box::pin(async move { client.next(Order::Any).await });
        assert!(at_once(call.as_mut()).is_none());
        Arc::new(Mutex::new(call))
    };
    let (first, second) = (next(), next());
    let source = client.prefetch(PrefetchOptions::new().wait(Duration::from_millis(1))).unwrap();
    let ids = Arc::new(Mutex::new(Box::pin(async move { source.ids().next().await })));
    assert!(at_once(ids.lock().unwrap().as_mut()).is_none());
    peer.serve(7).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let theirs = (Arc::clone(&second), Arc::clone(&ids));
    let child = in_a_child(move || {
        let call = at_once(theirs.0.lock().unwrap().as_mut());
        format!("{call:?} {:?}", at_once(theirs.1.lock().unwrap().as_mut()))
    });
    assert_eq!(child.matches("Forked").count(), 2, "{child}");
    assert_eq!(at_once(first.lock().unwrap().as_mut()).unwrap().unwrap(), 7);
    drop(second);
    drop(peer);
    while client.is_connected() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let third = next();
    let _peer = soon(fake.greet()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let theirs = Arc::clone(&third);
    let child = in_a_child(move || format!("{:?}", at_once(theirs.lock().unwrap().as_mut())));
    assert!(child.contains("Forked"), "{child}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_that_goes_on_in_a_child_is_refused_and_one_that_is_dropped_there_harms_none() {
    let fake = Fake::start(1).await;
    let connect = Arc::new(Mutex::new(Some(Box::pin(Client::connect(fake.addr, quick())))));
    assert!(at_once(connect.lock().unwrap().as_mut().unwrap().as_mut()).is_none());
    let mut peer = fake.greet().await;
    // It was woken, and not polled since.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let theirs = Arc::clone(&connect);
    let child = in_a_child(move || {
        let mut connect = theirs.lock().unwrap().take().unwrap();
        let said = at_once(connect.as_mut()).map(|connected| connected.map(|_| ()));
        drop(connect);
        format!("{said:?}")
    });
    assert!(child.contains("Forked"), "{child}");
    let mut connect = connect.lock().unwrap().take().unwrap();
    let client = soon(connect.as_mut()).await.unwrap();
    assert_heard(&client, &mut peer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_in_a_child_forked_under_load_refuses_at_once_and_harms_no_call_of_the_parent() {
    let mill = Mill::start(0).await;
    let client = soon(Client::connect(mill.addr, quick())).await.unwrap();
    let options = PrefetchOptions::new().max_age(Duration::from_mins(1)).wait(Duration::from_mins(1));
    let source = Arc::new(client.prefetch(options).unwrap());
    let over = Arc::new(AtomicBool::new(false));
    // They hold the locks of client and pool most of the time.
    let load: Vec<_> = (0..2)
        .map(|_| {
            let (client, source, over) = (client.clone(), Arc::clone(&source), Arc::clone(&over));
            let runtime = tokio::runtime::Handle::current();
            std::thread::spawn(move || {
                let _in = runtime.enter();
                while !over.load(Ordering::Relaxed) {
                    let _ = (client.is_connected(), client.served(), source.stats(), source.failure());
                    // Whose first one is looked for as if it were to be waited for.
                    let _ = at_once(source.ids().next());
                }
            })
        })
        .collect();
    let forks = tokio::task::spawn_blocking({
        let (client, source) = (client.clone(), Arc::clone(&source));
        move || {
            let fork = |_| {
                let (client, source) = (client.clone(), Arc::clone(&source));
                in_a_child(move || calls(&client, &source).join(" "))
            };
            (0..60).map(fork).collect::<Vec<_>>()
        }
    });
    // A child that hangs keeps the parent in its fork.
    let forks = soon(forks).await;
    over.store(true, Ordering::Relaxed);
    for thread in load {
        thread.join().unwrap();
    }
    let forks = forks.unwrap();
    assert!(forks.iter().all(String::is_empty), "did not refuse: {forks:?}");
    let mut ids = source.ids();
    assert!(soon(ids.next()).await.is_ok() && soon(client.runs(5, Order::Any, Duration::ZERO)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_was_hot_before_a_fork_gives_its_child_the_open_piece_and_no_more() {
    let mill = Mill::start(0).await;
    let client = soon(Client::connect(mill.addr, quick())).await.unwrap();
    let options = PrefetchOptions::new().max_age(Duration::from_mins(1)).ahead(1 << 18, 1 << 20);
    let source = client.prefetch(options).unwrap();
    let given = tokio::task::spawn_blocking(move || {
        let ids = Arc::new(Mutex::new(source.ids()));
        for _ in 0..20_500 {
            ids.lock().unwrap().blocking_next().unwrap();
        }
        let theirs = Arc::clone(&ids);
        // However slow the child is: nothing looks at the clock while a piece is open, and it has no ager.
        let take = move || {
            std::thread::sleep(Duration::from_micros(100));
            theirs.lock().unwrap().try_next()
        };
        let child = in_a_child(move || std::iter::from_fn(&take).take(2_000).count().to_string());
        child.parse::<u32>().unwrap()
    });
    let given = soon(given).await.unwrap();
    assert!(given <= 1_024, "{given} ids came out of the child");
}

unsafe extern "C" {
    fn _exit(code: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn fork() -> i32;
    safe fn alarm(seconds: u32) -> u32;
}

fn wait_for(child: i32) {
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { waitpid(child, &raw mut status, 0) };
}
