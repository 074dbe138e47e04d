//! `xuid sequence`: named sequences, through a server or at their store itself.

mod at_store;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use tokio_rustls::rustls::ClientConfig;
use xuid_engine::registry::printable;
use xuid_protocol::{Order, SequenceName};

use self::at_store::{AtStore, Fence};
use super::servers;
use crate::commands::connection::Connection;
use crate::commands::next::Source;
use crate::config::TlsArgs;
use crate::net::runtime;
use crate::text::exit::{Usage, usage};
use crate::text::stdout::Printer;

/// Numbers of one request.
const PIECE: u32 = 32_768;

/// Sequences of one. So many are answered also while much is not read.
const PAGE: u32 = 256;

/// `xuid sequence`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Begin a sequence; the same once more changes nothing
    Create(Create),
    /// List the sequences there are
    List(List),
    /// Show one sequence: its mark, its settings, and what the server holds of it
    Show(Named),
    /// Change the step, the end or the description of a sequence
    Alter(Alter),
    /// End a sequence: nothing is granted any more
    Retire(Named),
    /// Print numbers of a sequence, one a line
    Next(Next),
    /// Prepare a database: make the tables that are missing, and write down which database it is
    Init(AtStore),
    /// Look at a database as a server would; exit code 1 if it can lose commits
    Check(AtStore),
    /// After a store went back, or may have: raise its marks above anything that was granted
    Fence(Fence),
}

/// How a server is reached.
#[derive(Debug, clap::Args)]
struct Through {
    /// The servers; the first one that can be reached is asked [env: `XUID_SERVER`] [default: 127.0.0.1:7654]
    #[arg(long, value_name = "ADDR,ADDR", value_delimiter = ',')]
    server: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

#[derive(Debug, clap::Args)]
struct Named {
    /// The sequence
    name: String,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    through: Through,
}

#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    named: Named,
    /// No number is below [default: 1]
    #[arg(long, value_name = "N")]
    start: Option<u64>,
    /// The least that a server is granted at once [default: the server's, 1000]
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// The distance between two numbers [default: 1]
    #[arg(long, value_name = "N")]
    increment: Option<u64>,
    /// What each number leaves when it is divided by the increment [default: 0]
    #[arg(long, value_name = "N")]
    remainder: Option<u64>,
    /// The highest number [default: 9223372036854775807]
    #[arg(long, value_name = "N")]
    last: Option<u64>,
    /// Ascend over all servers, at the cost of a change of the store for each batch of requests
    #[arg(long)]
    strict: bool,
    /// For people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Alter {
    #[command(flatten)]
    named: Named,
    /// The least that a server is granted at once, from its next grant on
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// The highest number, above the one before
    #[arg(long, value_name = "N")]
    last: Option<u64>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

#[derive(Debug, clap::Args)]
struct List {
    /// What the names begin with
    #[arg(default_value = "")]
    prefix: String,
    /// A JSON array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    through: Through,
}

#[derive(Debug, clap::Args)]
struct Next {
    /// The sequence
    name: String,
    /// How many
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 1)]
    count: u64,
    /// In which order they come
    #[arg(long, value_enum, default_value_t)]
    order: OrderArg,
    /// A JSON array of strings: a number of 64 bits does not survive JavaScript
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    through: Through,
}

/// The order of a sequence's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum OrderArg {
    /// Any that were not issued yet
    Any,
    /// Greater than every ordered number that the same server answered before
    #[default]
    Ordered,
}

/// Does what was asked.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.action {
        Action::Init(args) => args.init(),
        Action::Check(args) => args.check(),
        Action::Fence(args) => args.run(),
        action => runtime::run(through(action))?,
    }
}

async fn through(action: &Action) -> Result<()> {
    match action {
        Action::Create(args) => create(args).await,
        Action::List(args) => list(args).await,
        Action::Show(named) => {
            let name = checked(&named.name)?;
            named.ask(async |server| server.sequence(name).await).await
        }
        Action::Alter(args) => {
            let mut changes = Map::new();
            put_number(&mut changes, "step", args.step);
            put_number(&mut changes, "last", args.last);
            put_text(&mut changes, "description", args.description.as_deref());
            if changes.is_empty() {
                return Err(
                    usage("nothing is to change; allowed are --step, --last and --description").into()
                );
            }
            alter(&args.named, changes).await
        }
        Action::Retire(named) => {
            alter(named, Map::from_iter([("last".to_owned(), Value::from("retired"))])).await
        }
        Action::Next(args) => next(args).await,
        Action::Init(_) | Action::Check(_) | Action::Fence(_) => unreachable!("done at the store"),
    }
}

impl Through {
    async fn connect(&self) -> Result<Source> {
        let tls: Option<Arc<ClientConfig>> = self.tls.load()?;
        Source::connect(servers(&self.server)?, tls).await
    }
}

impl Named {
    /// Prints what a server answers.
    async fn ask(&self, question: impl AsyncFnOnce(&mut Connection) -> Result<Value>) -> Result<()> {
        let out = Printer::new()?;
        let mut source = self.through.connect().await?;
        let answer = question(source.connection()).await?;
        print(&answer, self.json, out).context("the server has done it")
    }
}

