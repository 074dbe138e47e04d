//! What a server knows of itself: its engine, its traffic, its figures. And threads for what blocks.

pub(crate) mod access;
pub(crate) mod address_limits;
pub(crate) mod beside;
pub(crate) mod cursors;
pub(crate) mod id_limit;
pub(crate) mod latency;
pub(crate) mod metrics;
pub(crate) mod sequences;
pub(crate) mod server;
pub(crate) mod tiny_tokens;
pub(crate) mod traffic;
pub(crate) mod unread;
