//! SIGHUP: certificates, tokens, the limit of addresses and the log's filter are read again.
//!
//! # Invariants
//! - I1 all of it counts, or nothing: what was read before counts on until everything new was read and checked;
//! - I2 no connection ends for it. A client that was let in stays in, and new limits of its token and its address count
//!   for it at once;
//! - I3 it opens a server to no stranger: a file that is empty because it is being written takes no token away.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use crate::config::{Flags, Settings};
use crate::net::service_manager::ServiceManager;
use crate::state::access::AccessRules;
use crate::state::server::Server;
use crate::text::exit::{Usage, usage};
use crate::text::logs;

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
        while self.0.recv().await.is_some() {
            // Behind STOPPING=1 the manager is told nothing of reloads: READY=1 would take the stop back.
            if !server.is_stopping() {
                manager.reloading();
            }
            let (flags, of_server) = (flags.clone(), Arc::clone(&server));
            // Beside this thread, which accepts connections: a file may be a pipe.
            let reloading = spawn_blocking(move || reload(&flags, &of_server));
            if let Err(error) = reloading.await.map_err(anyhow::Error::from).flatten() {
                error!("SIGHUP: nothing was reloaded, and what was read before counts: {error:#}");
            }
            if !server.is_stopping() {
                manager.ready(&server);
            }
        }
    }
}

fn reload(flags: &Flags, server: &Server) -> Result<()> {
    let settings = Settings::load_again(flags)?;
    check_asking(&settings, &server.access)?;
    let mut open = Vec::new();
    for (key, bound) in [("listen", Some(server.places.listen)), ("admin", server.places.admin)] {
        if let Some(bound) = bound {
            open.extend(settings.check_exposure(key, bound)?);
        }
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
