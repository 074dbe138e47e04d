//! Connections that remember when each answer came: how long who waited, who was refused, and in which order ordered
//! ids came over all connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::client::{Client, ClientError, Order};
use crate::clock;
use crate::load::{Job, Span, request};
use crate::oracle::{Ledger, Received};

/// A client that was refused asks again after the time it was told, but not later than this, so that the end of
/// refusals is seen.
const MOST_WAIT: Duration = Duration::from_millis(20);

/// What came of one request, or of one batch of NEXT.
#[derive(Debug, Clone)]
struct Answer {
    asked: Instant,
    came: Instant,
    /// The lowest and the highest id, if any came.
    ids: Option<(u64, u64)>,
    refusal: Option<String>,
}

/// What one connection has seen.
#[derive(Debug)]
struct Line {
    order: Order,
    answers: Vec<Answer>,
    received: Received,
}

/// Running connections.
#[derive(Debug)]
#[must_use]
pub struct Timeline {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Line>>>,
}

impl Timeline {
    /// One thread and one connection a job.
    pub fn start(addr: SocketAddr, jobs: &[Job]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |job: &Job| {
            let (job, stop) = (*job, Arc::clone(&stop));
            thread::spawn(move || follow(addr, job, &stop))
        };
        let threads = jobs.iter().map(spawn).collect();
        Self { stop, threads }
    }

    /// Ends the connections and records every id.
    pub fn finish(self, ledger: &mut Ledger) -> Result<Told> {
        self.stop.store(true, Ordering::Relaxed);
        let mut lines = Vec::new();
        for thread in self.threads {
            let line = thread.join().map_err(|_| anyhow!("a client's thread panicked"))??;
            ledger.add_received(&line.received);
            lines.push(line);
        }
        Ok(Told { lines })
    }
}

fn follow(addr: SocketAddr, job: Job, stop: &AtomicBool) -> Result<Line> {
    let mut line = Line { order: job.order, answers: Vec::new(), received: Received::default() };
    let mut client = Client::connect(addr)?;
    while !stop.load(Ordering::Relaxed) {
        let mut span = Span { low: u64::MAX, high: 0 };
        let asked = clock::now();
        let result = request(&mut client, job, &mut line.received, &mut span);
        let came = clock::now();
        let ids = (span.low <= span.high).then_some((span.low, span.high));
        let (pause, refusal) = match result {
            Ok(()) => (job.pause, None),
            Err(ClientError::Refused(refusal)) if refusal.is_retryable() => {
                let told = Duration::from_millis(refusal.retry_after_ms.into());
                (told.clamp(job.pause, MOST_WAIT), Some(refusal.to_string()))
            }
            Err(error) => return Err(error).context(format!("{job:?}")),
        };
        line.answers.push(Answer { asked, came, ids, refusal });
        thread::sleep(pause);
    }
    Ok(line)
}

/// What all connections have seen.
#[derive(Debug)]
pub struct Told {
    lines: Vec<Line>,
}

/// How one order fared in a span of time.
#[derive(Debug, Clone, Default)]
pub struct Fared {
    /// Requests answered with ids.
    pub served: usize,
    /// Requests refused.
    pub refused: usize,
    /// The longest that a connection asked until it got ids, over all refusals in between.
    pub longest: Duration,
    /// From the first refusal to the last one.
    pub refused_for: Duration,
    /// The first refusal.
    pub refusal: Option<String>,
}

impl Told {
    /// How requests of `order` fared that were asked from `from` to `to`.
    pub fn fared(&self, order: Order, from: Instant, to: Instant) -> Fared {
        let mut fared = Fared::default();
        let mut refusals = Vec::new();
        for line in self.lines.iter().filter(|line| line.order == order) {
            let mut asking = None;
            for answer in line.answers.iter().filter(|answer| (from..to).contains(&answer.asked)) {
                let since = asking.take().unwrap_or(answer.asked);
                fared.longest = fared.longest.max(answer.came - since);
                if let Some(refusal) = &answer.refusal {
                    refusals.push((answer.came, refusal));
                    asking = Some(since);
                } else {
                    fared.served += 1;
                }
            }
        }
        refusals.sort_unstable();
        fared.refused = refusals.len();
        if let (Some(first), Some(last)) = (refusals.first(), refusals.last()) {
            fared.refused_for = last.0 - first.0;
            fared.refusal = Some(first.1.clone());
        }
        fared
    }

