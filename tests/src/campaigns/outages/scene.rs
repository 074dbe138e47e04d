//! Where a server lives, and what befalls it there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use super::truth::Truth;
use crate::zookeeper::Ensemble;
use crate::{Frozen, LoopDisk, Serve, Xuid};

/// An ensemble of one that is started again, on a busy machine.
const SERVING: Duration = Duration::from_secs(30);
/// Less than a spill takes, and more than all else that a second server of a folder writes.
const SPARE_BYTES: u64 = 6 << 20;
const BALLAST: &str = "ballast";
const SPARE: &str = "spare";

/// What befalls a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A process that is no server of the folder locks the registry's file, and keeps it locked.
    Locked,
    /// Every node of the ensemble is stopped.
    Stopped,
    /// The disk keeps each write, and gives no error.
    Frozen,
    /// The disk has no room.
    Full,
    /// The disk takes no writes.
    ReadOnly,
}

pub(super) const KINDS: [Kind; 5] = [Kind::Locked, Kind::Stopped, Kind::Frozen, Kind::Full, Kind::ReadOnly];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Locked => "registry locked",
            Self::Stopped => "ensemble stopped",
            Self::Frozen => "disk frozen",
            Self::Full => "disk full",
            Self::ReadOnly => "disk read-only",
        }
    }

    /// What is to be told of it. Of a full disk nothing: all that a running server needs was set aside.
    pub(super) fn truth(self) -> Option<Truth> {
        let why = match self {
            Self::Locked => "locked",
            Self::Stopped => "",
            Self::Frozen => "a call has not come back yet",
            Self::Full => return None,
            Self::ReadOnly => "Read-only file system",
        };
        Some(Truth { why })
    }

    /// The alerts that are meant for it, if it lasts a minute.
    pub(super) fn alerts(self) -> &'static [&'static str] {
        match self {
            Self::Locked | Self::Stopped | Self::ReadOnly => &["XuidRegistryAway"],
            Self::Frozen => &["XuidRegistryAway", "XuidProducerStalled"],
            Self::Full => &[],
        }
    }
}

/// The place of one trial. What holds a fault is dropped before the disk that it lies on.
#[derive(Debug)]
pub(super) struct Scene {
    kind: Kind,
    lock: Option<File>,
    frozen: Option<Frozen>,
    ensemble: Option<Ensemble>,
    disk: Option<LoopDisk>,
    data: PathBuf,
}

impl Scene {
    /// `None`, told as a trial that is not made, where this machine allows no such disk.
    pub(super) fn new(kind: Kind, home: &Path) -> Result<Option<Self>> {
        let mut disk = None;
        if matches!(kind, Kind::Frozen | Kind::Full | Kind::ReadOnly) {
            let Some(made) = LoopDisk::new(&format!("outages: {}", kind.name()), home)? else {
                return Ok(None);
            };
            disk = Some(made);
        }
        let data = disk.as_ref().map_or(home, LoopDisk::dir).join("data");
        let mut scene = Self { kind, lock: None, frozen: None, ensemble: None, disk, data };
        if kind == Kind::Stopped {
            let ensemble = Ensemble::start(1)?;
            Xuid::new(["registry", "init", &ensemble.url("/ids")])?.run()?.ok()?;
            scene.ensemble = Some(ensemble);
        }
        Ok(Some(scene))
    }

    /// A server that lives here.
    pub(super) fn serve(&self) -> Result<Serve> {
        let serve = Serve::new(&self.data)?;
        Ok(match &self.ensemble {
            Some(ensemble) => serve.arg("--registry").arg(ensemble.url("/ids")),
            None => serve,
        })
    }

    fn disk(&self) -> Result<&LoopDisk> {
        self.disk.as_ref().context("this scene has no disk of its own")
    }

    /// The fault begins.
    pub(super) fn strike(&mut self) -> Result<()> {
        match self.kind {
            Kind::Locked => {
                let file = File::open(self.data.join("registry"))?;
                flock(&file, FlockOperation::LockExclusive)?;
                self.lock = Some(file);
            }
            Kind::Stopped => self.ensemble.as_mut().context("no ensemble")?.stop_all()?,
            Kind::Frozen => self.frozen = Some(self.disk()?.freeze()?),
            Kind::Full => drop(self.disk()?.fill(BALLAST)?),
            Kind::ReadOnly => self.disk()?.fail()?,
        }
        Ok(())
    }

    /// The fault ends. A disk that is read-only is made good by [`mend`](Self::mend), when no server is there.
    pub(super) fn lift(&mut self) -> Result<()> {
        match self.kind {
            Kind::Locked => self.lock = None,
            Kind::Stopped => {
                let ensemble = self.ensemble.as_mut().context("no ensemble")?;
                ensemble.start_all()?;
                ensemble.wait_serving(SERVING)?;
            }
            Kind::Frozen => self.frozen = None,
            Kind::Full => fs::remove_file(self.disk()?.dir().join(BALLAST))?,
            Kind::ReadOnly => {}
        }
        Ok(())
    }

    /// After the server's end: the next one finds all well.
    pub(super) fn mend(&mut self) -> Result<()> {
        if self.kind == Kind::ReadOnly { self.disk()?.mount_again() } else { Ok(()) }
    }

    /// Fills the disk but for [`SPARE_BYTES`].
    pub(super) fn nearly_fill(&mut self) -> Result<()> {
        let spare = self.disk()?.dir().join(SPARE);
        let file = File::create(&spare)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SPARE_BYTES)?;
        self.disk()?.fill(BALLAST)?;
        Ok(fs::remove_file(spare)?)
    }
}
