//! Where the lives of a part are lived: a folder with a registry of its own, or folders on one ensemble behind proxies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::plan::Trouble;
use super::points::Kind;
use crate::fronts::Doors;
use crate::proxy::{Fault, Proxy, Target, Way};
use crate::zookeeper::Ensemble;
use crate::{Serve, Xuid};

/// Connections to serve on two threads each, so that a stop ends them and their counts with them.
const THREADS: &str = "2";

/// An ensemble, and a proxy in front of each of its nodes.
#[derive(Debug)]
struct Remote {
    proxies: Vec<Proxy>,
    url: String,
    // Last: it ends after everything that speaks to it.
    _ensemble: Ensemble,
}

/// The place.
#[derive(Debug)]
pub(super) struct Place {
    remote: Option<Remote>,
    home: TempDir,
    logs: u64,
}

impl Place {
    /// A new one, with nothing in it but a registry in an ensemble of `nodes`, if it is one of those.
    pub(super) fn new(kind: Kind, nodes: usize) -> Result<Self> {
        let remote = match kind {
            Kind::Local => None,
            Kind::ZooKeeper => Some(Remote::start(nodes)?),
        };
        Ok(Self { remote, home: TempDir::new()?, logs: 0 })
    }

    /// A data folder of this name.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Where the next process logs.
    pub(super) fn log(&mut self) -> PathBuf {
        self.logs += 1;
        self.home.path().join(format!("issued-{}", self.logs))
    }

    /// A server of the release build.
    pub(super) fn release(&self, folder: &Path) -> Result<Serve> {
        Ok(self.settled(Serve::new(folder)?))
    }

    /// A server of the crash-point build.
    pub(super) fn with_crash_points(&self, folder: &Path, log: &Path) -> Result<Serve> {
        let serve = Serve::with_crash_points(folder)?.env("XUID_CRASH_LOG", &log.to_string_lossy());
        Ok(self.settled(serve))
    }

    fn settled(&self, serve: Serve) -> Serve {
        let serve = Doors::ARGUMENTS.iter().fold(serve.arg("--threads").arg(THREADS), Serve::arg);
        match &self.remote {
            Some(remote) => serve.arg("--registry").arg(&remote.url),
            None => serve,
        }
    }

    fn proxies(&self) -> &[Proxy] {
        self.remote.as_ref().map_or(&[], |remote| &remote.proxies)
    }

    /// Before the exec.
    pub(super) fn begin(&self, trouble: Trouble) {
        for proxy in self.proxies() {
            match trouble {
                Trouble::LostClaim => proxy.arm(Fault::LoseReply, Target::Multi),
                Trouble::Delay(by) => proxy.set(Way::Delay(by)),
                _ => {}
            }
        }
    }

    /// After the first id.
    pub(super) fn served(&self, trouble: Trouble) {
        for proxy in self.proxies() {
            match trouble {
                Trouble::LostReply => proxy.arm(Fault::LoseReply, Target::Multi),
                Trouble::Cut(_) => proxy.cut(),
                _ => {}
            }
        }
    }

    /// After the end: nothing is wrong any more. True if an armed fault has struck.
    pub(super) fn calm(&self, trouble: Trouble) -> bool {
        let was_armed = matches!(trouble, Trouble::LostClaim | Trouble::LostReply);
        let mut struck = false;
        for proxy in self.proxies() {
            proxy.set(Way::Pass);
            // Disarms it, too.
            struck |= proxy.wait_struck(Duration::ZERO) && was_armed;
        }
        struck
    }
}

impl Remote {
    fn start(nodes: usize) -> Result<Self> {
        let ensemble = Ensemble::start(nodes)?;
        let url = ensemble.url("/xuid");
        Xuid::new(["registry", "init", &url])?.run()?.ok()?;
        let proxies = (0..nodes).map(|node| Proxy::start(ensemble.addr(node))).collect::<Result<Vec<_>>>()?;
        let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        Ok(Self { proxies, url: format!("zookeeper://{}/xuid", hosts.join(",")), _ensemble: ensemble })
    }
}

/// One part in four, of those that begin at a multiple of 20 or 100, has three nodes: a session finds another one when
/// its own is cut off.
pub(super) fn nodes(first: u64) -> usize {
    if first / 20 % 4 == 3 { 3 } else { 1 }
}
