//! What callers see: how an engine is built, what it answers, and what it tells about itself.

pub(crate) mod build_error;
pub(crate) mod builder;
pub(crate) mod data_dir;
pub(crate) mod engine;
pub(crate) mod folder_rights;
pub(crate) mod handle;
mod memory;
pub(crate) mod pending;
pub(crate) mod provenance;
pub(crate) mod report;
pub(crate) mod status;
