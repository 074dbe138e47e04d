//! The settings of `xuid serve`: flag, else `XUID_*` variable, else `--config` file, else default, key by key.
//!
//! # Invariants
//! - I1 a key has one entry in [`keys::KEYS`]: its name, flag, default, range and help are said there and nowhere else;
//! - I2 every source brings text, and one parser checks it, so the same mistake reads the same wherever it was made;
//! - I3 nothing is created on disk before every key was checked.

mod access;
mod exposure;
#[cfg(any(test, fuzzing))]
mod fuzzing;
mod keys;
mod log_filter;
mod secrets;
mod sequences;
mod settings;
mod shown;
mod sources;
mod tls;
mod tokens;
mod values;

pub(crate) use access::{Access, AccessArgs};
pub(crate) use exposure::is_exposed;
#[cfg(fuzzing)]
pub(crate) use fuzzing::file as read_file;
pub(crate) use log_filter::log_of_environment;
pub(crate) use secrets::opaque_key::OpaqueKey;
pub(crate) use sequences::{SequenceSettings, SequenceStore, Witness};
pub(crate) use settings::{LEAST_IDLE, RegistrySetting, Settings, layout_said};
pub(crate) use shown::{Found, Shown, shown};
pub(crate) use sources::Flags;
pub(crate) use tls::{ServerTls, TlsArgs};
pub(crate) use tokens::Tokens;
pub(crate) use tokens::rights::{Right, SequenceRights};
pub(crate) use values::{cores, floor, layout};
pub(crate) use xuid_engine::registry::zookeeper::ZooKeeperUrl as Url;

/// Where `xuid serve` listens, and where the other commands look for it, unless told otherwise.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7654";

/// The folder of the embedded registry and the spill, unless told otherwise.
pub(crate) const DEFAULT_DATA_DIR: &str = "./xuid-data";
