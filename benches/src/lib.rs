//! Subjects and baselines of the benchmarks, and the measuring itself.

pub mod measure;
pub mod seed;
