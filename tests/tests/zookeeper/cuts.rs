//! `xuid registry init` and `fence` killed at random moments: what they leave is closed or complete, never in between.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::{Output, Rng, Xuid, clock};

use crate::fixture::{Fixture, SOON};

const ROUNDS: u64 = 12;
/// More of them until one was cut off in the middle.
const MOST_ROUNDS: u64 = 100;
/// So many that making and raising them takes a while; a layout with room for them.
const SIZE: [&str; 4] = ["--layout", "39/14/10", "--workers", "1000"];

/// What was left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// No registry: `init` is to be run again.
    Nothing,
    /// A registry that nobody may use before a fence.
    Closed,
    Complete,
}

/// `xuid registry ACTION URL` with a session that ends soon after a kill.
fn registry(action: &str, url: &str) -> Result<Xuid> {
    Ok(Xuid::new(["registry", action, url])?.env("XUID_SESSION", "1s"))
}

fn init(url: &str) -> Result<Xuid> {
    Ok(SIZE.iter().fold(registry("init", url)?, Xuid::arg))
}

/// Looks at a registry as every command and server sees it.
fn look(fixture: &Fixture, url: &str) -> Result<Left> {
    let show = registry("show", url)?.run()?;
    if show.code != Some(0) {
        let said = show.refused(1)?;
        ensure!(said.contains("there is no registry at") && said.contains("xuid registry init"), "{said}");
        let said = Fixture::refused(fixture.serve_at(url, "data")?)?;
        ensure!(said.contains("xuid registry init"), "{said}");
        return Ok(Left::Nothing);
    }
    if show.stdout.contains("it is closed") {
        let said = Fixture::refused(fixture.serve_at(url, "data")?)?;
        ensure!(said.contains("is closed") && said.contains("xuid registry fence"), "{said}");
        return Ok(Left::Closed);
    }
    ensure!(!show.stdout.contains("damage"), "open, and not complete:\n{}", show.stdout);
    Ok(Left::Complete)
}

/// Runs a command when the session of the one that was killed, and may hold the registry still, has ended.
fn when_free(what: &str, command: impl Fn() -> Result<Xuid>) -> Result<Output> {
    let (said, _) = clock::wait_for(what, SOON, || {
        let output = command()?.run()?;
        let busy = output.code == Some(1) && output.stderr.contains("another fence");
        Ok((!busy).then_some(output))
    })?;
    said.ok()?;
    Ok(said)
}

fn fence(url: &str) -> Result<Output> {
    when_free("a further fence", || Ok(registry("fence", url)?.arg("--yes")))
}

/// How long a command takes that nobody kills.
fn measure(command: Xuid) -> Result<Duration> {
    let begin = clock::now();
    command.run()?.ok()?;
    Ok(begin.elapsed())
}

fn tell(test: &str, whole: Duration, lefts: &[Left]) -> BTreeMap<Left, usize> {
    let mut counts = BTreeMap::new();
    for left in lefts {
        *counts.entry(*left).or_default() += 1;
    }
    println!("{test}: takes {whole:?} when it is not cut; left behind: {counts:?}");
    counts
}

#[test]
fn an_init_that_is_cut_off_leaves_nothing_or_what_a_fence_completes() -> Result<()> {
    let fixture = Fixture::without_registry()?;
    let mut rng = Rng::from_env("init cut off");
    // The first one warms everything up.
    init(&fixture.ensemble.url("/warm"))?.run()?.ok()?;
    let whole = measure(init(&fixture.ensemble.url("/whole"))?)?;
    let mut lefts = Vec::new();
    for round in 0..MOST_ROUNDS {
        if round >= ROUNDS && lefts.contains(&Left::Closed) {
            break;
        }
        let url = fixture.ensemble.url(&format!("/round-{round}"));
        init(&url)?.cut(rng.millis(0, whole.as_millis() as u64 + 5))?;
        let left = look(&fixture, &url)?;
        lefts.push(left);
        if left == Left::Nothing {
            when_free("a further init", || init(&url))?;
        } else if left == Left::Closed {
            let said = fence(&url)?;
            println!("init cut off: {}", said.stdout.trim());
        }
        ensure!(look(&fixture, &url)? == Left::Complete, "round {round}: {left:?} and not completed");
    }
    let counts = tell("init cut off", whole, &lefts);
    ensure!(counts.contains_key(&Left::Closed), "none was cut off in the middle: {counts:?}");
    Ok(())
}

#[test]
fn a_fence_that_is_cut_off_leaves_a_closed_registry_that_a_further_fence_completes() -> Result<()> {
    let fixture = Fixture::without_registry()?;
    let mut rng = Rng::from_env("fence cut off");
    let url = fixture.ensemble.url("/fenced");
    init(&url)?.run()?.ok()?;
    let whole = measure(registry("fence", &url)?.arg("--yes"))?;
    let mut lefts = Vec::new();
    for round in 0..MOST_ROUNDS {
        if round >= ROUNDS && lefts.contains(&Left::Closed) {
            break;
        }
        // A record that only a fence makes good, so that a half-done one would show.
        let damaged = format!("/fenced/w/{}", rng.below(1_000));
        fixture.tamper.delete(&damaged)?;
        registry("fence", &url)?.arg("--yes").cut(rng.millis(10, whole.as_millis() as u64 + 5))?;
        let show = registry("show", &url)?.run()?;
        let left = if show.ok()?.contains("it is closed") { Left::Closed } else { Left::Complete };
        lefts.push(left);
        if left == Left::Closed {
            let said = Fixture::refused(fixture.serve_at(&url, "data")?)?;
            ensure!(said.contains("is closed") && said.contains("xuid registry fence"), "{said}");
        } else {
            // Before it shut anybody out, or when all was done: nothing but the damage may show.
            let findings = show.stdout.lines().filter(|line| line.contains("damage")).count();
            ensure!(findings <= 1, "{}", show.stdout);
        }
        fence(&url)?;
        ensure!(look(&fixture, &url)? == Left::Complete, "round {round}: {left:?} and not completed");
    }
    let counts = tell("fence cut off", whole, &lefts);
    ensure!(counts.contains_key(&Left::Closed), "none was cut off in the middle: {counts:?}");
    Ok(())
}
