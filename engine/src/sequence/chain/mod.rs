//! What one name holds: segments in a chain, the calls that wait in line for more, and how much more is asked for.

pub(crate) mod held;
pub(crate) mod line;
pub(crate) mod pace;
pub(crate) mod segment;
pub(crate) mod span;
