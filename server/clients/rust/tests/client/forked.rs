//! What a forked child gets of its parent's client: an error at once, whatever the parent's threads were doing.

#![expect(unsafe_code, reason = "only a hook between fork and exec runs code in a forked child without libc")]

use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
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

/// How a waker stands still while it is cloned, which Tokio does under its locks.
#[derive(Default)]
struct Standing {
    stands: AtomicBool,
    goes_on: AtomicBool,
}

impl Standing {
    const TABLE: RawWakerVTable = RawWakerVTable::new(Self::clone, |_| (), |_| (), |_| ());

    fn waker(&'static self) -> Waker {
        // SAFETY: the table's functions read a `Standing`, which is there for good and may be shared.
        unsafe { Waker::new(std::ptr::from_ref(self).cast(), &Self::TABLE) }
    }

    fn clone(standing: *const ()) -> RawWaker {
        // SAFETY: `waker` gave it.
        let this = unsafe { &*standing.cast::<Self>() };
        this.stands.store(true, Ordering::Relaxed);
        while !this.goes_on.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        RawWaker::new(standing, &Self::TABLE)
    }
}

/// What a child gets of one call while another thread of its parent stands in the locks of what both wait for.
fn beside_one_that_stands<T: std::fmt::Debug + 'static>(
    waits: impl Future<Output = T> + Send + 'static,
    stands: impl Future<Output = T> + Send,
) -> String {
    let mut waits = Some(Box::pin(waits));
    assert!(at_once(waits.as_mut().unwrap().as_mut()).is_none());
    let standing: &'static Standing = Box::leak(Box::default());
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _in = runtime.enter();
            assert!(pin!(stands).poll(&mut Context::from_waker(&standing.waker())).is_pending());
        });
        while !standing.stands.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The parent's call is dropped when the other thread stands no more.
        let waits = Arc::new(Mutex::new(waits));
        let theirs = Arc::clone(&waits);
        let child = std::panic::catch_unwind(AssertUnwindSafe(|| {
            in_a_child(move || {
                let mut call = theirs.lock().unwrap().take().unwrap();
                let said = at_once(call.as_mut());
                drop(call);
                format!("{said:?}")
            })
        }));
        standing.goes_on.store(true, Ordering::Relaxed);
        child.unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_goes_on_in_a_child_takes_no_lock_of_what_it_waits_for() {
    let fake = Fake::start(1).await;
    let (client, _peer) = fake.pair(quick().max_in_flight(1)).await;
    let next = || {
        let client = client.clone();
        async move { client.next(Order::Any).await }
    };
    let mut in_flight = Box::pin(next());
    assert!(at_once(in_flight.as_mut()).is_none());
    let child = beside_one_that_stands(next(), next());
    assert!(child.contains("Forked"), "waiting for room: {child}");
    let source = client.prefetch(PrefetchOptions::new().wait(Duration::from_mins(1))).unwrap();
    let next = || {
        let mut ids = source.ids();
        async move { ids.next().await }
    };
    let child = beside_one_that_stands(next(), next());
    assert!(child.contains("Forked"), "waiting for ids: {child}");
}

/// A waker that forks where it is cloned, or dropped, once it is armed.
struct ForkingWaker {
    is_armed: AtomicBool,
    /// What the fork made: 0 in the child.
    child: AtomicI32,
    file: PathBuf,
}

impl ForkingWaker {
    const IN_DROP: RawWakerVTable =
        RawWakerVTable::new(|this| RawWaker::new(this, &Self::IN_DROP), |_| (), |_| (), Self::fork);
    const IN_CLONE: RawWakerVTable = RawWakerVTable::new(Self::clone, |_| (), |_| (), |_| ());

