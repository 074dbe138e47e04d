//! The two threads behind sequences. The **teller** asks the store, the witness and the registry, and nothing else of the
//! sequences waits for those. The **keeper** ends calls whose time is over, measures rates, and looks at the clock.

pub(crate) mod asking;
pub(crate) mod controls;
pub(crate) mod identity;
pub(crate) mod keeper;
pub(crate) mod reclaim;
pub(crate) mod teller;
pub(crate) mod witness;
