//! Many lives of one folder, most of them ended by a clean stop at a random moment under load. (Lives ended by `kill
//! -9` are the campaign `kills`.)

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{HEAVY, Job, Ledger, Load, Order, Rng, Serve, Server, Work, clock, folder};

/// Every ninth life, and every third that is to be killed, idles this long first, so that land reaches the spill and
/// the next life finds it there.
const IDLE: Duration = Duration::from_secs(4);

/// What the lives added up to.
#[derive(Default)]
struct Campaign {
    ledger: Ledger,
    first_id: Vec<Duration>,
    last_first: u64,
    replayed: f64,
    lives_that_replayed: u64,
    refusals: u64,
}

#[test]
fn no_id_comes_twice_over_lives_that_stop_cleanly_under_load() -> Result<()> {
    let mut rng = Rng::from_env("clean stops");
    let home = TempDir::new()?;
    let data = home.path().join("data");
    let mut campaign = Campaign::default();
    let lives = 45;
    for life in 1..=lives {
        // What a clean stop hands back is taken again at once, by the same worker: the tick that was begun, the
        // window's rest and the spill's end. A crash now and then, so that both kinds of end meet both.
        let end = if rng.below(5) == 0 { End::Kill } else { End::Stop };
        campaign.live(&data, life, &mut rng, end).with_context(|| format!("life {life} of {lives}"))?;
    }
    campaign.verdict(lives)
}

#[test]
fn a_first_start_cut_off_at_any_moment_leaves_a_folder_that_serves() -> Result<()> {
    let mut rng = Rng::from_env("first starts");
    let home = TempDir::new()?;
    let mut begun = 0;
    for number in 0..60 {
        let data = home.path().join(format!("data-{number}"));
        // A first start takes some 20 ms from exec to the first id: the kill falls before, into or after genesis.
        Serve::new(&data)?.stillborn(rng.millis(0, 25))?;
        begun += u32::from(data.exists());
        let server = Server::start(&data).with_context(|| format!("folder {number}"))?;
        server.client()?.next(Order::Any)?;
        let left = folder::files(&data, "registry.new")?;
        ensure!(left.is_empty(), "{left:?} is left behind by a start that died");
    }
    println!("first starts: {begun} of 60 had begun to write");
    ensure!(begun > 0, "every start was killed before it did anything");
    Ok(())
}

/// How a life ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    Stop,
}

impl Campaign {
    /// One life: start, first id, perhaps an idle while, load, death.
    fn live(&mut self, data: &Path, life: u64, rng: &mut Rng, end: End) -> Result<()> {
        let server = Server::start(data)?;
        let first = server.client()?.next(Order::Any)?;
        self.first_id.push(server.born().elapsed());
        self.ledger.add_id(first);
        self.last_first = first;
        let idles = life.is_multiple_of(if end == End::Kill { 3 } else { 9 });
        if idles {
            clock::idle(IDLE);
        }
        let load = Load::start(server.addr, if idles { &LIGHT } else { HEAVY });
        let life_time = rng.millis(20, 600);
        clock::idle(life_time / 2);
        // Read while it lives: what it replays after this moment is not counted.
        let before = server.replayed()?;
        clock::idle(life_time / 2);
        let log = server.end(end == End::Stop)?;
        for result in load.join()? {
            self.refusals += result.refusals;
            self.ledger.add_received(&result.received);
        }
        self.replayed += before;
        self.lives_that_replayed += u64::from(before > 0.0);
        ensure!(!log.contains("panicked"), "{log}");
        self.ledger.check()?;
        Ok(())
    }

    fn verdict(mut self, lives: u64) -> Result<()> {
        self.first_id.sort_unstable();
        let at = |share: u64| self.first_id[(lives * share / 100).min(lives - 1) as usize];
        let (median, p99, max) = (at(50), at(99), at(100));
        let report = self.ledger.check()?;
        println!("lives: | lives | ids | duplicates | workers | replayed | lives that replayed | refusals |");
        println!(
            "lives: | {lives} | {} | {} | {} | {} | {} | {} |",
            report.ids,
            report.duplicates,
            report.workers.len(),
            self.replayed,
            self.lives_that_replayed,
            self.refusals
        );
        println!("lives: first id after exec: median {median:?}, p99 {p99:?}, max {max:?}");
        ensure!(report.ids > lives * 10_000, "hardly any load: {report}");
        ensure!(
            self.replayed > 0.0,
            "nothing was ever replayed, so the campaign proves nothing about the spill"
        );
        ensure!(max < Duration::from_secs(3), "the slowest first id took {max:?}");
        // The control: were the first id of the last life issued once more, it would be seen.
        self.ledger.add_id(self.last_first);
        ensure!(self.ledger.check().is_err(), "the oracle is blind");
        Ok(())
    }
}

/// 8 connections that leave most of the land to the spill.
const LIGHT: [Job; 8] = [
    light(Work::Next(1), Order::Any),
    light(Work::Next(8), Order::Any),
    light(Work::Next(1), Order::Fresh),
    light(Work::Next(4), Order::Ordered),
    light(Work::Array(10), Order::Any),
    light(Work::Array(50), Order::Fresh),
    light(Work::Runs(100), Order::Any),
    light(Work::Runs(100), Order::Ordered),
];

const fn light(work: Work, order: Order) -> Job {
    Job::gently(work, order, Duration::from_millis(5))
}
