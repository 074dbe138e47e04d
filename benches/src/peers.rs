//! Baselines: the prototype, the limits, and other generators.

mod seed;

pub use seed::SeedRing;
