//! The codec against its golden bytes, against itself, and against rubbish.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test fails by a panic, as the test does"
)]

mod bodies;
mod golden;
mod round_trip;
mod rubbish;
mod values;
mod vectors;
mod vectors_json;
