//! Stands in for `ensemble.rs` where this program is built without the feature `zookeeper`.

use std::path::Path;

use anyhow::{Result, bail};
use xuid_engine::registry::{Adopted, Fenced, Registry};
use xuid_engine::{Floor, Layout};

use crate::config::{Access, Url};
use crate::registries::view::{Created, View};

/// There is none.
#[derive(Debug)]
pub(crate) enum Ensemble {}

impl Ensemble {
    pub(crate) fn new(url: &Url, _: &Access, _: Option<&Path>) -> Result<Self> {
        bail!(
            "{url}: this build has no ZooKeeper support; build xuid with its feature zookeeper, which is on unless \
             --no-default-features leaves it out (`cargo build --release`), or use a local registry"
        );
    }

    pub(crate) fn url(&self) -> &Url {
        match *self {}
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Registry>> {
        match *self {}
    }

    pub(crate) fn create(&self, _: Layout, _: Option<Floor>, _: u32) -> Result<Created> {
        match *self {}
    }

    pub(crate) fn look(&self) -> Result<View> {
        match *self {}
    }

    pub(crate) fn fence(&self) -> Result<Fenced> {
        match *self {}
    }

    pub(crate) fn adopt(&self) -> Result<Adopted> {
        match *self {}
    }
}
