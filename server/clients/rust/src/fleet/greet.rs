//! The first words with all servers, and what tells two clusters apart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::Level;
use xuid_protocol::Status;

use super::away::Away;
use crate::error::ClientError;
use crate::link::dial::{Greeted, dial};
use crate::log::log;
use crate::options::{Options, later};
use crate::served::Served;

/// How long the other servers may still take to answer when the first connection stands. Who is later is checked when
/// it is first used.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// Whether this says that a server is of another cluster.
pub(super) fn is_stranger(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::ClustersDiffer { .. }
            | ClientError::WrongCluster { .. }
            | ClientError::Refused { status: Status::WRONG_CLUSTER, .. }
    )
}

pub(super) fn same_cluster(known: &Served, new: &Served) -> Result<(), ClientError> {
    if new.cluster == known.cluster {
        return Ok(());
    }
    Err(ClientError::ClustersDiffer {
        server: Arc::clone(&new.server),
        found: new.cluster,
        other: Arc::clone(&known.server),
        expected: known.cluster,
    })
}

/// Greets every server at once and compares their clusters. Returns the first of the list that answered, and notes those that did
/// not in time.
pub(super) async fn greet_all(
    servers: &[Arc<str>],
    options: &Options,
    away: &mut Away,
) -> Result<(usize, Greeted), ClientError> {
    let mut dials = JoinSet::new();
    for (at, server) in servers.iter().cloned().enumerate() {
        let options = options.clone();
        dials.spawn(async move { (at, dial(&server, &options).await) });
    }
    let begin = Instant::now();
    let mut deadline = later(later(begin, options.connect_timeout), STRAGGLERS);
    let mut late: BTreeSet<_> = (0..servers.len()).collect();
    let (mut best, mut failure): (Option<(usize, Greeted)>, Option<ClientError>) = (None, None);
    while let Ok(Some(joined)) = timeout_at(deadline, dials.join_next()).await {
        match joined {
            Ok((at, Ok(greeted))) => {
                late.remove(&at);
                let Some((first, known)) = best else {
                    deadline = deadline.min(Instant::now() + STRAGGLERS);
                    best = Some((at, greeted));
                    continue;
                };
                same_cluster(&known.served, &greeted.served)?;
                best = Some(if at < first { (at, greeted) } else { (first, known) });
            }
            Ok((at, Err(error))) => {
                late.remove(&at);
                away.note(at, begin, false);
                let shown = error.clone();
                log(Level::DEBUG, move || tracing::debug!(error = %shown, "a server did not answer"));
                // What will not pass by waiting says more than "not reached".
                let keeps = failure.as_ref().is_some_and(|known| !known.is_retryable());
                failure = if keeps { failure } else { Some(error) };
            }
            Err(ended) => {
                if let Ok(panic) = ended.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    for at in late {
        away.note(at, begin, false);
    }
    best.ok_or_else(|| failure.unwrap_or(ClientError::Closed))
}
