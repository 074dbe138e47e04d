//! Databases that go back: a replica that lags is promoted, two primaries are alive, an old dump is restored.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{LONG, Played};
use crate::fronts::Front;
use crate::sequences::{Call, Database, Fleet, Kind, Name, Pace, Site, Takers};
use crate::{Client, ClientError, MariaDb, Order, Postgres, SchedulerDelay, Xuid, clock, status};

/// From the end of the fault to numbers of every name, at every server.
const BACK: Duration = Duration::from_secs(5);
/// A grant has no more numbers, so that servers ask all the time and hold little.
const STEP_MAX: u32 = 50;
/// More than a server holds of a name: four of those, and what is asked for.
const MORE: u32 = 300;
/// No number is as high.
const ABOVE: &str = "10000000";

/// How commits are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The primary is killed, and a replica that lags becomes the primary.
    Promotion,
    /// A replica that lags becomes a second primary, and one of the two servers uses that.
    TwoPrimaries,
    /// The rows of an old dump replace those that are there.
    OldDump,
}

/// What keeps numbers from coming twice then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// The witness, on an ensemble.
    Witness,
    /// Servers notice, and wait for the command.
    Fence,
    /// Nothing: this shows that the attack is one.
    Nothing,
}

/// A primary, which the site has, and its replica.
struct Pair {
    site: Site,
    replica: Database,
    both: String,
}

impl Pair {
    fn start(kind: Kind) -> Result<Self> {
        let (primary, replica, both);
        match kind {
            Kind::Postgres => {
                let first = Postgres::start(&[])?;
                let second = first.standby()?;
                both = format!("postgres://postgres@{},{}/postgres", first.addr(), second.addr());
                (primary, replica) = (Database::Postgres(first), Database::Postgres(second));
            }
            Kind::MariaDb => {
                let first = MariaDb::start(&["--log-bin=bin", "--server-id=1", "--sync-binlog=1"])?;
                let second = MariaDb::start(&["--server-id=2", "--read-only=1"])?;
                let port = first.addr().port();
                second.sql()?.exec(&format!(
                    "CHANGE MASTER TO master_host='127.0.0.1', master_port={port}, master_user='root', \
                     master_use_gtid=slave_pos"
                ))?;
                second.sql()?.exec("START SLAVE")?;
                both = format!("mysql://root@{},{}/test", first.addr(), second.addr());
                (primary, replica) = (Database::MariaDb(first), Database::MariaDb(second));
            }
            Kind::Folder | Kind::ZooKeeper => bail!("{kind:?} has no replica"),
        }
        let mut site = Site::on(Some(primary), true)?;
        site.set_sequences(&both);
        site.add_arguments(&["--sequence-step-max", &STEP_MAX.to_string()]);
        Ok(Self { site, replica, both })
    }

    /// Waits until the replica has all rows.
    fn wait_rows(&self, names: usize) -> Result<()> {
        let mut sql = self.replica.sql()?;
        clock::wait_until("the replica has the rows", LONG, || {
            Ok(sql.number("SELECT count(*) FROM xuid_sequence").is_ok_and(|rows| rows == names as u64))
        })?;
        Ok(())
    }

    /// What is committed from now on does not reach the replica.
    fn cut(&self) -> Result<()> {
        let mut sql = self.replica.sql()?;
        if matches!(self.replica, Database::MariaDb(_)) {
            return sql.exec("STOP SLAVE");
        }
        sql.exec("ALTER SYSTEM SET primary_conninfo = ''")?;
        sql.exec("SELECT pg_reload_conf()")?;
        clock::wait_until("the replica is cut off", LONG, || {
            Ok(sql.number("SELECT count(*) FROM pg_stat_wal_receiver")? == 0)
        })?;
        Ok(())
    }

    /// Makes the replica a primary.
    fn promote(&self) -> Result<()> {
        match &self.replica {
            Database::Postgres(server) => server.promote(),
            Database::MariaDb(server) => server.sql()?.exec("SET GLOBAL read_only = 0"),
        }
    }
}

