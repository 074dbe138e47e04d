//! `xuid provenance`: where ids came from, as far as registry, data folders and running servers know. It writes nothing.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;
use xuid_engine::registry::printable;
use xuid_engine::registry::provenance::Evidence;
use xuid_engine::{Id, Prefixed, Veil};

use crate::commands::next::Source;
use crate::commands::servers;
use crate::config::{AccessArgs, DEFAULT_DATA_DIR, OpaqueKey, TlsArgs};
use crate::net::runtime;
use crate::registries::provenance::{as_json, evidence};
use crate::registries::target::Target;
use crate::registries::view::View;
use crate::text::exit::usage;
use crate::text::form::{FormArgs, no_id};
use crate::text::human_time::rfc3339_ms;
use crate::text::logs;
use crate::text::stdout::Printer;

/// The most bytes of ids that are read from standard input: some million ids.
const MOST_INPUT: u64 = 64 << 20;

/// `xuid provenance`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ids, in the form of --form; `-` takes them from standard input, with white space between them
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    form: FormArgs,
    /// The registry: a data folder, or zookeeper://host:port,host:port/path [default: that of the first data folder]
    #[arg(long, value_name = "URL|DIR", env = "XUID_REGISTRY", hide_env_values = true)]
    registry: Option<String>,
    /// A data folder, whose notes and spills tell more; any number of them [default: that of a registry in a folder, or
    /// xuid-data where nothing else is named]
    #[arg(long, value_name = "DIR", env = "XUID_DATA_DIR", hide_env_values = true)]
    data_dir: Vec<PathBuf>,
    /// Running servers, each of which is asked
    #[arg(long, value_name = "ADDR,ADDR", value_delimiter = ',')]
    server: Vec<String>,
    /// The key of opaque ids, as the server has it; a server that is asked needs none
    #[arg(long, value_name = "FILE", env = "XUID_OPAQUE_KEY_FILE", hide_env_values = true)]
    opaque_key_file: Option<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    tls: TlsArgs,
    /// One JSON object an id, a line each
    #[arg(long)]
    json: bool,
}

/// Asks and tells.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut out = Printer::new()?;
    let ids = ids(&args.ids, args.form.prefixed()?)?;
    let known = Known::of(args)?;
    let servers = if args.server.is_empty() { Vec::new() } else { servers(&args.server)? };
    let tls = args.tls.load()?;
    runtime::run(async {
        let mut sources = connect(servers, tls.as_ref(), known.as_ref()).await?;
        let mut told = HashSet::new();
        for id in ids {
            let found = judge(id, known.as_ref(), &mut sources, &mut told).await?;
            if args.json {
                out.line(&found)?;
            } else {
                out.line(as_text(id, &found))?;
            }
        }
        out.flush()
    })?
}

/// The ids of the command line, and of standard input where it says `-`.
fn ids(given: &[String], form: Prefixed<'_>) -> Result<Vec<Id>> {
    let mut ids = Vec::new();
    let mut read = |text: &str| match form.parse(text) {
        Ok(id) => {
            ids.push(id);
            Ok(())
        }
        Err(error) => Err(usage(format!("{text:?} is no id: {error}"))),
    };
    for text in given {
        if text != "-" {
            read(text)?;
            continue;
        }
        let mut input = String::new();
        let mut some = io::stdin().lock().take(MOST_INPUT + 1);
        some.read_to_string(&mut input).context("failed to read standard input")?;
        if input.len() as u64 > MOST_INPUT {
            bail!("standard input has more than {} MiB: give the ids in parts", MOST_INPUT >> 20);
        }
        input.split_whitespace().try_for_each(&mut read)?;
    }
    if ids.is_empty() {
        return Err(no_id(form).into());
    }
    Ok(ids)
}

/// What registry and folders say.
struct Known {
    view: View,
    evidence: Evidence,
    /// The key of opaque ids.
    veil: Option<Veil>,
}

