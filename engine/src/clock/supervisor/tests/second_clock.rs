//! A second clock beside the wall: what it makes believed, denies, and must not break.

use proptest::prelude::*;

use super::properties::gap;
use super::*;

#[test]
fn a_second_clock_that_agrees_makes_a_leap_believed_at_once() {
    let mut bench = Bench::new();
    bench.step(2 * HOUR as i64).look();
    bench.run(SECOND, MS);
    let wall = bench.at.wall;
    bench.supervisor.second_clock(wall - 4 * SECOND, bench.at);
    let seen = bench.run(MS, MS);
    assert_eq!((seen.now, seen.verdict), (wall + MS, Verdict::Steady));
}

#[test]
fn a_leap_that_the_second_clock_denies_is_never_believed() {
    let mut bench = Bench::new();
    bench.supervisor.second_clock(START, bench.at);
    bench.step(14 * YEAR).look();
    let seen = bench.run(10 * HOUR, SECOND);
    assert_eq!((seen.now, ahead(&seen)), (START + 10 * HOUR, true));
    bench.supervisor.second_clock(START + 10 * HOUR, bench.at);
    assert!(ahead(&bench.run(HOUR, SECOND)));
}

#[test]
fn a_wall_ahead_of_the_second_clock_is_held_from_the_start() {
    let mut bench = Bench::starting_at(START + 14 * YEAR as u64);
    // The sample was taken 3 s of boot time before the last reading.
    let at = bench.at;
    bench.pass(3 * SECOND).look();
    bench.supervisor.second_clock(START, at);
    let seen = bench.look();
    assert_eq!(seen.verdict, Verdict::Behind { lead: 14 * YEAR as u64 });
    assert!(!seen.jump, "nothing happened to this machine");
    bench.switch();
    assert_eq!(bench.supervisor.now(), START + 3 * SECOND);
    let seen = bench.run(HOUR, SECOND);
    assert_eq!((seen.now, ahead(&seen)), (START + HOUR + 3 * SECOND, true));
    bench.step(-14 * YEAR);
    assert_eq!(bench.look().verdict, Verdict::Steady);
}

#[test]
fn a_first_sample_during_a_catch_up_does_not_make_e_run_faster() {
    let mut bench = Bench::new();
    bench.step(-900 * MS as i64).look();
    bench.run(100 * MS, MS);
    bench.supervisor.second_clock(bench.at.wall - 5_100 * MS, bench.at);
    let before = bench.last.now;
    // The lead on the other clock's time, had engine time stood, is 790 ms at the end of this gap.
    assert_eq!(bench.pass(5_200 * MS).look().now, before);
}

#[test]
fn a_second_clock_that_falls_back_later_does_not_stop_the_engine() {
    let mut bench = Bench::new();
    bench.supervisor.second_clock(START, bench.at);
    bench.run(SECOND, MS);
    bench.supervisor.second_clock(START - HOUR, bench.at);
    let seen = bench.run(SECOND, MS);
    assert_eq!((seen.now, ahead(&seen)), (START + 2 * SECOND, true));
    bench.supervisor.second_clock(START + 2 * SECOND, bench.at);
    assert_eq!(bench.run(MS, MS).verdict, Verdict::Steady);
}

/// A new leader of an ensemble brings its own clock, to all nodes at once: none of them was resumed from a snapshot.
#[test]
fn a_second_clock_that_steps_is_no_leap_of_this_machine() {
    let mut bench = Bench::new();
    bench.supervisor.second_clock(START, bench.at);
    bench.run(SECOND, MS);
    for off in [-6 * SECOND as i64, 0, -6 * SECOND as i64, 3 * HOUR as i64, -3 * HOUR as i64] {
        bench.supervisor.second_clock(bench.at.wall.saturating_add_signed(off), bench.at);
        for _ in 0..2_000 {
            assert!(!bench.pass(MS).look().jump, "{off}");
        }
    }
    // A leap of this machine beside it is one.
    assert!(bench.step(6 * SECOND as i64).look().jump);
    bench.supervisor.second_clock(bench.at.wall, bench.at);
    bench.run(SECOND, MS);
    assert!(bench.step(6 * SECOND as i64).look().jump);
}

