//! The wall clock of a serving process steps, by milliseconds, an hour and ten years, both ways: what is believed of
//! it, who waits for it, and that no id comes twice.
//!
//! ZooKeeper's own clock is true all the while, and so is the second clock that the server has. With the local
//! registry there is none. Alone in their binary: others' servers of Java would be in the time that a switch takes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::http::Metrics;
use xuid_tests::zookeeper::Ensemble;
use xuid_tests::{Fared, Job, Ledger, Order, SchedulerDelay, Serve, Told, Work, Xuid, clock};

use fixture::{Fixture, Step};

mod fixture;

const HOUR_MS: i64 = 3_600_000;
const TEN_YEARS_MS: i64 = 10 * 365 * 24 * HOUR_MS;
/// A scrape reads the clock; what is then to be done takes a turn of the producer and an answer of the registry.
const SOON: Duration = Duration::from_secs(5);
/// The step in which the clock is right again after an hour back.
const FORWARD_AGAIN: &str = "the hour forward again";
/// How long the server lives with a step before the next one: long enough for windows to be renewed meanwhile.
const HOLD: Duration = Duration::from_secs(4);
/// No record's end is further than this from the registry's time.
const FURTHEST_MS: i64 = 120_000;
/// From the verdict to the first id of another worker, and what the machine was late.
const SWITCH: Duration = Duration::from_millis(100);
/// Nobody who is served all the way asks for longer, and what the machine was late.
const LONGEST: Duration = Duration::from_millis(500);
/// Fresh ids are stamped with the engine's clock; the test and the server read theirs at different moments.
const STAMP_MS: i64 = 1_000;

const fn job(work: Work, order: Order) -> Job {
    Job::gently(work, order, Duration::from_millis(2))
}

/// Ten clients.
const JOBS: [Job; 10] = [
    job(Work::Next(1), Order::Any),
    job(Work::Next(16), Order::Any),
    job(Work::Array(300), Order::Any),
    job(Work::Runs(5_000), Order::Any),
    job(Work::Next(4), Order::Fresh),
    job(Work::Array(100), Order::Fresh),
    job(Work::Runs(500), Order::Fresh),
    job(Work::Next(4), Order::Ordered),
    job(Work::Array(100), Order::Ordered),
    job(Work::Runs(500), Order::Ordered),
];

#[test]
fn steps_of_the_wall_clock_are_seen_for_what_they_are_and_no_id_comes_twice() -> Result<()> {
    let ensemble = Ensemble::start(1)?;
    let url = ensemble.url("/xuid");
    // The namespace issued nothing in the hours that the clock goes back to.
    Xuid::new(["registry", "init", &url, "--floor=-3h"])?.run()?.ok()?;
    let serve = Serve::fresh()?.arg("--registry").arg(&url);
    let mut fixture = Fixture::start("clock steps", serve, vec!["--registry".to_owned(), url], &JOBS)?;
    clock::idle(HOLD);
    let steps = vec![
        a_little_back(&mut fixture)?,
        caught_up(&mut fixture)?,
        an_hour_back(&mut fixture, true)?,
        and_forward_again(&mut fixture)?,
        held(&mut fixture, "an hour forward", HOUR_MS)?,
        back_from(&mut fixture, "back from an hour forward")?,
        held(&mut fixture, "ten years forward", TEN_YEARS_MS)?,
        back_from(&mut fixture, "back from ten years forward")?,
    ];
    let furthest = fixture.furthest_record_ms()?;
    let page = fixture.server.metrics()?;
    let mut ledger = Ledger::default();
    let (told, log, delay) = fixture.finish(&mut ledger)?;
    println!("clock steps: {}", ledger.check()?);
    println!("clock steps: {} ordered answers ascend", told.ordered_ascend()?);
    println!("{}\n{}", page.show("xuid_worker_switches_total"), page.show("xuid_clock_verdicts_total"));
    for step in &steps {
        let of_hour = step.name.starts_with("an hour back");
        served(&told, &delay, step, if of_hour { &[Order::Ordered] } else { &[] })?;
    }
    ensure!(furthest <= FURTHEST_MS, "a record ends {furthest} ms after the registry's time");
    ensure!(switches_of(&page) == 1, "{}", page.show("switches"));
    // Each step was seen once, for what it was, and nothing else was taken for one.
    let verdicts = ["catch_up", "behind", "ahead"].map(|verdict| entered(&page, verdict));
    ensure!(verdicts == [1, 1, 3], "{}", page.show("xuid_clock_verdicts_total"));
    println!("clock steps: the switch took {:?} from the verdict to the first id", switched(&page, &delay)?);
    for step in &steps {
        stamped(&told, step)?;
    }
    for words in [
        "nine tenths of the pace",
        "went back far",
        "the clock is behind the ones",
        "not followed yet",
        "steady",
    ] {
        ensure!(log.contains(words), "the log does not say {words:?}:\n{log}");
    }
    Ok(())
}

