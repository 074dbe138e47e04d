//! Subjects and baselines of the benchmarks, and the measuring itself.

pub mod client_rate;
pub mod jmh;
pub mod land;
pub mod load;
pub mod measure;
pub mod peers;
pub mod rows;
pub mod subject;
pub mod table;
pub mod targets;
mod timing;
