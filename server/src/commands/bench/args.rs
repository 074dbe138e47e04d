//! The command line of `xuid bench`.

use crate::commands::OrderArg;
use crate::config::TlsArgs;

/// `xuid bench`.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// The servers; connections are dealt to them in turn [env: `XUID_SERVER`] [default: 127.0.0.1:7654]
    #[arg(long, value_name = "ADDR,ADDR", value_delimiter = ',')]
    pub(super) server: Vec<String>,
    /// Ids of this named sequence, which the servers must have. Embedded, it begins at 1 in a registry in a temporary folder
    #[arg(long, value_name = "NAME")]
    pub(super) sequence: Option<String>,
    /// No server: threads on an engine in this process, in a temporary folder, on land declared unused since the epoch
    #[arg(long, conflicts_with_all = ["server", "connections", "pipeline"])]
    pub(super) embedded: bool,
    /// Threads of the load [default: 1 against a server, one a core embedded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) threads: Option<u16>,
    /// Connections [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) connections: Option<u32>,
    /// Requests in flight on each [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(super) pipeline: Option<u32>,
    /// Ids a request: 1 asks by NEXT, more by ARRAY [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) count: Option<u32>,
    /// Ask by RUNS
    #[arg(long)]
    pub(super) runs: bool,
    /// What they must be like [default: any; ordered of a sequence]
    #[arg(long, value_enum)]
    pub(super) order: Option<OrderArg>,
    /// How long ARRAY and RUNS may wait for ids, in milliseconds; embedded, any call [default: 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub(super) wait: Option<u32>,
    /// Requests a second in all, by a timetable (open loop): latency is measured from the intended start, so a stall
    /// counts for every request that was due during it. Without it a request is sent when another is answered (closed
    /// loop)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) rate: Option<u64>,
    /// How long, after the warm-up [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) seconds: Option<u64>,
    /// Load that is not counted, before the rest [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3_600))]
    pub(super) warmup: Option<u64>,
    /// Prove that no id came twice, over the whole run, and that ordered ones ascend on each connection; keeps 16 bytes a run of ids, neighbours joined
    #[arg(long)]
    pub(super) verify: bool,
    /// Memory that --verify may use, as in 512MiB or 4GiB; the load ends early before it would need more [default:
    /// 4GiB, or three quarters of what is free]
    #[arg(long, value_name = "SIZE", requires = "verify")]
    pub(super) verify_memory: Option<String>,
    /// One JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}