#[test]
fn without_a_second_clock_an_hour_back_is_a_switch_and_an_hour_forward_is_held_for_a_minute() -> Result<()> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    let serve = Serve::new(&data)?.arg("--floor=-3h");
    let registry = vec!["--data-dir".to_owned(), data.to_string_lossy().into_owned()];
    let mut fixture = Fixture::start("clock steps, local", serve, registry, &JOBS)?;
    clock::idle(HOLD / 2);
    let back = an_hour_back(&mut fixture, false)?;
    let (forward, believed) = settled_after_a_minute(&mut fixture)?;
    let page = fixture.server.metrics()?;
    let mut ledger = Ledger::default();
    let (told, log, delay) = fixture.finish(&mut ledger)?;
    println!("clock steps, local: {}", ledger.check()?);
    println!("clock steps, local: {} ordered answers ascend", told.ordered_ascend()?);
    // Until the true time is believed it is an hour ago, and ordered ids were issued since.
    for (step, refused) in [(&back, &[Order::Ordered][..]), (&forward, &[Order::Ordered]), (&believed, &[])] {
        served(&told, &delay, step, refused)?;
        stamped(&told, step)?;
    }
    println!("{}", page.show("xuid_worker_switches_total"));
    println!(
        "clock steps, local: the switch took {:?} from the verdict to the first id",
        switched(&page, &delay)?
    );
    ensure!(log.contains("went back far") && log.contains("not followed yet"), "{log}");
    Ok(())
}

/// Ten times: a reading only shows a step of 5 ms if the one before it was less than that ago.
fn a_little_back(fixture: &mut Fixture) -> Result<Step> {
    let before = fixture.server.metrics()?;
    let from = fixture.shift(0)?;
    for _ in 0..10 {
        fixture.shift(-5)?;
        clock::idle(Duration::from_millis(60));
        fixture.shift(0)?;
        clock::idle(Duration::from_millis(60));
    }
    let after = fixture.server.metrics()?;
    let seen = |verdict| entered(&after, verdict) - entered(&before, verdict);
    let (stood, others) = (seen("stand"), seen("behind") + seen("ahead") + seen("catch_up"));
    ensure!(stood >= 5 && others == 0, "{stood} of 10 steps of 5 ms were waited for, {others} not");
    fixture.told(&format!("ten times 5 ms back: stood for {stood} of them"));
    Ok(Step::new("5 ms back", 0, from, from))
}

fn caught_up(fixture: &mut Fixture) -> Result<Step> {
    let from = fixture.shift_to("catch_up", -500)?;
    let ready = fixture.readiness(&["worn off at a tenth"])?;
    let took = fixture.wait_verdict("steady", Duration::from_secs(15))?;
    fixture.told(&format!("500 ms back: caught up after {took:?}; /readyz: {ready}"));
    // Five seconds at a tenth of the pace; less, since every reading that errs makes the engine's clock stand.
    ensure!(took > Duration::from_secs(2), "half a second was caught up within {took:?}");
    let settled = clock::now();
    clock::idle(HOLD / 4);
    let step = Step::new("500 ms back", -500, from, settled);
    fixture.shift(0)?;
    Ok(step)
}

