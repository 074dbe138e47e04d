//! A part: lives that inherit from each other, their account, and what they add up to.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};

use super::super::Tally;
use super::super::trials::caught;
use super::life::{Legacy, Life};
use super::place::{self, Place};
use super::plan::{End, LIGHT, Plan, Trouble, seed};
use super::points::{self, Kind, Point, Reach};
use crate::oracle::{IssuedVsReceived, Received};
use crate::{Rng, folder};

/// The folder that most lives share.
pub(super) const MAIN: &str = "data";
/// A life that is to die at a point of its own accord is given up after so long; a kill at random it is then.
const PATIENCE: Duration = Duration::from_secs(5);
/// A life that is to die while it stops gets its signal so long after its first id.
const BEFORE_STOP: Duration = Duration::from_millis(150);
/// Two turn-overs and a half.
const IDLE: Duration = Duration::from_millis(2_500);
/// The life after one that died in its first start.
const HEIR: Duration = Duration::from_millis(100);

/// What a part is made of.
pub(super) struct Part {
    kind: Kind,
    nodes: usize,
    pub(super) place: Place,
    pub(super) account: IssuedVsReceived,
    pub(super) tally: Tally,
    /// The last life in the main folder was killed, so the next one's start is a recovery.
    was_killed: bool,
    /// The last id that came.
    last: Option<u64>,
}

impl Part {
    pub(super) fn new(kind: Kind, tally: Tally, first: u64) -> Result<Self> {
        let nodes = place::nodes(first);
        let place = Place::new(kind, nodes)?;
        let account = IssuedVsReceived::default();
        Ok(Self { kind, nodes, place, account, tally, was_killed: false, last: None })
    }

    /// One life. What goes wrong in it is a failure, and the next one begins anew somewhere else.
    pub(super) fn trial(&mut self, trial: u64) -> Result<()> {
        let seed = seed(self.kind, trial);
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(self.kind, trial, &mut rng);
        let is_fresh = plan.point().is_some_and(|point| point.reach == Reach::Fresh);
        let live = || {
            if is_fresh { self.first_start(trial, &plan) } else { self.live(MAIN, &plan, &mut rng) }
        };
        let lived = caught(live);
        self.tally.trials += 1;
        if let Err(error) = lived.and_then(|()| self.account.check().map(drop)) {
            self.tally.fail(format!("seed {seed}, trial {trial}, {}: {error:#}", plan.tell()));
            self.retire();
            self.place = Place::new(self.kind, self.nodes)?;
            (self.account, self.was_killed, self.last) = (IssuedVsReceived::default(), false, None);
        }
        Ok(())
    }

    /// A life that dies in its first start, in a folder of its own, and one that finds what it left. A local folder is
    /// a cluster of its own, and has an account of its own.
    fn first_start(&mut self, trial: u64, plan: &Plan) -> Result<()> {
        let name = format!("fresh-{trial}");
        let is_cluster = self.kind == Kind::Local;
        let main = is_cluster.then(|| std::mem::take(&mut self.account));
        let (was_killed, last) = (std::mem::replace(&mut self.was_killed, false), self.last);
        let lived = self.two_lives(&name, plan);
        self.was_killed = was_killed;
        if is_cluster {
            self.last = last;
        }
        if let Some(main) = main {
            let checked = lived.and_then(|()| self.account.check().map(drop));
            self.close_account();
            self.account = main;
            checked
        } else {
            lived
        }
    }

    fn two_lives(&mut self, name: &str, plan: &Plan) -> Result<()> {
        let mut rng = Rng::new(0);
        self.live(name, plan, &mut rng)?;
        let end = End::Stopped(HEIR);
        let heir =
            Plan { has_crash_points: true, end, jobs: LIGHT, has_company: false, trouble: Trouble::None };
        self.was_killed = true;
        self.live(name, &heir, &mut rng).context("the life after it")?;
        for draft in ["registry.new", "spill.new", "node.json.new"] {
            let left = folder::files(&self.place.folder(name), draft)?;
            ensure!(left.is_empty(), "{left:?} is left behind by a start that died");
        }
        std::fs::remove_dir_all(self.place.folder(name)).context("removing a folder")
    }

    /// A life in this folder, with company if it is to have some.
    pub(super) fn live(&mut self, name: &str, plan: &Plan, rng: &mut Rng) -> Result<()> {
        let data = self.place.folder(name);
        let company = if plan.has_company { Some(self.accompany(&data)?) } else { None };
        self.place.begin(plan.trouble);
        let lived = self.one(&data, plan);
        let struck = self.place.calm(plan.trouble);
        if let Some(fault) = plan.trouble.name() {
            let is_armed = matches!(plan.trouble, Trouble::LostClaim | Trouble::LostReply);
            self.tally.note(fault, u64::from(struck || !is_armed));
        }
        if let Some(company) = company {
            let is_stopped = rng.below(2) == 0;
            let entered = self.enter(if is_stopped { company.stop() } else { company.kill() });
            self.tally.note("second processes in the folder", 1);
            return lived.and(entered);
        }
        lived
    }

