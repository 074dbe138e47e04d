//! A registry that is away: how it is asked, what is said of it, and how soon all is well when it is back.

use super::*;
use crate::registry::connection::News;
use crate::registry::memory::Fault;
use crate::registry::{Connection, ConnectionState};
use crate::sys::atomics::lock;

fn go_away(driven: &Driven) {
    (0..10_000).for_each(|_| driven.registry.fail(Fault::Away));
}

fn asked(driven: &Driven, from: u64) -> Vec<u64> {
    let since = |job: &&(u64, Job)| job.0 >= from && matches!(job.1, Job::Take { .. } | Job::Extend { .. });
    driven.jobs.iter().filter(since).map(|(boot, _)| boot - from).collect()
}

#[test]
fn many_workers_ask_a_registry_that_is_away_no_more_often_than_one() {
    for workers in [1, 12] {
        let mut driven = Driven::new(Settings { workers, ..Settings::default() });
        driven.run(300 * SECOND);
        go_away(&driven);
        let gone = driven.boot();
        driven.run(60 * SECOND);
        let asked = asked(&driven, gone);
        let (first, span) = (asked[0], 60 * SECOND - asked[0]);
        // Twice in the first second, then once a second.
        let most = 4 + (span / SECOND) as usize;
        assert!(asked.len() <= most, "{} of at most {most} in {} s", asked.len(), span / SECOND);
        assert!(asked.len() + 3 > (span / SECOND) as usize, "it gave up: {asked:?}");
        let gaps = asked.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| (200 * MS..=SECOND + MS).contains(&gap)), "{first} {:?}", gaps.max());
    }
}

#[test]
fn all_windows_are_renewed_within_a_second_and_a_half_of_its_return() {
    for workers in [1, 12] {
        let mut driven = Driven::new(Settings { workers, ..Settings::default() });
        driven.run(300 * SECOND);
        go_away(&driven);
        // All windows have ended: they are 60 s at most.
        driven.run(90 * SECOND + 123 * MS);
        assert!(!driven.engine.status().fresh && driven.stats().windows.left_ms == 0);
        driven.registry.mend();
        let back = driven.boot();
        while driven.stats().windows.held.len() < workers as usize || driven.stats().windows.left_ms == 0 {
            assert!(driven.boot() - back < 1_500 * MS, "{:?}", driven.stats().windows.held);
            driven.run(10 * MS);
        }
        assert!(driven.engine.status().fresh);
        assert_eq!(driven.stats().registry.state, ConnectionState::Connected);
    }
}

#[test]
fn readiness_says_why_and_until_when_while_it_is_away() {
    let mut driven = Driven::new(Settings::default());
    driven.run(300 * SECOND);
    assert!(driven.engine.status().ready && !driven.notes(&["registry"]));
    assert!(driven.stats().registry.away.is_zero());
    go_away(&driven);
    while driven.stats().registry.away.is_zero() {
        driven.run(100 * MS);
    }
    driven.run(3 * SECOND);
    let (status, figures) = (driven.engine.status(), driven.stats());
    let left = figures.windows.held[0].1 * MS;
    let until = crate::clock::utc((driven.clock.read().wall + left) / MS);
    assert!(status.ready && status.fresh && status.ordered, "a window is held");
    assert!(driven.notes(&["not answered for 3.", "it is away", "last until", &until]), "{status:?} {until}");
    assert_eq!((figures.registry.state, figures.registry.away.as_secs()), (ConnectionState::Away, 3));
    driven.pass(left + SECOND);
    driven.turn();
    let status = driven.engine.status();
    assert!(status.ready && !status.fresh && !status.ordered, "what is in memory is served: {status:?}");
    assert!(driven.notes(&["not answered", "no window is held", "calls of any age are served", "see to"]));
    let refused = driven.engine.try_runs(1, crate::Order::Fresh, &mut Vec::new()).unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    driven.spend();
    assert!(!driven.engine.status().ready && driven.notes(&["no window is held", "every call is refused"]));
}

