//! What a person reads when the server starts.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use tracing::warn;
use xuid_engine::registry::zookeeper::AuthScheme;
use xuid_engine::{Layout, Order};

use crate::config::{DEFAULT_LISTEN, OpaqueKey, RegistrySetting, Settings};
use crate::crash_points;
use crate::state::server::{Server, VERSION};

/// Prints the banner, on a thread of its own: standard output may be a pipe that is full and not read, and the server
/// serves all the same. Whoever started us may have closed it; then nobody wants the banner.
pub(crate) fn print(server: &Server, settings: &Settings, open: &[String]) {
    let text = text(server, settings, open, &program());
    let thread = std::thread::Builder::new().name("xuid-banner".to_owned());
    let printing = thread.spawn(move || {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    });
    if let Err(error) = printing {
        warn!(%error, "no thread for the banner: it is not printed");
    }
}

fn text(server: &Server, settings: &Settings, open: &[String], program: &str) -> String {
    let listen = server.places.listen;
    let scheme = if server.access.has_tls() { "https" } else { "http" };
    let admin =
        server.places.admin.map_or("admin is off".to_owned(), |admin| format!("admin on {scheme}://{admin}"));
    let layout = server.genesis.layout;
    let bits = layout.with_epoch_ms(Layout::default().epoch_ms()).to_text();
    let workers = match &server.engine.workers()[..] {
        [] => "no worker yet (see the log)".to_owned(),
        [worker] => format!("worker {worker}"),
        many => format!("workers {many:?}"),
    };
    let folder = settings.data_dir.display();
    let flag = server_flag(listen);
    let example = example(server);
    let key = settings.opaque_key.as_ref().map(OpaqueKey::file);
    let mut text = String::new();
    let lines = [
        format!("xuid {VERSION} listening on {listen}, {admin}"),
        format!("  cluster {}, layout {bits}, {workers}, data in {folder}", server.genesis.cluster),
        format!("  {}", namespace(&settings.registry)),
    ];
    let resp = server.places.resp.map(|resp| format!("  clients of Redis (RESP) on {resp}"));
    let http = server.places.http.map(|http| format!("  clients of HTTP on {scheme}://{http}"));
    let open = open.iter().map(|sentence| format!("  insecure: {sentence}"));
    let commands = [
        "  try:".to_owned(),
        format!("    {program} next -n 5{flag}{}", tls_flags(settings)),
        format!("    {program} decode {example}{}", decode_flags(layout, key)),
        format!("    {program} {}", look(settings)),
    ];
    for line in lines.into_iter().chain(resp).chain(http).chain(open).chain(commands) {
        // Writing into a string does not fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

/// How far uniqueness reaches.
fn namespace(registry: &RegistrySetting) -> String {
    match registry {
        RegistrySetting::Local => {
            "ids are unique within this folder only: hosts that share a namespace must share a registry"
                .to_owned()
        }
        RegistrySetting::ZooKeeper(url) => {
            format!("ids are unique among all servers of the registry {url}, and only among them")
        }
    }
}

/// The command that shows where ids come from.
fn look(settings: &Settings) -> String {
    let RegistrySetting::ZooKeeper(url) = &settings.registry else {
        return format!("inspect {}", quoted(&settings.data_dir));
    };
    let secret = settings.access.auth_file.as_deref();
    let secret = secret.map(|file| format!(" --registry-auth-file {}", quoted(file))).unwrap_or_default();
    let scheme = match settings.access.scheme {
        AuthScheme::Digest => "",
        AuthScheme::Sasl => " --registry-auth-scheme sasl",
    };
    format!("workers --registry {}{secret}{scheme}", quoted(Path::new(&url.to_string())))
}

/// An id to decode: one of our own, so that its time is now.
fn example(server: &Server) -> String {
    let mut runs = Vec::new();
    let _ = server.engine.try_runs(1, Order::Any, &mut runs);
    for run in &runs {
        crash_points::issued(run.first().raw(), run.len());
    }
    crash_points::settle();
    runs.first().map_or("ID".to_owned(), |run| run.first().to_string())
}

/// What `decode` must be told: the key of opaque ids, and the layout that is behind them.
fn decode_flags(layout: Layout, key: Option<&Path>) -> String {
    match key {
        Some(key) => format!("{} --opaque-key-file {}", layout_flags(layout.plots()), quoted(key)),
        None => layout_flags(layout),
    }
}

/// What `decode` must be told of a layout that is not the default one.
fn layout_flags(layout: Layout) -> String {
    let default = Layout::default();
    let mut flags = String::new();
    let of_default_epoch = layout.with_epoch_ms(default.epoch_ms());
    if of_default_epoch != default {
        let _ = write!(flags, " --layout {}", of_default_epoch.to_text());
    }
    if layout.epoch_ms() != default.epoch_ms() {
        let _ = write!(flags, " --epoch {}", layout.epoch_ms());
    }
    flags
}

/// ` --server ADDR`, where it is not where the commands look by themselves.
fn server_flag(listen: SocketAddr) -> String {
    let reachable = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => SocketAddr::from((Ipv4Addr::LOCALHOST, listen.port())),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => SocketAddr::from((Ipv6Addr::LOCALHOST, listen.port())),
        _ => listen,
    };
    let text = reachable.to_string();
    if text == DEFAULT_LISTEN { String::new() } else { format!(" --server {text}") }
}

/// What a client needs where the server speaks TLS.
fn tls_flags(settings: &Settings) -> &'static str {
    match &settings.tls {
        None => "",
        Some(tls) if tls.asks_for_certificate => " --tls --ca CA.pem --cert CERT.pem --key KEY.pem",
        Some(_) => " --tls --ca CA.pem",
    }
}

