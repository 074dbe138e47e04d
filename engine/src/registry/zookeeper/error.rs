//! Why a registry in an ensemble cannot be opened, made, looked at or fenced.

use super::target::ZooKeeperUrl;
use crate::id::key_error::OpaqueKeyError;
use crate::registry::ClusterId;

/// Why an ensemble does not let this process in as a user of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// It refuses the login by SASL.
    #[error(
        "refuses the login by SASL: it does not know the user, or the password is another; give a user and password of its servers' JAAS file, in XUID_REGISTRY_AUTH or a file that registry_auth_file names"
    )]
    Rejected,
    /// The login by SASL was answered, and nobody is logged in.
    #[error(
        "let this process in without a login by SASL: its servers have no SASL, and need a JAAS file and authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider, or set registry_auth_scheme to digest here; or they keep clients whose login failed (allowSaslFailedClients), and user or password is wrong"
    )]
    Ignored,
    /// It wants a login, and there was none, or one of another scheme.
    #[error(
        "lets in only clients that log in: set registry_auth_scheme to sasl where it wants SASL, and give a user and password of its own, in XUID_REGISTRY_AUTH or a file that registry_auth_file names"
    )]
    Wanted,
}

/// Why a registry in an ensemble cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZooKeeperError {
    /// No server of the ensemble answered as it should.
    #[error("no ZooKeeper server at {hosts} answers ({why}): are they up, and reachable from here?")]
    Unreachable {
        /// The hosts that were tried.
        hosts: String,
        /// What happened.
        why: String,
    },
    /// It answers, and does not let this process in.
    #[error("the ensemble at {hosts} {why}")]
    Login {
        /// The ensemble.
        hosts: String,
        /// Why.
        why: LoginError,
    },
    /// There is no registry.
    #[error("there is no registry at {url}: make it once with `xuid registry init {url}`")]
    Absent {
        /// Where it would be.
        url: ZooKeeperUrl,
    },
    /// It cannot be made with that key of opaque ids, or without one.
    #[error(transparent)]
    Key(#[from] OpaqueKeyError),
    /// There is one already.
    #[error("there is a registry at {url} already, of cluster {cluster}: use it, or another path")]
    Exists {
        /// Where it is.
        url: ZooKeeperUrl,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// The node is no registry, or not one that this program understands.
    #[error(
        "what is at {url} is no registry that can be used ({why}): use another path, or restore it and run `xuid registry fence {url}`"
    )]
    Damaged {
        /// Where it is.
        url: ZooKeeperUrl,
        /// What is wrong.
        why: String,
    },
    /// It is closed to everybody until a fence opens it again.
    #[error("the registry at {url} is closed: {why}; run `xuid registry fence {url}`")]
    Closed {
        /// Where it is.
        url: ZooKeeperUrl,
        /// Why.
        why: String,
    },
    /// It is not what this data folder knows of it: restored from a backup, or closed or replaced just now.
    #[error("{why}")]
    Refused {
        /// What was found, and what to do.
        why: String,
    },
    /// The ensemble does not allow it.
    #[error(
        "the ensemble at {hosts} allows no {action} to these credentials: give the user and password that the registry was made with, in XUID_REGISTRY_AUTH or a file that registry_auth_file names, and its registry_auth_scheme"
    )]
    Rights {
        /// The ensemble.
        hosts: String,
        /// What was tried.
        action: &'static str,
    },
    /// Another process is fencing it, or making it.
    #[error(
        "another fence of {url} is at work, or it is being made; wait for it, or where that was broken off, for the end of its \
         session"
    )]
    Busy {
        /// Where it is.
        url: ZooKeeperUrl,
    },
    /// That many workers cannot be had.
    #[error("{found} workers were asked for, and 1 to {most} are allowed")]
    Workers {
        /// What was asked for.
        found: u32,
        /// What the layout, and an ensemble, have room for.
        most: u32,
    },
    /// The connection broke while it was worked on.
    #[error("failed to {action}: {why}; try again")]
    Broken {
        /// What was tried.
        action: &'static str,
        /// What happened.
        why: String,
    },
    /// The system refused something.
    #[error("failed to {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}
