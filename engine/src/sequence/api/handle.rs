//! A generator owned by one thread.

use crate::sequence::error::SequenceError;

/// A run of its own beside the sequence's segments. Move-only; its rest goes back when it is dropped.
pub struct SequenceHandle {}

impl std::fmt::Debug for SequenceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequenceHandle").finish_non_exhaustive()
    }
}

impl SequenceHandle {
    /// The next id in no promised order; waits as [`Sequence::next_id`](super::sequence::Sequence::next_id) does.
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    pub fn next_id(&mut self) -> Result<u64, SequenceError> {
        todo!()
    }
}
