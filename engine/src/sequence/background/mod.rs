//! The two threads behind sequences. The **teller** asks the store, the witness and the registry, and nothing else of the
//! sequences waits for those. The **keeper** ends calls whose time is over, measures rates, and looks at the clock.

mod asking;
mod behind;
mod controls;
pub(crate) mod identity;
pub(crate) mod keeper;
mod reclaim;
mod refused;
pub(crate) mod rest;
pub(crate) mod teller;
pub(crate) mod witness;
