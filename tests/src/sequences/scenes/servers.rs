//! Servers that come and go.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{LONG, Played, one};
use crate::fronts::Front;
use crate::sequences::{Account, Call, Fleet, Kind, Name, Pace, Site, Takers};
use crate::{Rng, SchedulerDelay, folder, status};

/// Four servers and eight clients take numbers of fifty names.
pub fn many_servers(kind: Kind, numbers: u64, seed: u64) -> Result<Account> {
    let site = Site::start(kind)?;
    let (fleet, names) = (Fleet::start(&site, 4)?, Name::of_every_kind(50));
    fleet.create(&names)?;
    let takers = Takers::start(&fleet.seats(), &names, Pace { most: 400, ..Pace::hard(2) }, seed);
    takers.wait_more(numbers, LONG)?;
    let account = takers.stop()?;
    account.check(&names)?;
    // Numbers of one run are fewer near the end of a segment, and one name ends.
    account.check_refusals(&[status::COUNT, status::EXHAUSTED])?;
    let last = names.iter().position(|name| name.last == 2_000).context("no name ends")?;
    let ended = account.missed.iter().any(|missed| {
        missed.name == last && missed.refusal.as_ref().is_some_and(|(status, _)| *status == status::EXHAUSTED)
    });
    ensure!(ended, "no call met the end of its name");
    fleet.stop()?;
    Ok(account)
}

/// Two servers with a client at each of their fronts, one of which is killed in each round. Beside names of both each
/// has one of its own: what is missing there between two lives is the gap of a kill.
pub fn kills(kind: Kind, rounds: usize, seed: u64) -> Result<Played> {
    const CLIENTS: usize = Front::ALL.len();
    let (site, mut rng, delay) = (Site::start(kind)?, Rng::new(seed), SchedulerDelay::watch());
    let mut names = Name::of_every_kind(10);
    let common = names.len();
    names.extend((0..2).map(|node| Name { step: 100, node: Some(node), ..Name::new(format!("own-{node}")) }));
    let own = |node: usize| common + node;
    let mut fleet = Fleet::start(&site, 2)?;
    fleet.create(&names)?;
    names.push(Name::of_ids());
    let mut played = Played::default();
    let pace = Pace { most: 50, pause: Duration::from_millis(1), ..Pace::hard(CLIENTS) };
    let takers = Takers::start(&fleet.seats(), &names, pace, rng.word());
    let mut lives = [vec![0], vec![1]];
    for node in 0..2 {
        played.account.calls.push(one(&fleet, &names, (node, own(node)))?);
    }
    for _ in 0..rounds {
        takers.wait_more(rng.below(5_000), LONG)?;
        let node = rng.below(2) as usize;
        fleet.end(node, false)?;
        let born = fleet.start_node(&site, node)?.born();
        let first = one(&fleet, &names, (node, own(node)))?;
        played.recoveries.push(first.got - born);
        lives[node].push(first.life);
        played.account.calls.push(first);
    }
    takers.wait_more(5_000, LONG)?;
    played.account.join(takers.stop()?);
    fleet.stop()?;
    played.account.check(&names)?;
    played.account.check_refusals(&[status::COUNT, status::EXHAUSTED])?;
    for front in Front::ALL {
        for is_of_ids in [false, true] {
            let is_one = |call: &Call| call.front == front && names[call.name].is_of_ids == is_of_ids;
            ensure!(played.account.calls.iter().any(is_one), "nothing came by {front:?}");
        }
    }
    for (node, lives) in lives.iter().enumerate() {
        check_gaps(
            &played.account,
            (own(node), &names[own(node)]),
            lives,
            u64::from(pace.most) * CLIENTS as u64,
        )?;
    }
    let slowest = played.slowest();
    ensure!(slowest < delay.allow(Duration::from_secs(1)), "a first number came after {slowest:?}");
    Ok(played)
}

