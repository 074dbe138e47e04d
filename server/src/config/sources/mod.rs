//! The three places that settings come from, merged key by key.

pub(super) mod nearest;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command};
use rustix::fs::OFlags;

use self::nearest::nearest;
use super::keys::{KEYS, Key, LIST, SWITCH};
use super::secrets::{open_to_all, without_password};
use crate::text::exit::{Usage, usage};

/// The settings given as flags, as text: the table of keys, made known to clap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    config: Option<PathBuf>,
    given: BTreeMap<&'static str, String>,
}

impl Flags {
    /// These flags and no more, those that were given.
    pub(super) fn of(flags: &[(&'static str, Option<&str>)]) -> Self {
        let given = flags.iter().filter_map(|(name, value)| Some((*name, (*value)?.to_owned()))).collect();
        Self { config: None, given }
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("A file of settings, as in `wait = \"50ms\"`; flags and XUID_* variables go before it")
            .value_parser(clap::value_parser!(PathBuf));
        let flags = KEYS.iter().filter_map(|key| Some(flag(key, key.flag?)));
        command.arg(config).args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(key: &'static Key, long: &'static str) -> Arg {
    let default = key.default.map(|value| format!(" [default: {value}]")).unwrap_or_default();
    let arg = Arg::new(key.name);
    let arg = if key.shape == SWITCH {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg
    };
    arg.long(long)
        .value_name(key.shape)
        // `--floor -3h`, and a negative time anywhere else gets our error instead of one about an unknown flag.
        .allow_hyphen_values(key.shape == "TIME")
        .help(format!("{}{default} [allowed: {}] [env: {}]", key.help, key.allowed, key.variable()))
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one::<PathBuf>("config").cloned();
        for key in KEYS.iter().filter(|key| key.flag.is_some()) {
            if let Some(value) = matches.get_one::<String>(key.name) {
                self.given.insert(key.name, value.clone());
            }
        }
        Ok(())
    }
}

/// Where a value was found.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    Flag(&'static str),
    Variable(String),
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The value of each key that has one, and where it came from.
#[derive(Debug)]
pub(super) struct Merged {
    values: BTreeMap<&'static str, (String, Origin)>,
    /// How the files are read that they name.
    pub(super) reading: Reading,
}

impl Merged {
    /// Looks everywhere; the variables are `variables`, so that a test brings its own.
    pub(super) fn new(flags: &Flags, variables: &BTreeMap<String, String>) -> Result<Self> {
        let config = config(flags, variables);
        let file = config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        Ok(Self::of(flags, variables, config.as_ref(), file))
    }

    /// The same once more while the server runs.
    pub(super) fn again(flags: &Flags, variables: &BTreeMap<String, String>) -> Result<Self> {
        let config = config(flags, variables);
        let file = config.as_deref().map(read_file_again).transpose()?.unwrap_or_default();
        Ok(Self { reading: Reading::Again, ..Self::of(flags, variables, config.as_ref(), file) })
    }

    /// What flags and variables say, and defaults.
    pub(super) fn without_file(flags: &Flags, variables: &BTreeMap<String, String>) -> Self {
        Self::of(flags, variables, None, BTreeMap::new())
    }

    /// What was found, the values of a file among it.
    fn of(
        flags: &Flags,
        variables: &BTreeMap<String, String>,
        config: Option<&PathBuf>,
        mut file: BTreeMap<String, String>,
    ) -> Self {
        let mut values = BTreeMap::new();
        for key in KEYS {
            let flag = || Some((flags.given.get(key.name)?.clone(), Origin::Flag(key.flag?)));
            let variable = || {
                let name = key.variable();
                Some((variables.get(&name)?.clone(), Origin::Variable(name)))
            };
            let filed = file.remove(key.name).zip(config.cloned().map(Origin::File));
            let default = || Some((key.default?.to_owned(), Origin::Default));
            if let Some(found) = flag().or_else(variable).or(filed).or_else(default) {
                values.insert(key.name, found);
            }
        }
        Self { values, reading: Reading::Once }
    }

    /// Only what a file of that text says, and defaults.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of_file(text: &str) -> Result<Self> {
        let path = PathBuf::from("xuid.toml");
        let file = parse_file(&path, text)?;
        Ok(Self::of(&Flags::default(), &BTreeMap::new(), Some(&path), file))
    }

    /// The value of `name`, parsed; `None` if nobody gave one.
    pub(super) fn optional<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        self.checked(name, |text| parse(text).ok_or_else(String::new))
    }

    /// The same, of a parser that may have more to say than what is allowed.
    pub(super) fn checked<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let Some((text, origin)) = self.values.get(name) else { return Ok(None) };
        let refused = |why: String| {
            let key = Key::find(name);
            let shown = if key.is_some_and(Key::is_secret) {
                Cow::Borrowed("(a secret)")
            } else {
                without_password(text)
            };
            let allowed = key.map_or("", |key| key.allowed);
            let why = if why.is_empty() { why } else { format!(": {why}") };
            usage(format!("{name} is {shown:?} ({origin}){why}; allowed is {allowed}"))
        };
        Ok(Some(parse(text).map_err(refused)?))
    }