    fn new() -> &'static Self {
        let (is_armed, child) = (AtomicBool::new(false), AtomicI32::new(-1));
        Box::leak(Box::new(Self { is_armed, child, file: childs_file() }))
    }

    fn waker(&'static self, table: &'static RawWakerVTable) -> Waker {
        // SAFETY: the table's functions read a `ForkingWaker`, which is there for good and may be shared.
        unsafe { Waker::new(std::ptr::from_ref(self).cast(), table) }
    }

    fn arm(&self) {
        self.is_armed.store(true, Ordering::Relaxed);
    }

    /// In the child notes what came of a poll, and ends it; in the parent what the child noted.
    fn told_by_child(&self, polled: &str) -> String {
        let child = self.child.load(Ordering::Relaxed);
        assert!(child >= 0, "the waker was not reached, or could not fork");
        if child == 0 {
            let _ = std::fs::write(&self.file, polled);
            // SAFETY: ends the child at once.
            unsafe { _exit(0) };
        }
        wait_for(child);
        let told = std::fs::read_to_string(&self.file).unwrap();
        std::fs::remove_file(&self.file).unwrap();
        told
    }

    fn clone(this: *const ()) -> RawWaker {
        Self::fork(this);
        RawWaker::new(this, &Self::IN_CLONE)
    }

    fn fork(this: *const ()) {
        // SAFETY: `waker` gave it.
        let this = unsafe { &*this.cast::<Self>() };
        if this.is_armed.swap(false, Ordering::Relaxed) {
            // SAFETY: the child polls, writes a file and ends.
            let child = unsafe { fork() };
            this.child.store(child, Ordering::Relaxed);
            if child == 0 {
                alarm(20);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_at_whose_hand_over_a_waker_forks_is_the_parents() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let mut call = Box::pin(client.next(Order::Any));
    let forks = ForkingWaker::new();
    let waker = forks.waker(&ForkingWaker::IN_DROP);
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    serve_unpolled(&client, &mut peer, 7).await;
    forks.arm();
    let polled = at_once(call.as_mut());
    let childs = forks.told_by_child(&format!("{polled:?}"));
    assert_eq!(polled.unwrap().unwrap(), 7);
    assert!(childs.contains("Forked"), "the child got {childs}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_begins_to_wait_as_its_waker_forks_is_refused_in_the_child() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let mut call = Box::pin(client.next(Order::Any));
    let forks = ForkingWaker::new();
    let waker = forks.waker(&ForkingWaker::IN_CLONE);
    forks.arm();
    let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
    let childs = forks.told_by_child(&format!("{polled:?}"));
    assert!(polled.is_pending());
    assert!(childs.contains("Forked"), "the child got {childs}");
    let (id, ()) = soon(async { tokio::join!(call.as_mut(), peer.serve(7)) }).await;
    assert_eq!(id.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_at_whose_end_a_waker_forks_leaves_the_connection_to_the_parent() {
    let fake = Fake::start(1).await;
    let mut connect = Box::pin(Client::connect(fake.addr, quick()));
    let forks = ForkingWaker::new();
    let waker = forks.waker(&ForkingWaker::IN_DROP);
    assert!(connect.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut peer = fake.greet().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    forks.arm();
    let polled = at_once(connect.as_mut());
    let childs =
        forks.told_by_child(&format!("{:?}", polled.as_ref().map(|polled| polled.as_ref().map(|_| ()))));
    assert!(childs.contains("Forked"), "the child got {childs}");
    let client = polled.unwrap().unwrap();
    assert_heard(&client, &mut peer).await;
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

/// The number of the system call.
const CLONE: i64 = if cfg!(target_arch = "x86_64") { 56 } else { 220 };

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
    fn _exit(code: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn unshare(flags: i32) -> i32;
    fn close(fd: i32) -> i32;
    fn fork() -> i32;
    safe fn alarm(seconds: u32) -> u32;
}

/// A command that runs another as the first process of a pid namespace, if this user may have one.
fn in_a_namespace(more: &[&str]) -> Option<Command> {
    let found = ["-pf", "-Urpf"].into_iter().find_map(|flags| {
        let tried = Command::new("unshare").arg(flags).args(more).arg("true").output();
        tried.is_ok_and(|tried| tried.status.success()).then(|| {
            let mut command = Command::new("unshare");
            command.arg(flags).args(more);
            command
        })
    });
    if found.is_none() {
        eprintln!("skipped: this user may not make a pid namespace (unshare -pf, unshare -Urpf)");
    }
    found
}

/// Runs the test of that name again as the first process of a pid namespace, whose child is the first process of
/// another. There `prepare` runs before the fork and `in_child` after it.
fn first_process_and_child(name: &str, prepare: impl FnOnce(), in_child: impl FnOnce()) {
    if std::process::id() == 1 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(as_the_first_process(prepare, in_child));
    }
    let Some(mut command) = in_a_namespace(&[]) else { return };
    let output = command.arg(std::env::current_exe().unwrap()).args(["--exact", name]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
}

async fn as_the_first_process(prepare: impl FnOnce(), in_child: impl FnOnce()) {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let mut call = Box::pin({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    assert!(at_once(call.as_mut()).is_none());
    serve_unpolled(&client, &mut peer, 7).await;
    let address = client.served().server.replace(':', "-");
    let file = std::env::temp_dir().join(format!("xuid-client-namespace-{address}"));
    prepare();
    // SAFETY: clone with CLONE_NEWPID | SIGCHLD and no stack is fork; the child polls, writes a file and ends.
    let child = unsafe { syscall(CLONE, 0x2000_0011_i64, 0_i64, 0_i64, 0_i64, 0_i64) };
    assert!(child >= 0, "no child: {}", std::io::Error::last_os_error());
    if child == 0 {
        in_child();
        let (id, connected) = (std::process::id(), client.is_connected());
        let _ = std::fs::write(&file, format!("{id} {connected} {:?}", at_once(call.as_mut())));
        // SAFETY: ends the child at once.
        unsafe { _exit(0) };
    }
    wait_for(child as i32);
    let parents = at_once(call.as_mut()).unwrap().unwrap();
    let childs = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    assert!(
        childs.starts_with("1 false ") && childs.contains("Forked"),
        "the parent got {parents}, and the child {childs}"
    );
}

fn wait_for(child: i32) {
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { waitpid(child, &raw mut status, 0) };
}

#[test]
fn the_first_process_of_another_namespace_gets_no_reply_of_its_parent() {
    let name = "forked::the_first_process_of_another_namespace_gets_no_reply_of_its_parent";
    first_process_and_child(name, || (), || ());
}

#[test]
fn a_child_that_closed_what_it_inherited_gets_no_reply_of_its_parent() {
    let name = "forked::a_child_that_closed_what_it_inherited_gets_no_reply_of_its_parent";
    let as_a_daemon = || {
        for fd in 3..256 {
            // SAFETY: the child uses none of them.
            unsafe { close(fd) };
        }
        // The numbers serve again.
        for _ in 0..20 {
            std::mem::forget(std::os::unix::net::UnixStream::pair());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    first_process_and_child(name, || (), as_a_daemon);
}

#[test]
fn a_child_whose_clock_is_behind_its_parents_gets_no_reply_of_its_parent() {
    let name = "forked::a_child_whose_clock_is_behind_its_parents_gets_no_reply_of_its_parent";
    let clock_of_children = || {
        // SAFETY: CLONE_NEWTIME; children of this thread are in the new time namespace, this process is not.
        if unsafe { unshare(0x80) } != 0 {
            return eprintln!("skipped: no time namespace (Linux 5.6)");
        }
        // As in a container that was restored or migrated. The clock may not be set to before the machine's start.
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let offsets = Path::new("/proc").join(thread.file_name().unwrap()).join("timens_offsets");
        std::fs::write(offsets, "monotonic -30 0\n").unwrap();
    };
    first_process_and_child(name, clock_of_children, || std::thread::sleep(Duration::from_millis(1)));
}

#[test]
fn a_grandchild_with_the_process_id_of_the_dead_parent_gets_nothing_of_its_pool() {
    const NAME: &str = "forked::a_grandchild_with_the_process_id_of_the_dead_parent_gets_nothing_of_its_pool";
    const FILE: &str = "XUID_TEST_GRANDCHILD";
    if let Some(file) = std::env::var_os(FILE) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(parent_of_a_grandchild(file.as_ref()));
    }
    let Some(mut command) = in_a_namespace(&["--mount-proc"]) else { return };
    let file = std::env::temp_dir().join(format!("xuid-client-grandchild-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    // The shell is the first process: it reaps the parent, and starts no other process until it may end.
    let script = format!("'{}' --exact {NAME}; read end", std::env::current_exe().unwrap().display());
    command.args(["sh", "-c", &script]).env(FILE, &file).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = command.spawn().unwrap();
    let begin = tokio::time::Instant::now();
    let told = loop {
        std::thread::sleep(Duration::from_millis(5));
        let told = std::fs::read_to_string(&file).unwrap();
        if told.contains("grandchild") || begin.elapsed() > Duration::from_secs(20) {
            break told;
        }
    };
    drop(shell.stdin.take());
    shell.wait().unwrap();
    std::fs::remove_file(file).unwrap();
    assert!(told.contains("parent [0, 1, 2]"), "{told}");
    assert!(told.contains("grandchild of the same id: []") || told.contains("grandchild skipped"), "{told}");
}

/// Forks, tells what it gets of its pool, and dies. The grandchild has its id.
async fn parent_of_a_grandchild(file: &Path) {
    let say = |text: String| {
        let mut out = std::fs::File::options().append(true).open(file).unwrap();
        out.write_all(text.as_bytes()).unwrap();
    };
    let own = std::process::id();
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let source =
        client.prefetch(PrefetchOptions::new().max_age(Duration::from_mins(1)).ahead(1_000, 1_000)).unwrap();
    peer.serve_runs(0).await;
    while source.stats().held < 1_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let take = || {
        let mut ids = source.ids();
        let got: Vec<_> = (0..3).map_while(|_| ids.try_next()).collect();
        std::mem::forget(ids);
        got
    };
    // SAFETY: the child makes files and a child of its own, tries the pool, and ends.
    if unsafe { fork() } != 0 {
        say(format!("parent {:?}\n", take()));
        // SAFETY: ends the parent.
        unsafe { _exit(0) };
    }
    // Until the shell has reaped it.
    while Path::new(&format!("/proc/{own}")).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_chosen = std::fs::write("/proc/sys/kernel/ns_last_pid", (own - 1).to_string()).is_ok();
    // SAFETY: as above.
    let grandchild = unsafe { fork() };
    if grandchild == 0 {
        let same = std::process::id() == own;
        say(if is_chosen && same {
            format!("grandchild of the same id: {:?}\n", take())
        } else {
            "grandchild skipped\n".to_owned()
        });
    } else {
        wait_for(grandchild);
    }
    // SAFETY: ends the child, or the grandchild.
    unsafe { _exit(0) };
}
