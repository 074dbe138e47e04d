//! Measuring on some threads: all begin together, all end at the same deadline, and a rate is the sum of what each did
//! over its own time.

use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::peers;
use crate::subject::{Fixture, Kind, Subject};
pub use crate::timing::now;
use crate::timing::{BatchLength, Interval, collect, rate as rate_of};

/// Ids that a thread collects of a subject before it is timed.
const CHECKED_IDS: u64 = 100_000;
/// How long it does so at most.
const CHECK_TIME: Duration = Duration::from_millis(100);

/// Calls a second on `threads` threads for `span`, each with a state of its own from `make`; `run` makes as many calls
/// as it is told.
///
/// # Panics
/// If one of the threads does: without it the figure would be of fewer.
pub fn rate<S>(
    threads: usize,
    span: Duration,
    make: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, u64) + Sync,
) -> f64 {
    let work =
        |state: &mut S, interval| rate_of(|calls| run(state, calls), interval, &mut BatchLength::new());
    together(threads, span, make, work).into_iter().sum()
}

/// What `work` returned on each of so many threads. All are told the same interval, once each has made its state.
///
/// # Panics
/// If one of the threads does.
pub(crate) fn together<S, T: Send>(
    threads: usize,
    span: Duration,
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, Interval) -> T + Sync,
) -> Vec<T> {
    let (make, work) = (|_| make(), &work);
    std::thread::scope(|scope| {
        let mut team = Team::start(scope, threads, &make);
        let begun = team.all(|_| ()).and_then(|_| {
            let interval = Interval::soon(span);
            team.all(move |state| work(state, interval))
        });
        begun.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// What a thread of a team does next.
type Task<'s, S> = Box<dyn FnOnce(&mut S) + Send + 's>;

/// Threads that have a state each, and do what they are told until nobody can tell them more.
pub(crate) struct Team<'s, S>(Vec<(Sender<Task<'s, S>>, ScopedJoinHandle<'s, ()>)>);

impl<'s, S: 's> Team<'s, S> {
    /// `make` is called on each thread, with the thread's number.
    pub(crate) fn start(
        scope: &'s Scope<'s, '_>,
        threads: usize,
        make: &'s (impl Fn(usize) -> S + Sync),
    ) -> Self {
        let start = |index| {
            let (teller, told) = channel::<Task<'s, S>>();
            let work = move || {
                let mut state = make(index);
                for task in told {
                    task(&mut state);
                }
            };
            (teller, scope.spawn(work))
        };
        Self((0..threads).map(start).collect())
    }

    /// What `work` returned on each thread, once all are done; else what one of them panicked with.
    pub(crate) fn all<T: Send + 's>(
        &mut self,
        work: impl Fn(&mut S) -> T + Copy + Send + 's,
    ) -> std::thread::Result<Vec<T>> {
        let (answer, answers) = channel();
        for (teller, _) in &self.0 {
            let answer = answer.clone();
            // A thread that is gone has panicked, and drops its task; so does one that panics at it.
            let _ = teller.send(Box::new(move |state| _ = answer.send(work(state))));
        }
        drop(answer);
        let done: Vec<T> = answers.iter().collect();
        if done.len() == self.0.len() {
            return Ok(done);
        }
        let mut panicked = Ok(());
        for (teller, thread) in self.0.drain(..) {
            drop(teller);
            panicked = panicked.and(thread.join());
        }
        panicked.map(|()| done)
    }
}

/// A subject that is set up, and whose ids two threads have looked at.
///
/// # Errors
/// There is none of that name, or it is ours and repeats ids.
pub(crate) fn checked(name: &str) -> Result<(Subject, Box<dyn Fixture>)> {
    let Some(subject) = peers::named(name) else { bail!("{name} is no subject") };
    let fixture = (subject.set_up)();
    let ids = together(
        2,
        CHECK_TIME,
        || fixture.worker(),
        |worker, interval| {
            let per_call = subject.ids_per_call;
            collect(&mut **worker, per_call, CHECKED_IDS, interval.deadline, &mut BatchLength::new())
        },
    );
    let mut ids = ids.concat();
    let twice = duplicates(&mut ids);
    ensure!(!ids.is_empty(), "{name} makes no ids");
    ensure!(twice == 0 || subject.kind != Kind::Ours, "{name} repeated {twice} of {} ids", ids.len());
    Ok((subject, fixture))
}

/// Ids that came before, in any order.
pub(crate) fn duplicates(ids: &mut [u64]) -> u64 {
    ids.sort_unstable();
    ids.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64
}

/// What the processors' time went to since the machine was started, in ticks: the whole, and what the host of a virtual
/// machine gave to somebody else while this one had work.
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Until now; nothing where the system does not say.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::of(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// `cpu`, then user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user and nice already.
    fn of(stat: &str) -> Option<Self> {
        let words = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = words.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    /// The share that was stolen since `earlier`.
    #[must_use]
    pub fn stolen_since(self, earlier: Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_of_a_kind_are_two_duplicates() {
        assert_eq!(duplicates(&mut [7, 1, 7, 3, 7, 1]), 3);
        assert_eq!(duplicates(&mut []), 0);
    }

    #[test]
    fn what_the_host_took_is_a_share_of_all_ticks() {
        let earlier = Ticks::of("cpu  100 0 0 300 0 0 0 10 7 0\ncpu0 1 1\n").unwrap();
        let later = Ticks::of("cpu  150 0 0 320 0 0 0 40 9 0\n").unwrap();
        assert!((later.stolen_since(earlier) - 0.3).abs() < 1e-9);
        assert!(earlier.stolen_since(earlier) < 1e-9);
        for other in ["", "intr 7", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x"] {
            assert!(Ticks::of(other).is_none(), "{other}");
        }
    }

    /// One call takes longer than the whole measurement, and is neither left out nor waited for by a batch of them.
    #[test]
    fn threads_with_slow_calls_end_at_the_deadline_as_well() {
        let (call, span) = (Duration::from_millis(3), Duration::from_millis(20));
        let begin = now();
        let run = |(): &mut (), calls| (0..calls).for_each(|_| std::thread::sleep(call));
        let rate = rate(2, span, || (), run);
        let took = begin.elapsed();
        assert!(took < span * 10, "{took:?}");
        assert!((1.0..=2.0 / call.as_secs_f64()).contains(&rate), "{rate} calls a second");
    }

    #[test]
    fn a_thread_that_panics_is_no_thread_that_did_nothing() {
        let spoiled = |spoil_made: bool| {
            let turn = std::sync::atomic::AtomicBool::new(true);
            let first = || turn.swap(false, std::sync::atomic::Ordering::Relaxed);
            let make = || assert!(!(spoil_made && first()), "not made");
            let run = |(): &mut (), _| assert!(!first(), "out of land");
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rate(2, Duration::from_millis(5), make, run)
            }))
        };
        assert!(spoiled(false).is_err());
        assert!(spoiled(true).is_err());
    }
}
