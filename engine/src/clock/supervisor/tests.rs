//! The supervisor under scripted clocks: single claims here, and beside a second clock; random scripts in `properties`.

#![expect(clippy::cast_possible_wrap, reason = "a step is signed, and the longest is of 20 years")]

mod properties;
mod second_clock;

use super::*;

const HOUR: u64 = 3_600 * SECOND;
const YEAR: i64 = 365 * 24 * HOUR as i64;
/// 2026, some day.
const START: u64 = 1_793_000_000 * SECOND;

/// Two clocks under a test's control, and the supervisor that watches them.
struct Bench {
    at: Reading,
    supervisor: Supervisor,
    last: Observation,
}

impl Bench {
    fn new() -> Self {
        Self::starting_at(START)
    }

    fn starting_at(wall: u64) -> Self {
        let at = Reading { wall, boot: 7 * HOUR };
        let supervisor = Supervisor::new(Thresholds::default(), at);
        let last =
            Observation { now: wall, verdict: Verdict::Steady, rollback: false, jump: false, changed: false };
        Self { at, supervisor, last }
    }

    /// Steps the wall alone, as an administrator does.
    fn step(&mut self, by: i64) -> &mut Self {
        self.at.wall = self.at.wall.saturating_add_signed(by);
        self
    }

    /// Time goes by on both clocks.
    fn pass(&mut self, ns: u64) -> &mut Self {
        self.at.wall = self.at.wall.saturating_add(ns);
        self.at.boot = self.at.boot.saturating_add(ns);
        self
    }

    /// Observes, and asserts what holds for every observation.
    fn look(&mut self) -> Observation {
        let (before, boot) = (self.supervisor.now, self.supervisor.last.boot);
        let elapsed = self.at.boot.saturating_sub(boot);
        let seen = self.supervisor.observe(self.at);
        let Thresholds { rollback_wait, drift, max_forward, .. } = Thresholds::default();
        let wall = self.at.wall;
        assert_eq!(seen.now, self.supervisor.now());
        assert!(seen.now >= before, "S1: engine time went from {before} to {}", seen.now);
        assert!(
            seen.now <= before.saturating_add(elapsed).max(wall),
            "S2: {before} -> {seen:?}, wall {wall}"
        );
        match seen.verdict {
            Verdict::Steady => assert_eq!(seen.now, wall),
            Verdict::Stand { lead } => {
                assert!(lead > 0 && lead <= rollback_wait && seen.now == wall + lead, "{seen:?}");
                assert_eq!(seen.now, before, "engine time did not stand");
            }
            Verdict::CatchUp { lead } => {
                assert!(lead > 0 && lead <= drift && seen.now == wall + lead, "{seen:?}");
                assert!(
                    seen.now - before <= elapsed - elapsed / CATCH_UP,
                    "engine time ran faster than 9/10"
                );
            }
            Verdict::Behind { lead } => {
                assert!(lead > drift, "{seen:?}");
                assert_eq!(seen.now, before, "engine time did not stand");
            }
            Verdict::Ahead { by } => {
                assert!(by > max_forward, "{seen:?}");
                assert!(seen.now - before <= elapsed, "a leap was followed: {seen:?}");
            }
        }
        self.last = seen;
        seen
    }

    /// Lets `ns` go by, looking every `every`.
    fn run(&mut self, ns: u64, every: u64) -> Observation {
        let mut left = ns;
        while left > 0 {
            let part = left.min(every);
            self.pass(part).look();
            left -= part;
        }
        self.last
    }

    fn switch(&mut self) {
        self.look();
        let now = self.supervisor.switched();
        assert_eq!(now, self.supervisor.now());
    }
}

fn ahead(seen: &Observation) -> bool {
    matches!(seen.verdict, Verdict::Ahead { .. })
}

#[test]
fn a_small_step_back_is_waited_out() {
    let mut bench = Bench::new();
    let before = bench.run(SECOND, MS).now;
    let seen = bench.step(-10 * MS as i64).look();
    assert_eq!((seen.now, seen.verdict, seen.rollback), (before, Verdict::Stand { lead: 10 * MS }, true));
    let seen = bench.run(9 * MS, MS);
    assert_eq!((seen.now, seen.verdict, seen.rollback), (before, Verdict::Stand { lead: MS }, false));
    assert_eq!(bench.run(MS, MS).verdict, Verdict::Steady);
    assert_eq!(bench.run(MS, MS).now, before + MS);
}

