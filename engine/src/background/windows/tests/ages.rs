//! How old ids are that a call gathered, and then waited with for the others.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::registry::memory::Fault;
use crate::sys::guards::Guard;
use crate::testing::mutants::only_without;
use crate::{Id, IdError, Order, Pending, Run};

const MAX_AGE: u64 = 2 * SECOND;

fn poll(pending: Pin<&mut Pending>) -> Poll<Result<Vec<Run>, IdError>> {
    pending.poll(&mut Context::from_waker(Waker::noop()))
}

/// An engine without a window, over a registry that is away: it has the ids of some milliseconds, and no more come.
fn without_a_window() -> Driven {
    let mut driven = Driven::new(Settings { max_age: Duration::from_nanos(MAX_AGE), ..Settings::default() });
    driven.run(SECOND);
    (0..10_000).for_each(|_| driven.registry.fail(Fault::Away));
    while driven.stats().windows.left_ms > 8 {
        driven.spend();
        driven.run(MS);
    }
    driven.run(10 * MS);
    driven
}

/// One of them that is older than `max_age` and the turn that served it.
fn too_old(driven: &Driven, runs: Vec<Run>) -> Option<String> {
    let (now, layout) = (driven.clock.read().wall, driven.engine.layout());
    let age = |id: Id| now.saturating_sub(layout.tick_to_ns(layout.tick_of(id.raw())));
    let oldest = runs.into_iter().flatten().map(age).max()?;
    (oldest > MAX_AGE + 2 * MS).then(|| format!("an id that is {} ms old", oldest / MS))
}

#[test]
fn what_a_call_gathered_before_it_waited_long_is_not_among_what_it_gets() {
    only_without(&[Guard::AgeOfTicket], || {
        let mut driven = without_a_window();
        let in_memory = driven.stats().held.total();
        assert!((10_000..90_000).contains(&in_memory), "{in_memory}");
        for order in [Order::Any, Order::Fresh, Order::Ordered] {
            // More than a tick has: the other two find a window, and wait for the next tick.
            let mut call = pin!(driven.engine.request(100_000, order, Duration::from_mins(1)));
            assert!(poll(call.as_mut()).is_pending());
            if order == Order::Any {
                driven.run(10 * SECOND);
                assert!(poll(call.as_mut()).is_pending());
                driven.registry.mend();
            } else {
                driven.pass(3 * SECOND);
            }
            let runs = loop {
                driven.run(MS);
                if let Poll::Ready(result) = poll(call.as_mut()) {
                    break result.unwrap();
                }
            };
            assert_eq!(runs.iter().map(Run::len).sum::<u32>(), 100_000);
            let found = too_old(&driven, runs);
            let stats = driven.stats();
            assert_eq!(stats.minted, stats.issued + stats.wasted.total() + stats.held.total(), "{stats:#?}");
            if found.is_some() {
                return found;
            }
        }
        None
    });
}

#[test]
fn what_a_call_gathered_and_gave_back_late_is_not_handed_out_when_it_is_too_old() {
    only_without(&[Guard::AgeOfReturns], || {
        let mut found = None;
        for is_dropped in [false, true] {
            let mut driven = without_a_window();
            let mut call = Box::pin(driven.engine.request(100_000, Order::Any, Duration::from_secs(5)));
            assert!(poll(call.as_mut()).is_pending());
            if is_dropped {
                driven.run(4 * SECOND);
                drop(call);
            } else {
                driven.run(5 * SECOND + MS);
                assert!(
                    matches!(poll(call.as_mut()), Poll::Ready(Err(_))),
                    "there is nothing to serve it with"
                );
            }
            driven.turn();
            let mut runs = Vec::new();
            while driven.engine.try_runs(16, Order::Any, &mut runs).is_ok() {}
            found = found.or(too_old(&driven, runs));
        }
        found
    });
}
