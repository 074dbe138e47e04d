//! Where a registry is in which ensemble, and as whom it is used.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use zookeeper_client::{Connector, SaslOptions};

/// The port where none is said: the one ZooKeeper listens on by default.
const PORT: u16 = 2181;

/// The hosts of an ensemble and the path of a registry in it: `zookeeper://h1:2181,h2:2181,h3:2181/path`.
///
/// ```
/// use xuid_engine::registry::zookeeper::ZooKeeperUrl;
/// let url: ZooKeeperUrl = "zookeeper://zk1:2181,zk2:2181/ids/orders".parse()?;
/// assert_eq!((url.hosts(), url.path()), ("zk1:2181,zk2:2181", "/ids/orders"));
/// assert!("zookeeper://zk1:2181".parse::<ZooKeeperUrl>().is_err(), "the path is missing");
/// # Ok::<(), xuid_engine::registry::zookeeper::ParseUrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperUrl {
    hosts: String,
    path: String,
}

/// Not a URL of a registry in an ensemble.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} {why}; allowed is zookeeper://host:port,host:port/path, as in zookeeper://zk1:2181,zk2:2181/xuid"
)]
pub struct ParseUrlError {
    found: String,
    why: &'static str,
}

impl ZooKeeperUrl {
    /// What such a URL begins with.
    pub const SCHEME: &str = "zookeeper://";

    /// `host:port`, separated by commas.
    #[must_use]
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// The node that the registry lies below; begins with a slash and does not end with one.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for ZooKeeperUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", Self::SCHEME, self.hosts, self.path)
    }
}

impl FromStr for ZooKeeperUrl {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<Self, ParseUrlError> {
        let fail = |why| ParseUrlError { found: text.to_owned(), why };
        let rest = text.strip_prefix(Self::SCHEME).ok_or_else(|| fail("is no such URL"))?;
        let (hosts, path) = rest.split_once('/').ok_or_else(|| fail("names no path"))?;
        let hosts: Option<Vec<String>> = hosts.split(',').map(host).collect();
        let hosts = hosts.ok_or_else(|| fail("has a host that is no name or address with a port"))?.join(",");
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Err(fail("names no path"));
        }
        let sound = |part: &str| !matches!(part, "" | "." | ".." | "zookeeper") && part.chars().all(is_plain);
        if !path.split('/').all(sound) {
            return Err(fail("has a path that an ensemble does not allow"));
        }
        Ok(Self { hosts, path: format!("/{path}") })
    }
}

/// What may stand in a path without being quoted anywhere.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || "-_.~".contains(char)
}

/// One host with its port.
fn host(text: &str) -> Option<String> {
    let (name, port) = match text.rsplit_once(':') {
        // An IPv6 address stands in brackets, so a colon within them is none before a port.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
        _ => (text, PORT),
    };
    let inner = name.strip_prefix('[').map_or(Some(name), |rest| rest.strip_suffix(']'))?;
    let sound =
        !inner.is_empty() && inner.chars().all(|char| is_plain(char) || (inner != name && char == ':'));
    (sound && port != 0).then(|| format!("{name}:{port}"))
}

/// How a user proves to an ensemble who it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthScheme {
    /// ZooKeeper's `digest`: user and password are sent as they are, and any user that nobody took is accepted.
    #[default]
    Digest,
    /// A login by SASL (DIGEST-MD5), as one of the users that the servers know. The password is not sent.
    Sasl,
}

/// Who uses an ensemble: user, password, and how they are shown to it. No log shows them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: String,
    scheme: AuthScheme,
}

