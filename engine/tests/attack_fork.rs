//! What a forked child could get of its parent: a request that is done but unread, and the runs that its thread holds.

#![expect(unsafe_code, reason = "only a hook between fork and exec runs code in a forked child without libc")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::future::Future;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use xuid_engine::clock::{Clock, SystemClock};
use xuid_engine::registry::memory::MemoryRegistry;
use xuid_engine::registry::{ClusterId, Genesis};
use xuid_engine::{Engine, Floor, Handle, Id, IdError, IdErrorKind, Layout, Order, Pending, Run};

#[derive(Default)]
struct Woken(AtomicBool);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn poll(pending: &mut Pending, woken: &Arc<Woken>) -> Poll<Result<Vec<u64>, IdError>> {
    let waker = Waker::from(woken.clone());
    std::pin::Pin::new(pending)
        .poll(&mut Context::from_waker(&waker))
        .map(|result| result.map(|runs| runs.into_iter().flatten().map(Id::raw).collect()))
}

/// What `work` says in a forked child of this thread.
fn in_a_child(mut work: impl FnMut() -> String + Send + Sync + 'static) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let theirs = file.clone();
    let mut command = Command::new("true");
    // SAFETY: the hook allocates and writes a file, which glibc allows in a forked child, and takes no lock that
    // another thread may have held at the fork: what `work` locks is only used by this thread, and idle.
    unsafe { command.pre_exec(move || std::fs::write(&theirs, work())) };
    assert!(command.status().unwrap().success());
    std::fs::read_to_string(&file).unwrap()
}

#[test]
fn a_request_that_waits_across_a_fork_is_answered_in_the_parent_only() {
    let layout = Layout::default();
    let now = layout.tick_at_ns(SystemClock.read().wall).unwrap();
    let genesis = Genesis::new(ClusterId::from_bytes([7; 16]), layout, now - 1_000, 4);
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
    while !woken.0.load(SeqCst) {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let shared = Arc::new(Mutex::new(pending));
    let (theirs, theirs_woken) = (shared.clone(), woken.clone());
    let child = in_a_child(move || match poll(&mut theirs.lock().unwrap(), &theirs_woken) {
        Poll::Ready(Ok(ids)) => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
        Poll::Ready(Err(error)) => format!("refused: {error:?}"),
        Poll::Pending => "pending".to_owned(),
    });
    pending = Arc::into_inner(shared).unwrap().into_inner().unwrap();
    let Poll::Ready(Ok(ids)) = poll(&mut pending, &woken) else { panic!("the parent was not answered") };
    let both = ids.iter().filter(|id| child.split(' ').any(|text| text == id.to_string())).count();
    assert_eq!(both, 0, "{both} ids were issued in parent and child; the child got: {child:.60}");
}

#[test]
fn a_worker_in_memory_stays_the_parents_and_a_child_gets_another() {
    let engine = Engine::memory(1).floor(Floor::Epoch).build().unwrap();
    let child = in_a_child(|| {
        let built = |worker| Engine::memory(worker).floor(Floor::Epoch).build();
        let theirs = built(1).map(|engine| format!("issued {:?}", engine.next_id()));
        let own = built(2).unwrap().next_id().unwrap();
        format!("{}, own {own}", theirs.unwrap_or_else(|error| error.to_string()))
    });
    assert!(
        child.starts_with("worker 1 cannot be had: the process that this one was forked from has it"),
        "{child}"
    );
    assert!(child.contains(", own 1"), "{child}");
    engine.next_id().unwrap();
}

/// The parent goes on with the windows that the child's memory shows.
#[test]
fn a_child_does_not_say_of_ids_that_they_are_uncut() {
    let engine = Engine::memory(3).floor(Floor::Epoch).build().unwrap();
    let is_uncut = |engine: &Engine| {
        let now = engine.layout().tick_at_ns(SystemClock.read().wall).unwrap();
        // Of a window a second at least is left.
        engine.is_uncut(engine.layout().encode(now + 500, 3, 0))
    };
    let theirs = engine.clone();
    assert!(is_uncut(&engine));
    assert_eq!(in_a_child(move || is_uncut(&theirs).to_string()), "false");
    assert!(is_uncut(&engine));
    engine.shutdown();
    assert!(!is_uncut(&engine), "it is handed back");
}

/// Whether a call answered as it should.
type Check = fn(&Parents) -> bool;

/// What each public call of an engine, of a handle and of a request does in a forked child.
const CALLS: &[(&str, Check)] = &[
    ("next_id", |of| is_forked(of.engine.next_id())),
    ("try_next_id", |of| is_forked(of.engine.try_next_id())),
    ("handle", |of| is_forked(of.engine.handle().next_id())),
    ("a parent's handle", |of| is_forked(of.handle.borrow_mut().next_id())),
    ("fill", |of| ORDERS.iter().all(|order| is_forked(of.engine.fill(&mut [Id::default(); 100], *order)))),
    ("runs", |of| ORDERS.iter().all(|order| is_forked(of.engine.runs(100, *order)))),
    ("try_runs", |of| ORDERS.iter().all(|order| is_forked(of.engine.try_runs(100, *order, &mut Vec::new())))),
    ("request", |of| {
        let mut pending = of.engine.request(100, Order::Fresh, Duration::from_secs(1));
        matches!(poll(&mut pending, &Arc::default()), Poll::Ready(Err(error)) if error.kind() == IdErrorKind::Forked)
    }),
    ("next_id_async", |of| {
        let mut context = Context::from_waker(Waker::noop());
        matches!(std::pin::pin!(of.engine.next_id_async()).poll(&mut context), Poll::Ready(answer) if is_forked(answer))
    }),
    ("a parent's request", |of| {
        let mut pending = of.pending.borrow_mut().take().unwrap();
        matches!(poll(&mut pending, &Arc::default()), Poll::Ready(Err(error)) if error.kind() == IdErrorKind::Forked)
    }),
    ("stats", |of| of.engine.stats() == xuid_engine::stats::Stats::default()),
    ("status", |of| !of.engine.status().ready && of.engine.status().notes[0].contains("forked")),
    ("workers", |of| of.engine.workers().is_empty()),
    ("publish", |of| {
        of.engine.publish();
        of.handle.borrow_mut().publish();
        true
    }),
    ("tell_registry", |of| {
        of.engine.tell_registry();
        true
    }),
    ("producer_silent", |of| of.engine.producer_silent().is_zero()),
    ("what never changes", |of| {
        of.engine.layout() == of.engine.genesis().layout
            && !of.engine.registry().is_empty()
            && !of.engine.max_age().is_zero()
            && !format!("{:?}", of.engine).is_empty()
    }),
    ("shutdown", |of| of.engine.clone().shutdown() == xuid_engine::stats::Stats::default()),
    ("drop", |of| {
        drop(of.engine.handle());
        drop(of.engine.clone());
        true
    }),
];

fn is_forked<T>(answer: Result<T, IdError>) -> bool {
    answer.is_err_and(|error| error.kind() == IdErrorKind::Forked)
}

const ORDERS: [Order; 3] = [Order::Any, Order::Fresh, Order::Ordered];

/// What a child has of its parent.
struct Parents {
    engine: Engine,
    handle: RefCell<Handle>,
    pending: RefCell<Option<Pending>>,
}

/// Forks; the child makes all calls and ends with the number of the first one that answered wrongly, or with how many
/// there are. What hangs is ended by an alarm.
fn first_wrong_in_a_child(of: &Parents) -> Option<&'static str> {
    // SAFETY: the child is a copy of this thread alone. It allocates, which glibc allows in a child, and ends by
    // `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it only sets what the kernel does with this process.
        unsafe { libc::alarm(20) };
        let wrong = CALLS.iter().position(|(_, call)| !call(of)).unwrap_or(CALLS.len());
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::try_from(wrong).unwrap_or(-1)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above, and writes into a variable of this frame.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    if !libc::WIFEXITED(status) {
        return Some("a call hangs");
    }
    let ended = usize::try_from(libc::WEXITSTATUS(status)).unwrap();
    (ended != CALLS.len()).then(|| CALLS.get(ended).map_or("a call ends the child", |(name, _)| *name))
}

