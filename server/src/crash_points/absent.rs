//! What an ordinary build has in the place of the log of issued ids: nothing, which the compiler knows.

/// Ids were copied into a reply.
#[inline]
pub(crate) fn issued(_first: u64, _count: u32) {}

/// What was issued is known.
#[inline]
pub(crate) fn settle() {}

/// How much of a reply may be written now.
#[inline]
pub(crate) fn portion(rest: &[u8]) -> &[u8] {
    rest
}

/// Nothing of it was written.
#[inline]
pub(crate) fn not_written() {}

/// Some of it was written.
#[inline]
pub(crate) fn written() {}