    /// The value of `name` as it was written, and where; `None` if nobody gave one.
    pub(super) fn given(&self, name: &str) -> Option<(&str, &Origin)> {
        self.values.get(name).map(|(text, origin)| (text.as_str(), origin))
    }

    /// Where the value of `name` was found; `None` if nobody gave one.
    pub(super) fn origin(&self, name: &str) -> Option<&Origin> {
        self.given(name).map(|(_, origin)| origin)
    }

    /// What is wrong with the file of settings, if it holds a secret that everybody may read.
    pub(super) fn warning(&self) -> Option<String> {
        let secrets = KEYS.iter().filter(|key| key.flag.is_none());
        let file = secrets.filter_map(|key| self.origin(key.name)).find_map(|origin| match origin {
            Origin::File(path) => Some(path),
            _ => None,
        });
        open_to_all(file?, "holds a secret")
    }

    /// Whether somebody gave `name` a value.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.origin(name).is_some_and(|origin| !matches!(origin, Origin::Default))
    }

    /// The value of `name`, which has a default.
    pub(super) fn required<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        self.optional(name, parse)?.with_context(|| format!("the setting {name} has no default"))
    }
}

/// The file of settings, if one is named.
fn config(flags: &Flags, variables: &BTreeMap<String, String>) -> Option<PathBuf> {
    flags.config.clone().or_else(|| variables.get("XUID_CONFIG").map(PathBuf::from))
}

/// All environment variables that begin with `XUID_`.
///
/// # Errors
/// One that is a setting is not UTF-8: read as well as can be, it would be another folder or another token.
pub(super) fn variables() -> Result<BTreeMap<String, String>> {
    read_variables(env::vars_os())
}

fn read_variables(all: impl Iterator<Item = (OsString, OsString)>) -> Result<BTreeMap<String, String>> {
    let text = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("XUID_"))?;
        let value = match value.into_string() {
            Ok(value) => value,
            Err(value) if !is_setting(&name) => value.to_string_lossy().into_owned(),
            // Not its value, which may be a secret.
            Err(_) => {
                let text =
                    format!("the variable {name} is not UTF-8 text, and each setting is: check the variable");
                return Some(Err(usage(text).into()));
            }
        };
        Some(Ok((name, value)))
    };
    all.filter_map(text).collect()
}

/// Whether a variable of that name is a setting.
fn is_setting(name: &str) -> bool {
    name == "XUID_CONFIG" || KEYS.iter().any(|key| key.variable() == name)
}

/// Variables that only commands read, and the one that names the file.
const OTHERS: [&str; 6] = ["XUID_CONFIG", "XUID_SERVER", "XUID_TLS", "XUID_CA", "XUID_CERT", "XUID_KEY"];

