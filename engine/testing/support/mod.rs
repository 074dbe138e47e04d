//! What the attacks share: random numbers from a seed, simulated clocks, faults, and the oracle.

pub(crate) mod clock;
pub(crate) mod faults;
pub(crate) mod oracle;
pub(crate) mod rng;
pub(crate) mod wakers;