/// Another worker is taken, and everybody but ordered is served by it.
fn an_hour_back(fixture: &mut Fixture, seconded: bool) -> Result<Step> {
    let (before, switches) = (fixture.held()?, switches(fixture)?);
    let from = fixture.shift_to("behind", -HOUR_MS)?;
    let took =
        clock::wait_until("another worker", SOON, || Ok(switches_of(&fixture.server.metrics()?) > switches))?;
    let settled = clock::now();
    clock::idle(HOLD);
    let after = fixture.held()?;
    ensure!(before != after && after.len() == 1, "{before:?} -> {after:?}");
    let (old, new) = (fixture.row(before[0])?, fixture.row(after[0])?);
    fixture.told(&format!("an hour back: worker {} -> {} after {took:?}", before[0], after[0]));
    println!("    {old}\n    {new}");
    let ends = new["reserved_until_ms"].as_i64().context("no end")? - clock::unix_ms().cast_signed();
    ensure!((-HOUR_MS..-HOUR_MS + FURTHEST_MS).contains(&ends), "its window ends {ends} ms from now: {new}");
    // Handed back: from the first tick that was not touched.
    let old_ends = old["reserved_until_ms"].as_i64().context("no end")? - clock::unix_ms().cast_signed();
    ensure!(old_ends < 0, "the old one's window was not handed back: {old}");
    if seconded {
        ensure!(!new["live"].is_null() && old["live"].is_null(), "who lives: {old}, {new}");
        println!("    /readyz: {}", fixture.readiness(&["behind the registry's"])?);
    }
    Ok(Step::new("an hour back", -HOUR_MS, from, settled))
}

/// The registry's clock agrees with the leap, so it is believed as soon as that is heard.
fn and_forward_again(fixture: &mut Fixture) -> Result<Step> {
    let from = fixture.shift_to("ahead", 0)?;
    let took = fixture.wait_verdict("steady", SOON)?;
    let settled = clock::now();
    fixture.told(&format!("{FORWARD_AGAIN}: believed after {took:?}"));
    clock::idle(HOLD / 2);
    Ok(Step::new(FORWARD_AGAIN, 0, from, settled))
}

/// A leap that the registry's clock does not agree with is not believed, and no record follows it.
fn held(fixture: &mut Fixture, name: &'static str, by_ms: i64) -> Result<Step> {
    let from = fixture.shift_to("ahead", by_ms)?;
    let ready = fixture.readiness(&["ahead of what boot time", "not followed"])?;
    let settled = clock::now();
    let mut furthest = i64::MIN;
    while settled.elapsed() < HOLD {
        furthest = furthest.max(fixture.furthest_record_ms()?);
        clock::idle(Duration::from_millis(250));
    }
    ensure!(fixture.verdict("ahead")?, "it was believed within {HOLD:?}");
    ensure!(furthest <= FURTHEST_MS, "a record ends {furthest} ms after the registry's time");
    fixture.told(&format!("{name}: held; the furthest record ends {furthest} ms after the registry's time"));
    println!("    /readyz: {ready}");
    // The ids' time is the true one.
    Ok(Step::new(name, 0, from, settled))
}

fn back_from(fixture: &mut Fixture, name: &'static str) -> Result<Step> {
    let switches = switches(fixture)?;
    let from = fixture.shift(0)?;
    let took = fixture.wait_verdict("steady", SOON)?;
    let settled = clock::now();
    clock::idle(HOLD / 2);
    ensure!(switches_of(&fixture.server.metrics()?) == switches, "a leap that was not followed is no switch");
    fixture.told(&format!("{name}: steady after {took:?}"));
    Ok(Step::new(name, 0, from, settled))
}