#[test]
fn a_leap_second_is_caught_up_at_nine_tenths_and_ends_without_a_jump() {
    let mut bench = Bench::new();
    bench.step(-(SECOND as i64));
    assert_eq!(bench.look().verdict, Verdict::CatchUp { lead: SECOND });
    assert_eq!(bench.run(5 * SECOND, 3 * MS + 1_234).now, START + 4_500_000_000 - rounding(&bench));
    let mut before = bench.last.now;
    let mut took = 5 * SECOND;
    while bench.last.verdict != Verdict::Steady {
        let seen = bench.run(MS, MS);
        assert!(seen.now - before <= MS, "engine time leapt as the lead went to nothing");
        before = seen.now;
        took += MS;
    }
    assert!((9_990 * MS..=10_000 * MS).contains(&took), "{took} ns for a second at a tenth");
}

/// What rounding up each tenth has cost engine time so far.
fn rounding(bench: &Bench) -> u64 {
    let exact = START + 4_500_000_000;
    let lost = exact.saturating_sub(bench.last.now);
    assert!(lost < 10_000, "{lost} ns");
    lost
}

#[test]
fn two_steps_back_of_600_ms_are_one_lead_of_1200() {
    let mut bench = Bench::new();
    assert_eq!(bench.step(-600 * MS as i64).look().verdict, Verdict::CatchUp { lead: 600 * MS });
    let seen = bench.step(-600 * MS as i64).look();
    assert_eq!((seen.verdict, seen.rollback), (Verdict::Behind { lead: 1_200 * MS }, true));
    let now = seen.now;
    bench.switch();
    assert_eq!(bench.supervisor.now(), now - 1_200 * MS);
    assert_eq!(bench.look().verdict, Verdict::Steady);
}

#[test]
fn without_a_switch_a_large_lead_is_stood_out_and_then_caught_up() {
    let mut bench = Bench::new();
    bench.step(-30 * SECOND as i64).look();
    assert_eq!(bench.run(28 * SECOND, 10 * MS).verdict, Verdict::Behind { lead: 2 * SECOND });
    assert!(matches!(bench.run(SECOND, 10 * MS).verdict, Verdict::CatchUp { .. }));
    assert_eq!(bench.run(10 * SECOND, 10 * MS).verdict, Verdict::Steady);
}

#[test]
fn a_step_back_that_fell_into_a_long_gap_costs_what_is_left_of_it() {
    let mut bench = Bench::new();
    let seen = bench.pass(10 * SECOND).step(-10_500 * MS as i64).look();
    assert_eq!((seen.now, seen.verdict), (START, Verdict::CatchUp { lead: 500 * MS }));
    let mut bench = Bench::new();
    bench.step(-10 * SECOND as i64).look();
    let seen = bench.pass(9_500 * MS).look();
    assert_eq!((seen.now, seen.verdict), (START, Verdict::CatchUp { lead: 500 * MS }));
}

#[test]
fn a_pause_of_hours_is_no_step() {
    let mut bench = Bench::new();
    let seen = bench.pass(9 * HOUR).look();
    let steady = Observation {
        now: START + 9 * HOUR,
        verdict: Verdict::Steady,
        rollback: false,
        jump: false,
        changed: false,
    };
    assert_eq!(seen, steady);
}

#[test]
fn slewing_at_a_part_in_a_thousand_is_no_step_however_long_the_gap() {
    for slew in [-1i64, 1] {
        let mut bench = Bench::new();
        for gap in [MS, SECOND, HOUR, 20 * HOUR] {
            let seen = bench.pass(gap).step(slew * (gap / SLEW) as i64).look();
            assert_eq!((seen.verdict, seen.rollback, seen.jump), (Verdict::Steady, false, false));
        }
    }
}

#[test]
fn a_small_step_forward_is_followed_at_once() {
    let mut bench = Bench::new();
    let seen = bench.step(4 * SECOND as i64).look();
    assert_eq!((seen.now, seen.verdict, seen.jump), (START + 4 * SECOND, Verdict::Steady, false));
}

