//! Random scripts of steps, pauses, leaps and samples of a second clock. What holds for every observation is asserted
//! in `Bench::look`.

use proptest::prelude::*;

use super::*;

/// One thing that happens to the clocks.
#[derive(Clone, Debug)]
enum Act {
    Step(i64),
    Run {
        ns: u64,
        every: u64,
    },
    /// Steps there and back again, looking each time.
    Swing {
        by: i64,
        times: u8,
        every: u64,
    },
    BootStands {
        wall: u64,
    },
    BootIsSetBack,
    /// A sample of the second clock, this far from the true time.
    Second {
        off: i64,
    },
    /// The engine finds a worker, if one is wanted.
    Switch,
}

pub(super) fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![1..MS, MS..SECOND, SECOND..100 * SECOND, HOUR..10 * HOUR]
}

fn leap() -> impl Strategy<Value = i64> {
    let size = prop_oneof![
        MS as i64..20 * MS as i64,
        20 * MS as i64..2 * SECOND as i64,
        Just(SECOND as i64),
        2 * SECOND as i64..HOUR as i64,
        HOUR as i64..20 * YEAR,
        Just(14 * YEAR),
    ];
    (size, any::<bool>()).prop_map(|(size, back)| if back { -size } else { size })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => leap().prop_map(Act::Step),
        4 => (gap(), 1u64..200).prop_map(|(ns, parts)| Act::Run { ns, every: ns / parts + 1 }),
        1 => (leap(), 1u8..20, 1u64..SECOND).prop_map(|(by, times, every)| Act::Swing { by, times, every }),
        1 => (1u64..3 * SECOND).prop_map(|wall| Act::BootStands { wall }),
        1 => Just(Act::BootIsSetBack),
        1 => leap().prop_map(|off| Act::Second { off }),
        1 => Just(Act::Switch),
    ]
}

fn play(bench: &mut Bench, truth: &mut u64, act: &Act) {
    let boot = bench.at.boot;
    match *act {
        Act::Step(by) => drop(bench.step(by).look()),
        Act::Run { ns, every } => drop(bench.run(ns, every)),
        Act::Swing { by, times, every } => {
            for _ in 0..times {
                bench.step(by).pass(every).look();
                bench.step(-by).pass(every).look();
            }
        }
        Act::BootStands { wall } => drop(bench.step(wall as i64).look()),
        Act::BootIsSetBack => {
            bench.at.boot /= 2;
            bench.look();
        }
        Act::Second { off } => {
            let sample = truth.saturating_add_signed(off);
            bench.supervisor.second_clock(sample, bench.at);
        }
        Act::Switch => {
            if matches!(bench.last.verdict, Verdict::Behind { .. }) {
                bench.switch();
            }
        }
    }
    *truth += bench.at.boot.saturating_sub(boot);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The claims about each observation are in `Bench::look`; this one is that engine time finds back to the wall.
    #[test]
    fn when_time_runs_normally_again_e_is_the_wall_in_bounded_time(acts in prop::collection::vec(act(), 0..40)) {
        let mut bench = Bench::new();
        let mut truth = START;
        for act in &acts {
            play(&mut bench, &mut truth, act);
        }
        bench.look();
        let Thresholds { drift, settle, .. } = Thresholds::default();
        // A leap settles in a minute, or the second clock gives its consent; a worker is found for a large lead;
        // the rest of a lead wears off at a tenth of boot time.
        bench.run(settle, 250 * MS);
        bench.supervisor.second_clock(bench.at.wall, bench.at);
        bench.look();
        if matches!(bench.last.verdict, Verdict::Behind { .. }) {
            bench.switch();
        }
        bench.run(drift * CATCH_UP, 250 * MS);
        prop_assert_eq!(bench.run(MS, MS).verdict, Verdict::Steady);
    }

    #[test]
    fn without_a_second_clock_or_a_switch_time_alone_heals(
        steps in prop::collection::vec((-20_000i64..20_000, gap()), 1..20),
    ) {
        let mut bench = Bench::new();
        for (ms, gap) in steps {
            bench.step(ms * MS as i64).pass(gap).look();
        }
        let lead = bench.last.now.saturating_sub(bench.at.wall);
        let Thresholds { drift, settle, .. } = Thresholds::default();
        bench.run(lead + drift * CATCH_UP + settle, 250 * MS);
        prop_assert_eq!(bench.last.verdict, Verdict::Steady);
    }

    #[test]
    fn leaps_that_never_settle_never_take_e_past_boot_time(
        leaps in prop::collection::vec((6 * SECOND as i64..20 * YEAR, 1u64..59 * SECOND, gap()), 1..20),
        every in MS..10 * SECOND,
    ) {
        let mut bench = Bench::new();
        let boot = bench.at.boot;
        for (leap, stands, between) in leaps {
            bench.step(leap).look();
            let truth = START + (bench.at.boot - boot);
            prop_assert_eq!(bench.last.now, truth, "the leap was followed");
            bench.run(stands, every);
            prop_assert_eq!(bench.last.now, truth + stands, "a held leap moved engine time");
            bench.step(-leap).look();
            bench.pass(between).look();
            prop_assert_eq!(bench.last.now, truth + stands + between);
            prop_assert_eq!(bench.last.verdict, Verdict::Steady);
        }
    }
}
