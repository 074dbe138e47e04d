//! The numbers of a server as families of samples: for Prometheus, and as JSON for STATS.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use xuid_engine::stats::{Latency, whole_ms};

use crate::state::latency::Times;
use crate::state::server::Server;

#[cfg(test)]
mod documented;
mod families;
mod family;
mod process;
mod sequences;

use families::families;
use family::{Family, Kind, Samples};

/// The page of metrics.
#[derive(Debug)]
pub(crate) struct Page(Registry);

#[derive(Debug)]
struct ServerCollector(Arc<Server>);

impl Page {
    /// A page that asks `server` each time it is read.
    pub(crate) fn new(server: Arc<Server>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ServerCollector(server)));
        Self(registry)
    }

    /// The page in the text format of OpenMetrics.
    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.0)?;
        Ok(page)
    }
}

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        families(&self.0).iter().try_for_each(|family| encode(family, &mut encoder))
    }
}

fn encode(family: &Family, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let kind = match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
    match &family.samples {
        Samples::One(value) => encode_one(family.kind, *value, metric),
        Samples::By(label, samples) => samples.iter().try_for_each(|(of, value)| {
            let labels = [(*label, of.as_str())];
            encode_one(family.kind, *value, metric.encode_family(&labels)?)
        }),
        Samples::Fraction(None) => Ok(()),
        Samples::Fraction(Some(value)) => match family.kind {
            Kind::Counter => ConstCounter::new(*value).encode(metric),
            _ => ConstGauge::new(*value).encode(metric),
        },
        Samples::ByTwo([one, two], samples) => samples.iter().try_for_each(|(of, value)| {
            let labels = [(*one, of[0]), (*two, of[1])];
            encode_one(family.kind, *value, metric.encode_family(&labels)?)
        }),
        Samples::Info(labels) => encode_one(family.kind, 1, metric.encode_family(labels)?),
        Samples::SignedBy(label, samples) => samples.iter().try_for_each(|(of, value)| {
            ConstGauge::new(*value).encode(metric.encode_family(&[(*label, *of)])?)
        }),
        Samples::Times(times) => encode_times(times, metric),
        Samples::TimesBy(label, samples) => samples.iter().try_for_each(|(of, times)| {
            let labels = [(*label, *of)];
            encode_times(times, metric.encode_family(&labels)?)
        }),
        Samples::RequestTimes(label, samples) => samples.iter().try_for_each(|(of, times)| {
            let labels = [(*label, of.as_str())];
            encode_request_times(times, metric.encode_family(&labels)?)
        }),
    }
}

fn encode_one(kind: Kind, value: u64, metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    match kind {
        Kind::Counter => ConstCounter::new(value).encode(metric),
        Kind::Gauge => ConstGauge::new(value).encode(metric),
        Kind::Histogram => Err(fmt::Error),
    }
}

fn encode_times(times: &Latency, mut metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    let buckets: Vec<(f64, u64)> = times.buckets().map(in_seconds).collect();
    metric.encode_histogram::<NoLabelSet>(times.sum().as_secs_f64(), times.count(), &buckets, None)
}

fn encode_request_times(times: &Times, mut metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    let buckets: Vec<(f64, u64)> = times.buckets().map(in_seconds).collect();
    metric.encode_histogram::<NoLabelSet>(times.sum().as_secs_f64(), times.count(), &buckets, None)
}

fn in_seconds((bound, count): (Option<Duration>, u64)) -> (f64, u64) {
    (bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64()), count)
}

/// The same numbers under the same names; of times, how many there were and what they add up to.
pub(crate) fn as_json(server: &Server) -> Map<String, Value> {
    let times = |times: &Latency| {
        json!({
            "count": times.count(),
            "sum_ms": whole_ms(times.sum()),
            "last_ms": whole_ms(times.last()),
            "longest_ms": whole_ms(times.longest()),
        })
    };
    let request_times = |times: &Times| json!({"count": times.count(), "sum_ms": whole_ms(times.sum())});
    let named = families(server).into_iter().map(|family| {
        let suffix = if family.kind == Kind::Counter { "_total" } else { "" };
        let value = match family.samples {
            Samples::One(value) => json!(value),
            Samples::By(_, samples) => samples.into_iter().map(|(of, value)| (of, json!(value))).collect(),
            Samples::Fraction(value) => json!(value),
            Samples::ByTwo(_, samples) => by_two(samples),
            Samples::Info(labels) => {
                labels.into_iter().map(|(of, value)| (of.to_owned(), json!(value))).collect()
            }
            Samples::SignedBy(_, samples) => {
                samples.into_iter().map(|(of, value)| (of.to_owned(), json!(value))).collect()
            }
            Samples::Times(each) => times(&each),
            Samples::TimesBy(_, samples) => {
                samples.into_iter().map(|(of, each)| (of.to_owned(), times(&each))).collect()
            }
            Samples::RequestTimes(_, samples) => {
                samples.into_iter().map(|(of, each)| (of, request_times(&each))).collect()
            }
        };
        (format!("{}{suffix}", family.name), value)
    });
    named.collect()
}

/// An object of objects: by the first label, and in there by the second.
fn by_two(samples: Vec<([&'static str; 2], u64)>) -> Value {
    let mut outer = Map::new();
    for ([one, two], value) in samples {
        let inner = outer.entry(one).or_insert_with(|| json!({}));
        inner[two] = json!(value);
    }
    Value::Object(outer)
}
