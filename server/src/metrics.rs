//! The numbers of a server as families of samples: for Prometheus, and as JSON for STATS.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;

use crate::node::Node;

mod families;

use families::families;

/// Numbers of one name.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Samples,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Only rises; its name ends in `_total` on the page.
    Counter,
    Gauge,
}

#[derive(Debug)]
enum Samples {
    One(u64),
    /// A label, and a value for each of what it may say.
    By(&'static str, Vec<(String, u64)>),
}

/// The page of metrics.
#[derive(Debug)]
pub(crate) struct Page(Registry);

#[derive(Debug)]
struct NodeCollector(Arc<Node>);

impl Page {
    /// A page that asks `node` each time it is read.
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(NodeCollector(node)));
        Self(registry)
    }

    /// The page in the text format of OpenMetrics.
    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.0)?;
        Ok(page)
    }
}

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        families(&self.0).iter().try_for_each(|family| encode(family, &mut encoder))
    }
}

fn encode(family: &Family, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let kind = match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
    match &family.samples {
        Samples::One(value) => match family.kind {
            Kind::Counter => ConstCounter::new(*value).encode(metric),
            Kind::Gauge => ConstGauge::new(*value).encode(metric),
        },
        Samples::By(label, samples) => samples.iter().try_for_each(|(of, value)| {
            let labels = [(*label, of.as_str())];
            let sample = metric.encode_family(&labels)?;
            match family.kind {
                Kind::Counter => ConstCounter::new(*value).encode(sample),
                Kind::Gauge => ConstGauge::new(*value).encode(sample),
            }
        }),
    }
}

/// The same numbers under the same names.
pub(crate) fn as_json(node: &Node) -> Map<String, Value> {
    let named = families(node).into_iter().map(|family| {
        let suffix = if family.kind == Kind::Counter { "_total" } else { "" };
        let value = match family.samples {
            Samples::One(value) => json!(value),
            Samples::By(_, samples) => samples.into_iter().map(|(of, value)| (of, json!(value))).collect(),
        };
        (format!("{}{suffix}", family.name), value)
    });
    named.collect()
}
