//! Verdicts on the clock as figures and notes, and what a second clock is told.

use super::*;
use crate::clock::Verdict;

#[test]
fn each_verdict_is_counted_when_it_is_entered_and_said_in_a_note() {
    let mut hand = Hand::new(Settings::default());
    hand.run(5 * SECOND);
    let entered = |hand: &Hand| hand.stats().clock.entered.named().map(|(_, count)| count);
    assert_eq!(entered(&hand), [0, 0, 0, 0, 0]);
    hand.step(-10 * MS as i64);
    assert!(hand.notes(&["went back by 10 ms", "until it is reached"]), "{:?}", hand.engine.status());
    hand.run(SECOND);
    assert_eq!(entered(&hand), [1, 1, 0, 0, 0]);
    hand.step(-500 * MS as i64);
    assert!(hand.notes(&["500 ms ahead of it", "a tenth of the pace"]), "{:?}", hand.engine.status());
    hand.run(10 * SECOND);
    assert_eq!(entered(&hand), [2, 1, 1, 0, 0]);
    assert!(hand.engine.status().ready);
    hand.step(-10 * SECOND as i64);
    assert!(
        hand.notes(&["10.0 s behind", "no other worker was free", "set the clock"]),
        "{:?}",
        hand.engine.status()
    );
    assert!(!hand.engine.status().ready);
    hand.run(SECOND);
    assert_eq!(entered(&hand), [3, 1, 1, 1, 0]);
    assert!(hand.engine.status().ready, "another worker was taken");
    hand.step(20 * SECOND as i64);
    assert!(hand.notes(&["20.0 s ahead", "not followed"]), "{:?}", hand.engine.status());
    hand.run(SECOND);
    assert!(matches!(hand.stats().clock.verdict, Verdict::Ahead { by } if by.abs_diff(20 * SECOND) < 5 * MS));
    hand.run(70 * SECOND);
    assert_eq!(entered(&hand), [4, 1, 1, 1, 1]);
}

#[test]
fn a_drift_of_many_small_steps_wakes_the_producer_when_it_becomes_too_much() {
    let hand = Hand::new(Settings::default());
    let wakes = || hand.assembly.shared.producer.calls.load(std::sync::atomic::Ordering::Relaxed);
    let mut woken = Vec::new();
    let mut before = wakes();
    // Each is within what two readings may differ by without a step.
    for _ in 0..2_000 {
        hand.step(-900_000);
        let verdict = hand.stats().clock.verdict.name();
        if wakes() > before {
            before = wakes();
            woken.push(verdict);
        }
    }
    assert_eq!(woken, ["stand", "catch_up", "behind"]);
}

#[test]
fn a_registry_time_that_is_told_again_or_while_it_is_away_counts_for_nothing() {
    let mut hand = Hand::new(Settings::default());
    hand.registry.set_time(Some(START + 300 * SECOND));
    hand.run(300 * SECOND);
    // From here on the registry's clock stands, as where nobody could ask it.
    hand.registry.set_time(Some(START + 300 * SECOND));
    hand.run(100 * SECOND);
    assert_eq!(hand.stats().clock.verdict, Verdict::Steady);
    assert_eq!(hand.stats().windows.switches.total(), 0);
    (0..1_000).for_each(|_| hand.registry.fail(crate::registry::memory::Fault::Away));
    let asked = hand.jobs.len();
    for late in 0..30 {
        hand.registry.set_time(Some(hand.clock.read().wall - (late + 10) * SECOND));
        hand.run(3 * SECOND);
    }
    assert!(hand.jobs.len() > asked + 10, "it was asked all the time");
    assert_eq!(hand.stats().clock.verdict, Verdict::Steady);
    // As soon as it answers it is believed.
    hand.registry.mend();
    hand.registry.set_time(Some(hand.clock.read().wall - 40 * SECOND));
    hand.run(2 * SECOND);
    assert_eq!(hand.stats().clock.verdict.name(), "ahead");
}

#[test]
fn a_wall_behind_the_registrys_clock_is_said_and_harms_nobody() {
    let mut hand = Hand::new(Settings::default());
    hand.registry.set_time(Some(START + 60 * SECOND));
    hand.run(2 * SECOND);
    let clock = hand.stats().clock;
    assert!((58_000..=60_000).contains(&clock.behind_registry_ms), "{clock:?}");
    assert!(hand.engine.status().ready && hand.notes(&["behind the registry's", "check both clocks"]));
    hand.engine.runs(10, crate::Order::Any).unwrap();
}

#[test]
fn the_last_thousand_days_of_a_layout_are_said() {
    // 2^35 ms are 397 days.
    let layout = Layout::new(35, 10, 18, 1_000, START / MS - 100 * 86_400_000).unwrap();
    let mut hand = Hand::starting_at(START, layout, Settings::default());
    hand.run(SECOND);
    assert_eq!(hand.stats().clock.days_left, 297);
    assert!(hand.engine.status().ready && hand.notes(&["run out in 297 days", "another layout"]));
    assert!(!Hand::new(Settings::default()).notes(&["run out"]));
}
