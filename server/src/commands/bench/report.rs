//! What a run showed, for people and for programs.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::drive::{Outcome, per_second};
use super::embedded;
use super::memory::size;
use super::plan::{Plan, Target};
use crate::text::human_time::grouped;
use crate::text::stdout::Printer;

/// What is told of a latency.
const QUANTILES: [(&str, &str, f64); 5] = [
    ("p50", "p50_us", 0.5),
    ("p90", "p90_us", 0.9),
    ("p99", "p99_us", 0.99),
    ("p99.9", "p999_us", 0.999),
    ("p99.99", "p9999_us", 0.9999),
];

/// Below this share of the asked rate, a run is said to have fallen behind.
const KEPT_UP: f64 = 0.99;

/// A run and what was asked for.
#[derive(Debug)]
pub(super) struct Report {
    headline: [String; 2],
    settings: Value,
    source: Option<String>,
    rate: Option<u64>,
    /// The most that may be in flight in a closed loop, over all connections or threads.
    depth: u64,
    /// Calls that one latency stands for.
    calls: u32,
    verify_bytes: u64,
    outcome: Outcome,
}

/// A line: a figure to the right, and what it is of.
struct Line<'t>(&'t dyn fmt::Display, String);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>16} {}", self.0.to_string(), self.1)
    }
}

impl Report {
    /// `source`: what the servers said they are.
    pub(super) fn new(plan: &Plan, source: Option<String>, outcome: Outcome) -> Self {
        let calls = match plan.target {
            Target::Embedded if embedded::is_batched(plan) => embedded::BATCH,
            _ => 1,
        };
        let depth = match &plan.target {
            Target::Embedded => plan.threads as u64,
            Target::Network(net) => u64::from(net.connections) * u64::from(net.pipeline),
        };
        Self {
            headline: headline(plan, source.as_deref(), outcome.time),
            settings: plan.settings(),
            source,
            rate: plan.rate,
            depth,
            calls,
            verify_bytes: plan.verify.unwrap_or(0),
            outcome,
        }
    }

    /// Prints it, and fails if the run did, also where its reader had enough.
    pub(super) fn finish(self, mut out: Printer, as_json: bool) -> Result<()> {
        let told = self.tell(&mut out, as_json);
        self.judge()?;
        told
    }

    fn tell(&self, out: &mut Printer, as_json: bool) -> Result<()> {
        if as_json {
            out.line(self.json())?;
        } else {
            for line in self.text() {
                out.line(line)?;
            }
        }
        out.flush()
    }

    fn text(&self) -> Vec<String> {
        let Outcome { total, time, .. } = &self.outcome;
        let speed = |count| grouped(per_second(count, *time));
        let mut lines = self.headline.to_vec();
        lines.push(String::new());
        let mut line = |figure: &dyn fmt::Display, what: String| lines.push(Line(figure, what).to_string());
        line(&speed(total.ids), "ids/s".into());
        line(&speed(total.requests), "requests/s".into());
        if total.received > 0 {
            let sent = megabytes(total.sent, *time);
            line(&megabytes(total.received, *time), format!("MB/s received, {sent} MB/s sent"));
        }
        line(&"", cells(QUANTILES.iter().map(|(name, ..)| (*name).to_owned()).chain(["max".to_owned()])));
        line(&"latency", quantiles(&total.latency, self.calls));
        if let Some(open) = &total.open {
            line(&"late", format!("{}   due to sent", quantiles(&open.late, 1)));
            line(&"service", format!("{}   sent to answered", quantiles(&open.service, 1)));
        }
        self.explain(&mut line);
        if self.fell_behind() {
            line(&"fell behind", self.shortfall());
        }
        for (name, count) in &total.refusals {
            line(&grouped(*count), format!("refused {name}"));
        }
        if let Some(text) = &total.refusal {
            line(&"", format!("such as {text}"));
        }
        if total.unanswered > 0 {
            line(&grouped(total.unanswered), "not answered by the end; they count with their age".into());
        }
        if total.sent_away > 0 {
            let what = "connections sent away by their server (GOAWAY); their load is missing from then on";
            line(&grouped(total.sent_away), what.into());
        }
        if let Some(verdict) = &self.outcome.verdict {
            let ids = grouped(verdict.ids);
            let kept = size(verdict.spans * 16);
            line(
                &grouped(verdict.duplicates),
                format!("duplicates among all {ids} ids of the run ({kept} of runs)"),
            );
        }
        if self.outcome.interrupted {
            line(&"ended early", format!("by a signal, after {:.1} s", time.as_secs_f64()));
        }
        lines
    }

