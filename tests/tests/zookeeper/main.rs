//! End to end, with ZooKeeper: the real binary on a real ensemble, and what becomes of both.
//!
//! The harness itself is proven first ([`harness`], [`proxy`]); every test prints what it measured.

mod cluster;
mod crash_loop;
mod cuts;
mod damage;
mod ensemble_down;
mod faults;
mod figures;
mod fixture;
mod harness;
mod leader_kills;
mod many_engines;
mod mismatch;
mod moving;
mod pauses;
mod proxy;
mod restores;
mod rights;
mod sasl;
mod sequences;
mod slow_way;
