//! Load over TCP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use xuid_protocol::{Bulk, Reply, request_array, request_next, request_runs};

use super::{Args, Harvest, Progress, watch};
use crate::commands::runtime;
use crate::wire::Wire;

/// How long ARRAY and RUNS may wait.
const WAIT: Duration = Duration::from_secs(1);

/// A reply that takes longer is a failure of the run.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs the load; returns what all connections got, and how long it took.
pub(super) fn run(args: &Args, progress: &Arc<Progress>) -> Result<(Harvest, Duration)> {
    let runtime = runtime(args.threads.map_or(1, usize::from))?;
    runtime.block_on(async {
        let mut loads = JoinSet::new();
        // All connections first, so that none measures while others still greet.
        let mut wires = Vec::new();
        for _ in 0..args.connections {
            wires.push(Wire::connect(&args.server).await?);
        }
        for wire in wires {
            let (args, progress) = (args.clone(), Arc::clone(progress));
            loads.spawn(async move { Load::new(wire, args, progress)?.run().await });
        }
        let (watched, seconds) = (Arc::clone(progress), args.seconds);
        let watching = tokio::task::spawn_blocking(move || watch(seconds, &watched, std::thread::sleep));
        let mut total = Harvest::new(args.verify)?;
        while let Some(harvest) = loads.join_next().await {
            total.merge(harvest.context("a load failed")??)?;
        }
        // Only a server that goes away ends them all before the time is over.
        progress.stop.store(true, Relaxed);
        Ok((total, watching.await.context("the bar failed")?))
    })
}

/// One connection.
struct Load {
    wire: Wire,
    args: Args,
    progress: Arc<Progress>,
    harvest: Harvest,
    /// When each request in flight was sent. Replies may come in another order: each has the number of its request.
    sent: VecDeque<Option<Instant>>,
    /// The request of the first of them.
    first: u64,
    in_flight: u32,
    going_away: bool,
}

/// What a reply brought.
enum Brought {
    Ids(u64),
    Refusal { text: String, retry_after: Duration, is_retryable: bool },
    GoAway,
    Nonsense,
}

impl Load {
    fn new(wire: Wire, args: Args, progress: Arc<Progress>) -> Result<Self> {
        let most = wire.limits();
        if args.count > most.max_count {
            bail!("--count is {}, and this server allows up to {}", args.count, most.max_count);
        }
        let args = Args { pipeline: args.pipeline.min(most.max_in_flight), ..args };
        let harvest = Harvest::new(args.verify)?;
        Ok(Self {
            wire,
            args,
            progress,
            harvest,
            sent: VecDeque::new(),
            first: 0,
            in_flight: 0,
            going_away: false,
        })
    }

    async fn run(mut self) -> Result<Harvest> {
        loop {
            if !self.progress.is_over() && !self.going_away {
                self.ask().await?;
            }
            if self.in_flight == 0 {
                break;
            }
            timeout(LIMIT, self.take()).await.context("a request was not answered")??;
            while self.in_flight > 0 && self.wire.has_reply() {
                self.take().await?;
            }
        }
        self.harvest.cut_short = !self.progress.is_over();
        Ok(self.harvest)
    }

    /// Fills the pipeline, in one write.
    async fn ask(&mut self) -> Result<()> {
        let now = Instant::now();
        let Args { count, order, runs, pipeline, .. } = self.args;
        let order = order.into();
        while self.in_flight < pipeline {
            let request_id = self.wire.next_request();
            if self.sent.is_empty() {
                self.first = request_id;
            }
            self.sent.push_back(Some(now));
            self.in_flight += 1;
            let out = self.wire.requests();
            match (runs, count) {
                (true, _) => request_runs(out, request_id, Bulk::new(count, order, WAIT)),
                (false, 1) => request_next(out, request_id, order),
                (false, _) => request_array(out, request_id, Bulk::new(count, order, WAIT)),
            }
        }
        self.wire.flush().await
    }

    /// Takes one reply.
    async fn take(&mut self) -> Result<()> {
        let harvest = &mut self.harvest;
        let (request_id, brought) = self.wire.receive(|id, reply| (id, look(harvest, &reply))).await?;
        if matches!(brought, Brought::GoAway) {
            self.going_away = true;
            return Ok(());
        }
        let place = request_id.wrapping_sub(self.first) as usize;
        let Some(sent) = self.sent.get_mut(place).and_then(Option::take) else {
            bail!("a reply to request {request_id}, which is not in flight");
        };
        self.in_flight -= 1;
        while self.sent.front().is_some_and(Option::is_none) {
            self.sent.pop_front();
            self.first += 1;
        }
        match brought {
            Brought::Ids(ids) => {
                self.harvest.served(ids, sent.elapsed());
                self.progress.ids.fetch_add(ids, Relaxed);
            }
            Brought::Refusal { text, retry_after, is_retryable } => {
                self.harvest.refused += 1;
                if !is_retryable {
                    bail!("refused: {text}");
                }
                self.harvest.last_refusal = Some(text);
                sleep(retry_after.min(Duration::from_millis(20))).await;
            }
            Brought::GoAway | Brought::Nonsense => bail!("the server answered another question"),
        }
        Ok(())
    }
}

fn look(harvest: &mut Harvest, reply: &Reply<'_>) -> Brought {
    match reply {
        Reply::Next(id) => {
            harvest.see(*id, 1);
            Brought::Ids(1)
        }
        Reply::Array(ids) => {
            if harvest.census.is_some() {
                ids.iter().for_each(|id| harvest.see(id, 1));
            }
            Brought::Ids(ids.len() as u64)
        }
        Reply::Runs(runs) => {
            for run in runs.iter().filter(|run| run.stride == 1) {
                harvest.see(run.first, run.count);
            }
            for run in runs.iter().filter(|run| run.stride != 1) {
                run.into_iter().for_each(|id| harvest.see(id, 1));
            }
            Brought::Ids(u64::from(runs.ids()))
        }
        Reply::Error(error) => Brought::Refusal {
            text: format!("{}: {}", error.status, error.text),
            retry_after: error.retry_after(),
            is_retryable: error.status.is_retryable(),
        },
        Reply::GoAway => Brought::GoAway,
        _ => Brought::Nonsense,
    }
}