#[test]
fn a_leap_forward_is_held_counted_once_and_believed_after_a_minute() {
    let mut bench = Bench::new();
    let seen = bench.step(14 * YEAR).look();
    assert_eq!((seen.now, seen.jump, ahead(&seen)), (START, true, true));
    for passed in 1..600 {
        let seen = bench.run(100 * MS, 100 * MS);
        assert_eq!((seen.now, seen.jump, ahead(&seen)), (START + passed * 100 * MS, false, true));
    }
    let seen = bench.run(100 * MS, 100 * MS);
    assert_eq!((seen.now, seen.verdict), (bench.at.wall, Verdict::Steady));
}

#[test]
fn a_leap_that_is_taken_back_in_time_leaves_no_trace() {
    let mut bench = Bench::new();
    bench.step(14 * YEAR).look();
    bench.run(59 * SECOND, 100 * MS);
    let seen = bench.step(-14 * YEAR).look();
    let steady = Observation {
        now: START + 59 * SECOND,
        verdict: Verdict::Steady,
        rollback: false,
        jump: false,
        changed: true,
    };
    assert_eq!(seen, steady);
}

#[test]
fn another_leap_while_one_is_held_starts_the_minute_again() {
    let mut bench = Bench::new();
    bench.step(YEAR).look();
    bench.run(50 * SECOND, 100 * MS);
    assert!(bench.step(YEAR).look().jump);
    assert!(ahead(&bench.run(50 * SECOND, 100 * MS)));
    assert_eq!(bench.run(10 * SECOND, 100 * MS).verdict, Verdict::Steady);
}

#[test]
fn a_clock_that_comes_back_from_far_behind_is_followed_at_once() {
    let mut bench = Bench::new();
    bench.step(-20 * YEAR).look();
    bench.run(HOUR, SECOND);
    let seen = bench.step(20 * YEAR).look();
    // A machine that was resumed from a snapshot looks the same.
    assert_eq!((seen.now, seen.verdict, seen.jump), (START + HOUR, Verdict::Steady, true));
}

#[test]
fn a_leap_is_told_whatever_is_held_and_however_the_slack_has_grown() {
    // Held, and 2.4 hours of slack: the second clock does not believe it.
    let mut bench = Bench::new();
    bench.supervisor.second_clock(START, bench.at);
    assert!(bench.step(14 * SECOND as i64).look().jump);
    bench.run(2 * HOUR + 24 * 60 * SECOND, SECOND);
    assert!(ahead(&bench.last));
    assert!(bench.step(13 * SECOND as i64).look().jump, "held for hours");

    // Held, and the sum of the steps is no leap of its own.
    let mut bench = Bench::new();
    assert!(bench.step(10 * SECOND as i64).look().jump);
    assert!(!bench.run(10 * SECOND, MS).jump);
    assert!(!bench.step(-4 * SECOND as i64).look().jump);
    assert!(bench.step(7 * SECOND as i64).look().jump, "within the minute");

    // Engine time is ahead.
    for back in [10 * MS, 900 * MS, 3 * SECOND, HOUR] {
        let mut bench = Bench::new();
        bench.step(-(back as i64)).look();
        assert!(bench.step(5_001 * MS as i64).look().jump, "{back} ns ahead");
    }
}

#[test]
fn a_leap_is_told_whatever_the_second_clock_said_before_the_reading() {
    for (first, off) in [(0, 600), (0, -600), (6, 600), (6, 0), (6, -600), (-6, 600), (-600, 0)] {
        for told in 1..3 {
            let mut bench = Bench::new();
            // Told once before: from then on it is not the first sample.
            (1..told).for_each(|_| bench.supervisor.second_clock(START, bench.at));
            bench.step(first * SECOND as i64).look();
            bench.run(3 * SECOND, SECOND);
            // The machine was resumed ten minutes later, and its registry thread was faster.
            bench.step(600 * SECOND as i64);
            let wall = bench.at.wall.saturating_add_signed(off * SECOND as i64);
            bench.supervisor.second_clock(wall, bench.at);
            assert!(bench.look().jump, "{first} s off, and the sample by {off} s more; {told}");
        }
    }
}

#[test]
fn a_reading_that_is_back_by_less_than_the_noise_is_no_rollback() {
    let mut bench = Bench::new();
    assert!(!bench.step(-(MS as i64)).look().rollback);
    assert!(bench.step(-(MS as i64) - 1).look().rollback);
}

#[test]
fn a_leap_right_after_a_switch_is_held() {
    let mut bench = Bench::new();
    bench.step(-(HOUR as i64)).look();
    bench.switch();
    assert!(ahead(&bench.step(HOUR as i64).look()), "engine time had been there");
}

