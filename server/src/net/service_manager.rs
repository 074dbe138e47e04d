//! What a service manager is told of the server's life, by the protocol of systemd's `sd_notify`: that it serves,
//! reloads, stops, and that it still turns.
//!
//! Each message is a datagram to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is done.
//!
//! # Invariants
//! - I1 no message is waited for: where the manager does not read, the message is given up;
//! - I2 the watchdog is fed by the thread that accepts connections, and only while the engine's producer turns: where
//!   either stands still, the manager ends the server.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use crate::state::server::Server;

/// The manager that started this process, if it wants to be told.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceManager {
    socket: Option<Arc<UnixDatagram>>,
    /// How often it wants to be told that the server turns: twice as often as it would end it.
    beat: Option<Duration>,
}

impl ServiceManager {
    /// As the variables say that it left: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub(crate) fn of_environment() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        match connected(&name) {
            Ok(socket) => {
                let variable = |name| env::var(name).ok();
                let beat = beat(variable("WATCHDOG_USEC").as_deref(), variable("WATCHDOG_PID").as_deref());
                Self { socket: Some(Arc::new(socket)), beat }
            }
            Err(error) => {
                warn!(%error, socket = ?name, "the service manager cannot be told anything (NOTIFY_SOCKET)");
                Self::default()
            }
        }
    }

    /// The server serves: after a start, and after a reload.
    pub(crate) fn ready(&self, server: &Server) {
        self.tell(&format!("READY=1\nSTATUS=serving on {}", server.places.listen));
    }

    /// The server begins to read its settings again; [`ready`](Self::ready) says that it has.
    pub(crate) fn reloading(&self) {
        // With the time, by which the manager tells this reload from one before.
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// The server stops, and has called exit within that time.
    pub(crate) fn stopping(&self, whole: Duration) {
        let us = whole.as_micros();
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={us}\nSTATUS=stopping within {whole:?}"));
    }

    /// Feeds the watchdog, as long as it is polled and the engine's producer turns.
    pub(crate) async fn feed_watchdog(self, server: Arc<Server>) {
        let Some(beat) = self.beat else { return };
        let mut beats = interval(beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            match server.stalled() {
                None => self.tell("WATCHDOG=1"),
                Some(why) => warn!("the service manager's watchdog is not fed: {why}"),
            }
        }
    }

    fn tell(&self, message: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(message.as_bytes())) {
            debug!(%error, message, "the service manager was not told");
        }
    }
}

/// A socket to that address: a path, or a name in the abstract namespace, which begins with `@`.
fn connected(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it is neither a path nor a name that begins with @",
        )),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// Half of the time after which the manager's watchdog ends this process, if it watches this one.
fn beat(usec: Option<&str>, pid: Option<&str>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let us: u64 = usec.filter(|_| is_ours)?.parse().ok()?;
    // Less than a millisecond is no time to be alive in.
    (us >= 1_000).then(|| Duration::from_micros(us / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time_and_only_if_it_is_ours() {
        let own = std::process::id().to_string();
        assert_eq!(beat(Some("30000000"), None), Some(Duration::from_secs(15)));
        assert_eq!(beat(Some("30000000"), Some(&own)), Some(Duration::from_secs(15)));
        assert_eq!(beat(Some("30000000"), Some("1")), None, "another process is watched");
        for none in [None, Some("0"), Some("soon"), Some("")] {
            assert_eq!(beat(none, Some(&own)), None);
        }
    }

    #[test]
    fn a_reload_says_when_it_began_and_no_message_waits_for_its_reader() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let told =
            ServiceManager { socket: Some(Arc::new(connected(path.as_os_str()).unwrap())), beat: None };
        // Many more than a socket has room for: one that waited would never return.
        (0..10_000).for_each(|_| told.reloading());
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        let text = str::from_utf8(&message[..length]).unwrap();
        let us: u64 = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(us > 0);
    }

    #[test]
    fn an_address_is_a_path_or_an_abstract_name() {
        assert_eq!(connected(OsStr::new("vsock:2:1")).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(connected(OsStr::new("/nowhere/at/all")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let name = format!("xuid-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        connected(OsStr::new(&format!("@{name}"))).unwrap().send(b"READY=1").unwrap();
        assert_eq!(manager.recv(&mut [0; 16]).unwrap(), 7);
    }
}
