//! The thread that talks to the registry, so that a slow one delays nobody else.
//!
//! The producer sends jobs and collects what was done at its next turn; [`Registrar::run`] does one job without
//! a thread, for whoever drives the engine by hand.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use xuid_spill::SpillId;

use crate::clock::{Clock, Reading};
use crate::sync::lock;
use crate::tenure::{ExtendError, GrantError, TakeError, Tenure, Window, Wish};
use crate::wake::Wake;

/// Something to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Take a worker. The reach is carried through to the answer.
    Take { wish: Wish, reach: u64, cause: Cause },
    /// Extend a held worker's window.
    Extend { worker: u32, start: u64, end: u64, reach: u64 },
    /// Move a spill's mark.
    Grant { spill: SpillId, from: u64, upto: u64 },
    /// Hand the rest of a window back.
    Release { worker: u32, from: u64 },
    /// Leave a worker.
    Forget { worker: u32 },
}

/// Why a worker is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There are fewer than wanted.
    Missing,
    /// The clock went back behind the ones that are held.
    Behind,
}

/// Something that was done.
#[derive(Debug)]
pub(crate) enum Done {
    Taken { result: Result<Window, TakeError>, reach: u64, cause: Cause },
    Extended { worker: u32, result: Result<Window, ExtendError>, reach: u64 },
    Granted { from: u64, upto: u64, result: Result<(), GrantError> },
    Released { worker: u32, problem: Option<String> },
}

/// What the registrar has counted, for stats.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// The registry's wall clock as it was read last, and ours at that moment, until the producer takes it.
    pub(crate) time: Option<(u64, Reading)>,
    pub(crate) reserved: u64,
    pub(crate) conflicts: u64,
    pub(crate) unknown: u64,
    pub(crate) unknown_ours: u64,
}

/// The registry's side of the engine.
pub(crate) struct Registrar {
    tenure: Tenure,
    tally: Arc<Mutex<Tally>>,
    clock: Arc<dyn Clock>,
    reserved: u64,
}

impl Registrar {
    pub(crate) fn new(tenure: Tenure, tally: Arc<Mutex<Tally>>, clock: Arc<dyn Clock>) -> Self {
        Self { tenure, tally, clock, reserved: 0 }
    }

    /// Does one job.
    pub(crate) fn run(&mut self, job: Job) -> Done {
        let done = match job {
            Job::Take { wish, reach, cause } => Done::Taken { result: self.tenure.take(&wish), reach, cause },
            Job::Extend { worker, start, end, reach } => {
                Done::Extended { worker, result: self.tenure.extend(worker, start, end), reach }
            }
            Job::Grant { spill, from, upto } => {
                Done::Granted { from, upto, result: self.tenure.grant(spill, from, upto) }
            }
            Job::Release { worker, from } => {
                let problem = self.tenure.release(worker, from).err().map(|error| error.to_string());
                Done::Released { worker, problem }
            }
            Job::Forget { worker } => {
                self.tenure.forget(worker);
                Done::Released { worker, problem: None }
            }
        };
        self.reserved += u64::from(matches!(
            done,
            Done::Taken { result: Ok(_), .. } | Done::Extended { result: Ok(_), .. }
        ));
        *lock(&self.tally) = Tally {
            time: self.tenure.time().map(|time| (time, self.clock.read())),
            reserved: self.reserved,
            conflicts: self.tenure.conflicts,
            unknown: self.tenure.unknown,
            unknown_ours: self.tenure.unknown_ours,
        };
        done
    }

    /// Does jobs until the sender is gone, then leaves the registry.
    pub(crate) fn serve(mut self, jobs: &Receiver<Job>, done: &Sender<Done>, producer: &Wake) {
        while let Ok(job) = jobs.recv() {
            // In a clean stop nobody waits for the answers any more, and every release is done all the same.
            let _ = done.send(self.run(job));
            producer.wake();
        }
        self.tenure.close();
    }
}
