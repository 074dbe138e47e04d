//! SIGHUP: certificates, tokens, the limit of addresses and the log's filter are read again.
//!
//! # Invariants
//! - I1 all of it counts, or nothing: what was read before counts on until everything new was read and checked;
//! - I2 no connection ends for it. A client that was let in stays in, and new limits of its token and its address count
//!   for it at once;
//! - I3 it opens a server to no stranger: a file that is empty because it is being written takes no token away;
//! - I4 it ends: a file that is no regular one is refused, and one that is not read in time, or that no thread can be had
//!   for, is given up, so that the next signal is heard. What comes of its reading later counts for nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::config::{Flags, Settings};
use crate::net::service_manager::ServiceManager;
use crate::state::access::AccessRules;
use crate::state::beside::beside;
use crate::state::server::Server;
use crate::text::exit::{Usage, usage};
use crate::text::logs;

/// Some small files are read in milliseconds. A disk that takes longer than this does not answer, and systemd gives a
/// reload 90 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads that may read at a time: one, and those of reloads that were given up, which end only with their disk.
const READING: usize = 4;

/// SIGHUP, from the moment it is made on: before, it ends the process.
#[derive(Debug)]
pub(crate) struct Reloads(Signal);

impl Reloads {
    /// Listens, in the runtime that is entered.
    pub(crate) fn new() -> Result<Self> {
        signal(SignalKind::hangup()).map(Self).context("failed to listen to signals")
    }

    /// Reads everything again at each signal, as at the start: from the same flags and variables, and from files as they
    /// are then.
    pub(crate) async fn run(mut self, flags: Flags, server: Arc<Server>, manager: ServiceManager) {
        let readers = Arc::new(Semaphore::new(READING));
        while self.0.recv().await.is_some() {
            // Behind STOPPING=1 the manager is told nothing of reloads: READY=1 would take the stop back.
            if !server.is_stopping() {
                manager.reloading();
            }
            let flags = flags.clone();
            let read = read_in_time(PATIENCE, &readers, move || Settings::load_again(&flags)).await;
            if let Err(error) = read.and_then(|settings| take_over(settings, &server)) {
                error!("SIGHUP: nothing was reloaded, and what was read before counts: {error:#}");
            }
            if !server.is_stopping() {
                manager.ready(&server);
            }
        }
    }
}

/// What `read` brings within that time, on a thread beside this one, which accepts connections.
async fn read_in_time<T: Send + 'static>(
    limit: Duration,
    readers: &Arc<Semaphore>,
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Ok(permit) = Arc::clone(readers).try_acquire_owned() else {
        bail!("the files of {READING} reloads before are still being read: see to the disk that they are on");
    };
    let reading = beside("xuid-reload", move || {
        let _permit = permit;
        read()
    });
    let reading = reading.context("the files were not read, so signal again later")?;
    let Ok(read) = timeout(limit, reading).await else {
        bail!("the files were not read within {limit:?}: see to the disk that they are on, and signal again");
    };
    read.context("the reading failed, and said why in the log: report it")?
}

fn take_over(settings: Settings, server: &Server) -> Result<()> {
    check_asking(&settings, &server.access)?;
    // A key stays for the life of a namespace. A wrong one in its file would end the next start.
    server.genesis.check_veil(settings.opaque_key.as_ref().map(|key| &key.veil))?;
    let mut open = Vec::new();
    for (key, bound) in server.places.each() {
        open.extend(settings.check_exposure(key, bound)?);
    }
    logs::set_filter(&settings.log)?;
    let (tokens, has_tls) = (settings.tokens.each().len(), settings.tls.is_some());
    let kept = settings.tokens.variable().map(str::to_owned);
    server.access.replace(settings.tokens, settings.tls);
    server.access.limit_addresses(settings.address_ids_per_second);
    for warning in settings.warnings.iter().chain(&open) {
        warn!("{warning}");
    }
    info!(tokens, certificates = has_tls, log = %settings.log, "SIGHUP: reloaded");
    if let Some(variable) = kept {
        info!(
            "the token of {variable} is the one of the start: a process keeps its variables. To replace it, start the \
             server again, or have it in a file (--tokens), which is read at each SIGHUP"
        );
    }
    Ok(())
}

/// Refuses what would change whether clients have to prove who they are.
fn check_asking(settings: &Settings, access: &AccessRules) -> Result<(), Usage> {
    if settings.tls.is_some() != access.has_tls() {
        return Err(usage("TLS is on or off for the life of a server: start it again to change that"));
    }
    let asks_for_certificate = settings.tls.as_ref().is_some_and(|tls| tls.asks_for_certificate);
    let lost = [
        ("token", access.asks_for_token() && settings.tokens.is_empty()),
        ("tls_client_ca", access.asks_for_certificate() && !asks_for_certificate),
    ];
    match lost.into_iter().find(|(_, is_lost)| *is_lost) {
        None => Ok(()),
        Some((what, _)) => Err(usage(format!(
            "the settings have no {what} any more, and this server lets nobody in without; allowed is one: start the server \
             again if everybody is to be let in"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::fronts::fixture::without_threads;

    #[tokio::test]
    async fn files_that_are_not_read_in_time_are_given_up_and_keep_no_later_reload_waiting() {
        let readers = Arc::new(Semaphore::new(READING));
        let mut disks: Vec<Sender<u32>> = Vec::new();
        for given_up in 1..=READING {
            let (disk, hangs) = channel();
            disks.push(disk);
            let read = read_in_time(Duration::from_millis(1), &readers, move || Ok(hangs.recv()?));
            let error = read.await.unwrap_err().to_string();
            assert!(error.contains("not read within 1ms"), "{error}");
            if given_up < READING {
                assert_eq!(read_in_time(PATIENCE, &readers, || Ok(7)).await.unwrap(), 7);
            }
        }
        let error = read_in_time(PATIENCE, &readers, || Ok(8)).await.unwrap_err().to_string();
        assert!(error.contains("still being read"), "{error}");
        for disk in &disks {
            disk.send(6).unwrap();
        }
        let all = readers.acquire_many(READING as u32).await.unwrap();
        drop(all);
        assert_eq!(read_in_time(PATIENCE, &readers, || Ok(9)).await.unwrap(), 9);
    }

    #[test]
    fn a_reload_for_which_no_thread_can_be_had_ends_no_later_one() {
        let readers = Arc::new(Semaphore::new(READING));
        let without = without_threads();
        let error = without.block_on(read_in_time(PATIENCE, &readers, || Ok(7))).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("no more threads") && error.contains("signal again"), "{error}");
        assert_eq!(readers.available_permits(), READING);
        drop(without);
    }
}
