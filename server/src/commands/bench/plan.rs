//! What was asked for, checked and with its defaults.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio_rustls::rustls::ClientConfig;
use xuid_engine::sequence::SequenceName;
use xuid_load::{Ask, Shape};
use xuid_protocol::Order;

use super::args::Args;
use super::memory;
use crate::commands::{OrderArg, servers};
use crate::config::cores;
use crate::text::exit::usage;

/// One load.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) target: Target,
    pub(super) threads: usize,
    pub(super) ask: Ask,
    /// Of which sequence; `None`: ids of the engine.
    pub(super) sequence: Option<SequenceName>,
    /// Requests a second in all; `None`: closed loop.
    pub(super) rate: Option<u64>,
    pub(super) warmup: Duration,
    pub(super) time: Duration,
    /// Bytes that the duplicate check may use, where there is one.
    pub(super) verify: Option<u64>,
}

/// What the load is put on.
#[derive(Debug, Clone)]
pub(super) enum Target {
    Embedded,
    Network(Net),
}

/// Servers, and how to talk to them.
#[derive(Debug, Clone)]
pub(super) struct Net {
    pub(super) servers: Vec<String>,
    pub(super) connections: u32,
    pub(super) pipeline: u32,
    /// `None`: plain TCP.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Plan {
    /// Checks what clap cannot.
    pub(super) fn new(args: &Args) -> Result<Self> {
        let count = args.count.unwrap_or(1);
        let shape = match (args.runs, count) {
            (true, _) => Shape::Runs,
            (false, 1) => Shape::Next,
            (false, _) => Shape::Array,
        };
        if args.wait.is_some() && shape == Shape::Next && !args.embedded {
            let text =
                "--wait goes with --count above 1 or --runs: how long NEXT waits is the server's setting";
            return Err(usage(text).into());
        }
        let (sequence, order) = sequence_and_order(args, shape)?;
        let wait = Duration::from_millis(u64::from(args.wait.unwrap_or(1_000)));
        let target = if args.embedded { Target::Embedded } else { Target::Network(Net::new(args)?) };
        let connections = match &target {
            Target::Embedded => usize::MAX,
            Target::Network(net) => net.connections as usize,
        };
        let threads = args
            .threads
            .map_or_else(|| if args.embedded { cores() } else { 1 }, usize::from)
            .min(connections);
        Ok(Self {
            target,
            threads,
            ask: Ask { shape, count, order, wait },
            sequence,
            rate: args.rate,
            warmup: Duration::from_secs(args.warmup.unwrap_or(1)),
            time: Duration::from_secs(args.seconds.unwrap_or(10)),
            verify: args.verify.then(|| memory::bound(args.verify_memory.as_deref())).transpose()?,
        })
    }

    /// What a request is called: the protocol's op, or the method of an engine or a sequence.
    pub(super) fn request_name(&self) -> &'static str {
        let Ask { shape, order, .. } = self.ask;
        let is_embedded = matches!(self.target, Target::Embedded);
        match (shape, is_embedded, self.sequence.is_some()) {
            (Shape::Next, false, false) => "NEXT",
            (Shape::Array, false, false) => "ARRAY",
            (Shape::Runs, false, false) => "RUNS",
            (Shape::Next, false, true) => "SEQ_NEXT",
            (Shape::Array, false, true) => "SEQ_ARRAY",
            (Shape::Runs, false, true) => "SEQ_RUNS",
            (Shape::Next, true, _) if order == Order::Any => "next_id",
            (Shape::Next, true, true) => "next_ordered",
            (Shape::Runs, true, _) | (_, true, true) => "runs",
            (_, true, false) => "fill",
        }
    }

    /// All of it, as the report's JSON shows it.
    pub(super) fn settings(&self) -> Value {
        let net = match &self.target {
            Target::Embedded => None,
            Target::Network(net) => Some(net),
        };
        json!({
            "embedded": net.is_none(),
            "server": net.map(|net| net.servers.join(",")),
            "connections": net.map(|net| net.connections),
            "pipeline": net.map(|net| net.pipeline),
            "tls": net.map(|net| net.tls.is_some()),
            "threads": self.threads,
            "request": self.request_name(),
            "sequence": self.sequence.as_ref().map(SequenceName::as_str),
            "count": self.ask.count,
            "order": self.ask.order.name(),
            "wait_ms": self.ask.wait.as_millis() as u64,
            "warmup_seconds": self.warmup.as_secs(),
            "asked_seconds": self.time.as_secs(),
            "verify_memory": self.verify,
        })
    }
}

