//! All ways to get ids that this crate knows, measured side by side in the manner of JMH.
//!
//! `cargo bench -p xuid-benches --bench throughput -- --help`

use std::process::ExitCode;

fn main() -> ExitCode {
    xuid_benches::jmh::main(&xuid_benches::peers::all())
}
