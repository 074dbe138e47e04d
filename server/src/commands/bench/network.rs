//! Load over TCP.

mod connect;

#[cfg(test)]
mod tests;

use anyhow::Result;
use xuid_load::{Dialect, LoadThread, SequenceAsk, Turns};
use xuid_protocol::SequenceName;

use super::drive::{Outcome, drive};
use super::plan::{Net, Plan};
use connect::connect;

/// Connects, runs the load, and says whom it was put on.
pub(super) fn run(plan: &Plan, net: &Net) -> Result<(String, Outcome)> {
    match &plan.sequence {
        None => load(plan, net, &plan.ask),
        Some(name) => {
            load(plan, net, &SequenceAsk::new(SequenceName::new(name.as_str().as_bytes())?, plan.ask))
        }
    }
}

fn load<D: Dialect + Clone + Send + 'static>(
    plan: &Plan,
    net: &Net,
    dialect: &D,
) -> Result<(String, Outcome)> {
    let (cluster, dealt) = connect(plan, net, dialect)?;
    let load = |links| move |thread: &mut LoadThread| Turns::new(links, thread)?.run();
    let outcome = drive(plan, dealt.into_iter().map(load).collect())?;
    Ok((format!("cluster {cluster}"), outcome))
}
