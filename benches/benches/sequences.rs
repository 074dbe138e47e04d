//! What named sequences are held to: each call beside the engine's, beside what bounds it and beside the double buffer of
//! Leaf, `SEQ_NEXT` beside NEXT and Redis, a strict sequence on PostgreSQL, and a hundred thousand names:
//! `cargo bench -p xuid-benches --bench sequences`, with names of groups to measure only those.

use std::process::ExitCode;

use anyhow::Result;
use xuid_benches::load;
use xuid_benches::table;
use xuid_benches::targets;

fn main() -> Result<ExitCode> {
    targets::check_sequences()?;
    // `cargo bench` may run each benchmark once without measuring.
    if std::env::args().any(|word| word == "--test") {
        return Ok(ExitCode::SUCCESS);
    }
    println!("medians of rounds in turn [least..most]; a ratio is one of this run\n");
    Ok(table::measure(&[&targets::SEQUENCES[..], &load::SEQUENCES].concat()))
}
