//! What the bytes of a connection mean: XUID/1, the protocol of Redis, HTTP, and the admin port's HTTP. A front takes bytes in
//! and gives bytes out; it decides nothing about ids.

pub(crate) mod admin;
pub(crate) mod buffers;
pub(crate) mod client;
pub(crate) mod conversation;
pub(crate) mod farewell;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod http;
pub(crate) mod names;
pub(crate) mod refusals;
pub(crate) mod resp;
pub(crate) mod tls;
pub(crate) mod waiting;
pub(crate) mod xuid;

use crate::state::traffic::FrontName;

/// A way in for clients that ask for ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// XUID/1.
    Xuid,
    /// The protocol of Redis.
    Resp,
    /// HTTP.
    Http,
}

impl Front {
    /// What its connections are counted as.
    pub(crate) fn name(self) -> FrontName {
        match self {
            Self::Xuid => FrontName::Xuid,
            Self::Resp => FrontName::Resp,
            Self::Http => FrontName::Http,
        }
    }

    /// What one connection too many is told.
    pub(crate) fn refuse_connection(self) -> Vec<u8> {
        match self {
            Self::Xuid => xuid::refuse_connection(),
            Self::Resp => resp::refuse_connection(),
            Self::Http => http::refuse_connection(),
        }
    }

    /// What a client is told that speaks anything but TLS to a port of TLS, by its first byte.
    pub(crate) fn refuse_plain(self, first: u8) -> Vec<u8> {
        match self {
            Self::Xuid => xuid::refuse_plain(first),
            Self::Resp => resp::refuse_plain(),
            Self::Http => http::refuse_plain(),
        }
    }
}
