//! Stands in for `url.rs` where this program is built without the feature `zookeeper`.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

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
