//! The thread that talks to the registry, so that a slow one delays no other thread.
//!
//! The producer sends jobs and collects what was done at its next turn; [`RegistryThread::run`] does one job without
//! a thread, for a test that drives the engine by hand.
//!
//! # Invariants
//! - I1 the registry's time is handed on as of now, with a reading of ours from just after: an adaptor carries its last
//!   sample on by boot time. While the registry does not answer it is not handed on;
//! - I2 every job is answered, whatever becomes of it: a panic over one is a defect, of an adaptor or of ours, and must
//!   not end the renewals of all workers. It costs what the job was to bring, which may have been stored: the producer
//!   is not told, so no id is issued from it, and what comes next reads the record again;
//! - I3 a child that was forked on this thread uses nothing here: the registry, its locks and its seat are its
//!   parent's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xuid_spill::SpillId;

use crate::clock::{Clock, Reading};
use crate::registry::health::{Call, Tally};
use crate::registry::ownership::{
    ExtendError, GrantError, GrantRequest, Ownership, TakeError, Window, WorkerRequest,
};
use crate::registry::provenance::note::Event;
use crate::stats::{Latency, Unknown};
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::fork_word::GenerationWord;
use crate::sys::wake::Wake;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

/// A registry with a connection is looked after so often.
const MAINTAIN: Duration = Duration::from_secs(1);

/// One without is tried so often, so that people hear within two seconds that it is away: this, the second after which a
/// call that hangs is an outage, and what a busy machine takes. It costs some microseconds and writes nothing.
const PROBE: Duration = Duration::from_millis(400);

/// What a job is answered with that had no end.
const PANICKED: &str = "the thread that asks the registry panicked";

/// Something to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Take a worker. The reach is carried through to the answer.
    Take { request: WorkerRequest, reach: u64, cause: Cause },
    /// Extend a held worker's window.
    Extend { worker: u32, start: u64, end: u64, reach: u64 },
    /// Move a spill's mark.
    Grant(GrantRequest),
    /// Move a spill's mark past what is given up, at a stop, when nobody hears the answer any more. If so many copies of this
    /// process were `heard` of, only where one was met since.
    GiveUp { request: GrantRequest, heard: Option<u64> },
    /// Hand the rest of a window back.
    Release { worker: u32, from: u64 },
    /// Leave a worker.
    Forget { worker: u32 },
    /// Leave every worker and have another identity from now on: another copy of this process may go on as the one it
    /// was.
    ResetIdentity,
    /// See whether the registry answers and what its clock shows, as every job does that asks it something.
    Look,
}

impl Job {
    /// The answer if a panic ends it.
    fn unanswered(&self) -> Done {
        let why = || PANICKED.to_owned();
        match *self {
            Self::Take { reach, cause, .. } => {
                Done::Taken { result: Err(TakeError::InDoubt { why: why() }), reach, cause }
            }
            Self::Extend { worker, reach, .. } => {
                Done::Extended { worker, result: Err(ExtendError::Later { why: why() }), reach }
            }
            Self::Grant(GrantRequest { from, .. })
            | Self::GiveUp { request: GrantRequest { from, .. }, .. } => {
                Done::Granted { from, result: Err(GrantError::Later { why: why() }) }
            }
            Self::Release { worker, .. } | Self::Forget { worker } => {
                Done::Released { worker, problem: Some(why()) }
            }
            Self::ResetIdentity => Done::IdentityReset,
            Self::Look => Done::Looked,
        }
    }
}

/// Why a worker is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There are fewer than wanted.
    Missing,
    /// The clock went back behind the ones that are held.
    Behind,
}

/// What of a job its answer does not say.
enum Asked {
    Grant { spill: SpillId },
    Other,
}

impl Asked {
    fn of(job: &Job) -> Self {
        match job {
            Job::Grant(request) if !request.gives_up => Self::Grant { spill: request.spill },
            _ => Self::Other,
        }
    }

    /// What is known with the answer.
    fn event(&self, done: &Done) -> Option<Event> {
        match (self, done) {
            (_, Done::Taken { result: Ok(window), .. } | Done::Extended { result: Ok(window), .. }) => {
                Some(Event::Window { worker: window.worker(), ticks: window.span() })
            }
            (Self::Grant { spill }, Done::Granted { from, result: Ok(upto) }) if from < upto => {
                Some(Event::Grant { spill: (*spill).into(), extents: *from..*upto })
            }
            _ => None,
        }
    }
}

/// Something that was done.
#[derive(Debug)]
pub(crate) enum Done {
    Taken { result: Result<Window, TakeError>, reach: u64, cause: Cause },
    Extended { worker: u32, result: Result<Window, ExtendError>, reach: u64 },
    Granted { from: u64, result: Result<u64, GrantError> },
    Released { worker: u32, problem: Option<String> },
    IdentityReset,
    Looked,
}

