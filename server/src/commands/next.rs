//! `xuid next`.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;
use xuid_engine::Id;
use xuid_protocol::{ClusterId, Order, SequenceName, Status};

use super::{OrderArg, servers};
use crate::commands::connection::{Connection, Ended, Refused};
use crate::config::{LEAST_IDLE, TlsArgs};
use crate::net::runtime;
use crate::text::form::FormArgs;
use crate::text::stdout::Printer;

/// Ids of one request: some ten milliseconds of one worker's ids, so that a long list comes steadily.
const PIECE: u32 = 32_768;

/// `xuid next`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 1)]
    count: u64,
    /// The servers; the first one that can be reached is asked [env: `XUID_SERVER`] [default: 127.0.0.1:7654]
    #[arg(long, value_name = "ADDR,ADDR", value_delimiter = ',')]
    server: Vec<String>,
    /// What they must be like
    #[arg(long, value_enum, default_value_t)]
    order: OrderArg,
    /// A JSON array of strings: a number of 64 bits does not survive JavaScript
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Gets the ids and prints them as they come.
pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = servers(&args.server)?;
    let tls = args.tls.load()?;
    let out = Printer::new()?;
    runtime::run(next(args, servers, tls, out))?
}

async fn next(
    args: &Args,
    servers: Vec<String>,
    tls: Option<Arc<ClientConfig>>,
    mut out: Printer,
) -> Result<()> {
    let form = args.form.prefixed()?;
    let mut source = Source::connect(servers, tls).await?;
    let (mut left, mut last) = (args.count, None);
    if args.json {
        out.part("[")?;
    }
    while left > 0 {
        let ids = source.ids(left.min(u64::from(PIECE)) as u32, args.order.into()).await?;
        left -= ids.len() as u64;
        for id in ids {
            if let (OrderArg::Ordered, Some(before)) = (args.order, last)
                && id <= before
            {
                out.flush()?;
                bail!(
                    "{} answered {id}, which is not above {before}, the last one printed: ordered holds among the ids of one \
                     server only, and each has a clock of its own",
                    source.server()
                );
            }
            let text = form.text(Id::try_from(id).with_context(|| format!("{} answered", source.server()))?);
            if args.json {
                out.part(format_args!("{}\"{text}\"", if last.is_none() { "" } else { ", " }))?;
            } else {
                out.line(text)?;
            }
            last = Some(id);
        }
    }
    if args.json {
        out.line("]")?;
    }
    out.flush()
}

/// Servers of one cluster, and a connection to one of them. It connects again where the connection ended: a server ends
/// one that is idle, as it is while a slow reader of standard output takes its time.
pub(super) struct Source {
    servers: Vec<String>,
    tls: Option<Arc<ClientConfig>>,
    /// The server of the connection.
    at: usize,
    connection: Connection,
    /// Whether this connection has answered, and when it was made: one that ends before the one, and soon after the other, is not made
    /// again.
    answered: bool,
    made: Instant,
}

impl Source {
    pub(super) async fn connect(servers: Vec<String>, tls: Option<Arc<ClientConfig>>) -> Result<Self> {
        let (at, connection) = reach(&servers, 0, tls.as_ref()).await?;
        Ok(Self { servers, tls, at, connection, answered: false, made: Instant::now() })
    }

    /// The connection, for a question that is asked once.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The one that the last ids came from.
    pub(super) fn server(&self) -> &str {
        &self.servers[self.at]
    }

    /// Whose ids come from it.
    pub(super) fn cluster(&self) -> ClusterId {
        self.connection.cluster()
    }

    /// At most so many ids. The ids of a request whose reply was lost are wasted, and others are asked for.
    async fn ids(&mut self, count: u32, order: Order) -> Result<Vec<u64>> {
        self.ask(async |connection| connection.ids(count, order).await).await
    }

    /// What it knows of where an id came from.
    pub(super) async fn provenance(&mut self, id: u64) -> Result<Value> {
        self.ask(async |connection| connection.provenance(id).await).await
    }

    /// At most so many numbers of a sequence. Those of a request whose reply was lost are wasted, and others are asked for.
    pub(super) async fn numbers(
        &mut self,
        name: SequenceName<'_>,
        count: u32,
        order: Order,
    ) -> Result<Vec<u64>> {
        self.ask(async |connection| connection.numbers(name, count, order).await).await
    }

    /// A page of its sequences.
    pub(super) async fn sequences(&mut self, prefix: &str, after: &str, limit: u32) -> Result<Value> {
        self.ask(async |connection| connection.sequences(prefix, after, limit).await).await
    }

    async fn ask<T>(&mut self, question: impl AsyncFn(&mut Connection) -> Result<T>) -> Result<T> {
        let mut others = self.servers.len() - 1;
        loop {
            let may_have_been_idle = self.may_have_been_idle();
            match question(&mut self.connection).await {
                Ok(answer) => {
                    self.answered = true;
                    return Ok(answer);
                }
                Err(error) if may_have_been_idle && error.is::<Ended>() => self.reconnect(self.at).await?,
                // It answers what waits, and goes: another one serves, unless all of them go.
                Err(error) if is_leaving(&error) && others > 0 => {
                    others -= 1;
                    self.reconnect(self.at + 1).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it may have ended for that before it is asked: one that ends while it is asked serves nobody. No server has a shorter
    /// idle time.
    fn may_have_been_idle(&self) -> bool {
        self.answered || self.made.elapsed() >= LEAST_IDLE
    }

    /// To the first server that can be reached, from that one on.
    async fn reconnect(&mut self, from: usize) -> Result<()> {
        let (at, connection) = reach(&self.servers, from, self.tls.as_ref()).await?;
        let (before, now) = (self.connection.cluster(), connection.cluster());
        if before != now {
            let (old, new) = (&self.servers[self.at], &self.servers[at]);
            bail!(
                "{old} was of cluster {before} and {new} is of cluster {now}: ids of two clusters may be equal"
            );
        }
        (self.at, self.connection, self.answered, self.made) = (at, connection, false, Instant::now());
        Ok(())
    }
}

/// Whether the server says that it stops.
fn is_leaving(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == Status::SHUTTING_DOWN)
}

/// A connection to the first server from `from` on that can be reached, each tried once; else why none can.
pub(super) async fn reach(
    servers: &[String],
    from: usize,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<(usize, Connection)> {
    let mut tries = (from..from + servers.len()).map(|at| at % servers.len());
    let mut before = Vec::new();
    loop {
        let Some(at) = tries.next() else { bail!("no server is named") };
        match Connection::connect(&servers[at], tls).await {
            Ok(connection) => return Ok((at, connection)),
            Err(error) if tries.len() == 0 && before.is_empty() => return Err(error),
            Err(error) if tries.len() == 0 => bail!("{error:#}; before that: {}", before.join("; ")),
            Err(error) => before.push(format!("{error:#}")),
        }
    }
}
