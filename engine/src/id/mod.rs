//! Runs of ids, and why there are none. The id itself, its layout and its order are in the crate `xuid-id`.

pub(crate) mod error;
pub(crate) mod key_error;
pub(crate) mod run;