impl Net {
    fn new(args: &Args) -> Result<Self> {
        let servers = servers(&args.server)?;
        let connections = args.connections.unwrap_or(8);
        if servers.len() > connections as usize {
            let text = format!("--connections is {connections}, too few for {} servers", servers.len());
            return Err(usage(text).into());
        }
        Ok(Self { servers, connections, pipeline: args.pipeline.unwrap_or(16), tls: args.tls.load()? })
    }
}

/// The sequence that is named, and in which order ids come.
fn sequence_and_order(args: &Args, shape: Shape) -> Result<(Option<SequenceName>, Order)> {
    let Some(name) = &args.sequence else { return Ok((None, args.order.unwrap_or_default().into())) };
    let sequence = SequenceName::new(name)
        .map_err(|error| usage(format!("--sequence is {name:?}, and that is no name of one: {error}")))?;
    let text = match args.order {
        Some(OrderArg::Fresh) => "--order fresh goes without --sequence: its ids have no time",
        Some(OrderArg::Any) if shape == Shape::Next && !args.embedded => {
            "--order any of a sequence goes with --count above 1, --runs or --embedded: SEQ_NEXT is always ordered"
        }
        order => return Ok((Some(sequence), order.unwrap_or(OrderArg::Ordered).into())),
    };
    Err(usage(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::exit::Usage;

    fn said(args: &Args) -> String {
        let error = Plan::new(args).unwrap_err();
        assert!(error.is::<Usage>(), "{error:#}");
        error.to_string()
    }

    #[test]
    fn what_goes_together_with_nothing_is_wrong_usage() {
        let wait = Args { wait: Some(5), ..Args::default() };
        assert!(said(&wait).contains("--count"));
        assert!(Plan::new(&Args { runs: true, ..wait.clone() }).is_ok());
        assert!(Plan::new(&Args { embedded: true, ..wait }).is_ok());
        let servers = ["a:1", "b:2"].map(str::to_owned).to_vec();
        let few = Args { server: servers, connections: Some(1), ..Args::default() };
        assert!(said(&few).contains("2 servers"));
        for bad in ["localhost", "", ":7", "a:99999"] {
            assert!(
                said(&Args { server: vec![bad.to_owned()], ..Args::default() }).contains("--server"),
                "{bad}"
            );
        }
    }

    #[test]
    fn ids_of_a_sequence_are_ordered_where_nothing_else_is_said_and_never_fresh() {
        let of = |args: Args| Args { sequence: Some("orders".to_owned()), ..args };
        let plan = Plan::new(&of(Args::default())).unwrap();
        assert_eq!((plan.ask.order, plan.request_name()), (Order::Ordered, "SEQ_NEXT"));
        let embedded = Args { embedded: true, ..Args::default() };
        assert_eq!(Plan::new(&of(embedded.clone())).unwrap().request_name(), "next_ordered");
        let any = Some(OrderArg::Any);
        assert_eq!(Plan::new(&of(Args { order: any, ..embedded })).unwrap().request_name(), "next_id");
        for asked in [Args { count: Some(9), ..Args::default() }, Args { runs: true, ..Args::default() }] {
            assert_eq!(Plan::new(&of(Args { order: any, ..asked })).unwrap().ask.order, Order::Any);
        }
        assert!(said(&of(Args { order: any, ..Args::default() })).contains("SEQ_NEXT"));
        assert!(said(&of(Args { order: Some(OrderArg::Fresh), ..Args::default() })).contains("fresh"));
        let nameless = Args { sequence: Some("@any".to_owned()), ..Args::default() };
        assert!(said(&nameless).contains("--sequence"));
        assert_eq!(Plan::new(&Args::default()).unwrap().ask.order, Order::Any);
    }

    #[test]
    fn no_thread_is_without_a_connection() {
        let args = Args { threads: Some(9), connections: Some(3), ..Args::default() };
        assert_eq!(Plan::new(&args).unwrap().threads, 3);
        let args = Args { threads: Some(9), embedded: true, ..Args::default() };
        assert_eq!(Plan::new(&args).unwrap().threads, 9);
    }
}
