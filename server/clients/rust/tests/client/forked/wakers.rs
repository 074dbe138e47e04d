//! What a child gets of a call while a stranger's waker stands in its parent's locks, or forks.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use xuid_client::{Client, Order, PrefetchOptions};

use super::{_exit, alarm, assert_heard, at_once, childs_file, fork, in_a_child, serve_unpolled, wait_for};
use crate::fake::{Fake, quick, soon};

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
