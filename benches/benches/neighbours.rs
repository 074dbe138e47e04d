//! What a server's clients keep beside others that ask for too much, say nothing or lie, and what TLS and an idle server
//! cost: `cargo bench -p xuid-benches --bench neighbours`, with names of groups to measure only those.
//!
//! The server and all clients share the machine's cores, so that a figure can be compared with those of its row only.

use std::process::ExitCode;

use xuid_benches::load;
use xuid_benches::table;

fn main() -> ExitCode {
    // `cargo bench` may run each benchmark once without measuring; this one only measures.
    if std::env::args().any(|word| word == "--test") {
        return ExitCode::SUCCESS;
    }
    println!("medians of rounds in turn [least..most]; a ratio is one of medians of this run\n");
    table::measure(&load::NEIGHBOURS)
}