fn checked(name: &str) -> Result<SequenceName<'_>, Usage> {
    SequenceName::new(name.as_bytes())
        .map_err(|error| usage(format!("{name:?} is no name of a sequence: {error}")))
}

/// As a text: a number of 64 bits does not survive every reader.
fn put_number(object: &mut Map<String, Value>, name: &str, number: Option<u64>) {
    object.extend(number.map(|number| (name.to_owned(), Value::from(number.to_string()))));
}

fn put_text(object: &mut Map<String, Value>, name: &str, text: Option<&str>) {
    object.extend(text.map(|text| (name.to_owned(), Value::from(text))));
}

async fn create(args: &Create) -> Result<()> {
    let name = checked(&args.named.name)?;
    let mut settings = Map::new();
    put_number(&mut settings, "start", args.start);
    put_number(&mut settings, "step", args.step);
    put_number(&mut settings, "increment", args.increment);
    put_number(&mut settings, "remainder", args.remainder);
    put_number(&mut settings, "last", args.last);
    put_text(&mut settings, "description", args.description.as_deref());
    if args.strict {
        settings.insert("strict".to_owned(), true.into());
    }
    let settings = Value::Object(settings).to_string();
    args.named.ask(async |server| server.create_sequence(name, &settings).await).await
}

async fn alter(named: &Named, changes: Map<String, Value>) -> Result<()> {
    let name = checked(&named.name)?;
    let changes = Value::Object(changes).to_string();
    named.ask(async |server| server.alter_sequence(name, &changes).await).await
}

async fn list(args: &List) -> Result<()> {
    let (mut out, mut after, mut all) = (Printer::new()?, String::new(), Vec::new());
    let mut source = args.through.connect().await?;
    loop {
        let Value::Array(page) = source.sequences(&args.prefix, &after, PAGE).await? else {
            bail!("the server's list of sequences is no list");
        };
        let is_last = page.len() < PAGE as usize;
        after = last_of(&page, after)?;
        if args.json {
            all.extend(page);
        } else {
            for row in &page {
                let (name, next, step) = (text(row, "name"), text(row, "next"), text(row, "step"));
                out.line(printable(&format!("{name}  next {next}  step {step}{}", marks(row))))?;
            }
        }
        if is_last {
            break;
        }
    }
    if args.json {
        out.line(Value::Array(all))?;
    }
    out.flush()
}

/// The last name of a page that follows `after`. A list that did not go on would never end.
fn last_of(page: &[Value], mut after: String) -> Result<String> {
    for row in page {
        let name = text(row, "name");
        if name <= after.as_str() {
            bail!(
                "the server's list of sequences has {name:?} behind {after:?}, and each is above the one before"
            );
        }
        name.clone_into(&mut after);
    }
    Ok(after)
}

/// What is not as it is with most.
fn marks(row: &Value) -> String {
    let strict = if row["strict"] == json!(true) { "  strict" } else { "" };
    let increment = match text(row, "increment") {
        "1" => String::new(),
        increment => format!("  increment {increment} remainder {}", text(row, "remainder")),
    };
    format!("{strict}{increment}")
}

fn text<'r>(row: &'r Value, name: &str) -> &'r str {
    row[name].as_str().unwrap_or_default()
}

fn print(found: &Value, json: bool, mut out: Printer) -> Result<()> {
    if json {
        out.line(found)?;
        return out.flush();
    }
    let object = found.as_object().context("the server answered no JSON object")?;
    for (name, value) in object {
        let shown = match value {
            Value::String(text) => printable(text),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        out.line(format_args!("{name:<12}{shown}"))?;
    }
    out.flush()
}

async fn next(args: &Next) -> Result<()> {
    let name = checked(&args.name)?;
    let order = if args.order == OrderArg::Any { Order::Any } else { Order::Ordered };
    let mut out = Printer::new()?;
    let mut source = args.through.connect().await?;
    let (mut left, mut last) = (args.count, None);
    if args.json {
        out.part("[")?;
    }
    while left > 0 {
        let numbers = source.numbers(name, left.min(u64::from(PIECE)) as u32, order).await?;
        left -= numbers.len() as u64;
        for number in numbers {
            if let (OrderArg::Ordered, Some(before)) = (args.order, last)
                && number <= before
            {
                out.flush()?;
                bail!(
                    "{} answered {number}, which is not above {before}, the last one printed: ordered holds among the numbers \
                     of one server only, unless the sequence is strict",
                    source.server()
                );
            }
            if args.json {
                out.part(format_args!("{}\"{number}\"", if last.is_none() { "" } else { ", " }))?;
            } else {
                out.line(number)?;
            }
            last = Some(number);
        }
    }
    if args.json {
        out.line("]")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_does_not_go_on_is_none() {
        let page = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
        assert_eq!(last_of(&page(&["b", "c"]), "a".to_owned()).unwrap(), "c");
        assert_eq!(last_of(&[], "a".to_owned()).unwrap(), "a");
        for names in [&["a"][..], &["b", "b"], &["c", "b"], &[""]] {
            assert!(last_of(&page(names), "a".to_owned()).is_err(), "{names:?}");
        }
    }
}
