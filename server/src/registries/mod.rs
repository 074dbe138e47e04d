//! The registry that a command works on, in a folder or in an ensemble.

pub(crate) mod ensemble;
pub(crate) mod json;
pub(crate) mod new;
pub(crate) mod provenance;
pub(crate) mod sequence_store;
pub(crate) mod target;
pub(crate) mod view;
