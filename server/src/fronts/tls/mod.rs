//! TLS below a front: how it begins, and what lies in it of a client's words.

pub(crate) mod handshake;
pub(crate) mod records;
