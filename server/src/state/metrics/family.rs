//! Samples of one name.

use xuid_engine::stats::Latency;

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
    /// A gauge that may be negative, by what a label says.
    SignedBy(&'static str, Vec<(&'static str, i64)>),
    /// Times, and how often there were which.
    Times(Latency),
    /// The same for each value of a label.
    TimesBy(&'static str, Vec<(&'static str, Latency)>),
}
