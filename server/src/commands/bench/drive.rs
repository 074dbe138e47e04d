//! Runs the load threads, shows how far they are, and adds up what they got.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::interval;

use xuid_load::{DuplicateCheck, LoadThread, Progress, Results, Verdict};

use super::plan::Plan;
use crate::net::runtime::runtime;
use crate::net::shutdown::Signals;
use crate::text::human_time::grouped;

/// The bar moves this often, and an end is noticed this soon.
const GLANCE: Duration = Duration::from_millis(20);

/// Glances between two figures on the bar: one that changes faster cannot be read.
const READABLE: u32 = 10;

/// What came of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) total: Results,
    pub(super) verdict: Option<Verdict>,
    /// How long it was measured.
    pub(super) time: Duration,
    /// Ended by a signal.
    pub(super) interrupted: bool,
    /// Ended before its time by itself.
    pub(super) cut_short: bool,
}

/// Runs one thread a load until the end of the plan, a signal, or until none has anything left to do.
pub(super) fn drive<L>(plan: &Plan, loads: Vec<L>) -> Result<Outcome>
where
    L: FnOnce(&mut LoadThread) -> Result<()> + Send + 'static,
{
    debug_assert_eq!(loads.len(), plan.threads);
    // Signals first: from the first request on, an interrupted run is one to report.
    let runtime = runtime(1)?;
    let signals = Signals::new(None)?.begun();
    let progress = Arc::new(Progress::new(plan.threads, plan.warmup, plan.time));
    let whole = progress.time();
    let open = |bytes| {
        let full = Arc::clone(&progress);
        DuplicateCheck::start(bytes, move || full.finish())
    };
    let check = plan.verify.map(open).transpose()?;
    let mut threads = Vec::new();
    for (seat, load) in loads.into_iter().enumerate() {
        let recorder = check.as_ref().map(DuplicateCheck::recorder);
        let mut load_thread = LoadThread::new(&progress, seat, recorder, plan.rate.is_some())?;
        let work = move || -> Result<Results> {
            load(&mut load_thread)?;
            Ok(load_thread.results)
        };
        let thread = thread::Builder::new().name(format!("xuid-load-{seat}"));
        threads.push(thread.spawn(work).context("failed to start a thread")?);
    }
    runtime.block_on(watch(&progress, whole, signals))?;
    let mut total = Results::new(plan.rate.is_some())?;
    for thread in threads {
        total.merge(thread.join().map_err(|_| anyhow!("a load thread panicked"))??)?;
    }
    let verdict = check.map(DuplicateCheck::finish).transpose()?;
    let interrupted = progress.was_interrupted();
    let cut_short = !interrupted && progress.time() < whole;
    Ok(Outcome { total, verdict, time: progress.time(), interrupted, cut_short })
}

/// Until all threads are done. The bar goes to standard error, and only to a terminal.
async fn watch(progress: &Progress, whole: Duration, signals: Signals) -> Result<()> {
    let bar = ProgressBar::new(whole.as_millis() as u64);
    bar.set_style(ProgressStyle::with_template("[{elapsed}] {bar:30} {msg}").context("the bar's template")?);
    let mut signals = Some(signals);
    let mut glance = interval(GLANCE);
    let (mut last, mut glances) = ((progress.now(), progress.seen()), 0);
    while progress.is_running() {
        let signal = async {
            match &mut signals {
                Some(signals) => signals.first().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = signal => {
                progress.interrupt();
                // What is in flight is awaited; whoever does not want that presses again.
                signals = None;
            }
            _ = glance.tick() => glances += 1,
        }
        let now = progress.now();
        bar.set_position(now.saturating_sub(progress.measured()) / 1_000_000);
        if glances >= READABLE {
            bar.set_message(speed(last, (now, progress.seen()), now < progress.measured()));
            (last, glances) = ((now, progress.seen()), 0);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// How fast it was between two looks: each is when, and how many ids and requests there were.
fn speed(before: (u64, (u64, u64)), after: (u64, (u64, u64)), warming: bool) -> String {
    let time = Duration::from_nanos(after.0 - before.0);
    let (ids, requests) = (after.1.0 - before.1.0, after.1.1 - before.1.1);
    let [ids, requests] = [ids, requests].map(|count| grouped(per_second(count, time)));
    let also = if ids == requests { String::new() } else { format!(", {requests} requests/s") };
    format!("{ids} ids/s{also}{}", if warming { " (warming up)" } else { "" })
}

/// So many in that time, as so many a second.
pub(super) fn per_second(count: u64, time: Duration) -> u64 {
    (u128::from(count) * 1_000_000_000 / time.as_nanos().max(1)) as u64
}