/// Any lock of the engine may be held by another thread at the fork, and stays so in the child for ever.
#[test]
fn every_call_answers_in_a_child_that_was_forked_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).wait(Duration::from_millis(1)).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3)
        .map(|thread| {
            let (engine, stop) = (engine.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(SeqCst) {
                    match thread {
                        0 => drop((engine.stats(), engine.status(), engine.workers())),
                        1 => drop((
                            engine.handle().next_id(),
                            engine.try_runs(8_192, Order::Any, &mut Vec::new()),
                        )),
                        _ => drop((engine.runs(3_000, Order::Fresh), engine.runs(1, Order::Ordered))),
                    }
                }
            })
        })
        .collect();
    let mut handle = engine.handle();
    let _ = handle.next_id();
    let of = Parents { engine: engine.clone(), handle: RefCell::new(handle), pending: RefCell::default() };
    for fork in 0..60 {
        let mut pending = engine.request(100_000, Order::Fresh, Duration::from_secs(1));
        let _ = poll(&mut pending, &Arc::default());
        of.pending.replace(Some(pending));
        assert_eq!(first_wrong_in_a_child(&of), None, "fork {fork}");
    }
    stop.store(true, SeqCst);
    for thread in busy {
        thread.join().unwrap();
    }
    engine.shutdown();
}

