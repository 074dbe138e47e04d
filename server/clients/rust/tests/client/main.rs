//! The client over a real loopback socket, against a server whose every word the test decides.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test fails by a panic, as the test does"
)]

mod errors;
mod failover;
mod fake;
#[cfg(target_os = "linux")]
mod forked;
mod leaving;
mod mill;
mod patience;
mod pipeline;
mod prefetch;
mod prefetch_failover;
mod sequences;
mod several;
#[cfg(feature = "tls")]
mod tls;
