//! Measures groups of rows and prints them as a table.

use std::process::ExitCode;

use anyhow::Result;

use crate::measure::Ticks;
use crate::rows::Row;

/// A group of rows by name, and what measures it.
pub type Group = (&'static str, fn() -> Result<Vec<Row>>);

/// Measures the groups that the command line names, all if it names none. Fails if a row misses its target.
///
/// # Panics
/// A group does.
#[must_use]
pub fn measure(groups: &[Group]) -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let (mut missed, mut all) = (0, 0);
    let begin = Ticks::now();
    for (name, measure) in groups {
        if !is_wanted(name) {
            continue;
        }
        eprintln!("measuring {name} ...");
        // On a thread of its own: some groups pin theirs to a core.
        let measured = std::thread::scope(|scope| scope.spawn(measure).join());
        match measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
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
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints rows; returns how many miss their target.
fn print(rows: &[Row]) -> usize {
    for row in rows {
        let verdict = if row.met { "met   " } else { "MISSED" };
        println!("{verdict} {:>10.2}  {:46} {:40} {}", row.ratio, row.target, row.path, row.figures);
    }
    rows.iter().filter(|row| !row.met).count()
}
