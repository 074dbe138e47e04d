//! Every target of the engine and the server in one table: `cargo bench -p xuid-benches --bench targets`, with names of
//! groups to measure only those.

use std::process::ExitCode;

use anyhow::Result;
use xuid_benches::load;
use xuid_benches::rows::ROUNDS;
use xuid_benches::table;
use xuid_benches::targets::GROUPS;

fn main() -> Result<ExitCode> {
    // The echo and the raw stream run in a child of this program.
    if load::serve_if_asked()? {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "medians of {ROUNDS} rounds or more in turn [least..most]; a ratio is one of medians of this run\n"
    );
    Ok(table::measure(&GROUPS))
}
