//! Every target of the engine and the server in one table: `cargo bench -p xuid-benches --bench targets`, with names of
//! groups to measure only those.

use std::process::ExitCode;

use anyhow::Result;
use xuid_benches::load;
use xuid_benches::measure::Ticks;
use xuid_benches::rows::{ROUNDS, Row};
use xuid_benches::targets::GROUPS;

fn main() -> Result<ExitCode> {
    // The echo and the raw stream run in a child of this program.
    if load::serve_if_asked()? {
        return Ok(ExitCode::SUCCESS);
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    println!(
        "medians of {ROUNDS} rounds or more in turn [least..most]; a ratio is one of medians of this run\n"
    );
    let (mut missed, mut all) = (0, 0);
    let begin = Ticks::now();
    for (name, measure) in GROUPS {
        if !is_wanted(name) {
            continue;
        }
        eprintln!("measuring {name} ...");
        match measure() {
            Ok(rows) => {
                all += rows.len();
                missed += print(&rows);
            }
            Err(why) => {
                println!("VOID             {name}: {why:#}");
                missed += 1;
            }
        }
    }
    println!("\n{} of {all} targets met", all - missed.min(all));
    if let Some((begin, end)) = begin.zip(Ticks::now()) {
        println!("the host gave {:.1} % of the processors' time to others", end.stolen_since(begin) * 100.0);
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints rows; returns how many miss their target.
fn print(rows: &[Row]) -> usize {
    for row in rows {
        let verdict = if row.met { "met   " } else { "MISSED" };
        println!("{verdict} {:>10.2}  {:46} {:40} {}", row.ratio, row.target, row.path, row.figures);
    }
    rows.iter().filter(|row| !row.met).count()
}
