//! Samples of one name.

use xuid_engine::stats::Latency;

use crate::state::latency::Times;

/// Numbers of one name.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    pub(super) samples: Samples,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only rises; its name ends in `_total` on the page.
    Counter,
    Gauge,
    /// Times, in seconds.
    Histogram,
}

#[derive(Debug)]
pub(super) enum Samples {
    One(u64),
    /// A label, and a value for each of what it may say.
    By(&'static str, Vec<(String, u64)>),
    /// A fraction; none where the system does not tell it.
    Fraction(Option<f64>),
    /// Two labels, and a value for each pair of what they say.
    ByTwo([&'static str; 2], Vec<([&'static str; 2], u64)>),
    /// 1, and what there is to know in labels.
    Info(Vec<(&'static str, &'static str)>),
    /// A gauge that may be negative, by what a label says.
    SignedBy(&'static str, Vec<(&'static str, i64)>),
    /// Times, and how often there were which.
    Times(Latency),
    /// The same for each value of a label.
    TimesBy(&'static str, Vec<(&'static str, Latency)>),
    /// The same of requests.
    RequestTimes(&'static str, Vec<(String, Times)>),
}

pub(super) fn family(name: &'static str, help: &'static str, kind: Kind, samples: Samples) -> Family {
    Family { name, help, kind, samples }
}

pub(super) fn counter(name: &'static str, help: &'static str, value: u64) -> Family {
    family(name, help, Kind::Counter, Samples::One(value))
}

pub(super) fn gauge(name: &'static str, help: &'static str, value: u64) -> Family {
    family(name, help, Kind::Gauge, Samples::One(value))
}

fn by(label: &'static str, samples: &[(&'static str, u64)]) -> Samples {
    Samples::By(label, samples.iter().map(|(of, value)| ((*of).to_owned(), *value)).collect())
}

pub(super) fn counter_by(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    samples: &[(&'static str, u64)],
) -> Family {
    family(name, help, Kind::Counter, by(label, samples))
}

pub(super) fn gauge_by(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    samples: &[(&'static str, u64)],
) -> Family {
    family(name, help, Kind::Gauge, by(label, samples))
}

pub(super) fn times_by(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    samples: &[(&'static str, Latency)],
) -> Family {
    family(name, help, Kind::Histogram, Samples::TimesBy(label, samples.to_vec()))
}
