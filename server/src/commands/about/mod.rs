//! What the program says of itself and of its settings: nothing here asks a server or a registry.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod man;
