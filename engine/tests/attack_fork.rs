//! A request that is done but unread when the process forks.

#![expect(unsafe_code, reason = "only a hook between fork and exec runs code in a forked child without libc")]

use std::future::Future;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use xuid_engine::clock::{Clock, SystemClock};
use xuid_engine::registry::memory::MemoryRegistry;
use xuid_engine::registry::{ClusterId, Genesis};
use xuid_engine::{Engine, Id, IdError, Layout, Order, Pending};

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

fn poll(pending: &mut Pending, woken: &Arc<Woken>) -> Poll<Result<Vec<u64>, IdError>> {
    let waker = Waker::from(woken.clone());
    std::pin::Pin::new(pending)
        .poll(&mut Context::from_waker(&waker))
        .map(|result| result.map(|runs| runs.into_iter().flatten().map(Id::raw).collect()))
}

#[test]
fn a_request_that_waits_across_a_fork_is_answered_in_the_parent_only() {
    let layout = Layout::default();
    let now = layout.tick_at_ns(SystemClock.read().wall).unwrap();
    let genesis = Genesis { cluster: ClusterId::from_bytes([7; 16]), layout, floor: now - 1_000, workers: 4 };
    let engine = Engine::builder().registry(Box::new(MemoryRegistry::new(genesis))).build().unwrap();
    let woken = Arc::new(Woken::default());
    // Everything up to now is spent, so that the next one has to wait.
    let mut out = Vec::new();
    let mut pending = loop {
        while engine.try_runs(4096, Order::Fresh, &mut out).is_ok() {}
        let mut pending = engine.request(8192, Order::Fresh, Duration::from_secs(10));
        if poll(&mut pending, &woken).is_pending() {
            break pending;
        }
    };
    while !woken.0.load(std::sync::atomic::Ordering::SeqCst) {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let shared = Arc::new(Mutex::new(pending));
    let (theirs, theirs_woken, theirs_file) = (shared.clone(), woken.clone(), file.clone());
    let hook = move || {
        let text = match poll(&mut theirs.lock().unwrap(), &theirs_woken) {
            Poll::Ready(Ok(ids)) => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            Poll::Ready(Err(error)) => format!("refused: {error:?}"),
            Poll::Pending => "pending".to_owned(),
        };
        std::fs::write(&theirs_file, text)
    };
    let mut command = Command::new("true");
    // SAFETY: the hook allocates and writes a file, which glibc allows in a forked child, and takes no lock that
    // another thread may have held at the fork but the ticket's own, which is idle.
    unsafe { command.pre_exec(hook) };
    assert!(command.status().unwrap().success());
    pending = {
        drop(command);
        Arc::into_inner(shared).unwrap().into_inner().unwrap()
    };
    let Poll::Ready(Ok(ids)) = poll(&mut pending, &woken) else { panic!("the parent was not answered") };
    let child = std::fs::read_to_string(&file).unwrap();
    let both = ids.iter().filter(|id| child.split(' ').any(|text| text == id.to_string())).count();
    assert_eq!(both, 0, "{both} ids were issued in parent and child; the child got: {child:.60}");
}

/// The child runs on a copy of the thread that holds both runs, in the middle of either.
#[test]
fn a_forked_child_gets_nothing_of_the_runs_that_its_thread_holds() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let mut handle = engine.handle();
    let before = [engine.next_id().unwrap(), handle.next_id().unwrap()];
    let file = folder.path().join("child");
    let (theirs, theirs_handle, theirs_file) = (engine.clone(), Arc::new(Mutex::new(handle)), file.clone());
    let ours = theirs_handle.clone();
    let hook = move || {
        let mut handle = theirs_handle.lock().unwrap();
        let answers: Vec<_> = (0..3)
            .flat_map(|_| [theirs.next_id(), theirs.try_next_id(), handle.next_id()])
            .map(|answer| format!("{:?}", answer.map_err(|error| error.kind())))
            .collect();
        std::fs::write(&theirs_file, answers.join(" "))
    };
    let mut command = Command::new("true");
    // SAFETY: as above; the lock is idle, and this thread is the only one that uses it.
    unsafe { command.pre_exec(hook) };
    assert!(command.status().unwrap().success());
    let child = std::fs::read_to_string(&file).unwrap();
    assert_eq!(child, ["Err(Forked)"; 9].join(" "));
    // The parent goes on where it was.
    let after = [engine.next_id().unwrap(), ours.lock().unwrap().next_id().unwrap()];
    for (before, after) in before.into_iter().zip(after) {
        assert_eq!(after.raw(), before.raw() + 1);
    }
    drop(command);
    engine.shutdown();
}