/// Where the time of a job is recorded.
fn latency<'a>(tally: &'a mut Tally, done: &Done) -> Option<&'a mut Latency> {
    match done {
        Done::Taken { .. } => Some(&mut tally.claims),
        Done::Extended { .. } => Some(&mut tally.renewals),
        Done::Granted { .. } => Some(&mut tally.marks),
        Done::Released { .. } | Done::IdentityReset | Done::Looked => None,
    }
}

/// The registry's side of the engine.
pub(crate) struct RegistryThread {
    ownership: Ownership,
    tally: Arc<Mutex<Tally>>,
    clock: Arc<dyn Clock>,
    /// The last sample of the registry's time.
    time: Option<u64>,
}

impl RegistryThread {
    pub(crate) fn new(ownership: Ownership, tally: Arc<Mutex<Tally>>, clock: Arc<dyn Clock>) -> Self {
        Self { ownership, tally, clock, time: None }
    }

    /// Does one job, and answers it in any case (I2).
    pub(crate) fn run_whatever_happens(&mut self, job: Job) -> Done {
        self.unless_it_panics(job, |_| true)
    }

    /// As [`run_whatever_happens`](Self::run_whatever_happens) where `is_panic` says that the payload is one: a
    /// simulated kill is none.
    pub(crate) fn unless_it_panics(
        &mut self,
        job: Job,
        is_panic: impl FnOnce(&(dyn Any + Send)) -> bool,
    ) -> Done {
        let unanswered = job.unanswered();
        catch_unwind(AssertUnwindSafe(|| self.run(job))).unwrap_or_else(|payload| {
            if !is_panic(&*payload) {
                resume_unwind(payload);
            }
            self.after_panic(&unanswered);
            let told = format!("{unanswered:?}");
            deferred_log::log(move || {
                tracing::error!(unanswered = %told, "{PANICKED}, and goes on; what it asked for may be wasted");
            });
            unanswered
        })
    }

    fn after_panic(&mut self, unanswered: &Done) {
        let boot = self.boot();
        {
            let tally = &mut *lock(&self.tally);
            tally.panics += 1;
            tally.copies = self.ownership.copies;
            // The next answer of any kind ends it.
            tally.health.brought_nothing(Call::Read, boot, PANICKED);
        }
        self.ownership.after_panic();
        if matches!(unanswered, Done::IdentityReset) {
            // This one must be done, and what it must do comes first in it.
            let _ = catch_unwind(AssertUnwindSafe(|| self.ownership.reset_identity()));
        }
    }

    /// Boot time; 0 where even the clock panics.
    fn boot(&self) -> u64 {
        catch_unwind(AssertUnwindSafe(|| self.clock.read().boot)).unwrap_or(0)
    }

    /// Does one job.
    pub(crate) fn run(&mut self, job: Job) -> Done {
        let begun = self.clock.read();
        let asked = Asked::of(&job);
        if let Job::Release { worker, from } = job {
            // Before it: whatever becomes of it, this process cuts nothing from there on, and another one may have those ticks
            // before a word can be said.
            self.ownership.note(begun.wall / 1_000_000, Event::HandBack { worker, from });
        }
        let done = self.work(job);
        let ended = self.clock.read().boot;
        let took = Duration::from_nanos(ended.saturating_sub(begun.boot));
        let time = self.sample(ended);
        let mut tally = lock(&self.tally);
        if let Some(latency) = latency(&mut tally, &done) {
            latency.record(took);
        }
        let granted =
            matches!(done, Done::Taken { result: Ok(_), .. } | Done::Extended { result: Ok(_), .. });
        tally.reserved += u64::from(granted);
        tally.conflicts = self.ownership.conflicts;
        // Before the answer is sent: the producer looks at it before it uses one.
        tally.copies = self.ownership.copies;
        let (ours, not_ours) = (self.ownership.unknown_ours, self.ownership.unknown_theirs);
        let doubt = self.ownership.unknown.saturating_sub(ours + not_ours);
        tally.unknown = Unknown { ours, not_ours, doubt };
        tally.time = time.or(tally.time);
        drop(tally);
        if let Some(event) = asked.event(&done) {
            self.ownership.note(begun.wall / 1_000_000, event);
        }
        done
    }