/// The database loses commits while two servers take from it.
pub fn store_goes_back(kind: Kind, loss: Loss, against: Against, seed: u64) -> Result<Played> {
    let (mut pair, mut names) = (Pair::start(kind)?, Name::of_every_kind(8));
    for name in &mut names {
        (name.step, name.last) = (20, i64::MAX as u64);
    }
    match against {
        Against::Witness => {}
        Against::Fence => pair.site.add_arguments(&["--sequence-witness", "none"]),
        Against::Nothing => {
            pair.site.add_arguments(&["--sequence-witness", "none", "--sequence-failover", "lossless"]);
        }
    }
    let mut fleet = Fleet::start(&pair.site, 2)?;
    fleet.create(&names)?;
    pair.wait_rows(names.len())?;
    let pace = Pace { most: 10, pause: Duration::from_millis(2), ..Pace::hard(3) };
    let takers = Takers::start(&fleet.seats(), &names, pace, seed);
    takers.wait_more(1_000, LONG)?;
    if loss == Loss::OldDump {
        let table = "CREATE TABLE dump AS SELECT name, next FROM xuid_sequence";
        pair.site.database()?.sql()?.exec(table)?;
    } else {
        pair.cut()?;
    }
    takers.wait_more(3_000, LONG)?;
    let delay = SchedulerDelay::watch();
    // A server that lives uses no grant below what it was granted before, and raises the mark.
    let starts_anew: &[usize] =
        if against == Against::Nothing && loss != Loss::TwoPrimaries { &[0, 1] } else { &[] };
    for node in starts_anew {
        fleet.end(*node, false)?;
    }
    let mut begin = lose(&mut pair, &mut fleet, loss)?;
    for node in starts_anew {
        fleet.start_node(&pair.site, *node)?;
    }
    if against == Against::Fence {
        check_behind(&fleet, &names)?;
        fence(&pair.both)?;
        begin = clock::now();
    }
    let mut played = Played::default();
    played.account.calls = take_all(&fleet, &names)?;
    played.recoveries.push(begin.elapsed());
    takers.wait_more(3_000, LONG)?;
    played.account.join(takers.stop()?);
    fleet.stop()?;
    if against == Against::Nothing {
        ensure!(played.account.twice(&names).is_some(), "nothing came twice, so the attack is none");
        return Ok(played);
    }
    played.account.check(&names)?;
    played.account.check_refusals(&[
        status::COUNT,
        status::OVERLOADED,
        status::STORE_AWAY,
        status::STORE_BEHIND,
    ])?;
    let slowest = played.slowest();
    ensure!(slowest < delay.allow(BACK), "numbers of all names came after {slowest:?}");
    Ok(played)
}

/// Numbers of every name at every server, more than a server holds. All are asked for at once.
fn take_all(fleet: &Fleet, names: &[Name]) -> Result<Vec<Call>> {
    let mut askers = Vec::new();
    for node in 0..2 {
        for at_name in names.iter().enumerate() {
            askers.push((fleet.life(node)?, fleet.client(node)?, at_name));
        }
    }
    thread::scope(|scope| {
        let askers: Vec<_> = askers
            .into_iter()
            .map(|(life, mut client, (at, name))| {
                let count = if name.is_strict { STEP_MAX } else { MORE };
                scope.spawn(move || take(&mut client, (at, name), life, count))
            })
            .collect();
        askers.into_iter().map(|asker| asker.join().ok().context("a thread panicked")?).collect()
    })
}

/// So many numbers, as soon as there are any again.
fn take(client: &mut Client, (at, name): (usize, &Name), life: usize, count: u32) -> Result<Call> {
    let (mut asked, wait) = (clock::now(), Duration::from_secs(1));
    let (numbers, _) = clock::wait_for("numbers come", LONG, || {
        asked = clock::now();
        match client.seq_array(&name.text, count, wait, Order::Ordered) {
            Ok(numbers) => Ok(Some(numbers)),
            Err(ClientError::Refused(refusal)) if refusal.is_retryable() => Ok(None),
            Err(error) => Err(error.into()),
        }
    })?;
    let (front, got) = (Front::Xuid, clock::now());
    Ok(Call { name: at, life, front, is_ordered: true, asked, got, numbers })
}

/// Raises all marks, once more where nobody knows what became of it: a primary that was just promoted is slow.
fn fence(url: &str) -> Result<()> {
    let fence = || Xuid::new(["sequence", "fence", url, "--yes", "--above", ABOVE])?.run();
    let said = fence()?;
    if said.stderr.contains("nobody knows whether the store made the change") {
        return fence()?.ok().map(drop);
    }
    said.ok().map(drop)
}

/// Loses what was committed since the cut or the dump. When that was over.
fn lose(pair: &mut Pair, fleet: &mut Fleet, loss: Loss) -> Result<std::time::Instant> {
    match loss {
        Loss::Promotion => {
            pair.site.database()?.kill()?;
            pair.promote()?;
        }
        Loss::TwoPrimaries => {
            pair.promote()?;
            pair.site.set_sequences(&pair.replica.url());
            fleet.end(1, false)?;
            fleet.start_node(&pair.site, 1)?;
        }
        Loss::OldDump => {
            let restore = "UPDATE xuid_sequence SET next = \
                           (SELECT dump.next FROM dump WHERE dump.name = xuid_sequence.name)";
            let mut sql = pair.site.database()?.sql()?;
            // Grants lock rows in another order: a database may end the restore as a deadlock.
            clock::wait_until("the dump is back", LONG, || match sql.exec(restore) {
                Err(error) if format!("{error:#}").contains("eadlock") => Ok(false),
                done => done.map(|()| true),
            })?;
        }
    }
    Ok(clock::now())
}

/// What is held is used up, and then every name is refused, at every server.
fn check_behind(fleet: &Fleet, names: &[Name]) -> Result<()> {
    for node in 0..2 {
        let mut client = fleet.client(node)?;
        for name in names {
            clock::wait_until("its numbers end", LONG, || {
                let answer =
                    client.seq_array(&name.text, STEP_MAX, Duration::from_millis(100), Order::Ordered);
                let Err(ClientError::Refused(refusal)) = answer else { return Ok(false) };
                Ok(refusal.status == status::STORE_BEHIND)
            })?;
        }
    }
    Ok(())
}
