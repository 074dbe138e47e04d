//! Attacks on the engine: each test states what should hold, and fails where it does not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod held_up;
mod leaps;
mod reserve;
mod stops;
mod waiting;
mod workers;