#[test]
fn a_sample_of_after_the_last_reading_is_reckoned_back_to_it() {
    let mut bench = Bench::starting_at(START + 14 * SECOND);
    let later = Reading { boot: bench.at.boot + 10 * SECOND, ..bench.at };
    bench.supervisor.second_clock(START + 10 * SECOND, later);
    assert_eq!(bench.look().verdict, Verdict::Behind { lead: 14 * SECOND });
}

#[test]
fn a_sample_that_denies_nothing_leaves_a_wall_that_is_followed_alone() {
    let mut bench = Bench::new();
    // The other clock is 4 s behind: no reason to hold the next small step.
    bench.supervisor.second_clock(START - 4 * SECOND, bench.at);
    let seen = bench.step(2 * SECOND as i64).look();
    assert_eq!((seen.now, seen.verdict), (START + 2 * SECOND, Verdict::Steady));
    // Nor is one ahead a reason to follow a leap that it has not seen.
    bench.supervisor.second_clock(START + HOUR, bench.at);
    assert!(ahead(&bench.step(HOUR as i64).look()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A sample from long ago, of a clock that went as much slower as clocks may.
    #[test]
    fn a_stale_sample_refutes_nothing(
        ages in prop::collection::vec((0..20 * HOUR, 0..=1_000u64, gap()), 1..20),
    ) {
        let mut bench = Bench::new();
        for (age, slower, gap) in ages {
            let sampled = bench.at;
            bench.run(age, age / 5 + 1);
            // What it shows at its own pace: told late, it lags by up to a thousandth of its age.
            let lag = age / SLEW * slower / 1_000;
            bench.supervisor.second_clock(sampled.wall - lag.min(sampled.wall), sampled);
            prop_assert_eq!(bench.look().verdict, Verdict::Steady);
            bench.run(gap, gap / 3 + 1);
            prop_assert_eq!(bench.last.verdict, Verdict::Steady);
        }
        prop_assert_eq!(bench.supervisor.course().entered.total(), 0);
    }

    /// The wall is right, behind, or far ahead (2040 and back); the second clock is right within a second, and asked at
    /// any moment. Once it was heard, engine time is never ahead of the truth by more than that, and when the wall is
    /// right again so is engine time.
    #[test]
    fn beside_a_second_clock_no_leap_is_ever_followed(
        offs in prop::collection::vec(
            (
                prop_oneof![
                    2 => Just(0i64),
                    2 => -20 * YEAR..0,
                    1 => -2 * SECOND as i64..0,
                    3 => 7 * SECOND as i64..20 * YEAR,
                    1 => Just(14 * YEAR),
                ],
                gap(),
                prop::option::of(-(SECOND as i64)..=SECOND as i64),
            ),
            1..25,
        ),
        every in MS..10 * SECOND,
        first in -20 * YEAR..20 * YEAR,
    ) {
        let mut bench = Bench::starting_at(START.saturating_add_signed(first));
        let begun = bench.at.boot;
        let mut off = first;
        let mut steps = offs;
        steps.push((0, SECOND, Some(0)));
        let mut heard = false;
        for (next, gap, sample) in steps {
            bench.step(next - off).look();
            off = next;
            let truth = |bench: &Bench| START + (bench.at.boot - begun);
            if let Some(error) = sample {
                let at = bench.at;
                bench.supervisor.second_clock(truth(&bench).saturating_add_signed(error), at);
                heard = true;
                bench.look();
            }
            let mut left = gap;
            while left > 0 {
                if matches!(bench.last.verdict, Verdict::Behind { .. }) {
                    bench.switch();
                    bench.look();
                }
                if heard {
                    let most = truth(&bench) + SECOND;
                    prop_assert!(bench.last.now <= most, "engine time is {} ahead", bench.last.now - most + SECOND);
                }
                let part = left.min(every);
                bench.pass(part).look();
                left -= part;
            }
        }
        bench.run(30 * SECOND, 250 * MS);
        if matches!(bench.last.verdict, Verdict::Behind { .. }) {
            bench.switch();
        }
        prop_assert_eq!(bench.run(30 * SECOND, 250 * MS).verdict, Verdict::Steady);
        prop_assert_eq!(bench.last.now, START + (bench.at.boot - begun));
    }
}
