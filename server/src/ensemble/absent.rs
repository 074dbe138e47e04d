//! Stands in for `ensemble.rs` where this program is built without the feature `zookeeper`.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Result, bail};
use xuid_engine::registry::{Adopted, Fenced, Registry};
use xuid_engine::{Floor, Layout};

use crate::config::Access;
use crate::target::{Created, View};

/// A URL that nothing here can use, so it is not looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url(String);

impl Url {
    pub(crate) const SCHEME: &str = "zookeeper://";
}

impl FromStr for Url {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Credentials that nobody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials;

impl Credentials {
    pub(crate) fn new(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':')?;
        (!user.is_empty() && !password.is_empty()).then_some(Self)
    }
}

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
