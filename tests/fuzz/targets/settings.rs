#![no_main]
#![allow(dead_code, unused_imports, reason = "the server uses more of its settings than this target does")]

#[path = "../../../server/src/text"]
mod text {
    pub(crate) mod exit;
}

/// As `server/src/config/mod.rs`.
#[path = "../../../server/src/config"]
mod config {
    mod access;
    pub(crate) mod fuzzing;
    mod keys;
    mod log_filter;
    mod nearest;
    mod settings;
    mod sources;
    mod values;

    pub(crate) use access::{Access, AccessArgs};
    pub(crate) use settings::{RegistrySetting, Settings, Token};
    pub(crate) use sources::Flags;
    pub(crate) use xuid_engine::registry::zookeeper::ZooKeeperUrl as Url;

    pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7654";
    pub(crate) const DEFAULT_DATA_DIR: &str = "./xuid-data";
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| config::fuzzing::file(input));