    /// What the latency is a latency of.
    fn explain(&self, line: &mut impl FnMut(&dyn fmt::Display, String)) {
        match self.rate {
            Some(rate) => {
                let answered = per_second(self.outcome.total.requests, self.outcome.time);
                let share = answered as f64 * 100.0 / rate as f64;
                let text = format!("requests/s asked for, {share:.1} % of it achieved");
                line(&grouped(rate), text);
                line(&"open loop", "latency counts from when each request was due, sent or not".into());
            }
            None if self.calls > 1 => {
                let text =
                    format!("closed loop: {} calls timed together; max is of a whole batch", self.calls);
                line(&"", text);
            }
            None => {
                let depth = grouped(self.depth);
                line(
                    &"closed loop",
                    format!(
                        "one request goes when another is answered: these are service times at a depth of {depth}"
                    ),
                );
            }
        }
    }

    fn fell_behind(&self) -> bool {
        let Outcome { total, time, .. } = &self.outcome;
        let answered = per_second(total.requests, *time) as f64;
        self.rate.is_some_and(|rate| answered < rate as f64 * KEPT_UP) && *time > Duration::ZERO
    }

    fn shortfall(&self) -> String {
        let unsent = self.outcome.total.open.as_ref().map_or(0, |open| open.unsent);
        format!(
            "the load or what it is put on cannot keep this rate: {} requests were due and not sent; they count with their age",
            grouped(unsent)
        )
    }

    fn json(&self) -> Value {
        let Outcome { total, verdict, time, interrupted, cut_short } = &self.outcome;
        let (late, service) = total.open.as_ref().map(|open| (&open.late, &open.service)).unzip();
        let mut value = json!({
            "ids": total.ids,
            "requests": total.requests,
            "refused": total.refusals.values().sum::<u64>(),
            "refusals": total.refusals,
            "unanswered": total.unanswered,
            "sent_away": total.sent_away,
            "failures": total.failures,
            "seconds": time.as_secs_f64(),
            "ids_per_second": per_second(total.ids, *time),
            "requests_per_second": per_second(total.requests, *time),
            "bytes_received_per_second": per_second(total.received, *time),
            "bytes_sent_per_second": per_second(total.sent, *time),
            "samples": total.latency.len(),
            "calls_per_sample": self.calls,
            "duplicates": verdict.as_ref().map(|verdict| verdict.duplicates),
            "verified_ids": verdict.as_ref().map(|verdict| verdict.ids),
            "unverified_ids": verdict.as_ref().map(|verdict| verdict.unseen),
            "mode": if self.rate.is_some() { "open" } else { "closed" },
            "asked_rate": self.rate,
            "fell_behind": self.rate.map(|_| self.fell_behind()),
            "unsent": total.open.as_ref().map(|open| open.unsent),
            "late": late.map(|late| percentiles(late, 1)),
            "service": service.map(|service| percentiles(service, 1)),
            "interrupted": interrupted,
            "cut_short": cut_short,
            "source": self.source,
            "settings": self.settings,
        });
        if let (Value::Object(all), Value::Object(latency)) =
            (&mut value, percentiles(&total.latency, self.calls))
        {
            all.extend(latency);
        }
        value
    }

