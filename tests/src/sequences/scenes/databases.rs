//! Databases that are killed or stand still.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{LONG, Played};
use crate::fronts::Front;
use crate::sequences::{Call, Database, Fleet, Kind, Name, Pace, Site, Takers};
use crate::{ClientError, Order, Rng, SchedulerDelay, clock, status};

/// How long a call waits for a store that is away.
const WAIT: Duration = Duration::from_millis(700);
/// From the end of a fault to a number of a name that holds none.
const BACK: Duration = Duration::from_secs(2);
/// Sessions and commits of the servers that a number waits for then, one after the other.
const SESSIONS: u32 = 4;
/// Nobody takes numbers of such a name but the scene.
const NOBODY: Option<usize> = Some(usize::MAX);

/// Two servers on a database, with names that hold enough for so long, and one name for each round that holds nothing.
struct Stage {
    // Before the site, which they need.
    fleet: Fleet,
    takers: Takers,
    site: Site,
    names: Vec<Name>,
    played: Played,
    delay: SchedulerDelay,
}

impl Stage {
    fn set(kind: Kind, rounds: usize, holding: Duration, seed: u64) -> Result<Self> {
        let site = Site::start(kind)?;
        let mut names: Vec<Name> = (0..4).map(|at| Name::new(format!("held-{at}"))).collect();
        names.extend((0..rounds).map(|round| Name { node: NOBODY, ..Name::new(format!("new-{round}")) }));
        let fleet = Fleet::start(&site, 2)?;
        fleet.create(&names)?;
        let pace = Pace { most: 5, pause: Duration::from_millis(4), ..Pace::hard(3) };
        let takers = Takers::start(&fleet.seats(), &names, pace, seed);
        let mut clients = [fleet.client(0)?, fleet.client(1)?];
        clock::wait_until("enough is held", LONG, || {
            for client in &mut clients {
                for name in names.iter().filter(|name| name.node != NOBODY) {
                    let info = client.seq_info(&name.text)?;
                    let lasts = info["hold_ms"].as_str().and_then(|text| text.parse::<u128>().ok());
                    if lasts.is_none_or(|lasts| lasts < holding.as_millis()) {
                        clock::idle(Duration::from_millis(50));
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        })?;
        let delay = SchedulerDelay::watch();
        Ok(Self { fleet, takers, site, names, played: Played::default(), delay })
    }

    fn new_name(&self, round: usize) -> Result<(usize, &str)> {
        let wanted = format!("new-{round}");
        let at = self.names.iter().position(|name| name.text == wanted).context("no such name")?;
        Ok((at, &self.names[at].text))
    }

    /// A name that holds nothing is refused within its wait. While it `is_unknown` whether the store is away or
    /// slow, by another refusal.
    fn check_away(&self, round: usize, is_unknown: bool) -> Result<()> {
        let mut client = self.fleet.client(round % 2)?;
        let begin = clock::now();
        let answer = client.seq_array(self.new_name(round)?.1, 1, WAIT, Order::Ordered);
        let took = begin.elapsed();
        let Err(ClientError::Refused(refusal)) = answer else { bail!("{answer:?}") };
        let is_slow = is_unknown && refusal.status == status::OVERLOADED;
        ensure!(refusal.status == status::STORE_AWAY || is_slow, "{refusal}");
        let limit = self.delay.allow(WAIT + Duration::from_millis(100));
        ensure!(took < limit, "STORE_AWAY came after {took:?}, and the wait was {WAIT:?}");
        Ok(())
    }

    /// A name that holds nothing has numbers soon after the database is back.
    fn check_back(&mut self, round: usize) -> Result<()> {
        let (name, text) = self.new_name(round)?;
        let database = self.site.database.as_ref().context("the store is no database")?;
        let is_over = AtomicBool::new(false);
        let begin = clock::now();
        let (calls, took, bystander) = thread::scope(|scope| {
            let bystander = scope.spawn(|| worst_session_and_commit(database, &is_over));
            let calls = (0..2).map(|node| self.first_number(node, name, text)).collect::<Result<Vec<_>>>();
            let took = begin.elapsed();
            is_over.store(true, Ordering::Release);
            (calls, took, bystander.join())
        });
        let calls = calls?;
        let bystander = bystander.map_err(|_| anyhow!("the bystander panicked"))??;
        let limit = self.delay.allow(BACK) + bystander * SESSIONS;
        ensure!(
            took < limit,
            "numbers came {took:?} after the database was back, and {limit:?} were allowed"
        );
        self.played.account.calls.extend(calls);
        self.played.recoveries.push(took);
        Ok(())
    }

    fn first_number(&self, node: usize, name: usize, text: &str) -> Result<Call> {
        let mut client = self.fleet.client(node)?;
        let asked = clock::now();
        let numbers = client.seq_array(text, 1, LONG, Order::Ordered)?;
        let (life, front, got) = (self.fleet.life(node)?, Front::Xuid, clock::now());
        Ok(Call { name, life, front, is_ordered: true, asked, got, numbers })
    }

    /// Nothing came twice, and no request failed.
    fn end(self) -> Result<Played> {
        let Self { fleet, takers, names, mut played, .. } = self;
        takers.wait_more(1_000, LONG)?;
        played.account.join(takers.stop()?);
        fleet.stop()?;
        played.account.check(&names)?;
        played.account.check_refusals(&[status::COUNT])?;
        ensure!(played.account.missed.iter().all(|missed| missed.refusal.is_some()), "a connection ended");
        Ok(played)
    }
}

/// The longest that the database takes meanwhile for a bystander's session and a commit in it.
fn worst_session_and_commit(database: &Database, is_over: &AtomicBool) -> Result<Duration> {
    let mut worst = Duration::ZERO;
    loop {
        let begin = clock::now();
        let mut sql = database.sql()?;
        sql.exec("CREATE TABLE IF NOT EXISTS bystander (n INT)")?;
        sql.exec("INSERT INTO bystander VALUES (1)")?;
        worst = worst.max(begin.elapsed());
        if is_over.load(Ordering::Acquire) {
            return Ok(worst);
        }
        clock::idle(Duration::from_millis(50));
    }
}

/// The database is killed, so many times.
pub fn database_deaths(kind: Kind, rounds: usize, seed: u64) -> Result<Played> {
    let mut rng = Rng::new(seed);
    let mut stage = Stage::set(kind, rounds, Duration::from_secs(5), rng.word())?;
    for round in 0..rounds {
        stage.takers.wait_more(rng.below(300), LONG)?;
        stage.site.database()?.kill()?;
        stage.check_away(round, false)?;
        stage.site.database()?.restart()?;
        stage.check_back(round)?;
    }
    stage.end()
}

/// The database stands still for so long.
pub fn database_standstill(kind: Kind, lasts: Duration, seed: u64) -> Result<Played> {
    // Takers are faster while the database does nothing: what is held must bear twice their pace.
    let mut stage = Stage::set(kind, 1, 2 * lasts + Duration::from_secs(3), seed)?;
    stage.site.database()?.freeze()?;
    let begin = clock::now();
    stage.check_away(0, true)?;
    clock::idle(lasts.saturating_sub(begin.elapsed()));
    stage.check_away(0, false)?;
    stage.site.database()?.thaw()?;
    stage.check_back(0)?;
    stage.end()
}