/// What is missing from one life's first number to the next one's is what the server held, and what it issued and nobody
/// heard of. `waiting` is the most that callers waited for.
fn check_gaps(account: &Account, (at, name): (usize, &Name), lives: &[usize], waiting: u64) -> Result<()> {
    let unheard = |life: usize| -> u64 {
        let mine = account.missed.iter().filter(|missed| missed.name == at && missed.life == life);
        mine.filter(|missed| missed.refusal.is_none()).map(|missed| u64::from(missed.count)).sum()
    };
    let numbers: Vec<Vec<u64>> = lives.iter().map(|life| account.numbers(at, Some(*life))).collect();
    let first = |at: usize| numbers[at].first().with_context(|| format!("life {} got nothing", lives[at]));
    for next in 1..lives.len() {
        let (this, answered) = (next - 1, numbers[next - 1].len() as u64);
        let gap = first(next)?.checked_sub(first(this)? + answered).context("lives that overlap")?;
        let issued = answered + unheard(lives[this]);
        let held = (2 * name.step).max(4 * issued);
        let bound = held + unheard(lives[this]) + unheard(lives[next]) + waiting;
        ensure!(
            gap <= bound,
            "{}: a gap of {gap} after {issued} were issued; {bound} is the bound",
            name.text
        );
    }
    Ok(())
}

/// One server that is stopped and started under load: nothing is missing.
pub fn restarts(kind: Kind, rounds: usize, seed: u64) -> Result<Played> {
    let (site, mut rng, delay) = (Site::start(kind)?, Rng::new(seed), SchedulerDelay::watch());
    let names = [
        Name::new("plain"),
        Name { step: 7, ..Name::new("small") },
        Name { increment: 3, remainder: 1, ..Name::new("odd") },
        Name { is_strict: true, ..Name::new("strict") },
    ];
    let mut fleet = Fleet::start(&site, 1)?;
    fleet.create(&names)?;
    let mut played = Played::default();
    let pace = Pace { most: 50, pause: Duration::from_millis(1), is_dense: true, ..Pace::hard(4) };
    let takers = Takers::start(&fleet.seats(), &names, pace, rng.word());
    for _ in 0..rounds {
        takers.wait_more(1 + rng.below(3_000), LONG)?;
        fleet.end(0, true)?;
        let born = fleet.start_node(&site, 0)?.born();
        let first = one(&fleet, &names, (0, 0))?;
        played.recoveries.push(first.got - born);
        played.account.calls.push(first);
    }
    takers.wait_more(3_000, LONG)?;
    played.account.join(takers.stop()?);
    fleet.stop()?;
    played.account.check(&names)?;
    played.account.check_refusals(&[status::SHUTTING_DOWN])?;
    // A strict name gives up what the call that it was granted for does not take.
    for (at, name) in names.iter().enumerate().filter(|(_, name)| !name.is_strict) {
        let numbers = played.account.numbers(at, None);
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let (text, answered) = (&name.text, numbers.len() as u64);
        ensure!(first == 1, "{text} begins with {first}");
        ensure!((last - first) / name.increment + 1 == answered, "{text}: {last} is the {answered}th number");
    }
    let slowest = played.slowest();
    ensure!(slowest < delay.allow(Duration::from_secs(1)), "a first number came after {slowest:?}");
    Ok(played)
}

/// What a clean stop saved is put back after it was used, and copied to another server.
pub fn put_back(kind: Kind, seed: u64) -> Result<Account> {
    const SAVED: &str = "sequences.rest-";
    let (site, names) = (Site::start(kind)?, [Name::new("plain"), Name { step: 7, ..Name::new("small") }]);
    let mut fleet = Fleet::start(&site, 2)?;
    fleet.create(&names)?;
    fleet.end(1, true)?;
    let takers = Takers::start(&fleet.seats(), &names, Pace { most: 50, ..Pace::hard(2) }, seed);
    let take = || takers.wait_more(1_000, LONG);
    take()?;
    fleet.end(0, true)?;
    let saved = folder::files(&site.folder(0), SAVED)?;
    ensure!(!saved.is_empty(), "a clean stop saved nothing");
    let copies: Vec<(_, Vec<u8>)> =
        saved.into_iter().map(|path| fs::read(&path).map(|bytes| (path, bytes))).collect::<Result<_, _>>()?;
    // Used once by right, and then by its copies, in this folder and in another.
    for cleanly in [false, true, false] {
        fleet.start_node(&site, 0)?;
        take()?;
        fleet.end(0, cleanly)?;
        for (path, bytes) in &copies {
            fs::write(path, bytes)?;
            if site.folder(1) != site.folder(0) {
                fs::write(site.folder(1).join(path.file_name().context("a file without a name")?), bytes)?;
            }
        }
        fleet.start_node(&site, 1)?;
        take()?;
        fleet.end(1, cleanly)?;
    }
    fleet.start_node(&site, 0)?;
    fleet.start_node(&site, 1)?;
    take()?;
    let account = takers.stop()?;
    account.check(&names)?;
    Ok(account)
}