/// The hour forward again is a leap of which only time can tell.
fn settled_after_a_minute(fixture: &mut Fixture) -> Result<(Step, Step)> {
    let from = fixture.shift_to("ahead", 0)?;
    println!("    /readyz: {}", fixture.readiness(&["not followed", "after a minute"])?);
    let settled = clock::now();
    let took = fixture.wait_verdict("steady", Duration::from_secs(65))?;
    // Up to the last moment that is surely not after the verdict.
    let to = settled + took.saturating_sub(SOON / 10);
    let forward = Step { to, ..Step::new(FORWARD_AGAIN, -HOUR_MS, from, settled) };
    ensure!(took > Duration::from_secs(58), "a leap was believed after {took:?}");
    fixture.told(&format!("{FORWARD_AGAIN}: believed after {took:?}"));
    let believed = clock::now();
    clock::idle(HOLD / 2);
    Ok((forward, Step::new("believed after a minute", 0, believed, believed)))
}

fn entered(page: &Metrics, verdict: &str) -> u64 {
    count(page, &["xuid_clock_verdicts_total", &format!("\"{verdict}\"")])
}

fn switches(fixture: &Fixture) -> Result<u64> {
    Ok(switches_of(&fixture.server.metrics()?))
}

fn switches_of(page: &Metrics) -> u64 {
    count(page, &["xuid_worker_switches_total", "clock"])
}

/// How long the slowest switch took: not too long.
fn switched(page: &Metrics, delay: &SchedulerDelay) -> Result<Duration> {
    let slowest = Duration::try_from_secs_f64(page.sum(&["xuid_worker_switch_max_ms"]) / 1e3)?;
    ensure!(slowest < delay.allow(SWITCH), "a switch took {slowest:?}");
    Ok(slowest)
}

#[expect(clippy::cast_sign_loss, reason = "counters are whole numbers from 0 on")]
fn count(page: &Metrics, words: &[&str]) -> u64 {
    page.sum(words) as u64
}

/// All orders but those in `refused` were served all the way.
fn served(told: &Told, delay: &SchedulerDelay, step: &Step, refused: &[Order]) -> Result<()> {
    println!("    {}:", step.name);
    for order in Order::ALL {
        // Until the hour is believed again, ordered calls are refused at once, as they were before.
        let waits = order == Order::Ordered && step.name == FORWARD_AGAIN && !refused.contains(&order);
        let from = if waits { step.settled } else { step.from };
        let Fared { served, refused: refusals, longest, refused_for, refusal } =
            told.fared(order, from, step.to);
        println!("        {order:?}: {served} requests served, {longest:?} at most");
        if let Some(refusal) = &refusal {
            println!("        {order:?}: {refusals} refused within {refused_for:?}: {refusal}");
        }
        if refused.contains(&order) {
            ensure!(refusals > 0, "{}: {order:?} ids were to be refused", step.name);
        } else {
            ensure!(refusals == 0, "{}: {refusals} requests of {order:?} were refused", step.name);
            let most = delay.allow(LONGEST);
            ensure!(served > 0 && longest < most, "{}: {order:?}: {longest:?} without ids", step.name);
        }
    }
    Ok(())
}

/// Fresh ids bear the time that is to be believed.
fn stamped(told: &Told, step: &Step) -> Result<()> {
    let (low, high) = told.ids(Order::Fresh, step.settled, step.to).context("no fresh id at all")?;
    let early = fixture::stamp_ms(low) - (fixture::unix_ms_at(step.settled) + step.stamps_ms);
    let late = fixture::stamp_ms(high) - (fixture::unix_ms_at(step.to) + step.stamps_ms);
    ensure!(
        early > -STAMP_MS && late < STAMP_MS,
        "{}: fresh ids are stamped from {early} ms to {late} ms beside the time",
        step.name
    );
    Ok(())
}