    fn work(&mut self, job: Job) -> Done {
        match job {
            Job::Take { request, reach, cause } => {
                Done::Taken { result: self.ownership.take(&request), reach, cause }
            }
            Job::Extend { worker, start, end, reach } => {
                Done::Extended { worker, result: self.ownership.extend(worker, start, end), reach }
            }
            Job::Grant(GrantRequest { spill, from, upto, .. }) => {
                Done::Granted { from, result: self.ownership.grant(spill, from, upto) }
            }
            Job::GiveUp { request: GrantRequest { spill, from, upto, is_erased, .. }, heard } => {
                if heard == Some(self.ownership.copies) {
                    return Done::Looked;
                }
                if heard.is_some() {
                    deferred_log::log(|| {
                        tracing::error!(
                            "a copy of this machine runs, and wrote to the registry as this process, as was found out at its \
                             stop: what is in the spill is to be given up. Until now both may have issued the same ids"
                        );
                    });
                }
                let copies = self.ownership.copies;
                let mut result = self.ownership.grant(spill, from, upto);
                if self.ownership.copies > copies {
                    // It was skipped, since that met a copy.
                    result = self.ownership.grant(spill, from, upto);
                }
                if let Err(error @ (GrantError::Later { .. } | GrantError::Refused { .. })) = &result
                    && !is_erased
                {
                    let error = error.to_string();
                    deferred_log::log(move || {
                        tracing::error!(
                            error,
                            "what is in the spill could not be given up, and another copy of this machine may have issued it: \
                             where that is not for a fence, which did so, remove this process's spill file from the data folder \
                             before it is started again, or those ids can come twice"
                        );
                    });
                }
                Done::Granted { from, result }
            }
            Job::Release { worker, from } => {
                let problem = self.ownership.release(worker, from).err().map(|error| error.to_string());
                Done::Released { worker, problem }
            }
            Job::Forget { worker } => {
                self.ownership.forget(worker);
                Done::Released { worker, problem: None }
            }
            Job::ResetIdentity => {
                self.ownership.reset_identity();
                Done::IdentityReset
            }
            Job::Look => {
                self.ownership.look();
                Done::Looked
            }
        }
    }

    /// What the registry's clock shows now, if that is news: what is reckoned on while the registry is away is none.
    fn sample(&mut self, boot: u64) -> Option<(u64, Reading)> {
        let time = self.ownership.time();
        let away = lock(&self.tally).health.is_silent(boot);
        let news = time.filter(|_| time != self.time && !away);
        self.time = time;
        news.map(|time| (time, self.clock.read()))
    }

    /// Looks after the connection. What waits for the registry is tried at once when it is back.
    fn maintain(&mut self, producer: &Wake) {
        let before = lock(&self.tally).health.is_disconnected();
        self.ownership.maintain();
        if before && !lock(&self.tally).health.is_disconnected() {
            producer.wake();
        }
    }

    fn maintain_whatever_happens(&mut self, producer: &Wake) {
        if catch_unwind(AssertUnwindSafe(|| self.maintain(producer))).is_err() {
            lock(&self.tally).panics += 1;
            deferred_log::log(|| tracing::error!("{PANICKED} over its connection, and goes on"));
        }
    }

    /// Tries whether a change could be made. Whether there is anything to try.
    fn probe(&mut self, producer: &Wake) -> bool {
        let is_out =
            |tally: &Mutex<Tally>, boot| lock(tally).health.outage(boot).map(|outage| outage.refused);
        let before = is_out(&self.tally, self.boot());
        let is_tried = self.ownership.probe();
        // The producer tells what became of it.
        if is_out(&self.tally, self.boot()) != before {
            producer.wake();
        }
        is_tried
    }

    fn probe_whatever_happens(&mut self, producer: &Wake) -> bool {
        let tried = catch_unwind(AssertUnwindSafe(|| self.probe(producer)));
        tried.unwrap_or_else(|_| {
            let boot = self.boot();
            let tally = &mut *lock(&self.tally);
            tally.panics += 1;
            tally.health.brought_nothing(Call::Read, boot, PANICKED);
            deferred_log::log(|| tracing::error!("{PANICKED} over a trial, and goes on"));
            true
        })
    }

    /// Does jobs until the sender is gone, then leaves the registry. A line is a stranger's code, which may fork: the
    /// child goes on here, and ends (I3).
    pub(crate) fn serve(
        mut self,
        jobs: &Receiver<Job>,
        done: &Sender<Done>,
        producer: &Wake,
        generation: &GenerationWord,
    ) {
        let maintained = lock(&self.tally).health.has_connection();
        let mut every = Some(if maintained { MAINTAIN } else { PROBE });
        let mut looked = self.boot();
        loop {
            let job = if let Some(every) = every {
                // Jobs that come faster than that must not keep it from being looked after.
                let since = Duration::from_nanos(self.boot().saturating_sub(looked));
                jobs.recv_timeout(every.saturating_sub(since))
            } else {
                // Nothing to look after: an idle engine costs this thread nothing.
                jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match job {
                Ok(job) => {
                    let (answer, unsaid) = deferred_log::collect(|| self.run_whatever_happens(job));
                    // In a clean stop the producer waits for no answer any more, and every release is done all the
                    // same.
                    let _ = done.send(answer);
                    producer.wake();
                    unsaid.say();
                }
                Err(RecvTimeoutError::Timeout) => {
                    deferred_log::collected(|| {
                        if maintained {
                            self.maintain_whatever_happens(producer);
                        } else if !self.probe_whatever_happens(producer) {
                            every = None;
                        }
                    });
                    looked = self.boot();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if generation.forked() {
                // Not dropped: an adaptor would take leave in its parent's name, or wait for threads that are its
                // parent's.
                std::mem::forget(self);
                return;
            }
        }
        deferred_log::collected(|| self.close());
    }

    /// Leaves the registry.
    pub(crate) fn close(&mut self) {
        self.ownership.close();
    }
}
