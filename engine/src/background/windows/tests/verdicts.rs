//! Verdicts on the clock as figures and notes, and what a second clock is told.

use super::*;
use crate::clock::Verdict;

#[test]
fn each_verdict_is_counted_when_it_is_entered_and_said_in_a_note() {
    let mut driven = Driven::new(Settings::default());
    driven.run(5 * SECOND);
    let entered = |driven: &Driven| driven.stats().clock.entered.named().map(|(_, count)| count);
    assert_eq!(entered(&driven), [0, 0, 0, 0, 0]);
    driven.step(-10 * MS as i64);
    assert!(driven.notes(&["went back by 10 ms", "until it is reached"]), "{:?}", driven.engine.status());
    driven.run(SECOND);
    assert_eq!(entered(&driven), [1, 1, 0, 0, 0]);
    driven.step(-500 * MS as i64);
    assert!(driven.notes(&["500 ms ahead of it", "a tenth of the pace"]), "{:?}", driven.engine.status());
    driven.run(10 * SECOND);
    assert_eq!(entered(&driven), [2, 1, 1, 0, 0]);
    assert!(driven.engine.status().ready);
    driven.step(-10 * SECOND as i64);
    assert!(
        driven.notes(&["10.0 s behind", "no other worker was free", "set the clock"]),
        "{:?}",
        driven.engine.status()
    );
    assert!(driven.engine.status().ready && !driven.engine.status().fresh, "what is in memory is served");
    driven.run(SECOND);
    assert_eq!(entered(&driven), [3, 1, 1, 1, 0]);
    assert!(driven.engine.status().fresh, "another worker was taken");
    driven.step(20 * SECOND as i64);
    assert!(driven.notes(&["20.0 s ahead", "not followed"]), "{:?}", driven.engine.status());
    driven.run(SECOND);
    assert!(
        matches!(driven.stats().clock.verdict, Verdict::Ahead { by } if by.abs_diff(20 * SECOND) < 5 * MS)
    );
    driven.run(70 * SECOND);
    assert_eq!(entered(&driven), [4, 1, 1, 1, 1]);
}

#[test]
fn a_drift_of_many_small_steps_wakes_the_producer_when_it_becomes_too_much() {
    let driven = Driven::new(Settings::default());
    let wakes = || driven.assembly.shared.producer.calls.load(std::sync::atomic::Ordering::Relaxed);
    let mut woken = Vec::new();
    let mut before = wakes();
    // Each is within what two readings may differ by without a step.
    for _ in 0..2_000 {
        driven.step(-900_000);
        let verdict = driven.stats().clock.verdict.name();
        if wakes() > before {
            before = wakes();
            woken.push(verdict);
        }
    }
    assert_eq!(woken, ["stand", "catch_up", "behind"]);
}

#[test]
fn a_registry_time_that_is_told_again_or_while_it_is_away_counts_for_nothing() {
    let mut driven = Driven::new(Settings::default());
    driven.registry.set_time(Some(START + 300 * SECOND));
    driven.run(300 * SECOND);
    // From here on the registry's clock stands, as where nobody could ask it.
    driven.registry.set_time(Some(START + 300 * SECOND));
    driven.run(100 * SECOND);
    assert_eq!(driven.stats().clock.verdict, Verdict::Steady);
    assert_eq!(driven.stats().windows.switches.total(), 0);
    (0..1_000).for_each(|_| driven.registry.fail(crate::registry::memory::Fault::Away));
    let asked = driven.jobs.len();
    for late in 0..30 {
        driven.registry.set_time(Some(driven.clock.read().wall - (late + 10) * SECOND));
        driven.run(3 * SECOND);
    }
    assert!(driven.jobs.len() > asked + 10, "it was asked all the time");
    assert_eq!(driven.stats().clock.verdict, Verdict::Steady);
    // As soon as it answers it is believed.
    driven.registry.mend();
    driven.registry.set_time(Some(driven.clock.read().wall - 40 * SECOND));
    driven.run(2 * SECOND);
    assert_eq!(driven.stats().clock.verdict.name(), "ahead");
}

#[test]
fn a_wall_behind_the_registrys_clock_is_said_and_harms_nobody() {
    let mut driven = Driven::new(Settings::default());
    driven.registry.set_time(Some(START + 60 * SECOND));
    driven.run(2 * SECOND);
    let clock = driven.stats().clock;
    assert!((58_000..=60_000).contains(&clock.behind_registry_ms), "{clock:?}");
    assert!(driven.engine.status().ready && driven.notes(&["behind the registry's", "check both clocks"]));
    driven.engine.runs(10, crate::Order::Any).unwrap();
}

#[test]
fn the_last_thousand_days_of_a_layout_are_said() {
    // 2^35 ms are 397 days.
    let layout = Layout::new(35, 10, 18, 1_000, START / MS - 100 * 86_400_000).unwrap();
    let mut driven = Driven::starting_at(START, layout, Settings::default());
    driven.run(SECOND);
    assert_eq!(driven.stats().clock.days_left, 297);
    assert!(driven.engine.status().ready && driven.notes(&["run out in 297 days", "another layout"]));
    assert!(!Driven::new(Settings::default()).notes(&["run out"]));
}

/// As that of an ensemble whose new leader has another one: no window may reach two minutes beyond it.
#[test]
fn a_registry_whose_clock_fell_behind_is_not_asked_without_pause_and_what_to_do_is_said() {
    let mut driven = Driven::new(Settings::default());
    let behind = |driven: &mut Driven, by, seconds| {
        let asked = driven.jobs.len();
        for _ in 0..seconds * 10 {
            driven.registry.set_time(Some(driven.clock.read().wall - by));
            driven.run(100 * MS);
        }
        driven.jobs.len() - asked
    };
    behind(&mut driven, 0, 120);
    let asked = behind(&mut driven, 100 * SECOND, 60);
    assert!((10..60).contains(&asked), "{asked} jobs in a minute");
    assert!(driven.engine.status().ready, "{:?}", driven.engine.status());
    behind(&mut driven, 130 * SECOND, 60);
    let status = driven.engine.status();
    assert!(!status.fresh, "{status:?}");
    assert!(driven.notes(&["the registry's own time", "set that clock"]), "{status:?}");
    behind(&mut driven, 0, 5);
    assert!(driven.engine.status().fresh, "{:?}", driven.engine.status());
}
