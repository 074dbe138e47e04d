#![no_main]
#![allow(dead_code, unused_imports, reason = "the server uses more of its settings than this target does")]

#[path = "../../../server/src/text"]
mod text {
    pub(crate) mod exit;
}

/// As `server/src/config/mod.rs`, with the names of ensembles whatever the features are.
#[path = "../../../server/src/config"]
mod config {
    mod access;
    pub(crate) mod fuzzing;
    mod keys;
    mod settings;
    mod sources;
    mod url;
    mod values;

    pub(crate) use access::{Access, AccessArgs};
    pub(crate) use settings::{RegistrySetting, Settings, Token};
    pub(crate) use sources::Flags;
    pub(crate) use url::Url;

    pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7654";
    pub(crate) const DEFAULT_DATA_DIR: &str = "./xuid-data";
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| config::fuzzing::file(input));