    /// The exit code: what makes a run a failure, the worst first.
    fn judge(&self) -> Result<()> {
        let Outcome { total, verdict, interrupted, cut_short, .. } = &self.outcome;
        if let Some(verdict) = verdict.as_ref().filter(|verdict| verdict.duplicates > 0) {
            bail!("{} ids came twice, such as {:?}", verdict.duplicates, verdict.shown);
        }
        if let Some(verdict) = verdict.as_ref().filter(|verdict| verdict.unseen > 0) {
            bail!(
                "--verify used up its {}: no id came twice among the first {}, and {} more are not looked at; give it more by \
                 --verify-memory, or run for fewer --seconds",
                size(self.verify_bytes),
                grouped(verdict.ids),
                grouped(verdict.unseen)
            );
        }
        let failure = total.failures.iter().max_by_key(|(_, count)| **count);
        if let Some((why, count)) = failure {
            bail!("{count} of the load's connections or threads ended before their time: {why}");
        }
        if total.ids == 0 {
            bail!(
                "no id came: {}",
                total.refusal.as_deref().unwrap_or("nothing was answered while it was measured")
            );
        }
        if total.sent_away > 0 && *cut_short {
            bail!("the server went away before the time was over");
        }
        if total.sent_away > 0 && !*interrupted {
            bail!(
                "{} of the load's connections were sent away (GOAWAY) before the time was over: what was measured is less load \
                 than was asked for",
                grouped(total.sent_away)
            );
        }
        if total.unanswered > 0 {
            bail!("{} requests were not answered", grouped(total.unanswered));
        }
        Ok(())
    }
}

fn headline(plan: &Plan, source: Option<&str>, time: Duration) -> [String; 2] {
    let (ask, threads) = (plan.ask, plan.threads);
    let threads = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
    let what = plan.request_name();
    let ids =
        if ask.count == 1 { String::new() } else { format!(" of {} ids", grouped(u64::from(ask.count))) };
    let (of, place) = match &plan.sequence {
        Some(name) => (format!(" of the sequence {}", name.as_str()), "on a registry"),
        None => (String::new(), "on an engine"),
    };
    let span = format!("{:.1} s after {} s of warm-up", time.as_secs_f64(), plan.warmup.as_secs());
    match &plan.target {
        Target::Embedded => [
            format!("{what}{ids}{of}, order {}, {place} in this process", ask.order.name()),
            format!("{threads}; {span}"),
        ],
        Target::Network(net) => [
            format!(
                "{what}{ids}{of}, order {}, at {} ({})",
                ask.order.name(),
                net.servers.join(", "),
                source.unwrap_or("?")
            ),
            format!(
                "{} connections x {} in flight, {threads}; {span}",
                grouped(u64::from(net.connections)),
                net.pipeline
            ),
        ],
    }
}

/// A row of figures. Each stands for `calls` calls, but the longest is told whole.
fn quantiles(histogram: &Histogram<u64>, calls: u32) -> String {
    let each =
        |(_, _, quantile): &(&str, &str, f64)| time(each(histogram.value_at_quantile(*quantile), calls));
    cells(QUANTILES.iter().map(each).chain([time(histogram.max() as f64)]))
}

fn cells(row: impl Iterator<Item = String>) -> String {
    let row: Vec<String> = row.map(|cell| format!("{cell:>8}")).collect();
    row.join(" ")
}

fn percentiles(histogram: &Histogram<u64>, calls: u32) -> Value {
    let micros = |ns: f64| json!(ns / 1_000.0);
    let mut value: serde_json::Map<String, Value> = QUANTILES
        .iter()
        .map(|(_, key, quantile)| {
            ((*key).to_owned(), micros(each(histogram.value_at_quantile(*quantile), calls)))
        })
        .collect();
    value.insert("mean_us".into(), micros(histogram.mean() / f64::from(calls)));
    value.insert("max_us".into(), micros(histogram.max() as f64));
    Value::Object(value)
}

fn each(ns: u64, calls: u32) -> f64 {
    ns as f64 / f64::from(calls)
}

/// Three digits or so, in the unit they have.
fn time(ns: f64) -> String {
    match ns {
        ..10.0 => format!("{ns:.2} ns"),
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} us", ns / 1e3),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

fn megabytes(bytes: u64, time: Duration) -> String {
    format!("{:.1}", per_second(bytes, time) as f64 / 1e6)
}

#[cfg(test)]
mod tests;
