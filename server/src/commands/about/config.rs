//! `xuid config`.

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Map, Value, json};
use tracing::warn;
use xuid_engine::registry::printable;

use crate::config::{Flags, Found, Shown, shown};
use crate::text::stdout::Printer;

/// `xuid config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print every setting of a server: its value, and where that was found; and check them as a start does
    Print(Print),
}

/// The flags are those of `xuid serve`: what a server would make of them is what is printed.
#[derive(Debug, clap::Args)]
struct Print {
    #[command(flatten)]
    flags: Flags,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the settings. Those that no server would take are printed, too, and then refused.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Action::Print(Print { flags, json }) = &args.action;
    let mut out = Printer::new()?;
    let (all, checked) = shown(flags)?;
    if *json {
        out.line(as_json(&all))?;
    } else {
        let longest = all.iter().map(|one| one.name.len()).max().unwrap_or(0);
        let width = all.iter().map(|one| as_text(&one.found).chars().count()).max().unwrap_or(0);
        for Shown { name, found, origin } in &all {
            out.line(format_args!("{name:<longest$}  {:<width$}  {origin}", as_text(found)))?;
        }
    }
    out.flush()?;
    let settings = checked?;
    for warning in settings.warnings.iter().chain(&settings.check_addresses()?) {
        warn!("{warning}");
    }
    Ok(())
}

fn as_text(found: &Found) -> String {
    match found {
        Found::Value(text) if text.is_empty() => "\"\"".to_owned(),
        // A variable may hold anything.
        Found::Value(text) => printable(text),
        Found::Secret => "(set)".to_owned(),
        Found::NoSecret => "(not set)".to_owned(),
        Found::Nothing => "-".to_owned(),
    }
}

fn as_json(all: &[Shown]) -> Value {
    let entry = |Shown { name, found, origin }: &Shown| {
        let value = match found {
            Found::Value(text) => json!({ "value": text, "origin": origin }),
            Found::Nothing => json!({ "value": null, "origin": origin }),
            Found::Secret => json!({ "set": true, "origin": origin }),
            Found::NoSecret => json!({ "set": false, "origin": origin }),
        };
        ((*name).to_owned(), value)
    };
    Value::Object(all.iter().map(entry).collect::<Map<_, _>>())
}
