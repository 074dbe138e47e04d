//! What attacks the engine: simulated clusters, power cuts, mutants, incidents of other generators retold, models of
//! threads, and the campaigns that repeat them. Only tests see it; it sees the engine's private parts.

pub(crate) mod campaigns;
pub(crate) mod crash_images;
mod incidents;
pub(crate) mod mutants;
pub(crate) mod sequences;
pub(crate) mod simulation;
pub(crate) mod support;
