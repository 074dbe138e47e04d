//! A database that is killed while it commits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use xuid_engine::sequence::store::Outcome;
use xuid_engine::sequence::store::database::{DatabaseUrl, open};
use xuid_tests::{Rng, clock};

use crate::fixture::{Ranges, Server, ask, create, grant, mark, on_both, patient};

on_both!(a_database_that_is_killed_twenty_times_grants_nothing_twice);

const ROUNDS: usize = 20;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Stops the threads at the end, and also where a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        // Relaxed: a flag that orders nothing else.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Grants until it is told to stop. Every outcome but a grant is asked again.
fn work(url: &DatabaseUrl, stop: &AtomicBool, granted: &AtomicUsize) -> Ranges {
    let (mut store, mut ranges) = (open(url, &patient("xuid")).unwrap(), Ranges::default());
    let asks = NAMES.map(ask);
    while !stop.load(Ordering::Relaxed) {
        let outcomes = grant(&mut *store, &asks);
        let is_odd = |outcome: &Outcome| {
            !matches!(outcome, Outcome::Granted { .. } | Outcome::Unknown { .. } | Outcome::Away { .. })
        };
        assert!(!outcomes.iter().any(is_odd), "{outcomes:?}");
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Granted { .. })) {
            granted.fetch_add(1, Ordering::Relaxed);
        } else {
            // A server that starts is not held up by those who ask.
            clock::idle(Duration::from_millis(20));
        }
        ranges.take(&asks, &outcomes);
    }
    ranges
}

fn a_database_that_is_killed_twenty_times_grants_nothing_twice(server: &mut Server) {
    let mut rng = Rng::from_env("kills");
    let mut store = server.prepared();
    for text in NAMES {
        create(&mut *store, text);
    }
    drop(store);
    let url = server.url();
    let (stop, granted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut ranges = Ranges::default();
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| work(&url, &stop, &granted))).collect();
        for round in 0..=ROUNDS {
            let before = granted.load(Ordering::Relaxed);
            clock::wait_until("grants after a start", Duration::from_mins(1), || {
                Ok(granted.load(Ordering::Relaxed) > before + 2)
            })
            .unwrap();
            if round < ROUNDS {
                // Anywhere in a commit, of a few milliseconds.
                clock::idle(rng.millis(0, 8));
                server.kill();
                server.restart();
            }
        }
        drop(stopping);
        for thread in threads {
            ranges.join(thread.join().unwrap());
        }
    });
    for text in NAMES {
        let (total, mark) = (ranges.total(text), mark(&mut server.sql(), text));
        assert!(ranges.end(text) <= mark, "{text}: a grant above the mark {mark} was lost");
        println!("{text}: {} grants, {total} numbers, mark {mark}", ranges.count(text));
    }
}
