//! Connections to all servers, dealt to all threads, before any load begins.

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xuid_engine::sequence::SequenceName as Name;
use xuid_load::{Dialect, Link, Share};
use xuid_protocol::{ClusterId, SequenceName, Status};

use crate::commands::bench::plan::{Net, Plan};
use crate::commands::connection::{Connection, Greeted, Refused};
use crate::net::runtime;
use crate::text::exit::usage;
use crate::text::shell::quoted;

/// Files beside the connections.
const OTHER_FILES: u64 = 64;

/// Link `i` is to server `i` modulo their number, and belongs to thread `i` modulo theirs.
pub(super) fn connect<D: Dialect + Clone>(
    plan: &Plan,
    net: &Net,
    dialect: &D,
) -> Result<(ClusterId, Vec<Vec<Link<D>>>)> {
    allow_files(u64::from(net.connections) + OTHER_FILES);
    let mut dealt: Vec<Vec<Link<D>>> = (0..plan.threads).map(|_| Vec::new()).collect();
    let mut first: Option<(ClusterId, &str)> = None;
    let servers = net.servers.iter().cycle();
    runtime::run(async {
        for (number, server) in (0..net.connections).zip(servers) {
            let is_first = (number as usize) < net.servers.len();
            let greeted = greet(server, net, plan.sequence.as_ref().filter(|_| is_first)).await?;
            let (cluster, of) = *first.get_or_insert((greeted.cluster, server));
            if cluster != greeted.cluster {
                bail!(
                    "{of} is of cluster {cluster} and {server} of cluster {}: ids of two clusters may be equal, so a load \
                     on both measures nothing",
                    greeted.cluster
                );
            }
            check_count(plan, server, &greeted)?;
            let (number, of) = (u64::from(number), u64::from(net.connections));
            let share = plan.rate.map(|rate| Share { rate, number, of });
            let Greeted { wire, inbox, limits, .. } = greeted;
            let depth = net.pipeline.min(limits.max_in_flight);
            let link = Link::new(wire, server, inbox.rest().to_vec(), dialect.clone(), depth, share);
            dealt[number as usize % plan.threads].push(link);
        }
        Ok(())
    })??;
    Ok((first.map_or(ClusterId::ANY, |(cluster, _)| cluster), dealt))
}

/// A connection to a server that has this sequence, if one is named.
async fn greet(server: &str, net: &Net, sequence: Option<&Name>) -> Result<Greeted> {
    let mut connection = Connection::connect(server, net.tls.as_ref())
        .await
        .with_context(|| format!("no load on {server}"))?;
    if let Some(name) = sequence {
        let found = connection.sequence(SequenceName::new(name.as_str().as_bytes())?).await;
        found.map_err(|error| absent(error, server, name))?;
    }
    connection.into_greeted()
}

/// Why a server does not have a sequence, with what helps: a load does not begin a sequence that was mistyped.
fn absent(error: anyhow::Error, server: &str, name: &Name) -> anyhow::Error {
    let name = name.as_str();
    let is_absent =
        error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == Status::NO_SEQUENCE);
    if is_absent {
        return error.context(format!(
            "{server} has no sequence {name:?}: make it with `xuid sequence create {} --server {server}`",
            quoted(name)
        ));
    }
    error.context(format!("{server} does not serve the sequence {name:?}"))
}

fn check_count(plan: &Plan, server: &str, greeted: &Greeted) -> Result<()> {
    let (count, most) = (plan.ask.count, greeted.limits.max_count);
    if count > most {
        return Err(usage(format!("--count is {count}, and {server} allows 1 to {most}")).into());
    }
    Ok(())
}

/// Raises the limit of open files as far as this user may. If that does not suffice, connecting says so.
fn allow_files(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let target = limit.maximum.map_or(wanted, |most| most.min(wanted));
    if limit.current.is_some_and(|now| now < target) {
        let raised = Rlimit { current: Some(target), maximum: limit.maximum };
        // As it was, then.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
