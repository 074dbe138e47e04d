//! How an ensemble is named, and as whom it is used. `absent.rs` stands in for this file in a build without the feature
//! `zookeeper`.

pub(crate) use xuid_engine::registry::zookeeper::{Credentials, ZooKeeperUrl as Url};