    /// The lowest and the highest id of requests of `order` asked from `from` to `to`.
    pub fn ids(&self, order: Order, from: Instant, to: Instant) -> Option<(u64, u64)> {
        let mine = self.lines.iter().filter(|line| line.order == order).flat_map(|line| &line.answers);
        let mine = mine.filter(|answer| (from..to).contains(&answer.asked)).filter_map(|answer| answer.ids);
        mine.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }

    /// Whatever connection they came by: an ordered id is above all whose replies came before it was asked for.
    /// Returns how many answers were compared.
    pub fn ordered_ascend(&self) -> Result<usize> {
        let ordered = self.lines.iter().filter(|line| line.order == Order::Ordered);
        let mut asked: Vec<(&Answer, (u64, u64))> =
            ordered.flat_map(|line| &line.answers).filter_map(|answer| Some((answer, answer.ids?))).collect();
        let mut came = asked.clone();
        asked.sort_by_key(|(answer, _)| answer.asked);
        came.sort_by_key(|(answer, _)| answer.came);
        let (mut highest, mut replies) = (0, came.iter().peekable());
        for (answer, (low, _)) in &asked {
            while let Some((_, (_, high))) = replies.next_if(|(reply, _)| reply.came < answer.asked) {
                highest = highest.max(*high);
            }
            ensure!(*low > highest, "ordered id {low} was asked for after {highest} had come");
        }
        Ok(asked.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times in milliseconds from `base` on; id 0 is a refusal.
    fn line(base: Instant, order: Order, answers: &[(u64, u64, u64)]) -> Line {
        let at = |ms| base + Duration::from_millis(ms);
        let answer = |(asked, came, id): &(u64, u64, u64)| Answer {
            asked: at(*asked),
            came: at(*came),
            ids: (*id > 0).then_some((*id, *id)),
            refusal: (*id == 0).then(|| format!("later than {came}")),
        };
        Line { order, answers: answers.iter().map(answer).collect(), received: Received::default() }
    }

    #[test]
    fn whoever_is_refused_asks_on() {
        let base = clock::now();
        let at = |ms| base + Duration::from_millis(ms);
        let told =
            Told { lines: vec![line(base, Order::Any, &[(0, 1, 5), (2, 3, 0), (4, 5, 0), (6, 30, 9)])] };
        let fared = told.fared(Order::Any, base, at(40));
        assert_eq!((fared.served, fared.refused), (2, 2));
        assert_eq!((fared.longest.as_millis(), fared.refused_for.as_millis()), (28, 2), "from 2 to 30");
        assert_eq!(fared.refusal.as_deref(), Some("later than 3"));
        assert_eq!(told.fared(Order::Any, base, at(6)).longest.as_millis(), 3, "it is refused still");
        assert_eq!(told.fared(Order::Any, at(6), at(40)).refused, 0);
        assert_eq!(told.ids(Order::Any, base, at(5)), Some((5, 5)));
        assert_eq!(told.fared(Order::Fresh, base, at(40)).served, 0);
    }

    #[test]
    fn ordered_ids_that_fall_from_one_connection_to_another_are_found() {
        let base = clock::now();
        let first = || line(base, Order::Ordered, &[(0, 5, 100), (20, 25, 103)]);
        // Asked for before 100 had come: either may be the lower.
        let beside = line(base, Order::Ordered, &[(1, 6, 90), (7, 8, 101)]);
        assert_eq!(Told { lines: vec![first(), beside] }.ordered_ascend().unwrap(), 4);
        let below = line(base, Order::Ordered, &[(7, 8, 99)]);
        assert!(Told { lines: vec![first(), below] }.ordered_ascend().is_err());
    }
}