/// Variables that look like settings and are none, each with the nearest that is one. They are told and not refused:
/// other software sets such names too (a Kubernetes service called `xuid` puts `XUID_PORT` into every container).
pub(super) fn strangers(variables: &BTreeMap<String, String>) -> Vec<String> {
    let known: Vec<String> = KEYS.iter().map(Key::variable).chain(OTHERS.map(str::to_owned)).collect();
    let strangers = variables.keys().filter(|name| !known.contains(name));
    strangers
        .map(|name| {
            // What all of them begin with makes none of them alike.
            let words = known.iter().filter_map(|known| known.strip_prefix("XUID_"));
            let near = nearest(name.strip_prefix("XUID_").unwrap_or(name), words);
            near.map_or_else(|| name.clone(), |near| format!("{name} (the nearest is XUID_{near})"))
        })
        .collect()
}

/// What is longer is neither settings nor a secret. A device has no end.
const MOST_BYTES: u64 = 1 << 20;

/// How a file is read that somebody named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// At a start, and by a command. It may be a pipe, as in `--config <(sops -d xuid.toml)`.
    Once,
    /// While a server runs. A pipe is refused: by then it is empty, or nobody writes into it and it never ends.
    Again,
}

impl Reading {
    /// The text of the file.
    pub(super) fn text(self, path: &Path) -> io::Result<String> {
        match self {
            Self::Once => text_of(File::open(path)?),
            Self::Again => {
                // The opening of a pipe would wait for its writer.
                let flags = OFlags::NONBLOCK.bits().cast_signed();
                let file = File::options().read(true).custom_flags(flags).open(path)?;
                if file.metadata()?.is_file() { text_of(file) } else { Err(not_regular()) }
            }
        }
    }
}

fn not_regular() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is no regular file (a pipe can be read once); allowed for a reload is a file: start the server again",
    )
}

fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is longer than {MOST_BYTES} bytes"),
        ));
    }
    Ok(text)
}

fn read_file(path: &Path) -> Result<BTreeMap<String, String>> {
    parse_file(path, &read_settings(path, Reading::Once)?)
}

/// Refuses a file of settings that is empty, since it is being written: without its keys others would count.
fn read_file_again(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = read_settings(path, Reading::Again)?;
    if text.trim_ascii().is_empty() {
        let text = format!(
            "the file of settings {} is empty, as one that is being written; allowed for a reload is a file with a key or a \
             comment in it",
            path.display()
        );
        return Err(usage(text).into());
    }
    parse_file(path, &text)
}

fn read_settings(path: &Path, reading: Reading) -> Result<String, Usage> {
    reading
        .text(path)
        .map_err(|error| usage(format!("failed to read the settings in {}: {error}", path.display())))
}

/// The text of a file as TOML.
pub(super) fn parse_toml(path: &Path, text: &str) -> Result<toml::Table, Usage> {
    text.parse().map_err(|error: toml::de::Error| {
        // Its own text shows the line, and so the secret that may be in it.
        let before = error.span().map_or(0, |span| span.start);
        let line = text.get(..before).map_or(1, |before| before.matches('\n').count() + 1);
        usage(format!("{} is not TOML, in line {line}: {}", path.display(), error.message()))
    })
}

fn parse_file(path: &Path, text: &str) -> Result<BTreeMap<String, String>> {
    let table = parse_toml(path, text)?;
    table.into_iter().map(|(name, value)| entry(path, name, &value)).collect()
}