/// The child runs on a copy of the thread that holds both runs, in the middle of either.
#[test]
fn a_forked_child_gets_nothing_of_the_runs_that_its_thread_holds() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let handle = Arc::new(Mutex::new(engine.handle()));
    let next = || [engine.next_id().unwrap(), handle.lock().unwrap().next_id().unwrap()];
    let mut seen = HashSet::new();
    // A producer that voids what is in hands in the middle of it, as it does once a second, leaves nothing to be had.
    let held_on = (0..20).any(|_| {
        let before = next();
        let (theirs, theirs_handle) = (engine.clone(), handle.clone());
        let child = in_a_child(move || {
            let mut handle = theirs_handle.lock().unwrap();
            let (mut ids, mut runs) = ([Id::default(); 2], Vec::new());
            let answers = [
                theirs.next_id().map(drop),
                theirs.try_next_id().map(drop),
                handle.next_id().map(drop),
                theirs.fill(&mut ids, Order::Any),
                theirs.runs(2, Order::Any).map(drop),
                theirs.try_runs(2, Order::Any, &mut runs),
                theirs.next_id().map(drop),
                handle.next_id().map(drop),
            ];
            answers.map(|answer| format!("{:?}", answer.map_err(IdError::kind))).join(" ")
        });
        assert_eq!(child, ["Err(Forked)"; 8].join(" "));
        let after = next();
        assert!(before.into_iter().chain(after).all(|id| seen.insert(id)), "{before:?}, {after:?}");
        before.into_iter().zip(after).all(|(before, after)| after.raw() == before.raw() + 1)
    });
    assert!(held_on, "the parent never went on where it was");
    engine.shutdown();
}

/// Forks on the producer's thread when it is woken; the child goes on there.
struct Forks {
    engine: Engine,
    told: std::path::PathBuf,
    child: AtomicI32,
}

impl Wake for Forks {
    fn wake(self: Arc<Self>) {
        if self.child.load(SeqCst) != 0 {
            return;
        }
        // SAFETY: the child allocates and makes a thread, which glibc allows in a child, and ends when both its threads
        // do, or by an alarm.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it only sets what the kernel does with this process.
            unsafe { libc::alarm(20) };
            let (engine, told) = (self.engine.clone(), self.told.clone());
            std::thread::spawn(move || {
                let mut text = String::new();
                for _ in 0..40 {
                    std::thread::sleep(Duration::from_millis(100));
                    let runs = engine.runs(100_000, Order::Any).unwrap_or_default();
                    for (first, len) in runs.iter().map(span) {
                        let _ = writeln!(text, "{first} {len}");
                    }
                }
                let _ = std::fs::write(told, text);
            });
            // Its turns come after its parent's, so that what it appends stays.
            std::thread::sleep(Duration::from_millis(300));
        }
        self.child.store(if child == 0 { -1 } else { child }, SeqCst);
    }
}

/// A waker and a subscriber of the log run on the engine's own threads. A child that is forked there and returns goes
/// on as a producer of its own, with the parent's windows and the parent's spill.
#[test]
fn a_child_that_is_forked_by_a_waker_issues_and_spills_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("child");
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let forks = Arc::new(Forks { engine: engine.clone(), told: told.clone(), child: AtomicI32::new(0) });
    let mut runs = Vec::new();
    let mut pending = loop {
        while engine.try_runs(4096, Order::Fresh, &mut runs).is_ok() {}
        let mut pending = engine.request(8192, Order::Fresh, Duration::from_secs(10));
        let waker = Waker::from(forks.clone());
        if std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending() {
            break pending;
        }
    };
    while forks.child.load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let woken = Waker::from(Arc::new(Woken::default()));
    let Poll::Ready(Ok(more)) = std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(&woken))
    else {
        panic!("the parent was not answered");
    };
    runs.extend(more);
    // The parent idles: each second goes to its spill.
    let mut status = -1;
    // SAFETY: waits for the child made above, and writes into a variable of this frame.
    unsafe { libc::waitpid(forks.child.load(SeqCst), &raw mut status, 0) };
    assert!(libc::WIFEXITED(status), "a producer turns in the child until its alarm: {status}");
    let answer = std::fs::read_to_string(&told).unwrap_or_default();
    engine.shutdown();
    drop((forks, engine));
    let second = Engine::builder().data_dir(folder.path()).build().unwrap();
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(50));
        runs.extend(second.runs(2_000_000, Order::Any).unwrap_or_default());
    }
    second.shutdown();
    let mut spans: Vec<_> = runs.iter().map(span).collect();
    let by_parent = twice_in(&mut spans);
    let parse = |line: &str| line.split_once(' ').map(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    spans.extend(answer.lines().filter_map(parse).flatten());
    let with_child = twice_in(&mut spans) - by_parent;
    let all: u64 = spans.iter().map(|(_, len)| len).sum();
    println!(
        "of {all} ids {by_parent} came twice in two lives of the parent, and {with_child} in parent and child"
    );
    assert_eq!((by_parent, with_child), (0, 0), "ids came twice; the child was told {answer:.60}");
}

fn span(run: &Run) -> (u64, u64) {
    (run.first().raw(), u64::from(run.len()))
}

/// How many ids of these spans came before, in one of those that begin earlier.
fn twice_in(spans: &mut [(u64, u64)]) -> u64 {
    spans.sort_unstable();
    let (mut end, mut twice) = (0, 0);
    for (first, len) in spans {
        twice += end.min(*first + *len).saturating_sub(*first);
        end = end.max(*first + *len);
    }
    twice
}