impl Known {
    /// `None` where only servers are named.
    fn of(args: &Args) -> Result<Option<Self>> {
        let mut folders = args.data_dir.clone();
        if args.registry.is_none() && folders.is_empty() {
            if !args.server.is_empty() {
                return Ok(None);
            }
            folders.push(DEFAULT_DATA_DIR.into());
        }
        let first = folders.first().cloned().unwrap_or_else(|| DEFAULT_DATA_DIR.into());
        let target = Target::named(args.registry.as_deref().unwrap_or("local"), &first, &args.access)?;
        if let Target::Folder(folder) = &target
            && !folders.contains(folder)
        {
            folders.push(folder.clone());
        }
        let view = target.look()?;
        for folder in &folders {
            // What is mistyped would look like a folder in which nothing is known.
            let found = std::fs::read_dir(folder).map(drop);
            found.with_context(|| format!("failed to read the data folder {}", folder.display()))?;
        }
        let veil = OpaqueKey::load("--opaque-key-file", args.opaque_key_file.as_deref())?.map(|key| key.veil);
        view.genesis.check_veil(veil.as_ref())?;
        let evidence = evidence(&view, &folders);
        for unread in evidence.unread() {
            logs::warning(&format!("{unread}; less is told than may be known"));
        }
        Ok(Some(Self { view, evidence, veil }))
    }

    fn judge(&self, id: Id) -> Value {
        let opened = self.veil.as_ref().map_or(id, |veil| veil.open(id));
        let found = self.evidence.judge(opened, None);
        as_json(id, &self.view.genesis.layout, &found, self.evidence.unread())
    }
}

/// Each of the servers, which are all of one cluster.
async fn connect(
    servers: Vec<String>,
    tls: Option<&Arc<ClientConfig>>,
    known: Option<&Known>,
) -> Result<Vec<Source>> {
    let mut cluster = known.map(|known| known.view.genesis.cluster);
    let mut sources = Vec::new();
    for server in servers {
        let source = Source::connect(vec![server.clone()], tls.cloned()).await?;
        let found = source.cluster();
        if *cluster.get_or_insert(found) != found {
            bail!("{server} is of cluster {found}, and what was named before it of another one");
        }
        sources.push(source);
    }
    Ok(sources)
}

/// What all of them know together, and what they could not read, once each. The registry was read before the servers are asked, and both after the id was there.
async fn judge(
    id: Id,
    known: Option<&Known>,
    servers: &mut [Source],
    told: &mut HashSet<String>,
) -> Result<Value> {
    let mut found = known.map(|known| known.judge(id));
    for server in servers {
        if found.as_ref().is_some_and(|found| found["issued"] == "no") {
            break;
        }
        let said = server.provenance(id.raw()).await?;
        for unread in said["unread"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let unread = format!("{}: {}", server.server(), printable(unread));
            if told.insert(unread.clone()) {
                logs::warning(&format!("{unread}; less is told than may be known"));
            }
        }
        if found.as_ref().is_none_or(|found| worth(&said) > worth(found)) {
            found = Some(said);
        }
    }
    found.context("neither a registry nor a server is named")
}

/// How much an answer says.
fn worth(found: &Value) -> u32 {
    match (found["issued"].as_str(), found["verdict"].as_str()) {
        (Some("no"), _) => 3,
        (_, Some("replayed")) => 2,
        _ => u32::from(!found["window"].is_null()),
    }
}

fn as_text(id: Id, found: &Value) -> String {
    let text = |name: &str| found[name].as_str();
    let issued = if text("issued") == Some("no") { "not issued" } else { "may have been issued" };
    // Writing into a string does not fail.
    let mut line = format!("{id:<19}  {}: {issued}", text("verdict").unwrap_or("?"));
    if let (Some(worker), Some(ms)) = (found["worker"].as_u64(), found["tick_unix_ms"].as_u64()) {
        let _ = write!(line, "  worker {worker}  {}", rfc3339_ms(ms));
    }
    let window = &found["window"];
    if let (Some(from), Some(to)) = (window["from_unix_ms"].as_u64(), window["to_unix_ms"].as_u64()) {
        let _ = write!(line, "  window {} to {}", rfc3339_ms(from), rfc3339_ms(to));
    }
    if text("issued") != Some("no") {
        let when = text("when").map(|when| format!(" at {when}")).unwrap_or_default();
        let to =
            text("holder").map_or("to whom is not known here".to_owned(), |holder| format!("to {holder}"));
        let _ = write!(line, "  {to}{when}");
    }
    let sources: Vec<_> =
        found["sources"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // Servers say it, and files that others may have written.
    printable(&(line + &format!("  (by {})", sources.join(", "))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_stranger_says_of_an_id_moves_no_terminal() {
        let evil = "\u{1b}[2J";
        let found =
            json!({ "issued": evil, "verdict": evil, "holder": evil, "when": evil, "sources": [evil] });
        let told = as_text(Id::default(), &found);
        assert!(!told.contains('\u{1b}') && told.contains("[2J at "), "{told:?}");
    }
}
