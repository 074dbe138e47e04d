//! Named sequences as callers see them.

pub(crate) mod builder;
pub(crate) mod handle;
pub(crate) mod pending;
pub(crate) mod sequence;
pub(crate) mod sequences;