#[test]
fn a_small_step_back_right_after_a_switch_is_waited_out() {
    let mut bench = Bench::new();
    // The clock recovered in the very reading that a switch makes.
    bench.step(-2 * SECOND as i64).look();
    bench.step(1_100 * MS as i64);
    bench.switch();
    let lead = 10 * MS;
    assert_eq!(bench.step(-(lead as i64)).look().verdict, Verdict::Stand { lead });
}

#[test]
fn a_leap_that_is_slewed_while_it_is_held_is_one_leap() {
    let thresholds = Thresholds { max_forward: SECOND, settle: 10 * HOUR, ..Thresholds::default() };
    let mut at = Reading { wall: START, boot: 0 };
    let mut supervisor = Supervisor::new(thresholds, at);
    at.wall += YEAR as u64;
    assert!(ahead(&supervisor.observe(at)));
    for _ in 0..600 {
        assert!(ahead(&supervisor.observe(at)));
        at.boot += 60 * SECOND;
        at.wall += 60 * SECOND + 60 * SECOND / SLEW;
    }
    assert_eq!(supervisor.observe(at).verdict, Verdict::Steady);
}

#[test]
fn a_clock_that_comes_back_from_far_behind_after_a_switch_is_held() {
    let mut bench = Bench::new();
    bench.step(-20 * YEAR).look();
    bench.switch();
    bench.run(HOUR, SECOND);
    assert!(ahead(&bench.step(20 * YEAR).look()));
}

#[test]
fn a_boot_clock_that_stands_or_goes_back_breaks_nothing() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.step(SECOND as i64).look();
    }
    assert_eq!(bench.last.verdict, Verdict::Steady);
    bench.at.boot = 0;
    assert_eq!(bench.look().verdict, Verdict::Steady);
    assert_eq!(bench.run(SECOND, MS).now, START + 101 * SECOND);
    bench.at.boot = u64::MAX;
    bench.look();
    bench.at.boot = 1;
    bench.look();
    assert!(!ahead(&bench.run(2 * HOUR, SECOND)));
}

#[test]
fn a_wall_at_either_end_of_time_breaks_nothing() {
    for wall in [0, u64::MAX] {
        let mut bench = Bench::starting_at(wall);
        bench.look();
        bench.step(i64::MIN).look();
        bench.pass(u64::MAX / 2).look();
        bench.step(i64::MAX).look();
        bench.supervisor.second_clock(u64::MAX, Reading { wall: 0, boot: 0 });
        bench.supervisor.second_clock(0, Reading { wall: 0, boot: u64::MAX });
        bench.step(i64::MAX).pass(u64::MAX).look();
        bench.switch();
        bench.step(i64::MIN).look();
    }
}

#[test]
fn a_clock_that_swings_moves_e_forward_only_and_never_past_its_highest() {
    let mut bench = Bench::new();
    let mut highest = START;
    for swing in 0..2_000 {
        let by = if swing % 2 == 0 { -300 } else { 300 } * MS as i64;
        let seen = bench.step(by).pass(7 * MS).look();
        highest = highest.max(bench.at.wall).max(highest + 7 * MS);
        assert!(seen.now <= highest, "{seen:?} is above {highest}");
        assert!(!matches!(seen.verdict, Verdict::Behind { .. } | Verdict::Ahead { .. }), "{seen:?}");
    }
    assert!(bench.supervisor.course().entered.catch_up > 500);
    assert_eq!(bench.run(4 * SECOND, MS).verdict, Verdict::Steady);
}

#[test]
fn the_course_tells_since_when_and_how_often() {
    let mut bench = Bench::new();
    let begun = bench.at.boot;
    bench.run(SECOND, MS);
    assert_eq!(bench.supervisor.course().since, begun);
    let seen = bench.step(-10 * SECOND as i64).look();
    let behind = bench.at.boot;
    assert!(seen.changed && !bench.run(3 * SECOND, MS).changed);
    let course = bench.supervisor.course();
    assert_eq!((course.since, course.unsteady_since, course.entered.behind), (behind, behind, 1));
    bench.switch();
    assert!(bench.look().changed);
    let course = bench.supervisor.course();
    assert_eq!(
        (course.verdict, course.since, course.unsteady_since),
        (Verdict::Steady, bench.at.boot, behind)
    );
    assert_eq!(course.entered.named().map(|(_, count)| count), [1, 0, 0, 1, 0]);
}
