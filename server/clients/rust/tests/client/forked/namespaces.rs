//! What a child gets whose process id is its parent's: in another pid namespace, or behind its parent's end.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use xuid_client::{Order, PrefetchOptions};

use super::{_exit, at_once, fork, serve_unpolled, wait_for};
use crate::fake::{Fake, quick};

/// The number of the system call.
const CLONE: i64 = if cfg!(target_arch = "x86_64") { 56 } else { 220 };

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
    fn unshare(flags: i32) -> i32;
    fn close(fd: i32) -> i32;
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

#[test]
fn the_first_process_of_another_namespace_gets_no_reply_of_its_parent() {
    let name = "forked::namespaces::the_first_process_of_another_namespace_gets_no_reply_of_its_parent";
    first_process_and_child(name, || (), || ());
}

#[test]
fn a_child_that_closed_what_it_inherited_gets_no_reply_of_its_parent() {
    let name = "forked::namespaces::a_child_that_closed_what_it_inherited_gets_no_reply_of_its_parent";
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
    let name = "forked::namespaces::a_child_whose_clock_is_behind_its_parents_gets_no_reply_of_its_parent";
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
    const NAME: &str =
        "forked::namespaces::a_grandchild_with_the_process_id_of_the_dead_parent_gets_nothing_of_its_pool";
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