/// How this program is called from here: by its name where the shell finds it by that, else by its path, which is what
/// somebody needs who has just built it.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().map_or(Path::new("xuid"), Path::new);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&search).map(|dir| dir.join(name)).find(|candidate| candidate.is_file());
    if found.and_then(|found| found.canonicalize().ok()).is_some_and(|found| found == path) {
        return quoted(name);
    }
    let here = std::env::current_dir().unwrap_or_default();
    quoted(path.strip_prefix(&here).unwrap_or(&path))
}

/// A path that a shell takes as one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |char: char| char.is_alphanumeric() || "/._-+:@,".contains(char);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_server_only_where_it_is_elsewhere() {
        let flag = |addr: &str| server_flag(addr.parse().unwrap());
        assert_eq!(flag(DEFAULT_LISTEN), "");
        assert_eq!(flag("127.0.0.1:4000"), " --server 127.0.0.1:4000");
        assert_eq!(flag("0.0.0.0:7654"), "", "listening everywhere is listening there too");
        assert_eq!(flag("[::]:7654"), " --server [::1]:7654");
    }

    #[test]
    fn how_far_uniqueness_reaches_depends_on_the_registry() {
        let of = |text: &str| namespace(&RegistrySetting::parse(text).unwrap());
        assert!(of("local").contains("within this folder only"));
        let shared = of("zookeeper://a:1/x");
        assert!(shared.contains("zookeeper://a:1/x") && !shared.contains("folder"), "{shared}");
    }

    #[test]
    fn an_id_of_another_layout_is_decoded_by_that_one() {
        let other: Layout = "42/9/12".parse().unwrap();
        assert_eq!(layout_flags(Layout::default()), "");
        assert_eq!(layout_flags(other.with_epoch_ms(7)), " --layout 42/9/12 --epoch 7");
        let opaque = Layout::default().opaque().unwrap();
        assert_eq!(decode_flags(opaque, Some(Path::new("ids.key"))), " --opaque-key-file ids.key");
    }

    #[test]
    fn a_path_can_be_pasted_into_a_shell() {
        assert_eq!(quoted(Path::new("./xuid-data")), "./xuid-data");
        assert_eq!(quoted(Path::new("/a folder/it's")), r"'/a folder/it'\''s'");
    }
}
