//! Connections to all servers, dealt to all threads, before any load begins.

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xuid_load::{Ask, Link, Share};
use xuid_protocol::ClusterId;

use crate::commands::bench::plan::{Net, Plan};
use crate::commands::connection::{Connection, Greeted};
use crate::net::runtime;
use crate::text::exit::usage;

/// Files beside the connections.
const OTHER_FILES: u64 = 64;

/// Link `i` is to server `i` modulo their number, and belongs to thread `i` modulo theirs.
pub(super) fn connect(plan: &Plan, net: &Net) -> Result<(ClusterId, Vec<Vec<Link<Ask>>>)> {
    allow_files(u64::from(net.connections) + OTHER_FILES);
    let mut dealt: Vec<Vec<Link<Ask>>> = (0..plan.threads).map(|_| Vec::new()).collect();
    let mut first: Option<(ClusterId, &str)> = None;
    let servers = net.servers.iter().cycle();
    runtime::run(async {
        for (number, server) in (0..net.connections).zip(servers) {
            let greeted = greet(server, net).await?;
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
            let link = Link::new(wire, server, inbox.rest().to_vec(), plan.ask, depth, share);
            dealt[number as usize % plan.threads].push(link);
        }
        Ok(())
    })??;
    Ok((first.map_or(ClusterId::ANY, |(cluster, _)| cluster), dealt))
}

async fn greet(server: &str, net: &Net) -> Result<Greeted> {
    Connection::connect(server, net.tls.as_ref())
        .await
        .with_context(|| format!("no load on {server}"))?
        .into_greeted()
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