#[test]
fn one_record_that_never_answers_does_not_keep_the_others_from_renewal() {
    let mut driven = Driven::new(Settings { workers: 3, ..Settings::default() });
    driven.run(300 * SECOND);
    let sick = driven.engine.workers()[0];
    for _ in 0..2_000 {
        // Whatever is asked of the sick one fails, and nothing else.
        driven.assembly.producer.turn();
        while let Ok(job) = driven.assembly.jobs.try_recv() {
            driven.registry.mend();
            if matches!(job, Job::Extend { worker, .. } if worker == sick) {
                driven.registry.fail(Fault::Away);
            }
            driven.assembly.done.send(driven.assembly.registry_thread.run(job)).unwrap();
        }
        driven.pass(100 * MS);
    }
    let held = driven.stats().windows.held;
    assert!(held.iter().all(|(worker, left)| (*worker == sick) == (*left == 0)), "{sick} is sick: {held:?}");
}

#[test]
fn reserving_is_timed_by_what_it_was() {
    let mut driven = Driven::new(Settings::default());
    driven.run(100 * SECOND);
    let registry = driven.stats().registry;
    assert_eq!((registry.claims.count(), registry.marks.count()), (1, 0));
    // 2, 4, 8, 16, 32 and then 60 s, each renewed at half or a tenth before.
    assert!((6..=9).contains(&registry.renewals.count()), "{}", registry.renewals.count());
}

#[test]
fn what_an_adaptor_knows_of_its_connection_is_said_before_anything_fails() {
    let mut driven = Driven::new(Settings::default());
    let connection = Arc::new(Connection::default());
    lock(&driven.assembly.shared.tally).health.connect(connection.clone());
    connection.begun();
    driven.run(300 * SECOND);
    let state = |driven: &Driven| driven.stats().registry.state;
    assert_eq!((state(&driven), driven.stats().registry.sessions), (ConnectionState::Connected, 1));
    let asked = driven.jobs.len();
    connection.told(&News::Lost("the cable was pulled"));
    assert!(
        driven.engine.status().ready && driven.notes(&["not answered", "the cable was pulled", "last until"])
    );
    assert_eq!((state(&driven), driven.stats().registry.disconnects), (ConnectionState::Away, 1));
    connection.told(&News::Expired);
    assert!(driven.notes(&["the session with the registry ended"]));
    assert_eq!((state(&driven), driven.stats().registry.expirations), (ConnectionState::Expired, 1));
    connection.told(&News::Refused("it was restored: fence it"));
    assert!(driven.notes(&["refused this process", "fence it"]));
    assert_eq!(state(&driven), ConnectionState::Refused);
    connection.begun();
    assert!(driven.engine.status().ready && !driven.notes(&["the registry"]));
    assert_eq!((state(&driven), driven.jobs.len()), (ConnectionState::Connected, asked));
}

#[test]
fn when_the_connection_is_back_nobody_waits() {
    let mut driven = Driven::new(Settings { workers: 12, ..Settings::default() });
    let connection = Arc::new(Connection::default());
    lock(&driven.assembly.shared.tally).health.connect(connection.clone());
    driven.run(300 * SECOND);
    go_away(&driven);
    connection.told(&News::Lost("the cable was pulled"));
    driven.run(90 * SECOND);
    // Just after a try, so that the next one would be a second away.
    let tried = driven.jobs.len();
    while driven.jobs.len() == tried {
        driven.run(MS);
    }
    driven.registry.mend();
    connection.told(&News::Resumed);
    // One asks whether it is back, then all the others, and the last turn takes their windows in: no time goes by.
    for _ in 0..3 {
        driven.turn();
    }
    assert!(driven.stats().windows.left_ms > 0, "{:?}", driven.stats().windows.held);
}

#[test]
fn a_call_that_hangs_is_looked_at_as_soon_as_it_is_an_outage() {
    for hangs in [false, true] {
        let mut driven = Driven::new(Settings::default());
        driven.run(5 * SECOND);
        if hangs {
            let begun = driven.boot() - 900 * MS;
            lock(&driven.assembly.shared.tally).health.begins(begun);
        }
        let pause = driven.assembly.producer.turn();
        assert_eq!(pause <= Duration::from_millis(100), hangs, "{pause:?}");
    }
}
