//! Why a namespace cannot be used with the key of opaque ids that was given, or with none.

use xuid_id::LayoutError;

/// Why a namespace cannot be used with the key of opaque ids that was given, or with none. A namespace has one key for
/// ever, or none for ever: two keys, or a key that comes later, can make one id of two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpaqueKeyError {
    /// Its ids are opaque, and no key was given.
    #[error(
        "the ids of this registry are opaque, and no key was given: give the one that it was created with \
         (opaque_key_file, --opaque-key-file FILE)"
    )]
    Absent,
    /// Its ids were sealed with another key.
    #[error(
        "the key of opaque ids is not the one that this registry was created with, and ids of two keys can be the same: \
         give that one (opaque_key_file, --opaque-key-file FILE)"
    )]
    Other,
    /// Its ids are not opaque.
    #[error(
        "a key of opaque ids was given, and the ids of this registry are not opaque and never will be, as both kinds can \
         be the same: leave the key out, or use a registry that is created with it"
    )]
    Unwanted,
    /// Ids of that layout cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}
