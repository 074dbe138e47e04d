//! What the bytes of a connection mean: XUID/1, and the admin port's HTTP. A front takes bytes in and gives bytes out;
//! it decides nothing about ids.

pub(crate) mod admin;
pub(crate) mod buffers;
pub(crate) mod farewell;
pub(crate) mod handshake;
pub(crate) mod xuid;
