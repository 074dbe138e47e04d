//! Adversary B: what the mends of the fork, of endless durations and of strangers' texts leave open.

#![expect(unsafe_code, reason = "children are made by system calls")]

use std::io::Write as _;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use xuid_client::{Client, ClientError, Options, Order, PrefetchOptions};
use xuid_protocol::{Refusal, Status, reply_ping};

use crate::fake::{Asked, Fake, Peer, quick, soon};

const CLONE: i64 = if cfg!(target_arch = "x86_64") { 56 } else { 220 };
const NEWPID: i64 = 0x2000_0000;
const NEWTIME: i32 = 0x80;
const SIGCHLD: i64 = 17;

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
    fn _exit(code: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn unshare(flags: i32) -> i32;
    fn close(fd: i32) -> i32;
    fn getppid() -> i32;
    fn fork() -> i32;
    fn usleep(us: u32) -> i32;
}

fn at_once<T>(what: impl Future<Output = T>) -> Option<T> {
    match pin!(what).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

type Call = std::pin::Pin<Box<dyn Future<Output = Result<u64, ClientError>> + Send>>;

/// A call whose reply, the id 7, lies there unread.
async fn unread() -> (Fake, Client, Peer, Call) {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let mut call: Call = Box::pin({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    assert!(at_once(call.as_mut()).is_none());
    peer.serve(7).await;
    let (pong, ()) = soon(async {
        tokio::join!(client.ping(&[1]), async {
            let request_id = peer.expect(Asked::Ping(vec![1])).await;
            peer.send(|out| reply_ping(out, request_id, &[1])).await;
        })
    })
    .await;
    pong.unwrap();
    (fake, client, peer, call)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs this test again as the first process of a pid namespace.
fn as_the_first_process(name: &str) {
    let mut command = Command::new("unshare");
    command.args(["-Urpf", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", "--nocapture", name]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// What the child of the first process says, in a pid namespace of its own, and what the parent gets.
fn parent_and_child(prepare: impl FnOnce(), in_child: impl FnOnce()) {
    runtime().block_on(async {
        let (_fake, client, _peer, mut call) = unread().await;
        let file = std::env::temp_dir().join(format!("xuid-adv-{}", client.served().server.replace(':', "-")));
        // The parent looked at its process a moment ago, as it does at each call.
        prepare();
        // SAFETY: as fork; the child polls, writes a file and ends.
        let child = unsafe { syscall(CLONE, NEWPID | SIGCHLD, 0_i64, 0_i64, 0_i64, 0_i64) };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            in_child();
            // SAFETY: it sleeps: this is no child that is quicker than 20 us.
            unsafe { usleep(50_000) };
            let (id, connected) = (std::process::id(), client.is_connected());
            let _ = std::fs::write(&file, format!("{id} {connected} {:?}", at_once(call.as_mut())));
            // SAFETY: ends the child.
            unsafe { _exit(0) };
        }
        // SAFETY: waits for the child.
        unsafe { waitpid(child as i32, &raw mut *Box::leak(Box::new(0)), 0) };
        let parents = at_once(call.as_mut()).unwrap().unwrap();
        let childs = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        assert!(childs.contains("Forked"), "THE SAME ID TWICE: the parent got {parents}, the child (50 ms later) {childs}");
    });
}

#[test]
fn a_child_in_pid_and_time_namespaces_of_its_own_gets_no_reply_of_its_parent() {
    if std::process::id() != 1 {
        return as_the_first_process("adv::a_child_in_pid_and_time_namespaces_of_its_own_gets_no_reply_of_its_parent");
    }
    let prepare = || {
        // SAFETY: children are in the new time namespace, this process is not.
        assert_eq!(unsafe { unshare(NEWTIME) }, 0);
        // As a container that is restored or migrated has it: its monotonic clock is behind the host's.
        // SAFETY: gettid; it is this thread that has the new namespace.
        let thread = unsafe { syscall(if cfg!(target_arch = "x86_64") { 186 } else { 178 }) };
        std::fs::write(format!("/proc/{thread}/timens_offsets"), "monotonic -300 0\n").unwrap();
    };
    parent_and_child(prepare, || ());
}

#[test]
fn a_child_that_closed_what_it_inherited_gets_no_reply_of_its_parent() {
    if std::process::id() != 1 {
        return as_the_first_process("adv::a_child_that_closed_what_it_inherited_gets_no_reply_of_its_parent");
    }
    parent_and_child(
        || (),
        || {
            // As every daemon does, and then it makes sockets of its own (a runtime has two for signals).
            for fd in 3..256 {
                // SAFETY: this child uses none of them.
                unsafe { close(fd) };
            }
            for _ in 0..20 {
                std::mem::forget(std::os::unix::net::UnixStream::pair());
            }
        },
    );
}

#[test]
fn a_grandchild_that_has_the_process_id_of_a_dead_parent_gets_nothing_of_its_pool() {
    const NAME: &str = "adv::a_grandchild_that_has_the_process_id_of_a_dead_parent_gets_nothing_of_its_pool";
    let Ok(file) = std::env::var("XUID_ADV_FILE") else {
        let file = std::env::temp_dir().join(format!("xuid-adv-pid-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let exe = std::env::current_exe().unwrap();
        let script = format!("'{}' --exact --nocapture {NAME}; sleep 3", exe.display());
        let output = Command::new("unshare")
            .args(["-Urpf", "--mount-proc", "sh", "-c", &script])
            .env("XUID_ADV_FILE", &file)
            .output()
            .unwrap();
        let told = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(told.contains("parent") && told.contains("grandchild"), "{told} {output:?}");
        assert!(told.contains("grandchild None"), "THE SAME IDS TWICE:\n{told}");
        return;
    };
    let say = |text: String| {
        let mut out = std::fs::File::options().create(true).append(true).open(&file).unwrap();
        out.write_all(text.as_bytes()).unwrap();
    };
    let own = std::process::id();
    runtime().block_on(async {
        let fake = Fake::start(1).await;
        let (client, mut peer) = fake.pair(quick()).await;
        let source = client.prefetch(PrefetchOptions::new().max_age(Duration::from_mins(1)).ahead(1000, 1000)).unwrap();
        peer.serve_runs(5_000).await;
        while source.stats().held < 1_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // SAFETY: the child only makes system calls, and tries the pool.
        if unsafe { fork() } == 0 {
            // The parent dies, and a while later its number comes again.
            while unsafe { getppid() } == own as i32 {
                unsafe { usleep(1_000) };
            }
            unsafe { usleep(300_000) };
            std::fs::write("/proc/sys/kernel/ns_last_pid", (own - 1).to_string()).unwrap();
            let child = unsafe { fork() };
            if child == 0 {
                let mut ids = source.ids();
                let got: Vec<_> = (0..3).map_while(|_| ids.try_next()).collect();
                let got = if got.is_empty() { None } else { Some(got) };
                say(format!("grandchild {got:?}, pid {} owner {own}\n", std::process::id()));
                unsafe { _exit(0) };
            }
            unsafe { waitpid(child, &raw mut *Box::leak(Box::new(0)), 0) };
            unsafe { _exit(0) };
        }
        let mut ids = source.ids();
        let got: Vec<_> = (0..3).map_while(|_| ids.try_next()).collect();
        say(format!("parent {got:?}\n"));
        // SAFETY: ends the parent.
        unsafe { _exit(0) };
    });
}

#[tokio::test]
async fn pauses_without_an_end_are_no_panic() {
    let fake = Fake::start(1).await;
    let forever = Duration::MAX;
    let options = Options::new().backoff(forever, forever).retry_for(forever).connect_timeout(forever).timeout(forever);
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

/// A server with `--wait 30s` and a client with the default timeout of 10 s, a hundred times as fast. The server lives,
/// waits with NEXT as it was told to, and would answer a PING at once.
#[tokio::test]
async fn a_next_that_the_server_waits_with_ends_no_call_that_may_wait_longer() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().timeout(Duration::from_millis(100))).await;
    let wait = Duration::from_secs(5);
    let long = tokio::spawn({
        let client = client.clone();
        async move { client.array(1, Order::Any, wait).await }
    });
    let array = peer.expect(Asked::Array(xuid_protocol::Bulk::new(1, Order::Any, wait))).await;
    let next = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    let request_id = peer.expect(Asked::Next(Order::Any)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // The link is free to ask whether anybody is there.
    let _ = peer.try_send(|out| xuid_protocol::reply_id(out, request_id, 8)).await;
    let _ = peer
        .try_send(|out| {
            let mut writer = xuid_protocol::ArrayWriter::begin(out, array, 1);
            writer.run(7, 1);
            writer.finish();
        })
        .await;
    let _gave_up = next.await;
    let long = soon(long).await.unwrap();
    assert!(matches!(&long, Ok(ids) if ids[..] == [7]), "0.3 s of its 5 s were over: {long:?}");
}

/// A process that was stopped wakes with replies in its socket.
#[test]
fn a_stopped_process_with_several_threads_wakes_to_replies_and_no_errors() {
    const NAME: &str = "adv::a_stopped_process_with_several_threads_wakes_to_replies_and_no_errors";
    // The control: one thread, and no error.
    let runtime = if std::env::var("XUID_ADV_SINGLE").is_ok() && std::env::var("XUID_ADV_ADDR").is_ok() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    } else {
        runtime()
    };
    if let Ok(addr) = std::env::var("XUID_ADV_ADDR") {
        runtime.block_on(async {
            let client = Client::connect(addr, quick().timeout(Duration::from_millis(200))).await.unwrap();
            let calls: Vec<_> = (0..32)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        let begin = tokio::time::Instant::now();
                        let (mut good, mut bad, mut last) = (0_u32, 0_u32, String::new());
                        while begin.elapsed() < Duration::from_secs(12) {
                            match client.next(Order::Any).await {
                                Ok(_) => good += 1,
                                Err(error) => {
                                    bad += 1;
                                    last = error.to_string();
                                }
                            }
                        }
                        (good, bad, last)
                    })
                })
                .collect();
            let (mut good, mut bad, mut last) = (0, 0, String::new());
            for call in calls {
                let one = call.await.unwrap();
                good += one.0;
                bad += one.1;
                if !one.2.is_empty() {
                    last = one.2;
                }
            }
            println!("RESULT {good} good, {bad} bad, {last}");
        });
        return;
    }
    let output = runtime.block_on(async {
        let fake = Fake::start(1).await;
        let addr = fake.addr.to_string();
        // Each reply takes 30 ms, so that nearly every request is on its way when the client is stopped, and is answered then.
        let links = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = std::sync::Arc::clone(&links);
        tokio::spawn(async move {
            loop {
                let Ok(mut peer) = fake.try_accept().await else { continue };
                let (cluster, limits) = (fake.cluster, fake.limits);
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::spawn(async move {
                    let Some((request_id, _)) = peer.try_hello().await else { return };
                    let _ = peer.try_welcome(request_id, cluster, limits).await;
                    loop {
                        let mut asked = Vec::new();
                        match tokio::time::timeout(Duration::from_secs(15), peer.ask()).await {
                            Ok(Some((request_id, _))) => asked.push(request_id),
                            _ => return,
                        }
                        tokio::time::sleep(Duration::from_millis(30)).await;
                        while let Ok(Some((request_id, _))) = tokio::time::timeout(Duration::ZERO, peer.ask()).await {
                            asked.push(request_id);
                        }
                        let send = peer.try_send(|out| asked.iter().for_each(|id| xuid_protocol::reply_id(out, *id, 1)));
                        if send.await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", NAME])
            .env("XUID_ADV_ADDR", addr)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().to_string();
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..24 {
            Command::new("kill").args(["-STOP", &pid]).status().unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            Command::new("kill").args(["-CONT", &pid]).status().unwrap();
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
        println!("{links:?} links");
        output
    });
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = told.lines().find(|line| line.contains("RESULT")).unwrap_or_default().to_owned();
    assert!(told.contains(" 0 bad"), "24 stops: {told}");
}
