#![no_main]
#![allow(dead_code, unused_imports, reason = "the server uses more of its settings than this target does")]

#[path = "../../../server/src/failure.rs"]
mod failure;

/// What the settings take from the server's module of that name.
mod ensemble {
    pub(crate) use xuid_engine::registry::zookeeper::{Credentials, ZooKeeperUrl as Url};
}

/// As `server/src/config.rs`, which cannot be taken as it is: a file that is named by a path looks for its parts beside
/// itself.
#[path = "../../../server/src/config"]
mod config {
    mod access;
    pub(crate) mod fuzzing;
    mod keys;
    mod settings;
    mod sources;
    mod values;

    pub(crate) use access::{Access, AccessArgs};
    pub(crate) use settings::{RegistrySetting, Settings, Token};
    pub(crate) use sources::Flags;

    pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7654";
    pub(crate) const DEFAULT_DATA_DIR: &str = "./xuid-data";
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| config::fuzzing::file(input));
