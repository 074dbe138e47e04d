//! Load over TCP. A thread drives its connections by one epoll, each with many requests in flight.

mod connect;
mod flight;
mod link;
mod turn;

#[cfg(test)]
mod tests;

use anyhow::Result;

use super::drive::{Outcome, drive};
use super::plan::{Net, Plan};
use connect::connect;
use turn::Turns;

/// Connects, runs the load, and says whom it was put on.
pub(super) fn run(plan: &Plan, net: &Net) -> Result<(String, Outcome)> {
    let (cluster, dealt) = connect(plan, net)?;
    let load = |links| {
        let is_open = plan.rate.is_some();
        move |post: &mut super::drive::Post| Turns::new(links, is_open, post)?.run()
    };
    let outcome = drive(plan, dealt.into_iter().map(load).collect())?;
    Ok((format!("cluster {cluster}"), outcome))
}