    /// Another process in the folder, with clients of its own.
    fn accompany(&mut self, data: &Path) -> Result<Life> {
        let mut company = Life::begin(self.place.release(data)?, None)?;
        let begun = caught(|| company.first_id(&mut self.tally)?.context("nobody kills it, and it is dead"));
        if let Err(why) = begun {
            return Err(self.bury(company, why));
        }
        match company.load(LIGHT) {
            Ok(()) => Ok(company),
            Err(why) => Err(self.bury(company, why)),
        }
    }

    fn one(&mut self, data: &Path, plan: &Plan) -> Result<()> {
        let log = plan.has_crash_points.then(|| self.place.log());
        let mut serve = match &log {
            Some(log) => self.place.with_crash_points(data, log)?,
            None => self.place.release(data)?,
        };
        if let End::Struck(_, armed) = &plan.end {
            serve = serve.env("XUID_CRASH_POINT", armed);
        }
        let mut life = Life::begin(serve, log)?;
        let is_struck = match caught(|| self.course(&mut life, plan)) {
            Ok(is_struck) => is_struck,
            Err(why) => return Err(self.bury(life, why)),
        };
        match &plan.end {
            End::Stillborn(_) | End::Killed(_) => self.killed(life, "kills at random"),
            End::Stopped(_) => {
                let left = life.stop();
                self.tally.note("clean stops", 1);
                self.enter(left)
            }
            End::Struck(point, _) if point.reach == Reach::Stop && !is_struck => {
                let left = life.stop();
                let is_struck = left.status.is_some_and(|status| status.code() != Some(0));
                self.ended(left, point, is_struck)
            }
            End::Struck(point, _) => self.ended(life.kill(), point, is_struck),
        }
    }

    /// A life up to its end. True if it was struck, at a point of its own, before that was brought about.
    fn course(&mut self, life: &mut Life, plan: &Plan) -> Result<bool> {
        if let End::Stillborn(after) = plan.end {
            return life.live(after);
        }
        let begun = life.first_id(&mut self.tally)?;
        if let Some(took) = begun {
            self.recovered(took, plan);
            if plan.trouble == Trouble::LostReply {
                self.place.served(plan.trouble);
            }
            // What an idle second leaves is in the spill a moment later, and a burst then has it back.
            let is_idle = plan.point().is_some_and(|point| point.reach == Reach::Stock);
            if !is_idle || !life.live(IDLE)? {
                life.load(plan.jobs)?;
            }
        }
        match &plan.end {
            End::Killed(after) | End::Stopped(after) | End::Stillborn(after) => self.pass(life, plan, *after),
            End::Struck(..) if begun.is_none() => Ok(true),
            End::Struck(point, _) => match point.reach {
                Reach::Fresh | Reach::Start => Ok(false),
                Reach::Serve | Reach::Stock | Reach::Live | Reach::Cut => self.pass(life, plan, PATIENCE),
                Reach::Stop => self.pass(life, plan, BEFORE_STOP),
            },
        }
    }

    /// A life has its first id: a recovery, if the one before it in the main folder was killed.
    fn recovered(&mut self, took: Duration, plan: &Plan) {
        if !std::mem::replace(&mut self.was_killed, false) {
            return;
        }
        let ms = took.as_millis() as u64;
        self.tally.recovered(ms);
        let name =
            if plan.has_crash_points { "max_recovery_ms_crash_points" } else { "max_recovery_ms_release" };
        self.tally.note(name, ms);
    }

    /// Lets a life go on for so long, and what is planned of trouble happen. True if it was struck.
    fn pass(&self, life: &mut Life, plan: &Plan, time: Duration) -> Result<bool> {
        if let Trouble::Cut(after) = plan.trouble {
            if life.live(after.min(time))? {
                return Ok(true);
            }
            self.place.served(plan.trouble);
            return life.live(time.saturating_sub(after));
        }
        life.live(time)
    }

    fn ended(&mut self, left: Legacy, point: &Point, is_struck: bool) -> Result<()> {
        self.tally.note(&points::note(if is_struck { points::STRUCK } else { points::UNREACHED }, point), 1);
        self.was_killed = left.status.is_none_or(|status| status.code() != Some(0));
        self.enter(left)
    }

    fn killed(&mut self, life: Life, how: &str) -> Result<()> {
        let left = life.kill();
        self.was_killed = true;
        self.tally.note(how, 1);
        self.enter(left)
    }

    fn enter(&mut self, left: Legacy) -> Result<()> {
        left.enter(&mut self.account, &mut self.tally, &mut self.last)
    }

    /// Enters what a life left in which this went wrong, and tells both.
    fn bury(&mut self, life: Life, why: Error) -> Error {
        match self.enter(life.kill()) {
            Ok(()) => why,
            Err(more) => why.context(format!("{more:#}")),
        }
    }

    /// Adds what the account says to the tally.
    fn close_account(&mut self) {
        let balance = self.account.balance();
        self.tally.ids += balance.issued.ids;
        self.tally.duplicates += balance.duplicates();
        self.tally.note("ids in no log", balance.unlogged);
    }

    /// Closes the account for good, after a control: were the last id issued once more, it would be seen.
    pub(super) fn retire(&mut self) {
        self.close_account();
        let before = self.account.balance().duplicates();
        let mut again = Received::default();
        let Some(id) = self.last else { return };
        again.push(id);
        self.account.unlogged(&[again]);
        if self.account.balance().duplicates() == before {
            self.tally.fail("the oracle is blind: a planted duplicate was not seen");
        }
    }
}
