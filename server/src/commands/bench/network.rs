//! Load over TCP.

mod connect;

#[cfg(test)]
mod tests;

use anyhow::Result;
use xuid_load::{LoadThread, Turns};

use super::drive::{Outcome, drive};
use super::plan::{Net, Plan};
use connect::connect;

/// Connects, runs the load, and says whom it was put on.
pub(super) fn run(plan: &Plan, net: &Net) -> Result<(String, Outcome)> {
    let (cluster, dealt) = connect(plan, net)?;
    let load = |links| move |thread: &mut LoadThread| Turns::new(links, thread)?.run();
    let outcome = drive(plan, dealt.into_iter().map(load).collect())?;
    Ok((format!("cluster {cluster}"), outcome))
}
