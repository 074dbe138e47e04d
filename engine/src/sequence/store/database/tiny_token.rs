//! What a row of tinyid's tokens says.

/// A row of tinyid's table `tiny_id_token`: who says this token may have ids of this name.
#[derive(Clone, PartialEq, Eq)]
pub struct TinyToken {
    /// The secret.
    pub token: String,
    /// The name, tinyid's `biz_type`.
    pub name: String,
}

impl std::fmt::Debug for TinyToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TinyToken").field("name", &self.name).finish_non_exhaustive()
    }
}