impl Credentials {
    /// From `user:password`, of the scheme `digest`; `None` if either is missing.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':')?;
        let (user, password) = (user.to_owned(), password.to_owned());
        (!user.is_empty() && !password.is_empty()).then(|| Self {
            user,
            password,
            scheme: AuthScheme::default(),
        })
    }

    /// The same user and password, of another scheme; `None` for a login by SASL with characters beyond ASCII, which the
    /// client library and ZooKeeper encode in different ways.
    #[must_use]
    pub fn with_scheme(self, scheme: AuthScheme) -> Option<Self> {
        let is_ascii = self.user.is_ascii() && self.password.is_ascii();
        (scheme != AuthScheme::Sasl || is_ascii).then_some(Self { scheme, ..self })
    }

    pub(super) fn scheme(&self) -> AuthScheme {
        self.scheme
    }

    /// Adds them to each session of a client, and to each of its connections.
    pub(super) fn add_to(&self, connector: Connector) -> Connector {
        let (user, password) = (self.user.clone(), self.password.clone());
        match self.scheme {
            AuthScheme::Digest => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
            AuthScheme::Sasl => connector.with_sasl(SaslOptions::digest_md5(user, password)),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// How a registry in an ensemble is used.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    /// The session timeout asked for; the ensemble has bounds of its own. Too short, and a slow moment of it ends the
    /// session, which costs a new one and no id; too long, and a process that was killed looks alive for as long.
    /// Defaults to 6 s.
    pub session: Duration,
    /// Who to be. Nodes that are made get rights for that user only; without, for everybody. Defaults to nobody.
    pub credentials: Option<Credentials>,
    /// The data folder, where it is remembered which worker was held last and what the registry had granted, so that
    /// one that was restored from a backup is noticed after a restart too. Defaults to none.
    pub folder: Option<PathBuf>,
}

impl Default for ZooKeeperOptions {
    fn default() -> Self {
        Self { session: Duration::from_secs(6), credentials: None, folder: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_hosts_and_a_path() {
        let show = |text: &str| text.parse::<ZooKeeperUrl>().map(|url| url.to_string());
        assert_eq!(show("zookeeper://a:1,b:2/x"), Ok("zookeeper://a:1,b:2/x".into()));
        assert_eq!(
            show("zookeeper://a,[::1]:7,[::1]/x/y/"),
            Ok("zookeeper://a:2181,[::1]:7,[::1]:2181/x/y".into())
        );
    }

    #[test]
    fn what_is_no_url_is_refused_with_the_form_that_is_one() {
        for text in [
            "",
            "a:1/x",
            "zookeeper://",
            "zookeeper://a:1",
            "zookeeper://a:1/",
            "zookeeper:///x",
            "zookeeper://a:0/x",
            "zookeeper://a:1,/x",
            "zookeeper://a:99999/x",
            "zookeeper://a:1//x",
            "zookeeper://a:1/../x",
            "zookeeper://a:1/zookeeper",
            "zookeeper://a b:1/x",
            "zookeeper://::1:7/x",
            "zookeeper://a:1/x y",
        ] {
            let error = text.parse::<ZooKeeperUrl>().expect_err(text).to_string();
            assert!(error.contains("zookeeper://host:port,host:port/path"), "{error}");
        }
    }

    #[test]
    fn credentials_are_a_user_and_a_password_and_not_shown() {
        assert!(
            Credentials::new("xuid:secret").is_some_and(|found| !format!("{found:?}").contains("secret"))
        );
        assert!([":", "a:", ":b", "ab", ""].iter().all(|text| Credentials::new(text).is_none()));
    }

    #[test]
    fn a_login_by_sasl_is_of_ascii() {
        let with = |text: &str, scheme| Credentials::new(text).and_then(|found| found.with_scheme(scheme));
        for text in ["xuid:s\u{e9}same", "x\u{fc}id:sesame", "xuid:\u{20ac}"] {
            assert!(with(text, AuthScheme::Sasl).is_none(), "{text}");
            assert_eq!(with(text, AuthScheme::Digest), Credentials::new(text));
        }
        assert!(
            with("xuid:open sesame", AuthScheme::Sasl)
                .is_some_and(|found| found != Credentials::new("xuid:open sesame").unwrap())
        );
    }
}