fn entry(path: &Path, name: String, value: &toml::Value) -> Result<(String, String)> {
    let Some(key) = Key::find(&name) else {
        let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        let near = nearest(&name, known.iter().copied());
        let near = near.map(|near| format!("; the nearest is {near}")).unwrap_or_default();
        let (path, known) = (path.display(), known.join(", "));
        return Err(usage(format!("{path} has the unknown key {name}{near}; known are {known}")).into());
    };
    let text = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(is_on) => is_on.to_string(),
        // Written as it was: a comma may be a part of one of them.
        list @ toml::Value::Array(_) if key.shape == LIST => list.to_string(),
        other => {
            let (kind, allowed) = (other.type_str(), key.allowed);
            let text = format!("{name} is a {kind} (file {}); allowed is {allowed}", path.display());
            return Err(usage(text).into());
        }
    };
    Ok((name, text))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn merged(flags: &[(&'static str, &str)], variables: &[(&str, &str)], file: &str) -> Result<Merged> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("xuid.toml");
        fs::write(&config, file)?;
        let given = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Merged::new(&Flags { config: Some(config), given }, &variables)
    }

    fn text(merged: &Merged, name: &str) -> Option<String> {
        merged.optional(name, |text| Some(text.to_owned())).unwrap()
    }

    #[test]
    fn a_flag_goes_before_a_variable_before_the_file_before_the_default_key_by_key() {
        let file = "wait = \"1s\"\nworkers = 2\nidle = \"9m\"\n";
        let merged = merged(&[("wait", "3s")], &[("XUID_WAIT", "2s"), ("XUID_WORKERS", "3")], file).unwrap();
        let found = ["wait", "workers", "idle", "max_age", "worker"].map(|name| text(&merged, name));
        assert_eq!(
            found.each_ref().map(Option::as_deref),
            [Some("3s"), Some("3"), Some("9m"), Some("1h"), None]
        );
    }

    #[test]
    fn an_unknown_key_or_a_wrong_type_is_wrong_usage_that_names_it() {
        for (file, words) in [
            ("lisen = 1", &["lisen", "the nearest is listen"][..]),
            ("xyzzy = 1", &["xyzzy", "known are listen, "]),
            ("wait = [1]", &["wait", "array", "50ms"]),
            ("=", &["TOML"]),
        ] {
            let error = merged(&[], &[], file).unwrap_err();
            assert!(error.is::<Usage>());
            assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_toml_is_wrong_usage_that_shows_no_secret() {
        for slip in [
            "token = hunter2",
            "token = \"hunter2",
            "token = \"hunter2'",
            "token = \"\\hunter2\"",
            "token = \"hunter2\" wait = \"1s\"",
            "token = \"hunter2\"\ntoken = \"hunter2\"",
            "[token = \"hunter2\"",
            "token: hunter2",
        ] {
            let error = merged(&[], &[], &format!("wait = \"1s\"\n{slip}\n")).unwrap_err();
            let said = format!("{error:?}");
            assert!(error.is::<Usage>() && said.contains("not TOML, in line "), "{slip}: {said}");
            assert!(!said.contains("hunter2"), "{slip}: {said}");
        }
    }

    #[test]
    fn an_impossible_value_is_named_with_its_key_its_origin_and_what_is_allowed() {
        let merged = merged(&[], &[("XUID_WAIT", "-3s"), ("XUID_TOKEN", "")], "").unwrap();
        let error = merged.required("wait", crate::config::values::duration).unwrap_err().to_string();
        assert!(["wait", "-3s", "XUID_WAIT", "0 to 60s"].iter().all(|word| error.contains(word)), "{error}");
        let error = merged.optional::<()>("token", |_| None).unwrap_err().to_string();
        assert!(error.contains("a secret"), "{error}");
    }

    #[test]
    fn variables_that_are_no_settings_are_told_apart() {
        let names = ["XUID_PORT", "XUID_WAIT", "XUID_CONFIG", "XUID_SERVER", "XUID_LISEN"];
        let variables = names.map(|name| (name.to_owned(), String::new())).into();
        assert_eq!(strangers(&variables), ["XUID_LISEN (the nearest is XUID_LISTEN)", "XUID_PORT"]);
    }

    #[test]
    fn a_setting_that_is_not_utf_8_is_refused_by_its_name_and_a_stranger_is_not() {
        let read = |name: &str| {
            let value = OsString::from_vec(b"data-\xff".to_vec());
            read_variables([(OsString::from(name), value), ("XUID_WAIT".into(), "1s".into())].into_iter())
        };
        for name in ["XUID_DATA_DIR", "XUID_TOKEN", "XUID_CONFIG"] {
            let error = read(name).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().contains(name), "{error}");
            assert!(!error.to_string().contains("data-"), "it may be a secret: {error}");
        }
        assert_eq!(read("XUID_PORT").unwrap().len(), 2);
        assert_eq!(read("PATH").unwrap().len(), 1);
    }

    #[test]
    fn names_flags_and_defaults_agree() {
        for key in KEYS {
            assert_eq!(key.flag.unwrap_or(key.name).replace('-', "_"), key.name);
        }
    }
}
