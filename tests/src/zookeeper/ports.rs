//! Ports for servers that are killed and come back to the same port.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::{Rng, clock};

/// Below the range from which Linux takes the local ports of outgoing connections (32,768 and up by default): while
/// a server is down, nobody's connection can sit on its port and make its restart fail.
const FIRST: u64 = 12_000;
const COUNT: u64 = 20_000;
/// Far more attempts than there could be busy ports in a row.
const ATTEMPTS: usize = 1_000;

/// Ports handed out by this process: their servers may be down at the moment.
static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port on which nobody listens, and which this process has not handed out before.
pub(crate) fn free() -> Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = taken.get_or_insert_with(HashSet::new);
    let mut rng = Rng::new(clock::unix_ms() ^ (u64::from(std::process::id()) << 32));
    let mut ports = (0..ATTEMPTS).map(|_| (FIRST + rng.below(COUNT)) as u16);
    ports
        .find(|port| {
            !taken.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok() && taken.insert(*port)
        })
        .with_context(|| format!("no free port among {ATTEMPTS} tried from {FIRST} on"))
}
