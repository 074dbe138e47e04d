//! The settings of named sequences.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use toml::Value;
use xuid_engine::sequence::NamePattern;
use xuid_engine::sequence::store::MOST_STEP;
use xuid_engine::sequence::store::database::{DatabaseUrl, Table};

use super::secrets::open_to_all;
use super::sources::{Merged, Origin, Reading};
use super::values::{between, number};
use crate::text::exit::{Usage, usage};

/// The key of a file with a URL.
const URL_FILE: &str = "sequences_url_file";

/// Named sequences, as a server was told to serve them.
#[derive(Debug, Clone)]
pub(crate) struct SequenceSettings {
    pub(crate) store: SequenceStore,
    pub(crate) table: Table,
    /// `None`: what fits registry and store.
    pub(crate) witness: Option<Witness>,
    /// Whether another database is gone on with, without a witness.
    pub(crate) lossless: bool,
    /// Names that are created by their first use.
    pub(crate) create: Vec<NamePattern>,
    /// Names that are strict whatever their rows say.
    pub(crate) strict: Vec<NamePattern>,
    /// The step of what is created without one.
    pub(crate) step: u64,
    pub(crate) step_max: u64,
    pub(crate) hold: Duration,
    pub(crate) idle: Duration,
    pub(crate) limit: usize,
    /// Whether a database that can lose commits will do.
    pub(crate) allow_unsafe: bool,
}

/// What grants numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SequenceStore {
    Registry,
    Database(DatabaseUrl),
    Off,
}

/// What remembers what a database granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Witness {
    Registry,
    Folder,
    None,
}

impl SequenceStore {
    /// `registry`, `off`, or the URL of a database; else why not.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "registry" => Ok(Self::Registry),
            "off" => Ok(Self::Off),
            url if DatabaseUrl::has_scheme(url) => {
                url.parse().map(Self::Database).map_err(|error| error.to_string())
            }
            _ => Err(String::new()),
        }
    }
}

impl Witness {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "registry" => Some(Self::Registry),
            "folder" => Some(Self::Folder),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

impl SequenceSettings {
    pub(super) fn from_merged(from: &Merged) -> Result<Self> {
        let small = |text: &str| number(text, 1, MOST_STEP);
        let time = between(Duration::from_secs(1), Duration::from_hours(24));
        Ok(Self {
            store: store(from)?,
            table: from.required("sequence_table", |text| text.parse().ok())?,
            witness: from.optional("sequence_witness", Witness::parse)?,
            lossless: from.required("sequence_failover", |text| match text {
                "fence" => Some(false),
                "lossless" => Some(true),
                _ => None,
            })?,
            create: from.optional("sequence_create", patterns)?.unwrap_or_default(),
            strict: from.optional("sequence_strict", patterns)?.unwrap_or_default(),
            step: from.required("sequence_step", small)?,
            step_max: from.required("sequence_step_max", small)?,
            hold: from.required("sequence_hold", &time)?,
            idle: from.required("sequence_idle", &time)?,
            limit: from.required("sequence_limit", |text| Some(number(text, 1, 100_000_000)? as usize))?,
            allow_unsafe: from.required("sequences_unsafe", |text| text.parse().ok())?,
        })
    }

    /// What is allowed and probably not meant.
    pub(super) fn doubts(&self, from: &Merged) -> Vec<String> {
        let mut doubts = Vec::new();
        let SequenceStore::Database(url) = &self.store else {
            let idle = ["sequence_table", "sequence_witness", "sequence_failover", "sequences_unsafe"];
            let idle: Vec<_> = idle.into_iter().filter(|name| from.is_given(name)).collect();
            if !idle.is_empty() {
                let are = if idle.len() == 1 { "is for a database" } else { "are for a database" };
                doubts.push(format!("{} {are}, and sequences names none", idle.join(", ")));
            }
            return doubts;
        };
        if url.has_password() {
            let file = from.given(URL_FILE).map(|(text, _)| PathBuf::from(text));
            let config = match from.origin("sequences") {
                Some(Origin::File(path)) => Some(path.clone()),
                _ => None,
            };
            doubts.extend(file.or(config).and_then(|path| open_to_all(&path, "holds a password")));
        }
        if self.allow_unsafe {
            doubts.push(
                "sequences_unsafe is true: a database that loses commits can make numbers come twice"
                    .to_owned(),
            );
        }
        doubts
    }
}

fn store(from: &Merged) -> Result<SequenceStore> {
    let said = from.checked("sequences", SequenceStore::parse)?;
    let file: Option<PathBuf> = from.optional(URL_FILE, |text| (!text.is_empty()).then(|| text.into()))?;
    if let (Some(SequenceStore::Database(url)), Some(Origin::Flag(flag))) = (&said, from.origin("sequences"))
        && url.has_password()
    {
        return Err(usage(format!(
            "--{flag} holds a password, which everybody here sees in the list of processes; allowed is a URL without \
             one: name a file with it (--sequences-url-file), or set the variable XUID_SEQUENCES"
        ))
        .into());
    }
    match file {
        Some(file) if from.is_given("sequences") => {
            let origin = from.origin("sequences").map(ToString::to_string).unwrap_or_default();
            let shown = file.display();
            Err(usage(format!(
                "sequences ({origin}) and sequences_url_file ({shown}) are both there; allowed is one of them"
            ))
            .into())
        }
        Some(file) => Ok(SequenceStore::Database(url_in(&file, from.reading)?)),
        None => Ok(said.unwrap_or(SequenceStore::Registry)),
    }
}

fn url_in(path: &Path, reading: Reading) -> Result<DatabaseUrl, Usage> {
    let shown = path.display();
    let text = reading
        .text(path)
        .map_err(|error| usage(format!("failed to read the file {shown} of {URL_FILE}: {error}")))?;
    // What is in it is not shown.
    let line = text.trim_end_matches(['\n', '\r']);
    if line.contains('\n') {
        return Err(usage(format!(
            "the file {shown} of {URL_FILE} has several lines; allowed is one, the URL"
        )));
    }
    line.parse()
        .map_err(|error| usage(format!("the file {shown} of {URL_FILE} holds something else: {error}")))
}

/// `a*,b`, or a list as a file has it.
fn patterns(text: &str) -> Option<Vec<NamePattern>> {
    let text = text.trim();
    if !text.starts_with('[') {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        return Some(parts.map(NamePattern::new).collect());
    }
    let table: toml::Table = format!("list = {text}").parse().ok()?;
    let pattern = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(NamePattern::new);
    table.get("list")?.as_array()?.iter().map(pattern).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::sources::Flags;
    use super::*;

    fn merged(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Merged {
        let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, Some(*value))).collect();
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Merged::new(&Flags::of(&flags), &variables).unwrap()
    }

    fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<SequenceSettings> {
        SequenceSettings::from_merged(&merged(flags, variables))
    }

    #[test]
    fn sequences_are_on_the_registry_unless_another_store_or_none_is_named() {
        let store = |text: &str| settings(&[("sequences", text)], &[]).map(|settings| settings.store);
        assert_eq!(settings(&[], &[]).unwrap().store, SequenceStore::Registry);
        assert_eq!(store("off").unwrap(), SequenceStore::Off);
        let url: DatabaseUrl = "postgres://app@h,i:7/db".parse().unwrap();
        assert_eq!(store("postgres://app@h,i:7/db").unwrap(), SequenceStore::Database(url));
        for wrong in ["local", "redis://h/1", "postgres://h", ""] {
            let said = store(wrong).unwrap_err().to_string();
            assert!(
                said.contains("sequences is") && said.contains("registry, off, or postgres://"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_password_is_no_flag_and_is_shown_nowhere() {
        const URL: &str = "mysql://app:hunter2@h/db";
        let error = settings(&[("sequences", URL)], &[]).unwrap_err();
        let said = error.to_string();
        assert!(error.is::<Usage>() && said.contains("--sequences-url-file"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        let told = settings(&[], &[("XUID_SEQUENCES", URL)]).unwrap();
        assert!(matches!(&told.store, SequenceStore::Database(url) if url.has_password()));
        assert!(!format!("{told:?}").contains("hunter2"));
        let said = settings(&[], &[("XUID_SEQUENCES", "mysql://app:hunter2@h")]).unwrap_err().to_string();
        assert!(!said.contains("hunter2") && said.contains("XUID_SEQUENCES"), "{said}");
    }

    #[test]
    fn a_url_may_stand_in_a_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        let file = path.to_str().unwrap();
        fs::write(&path, "postgres://app:hunter2@h/db\n").unwrap();
        let flags = [("sequences_url_file", file)];
        let told = settings(&flags, &[]).unwrap();
        assert!(matches!(&told.store, SequenceStore::Database(url) if url.has_password()));
        let said = settings(&flags, &[("XUID_SEQUENCES", "registry")]).unwrap_err().to_string();
        assert!(said.contains("one of them") && said.contains("XUID_SEQUENCES"), "{said}");
        let warning = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            told.doubts(&merged(&flags, &[]))
        };
        assert!(warning(0o644)[0].contains("chmod 600") && warning(0o600).is_empty());
        for text in ["hunter2", "", "postgres://app:hunter2@h/db\nmore"] {
            fs::write(&path, text).unwrap();
            let error = settings(&flags, &[]).unwrap_err();
            assert!(error.is::<Usage>() && !error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn patterns_are_a_list_with_commas_or_one_of_a_file() {
        let shown = |settings: &SequenceSettings| -> Vec<String> {
            settings.create.iter().map(ToString::to_string).collect()
        };
        let of_flag = settings(&[("sequence_create", "order:*, user:*")], &[]).unwrap();
        assert_eq!(shown(&of_flag), ["order:*", "user:*"]);
        let file =
            Merged::of_file("sequence_create = [\"order:*\", \"a,b\"]\nsequence_strict = \"x\"").unwrap();
        let of_file = SequenceSettings::from_merged(&file).unwrap();
        assert_eq!((shown(&of_file), of_file.strict.len()), (vec!["order:*".into(), "a,b".into()], 1));
        assert!(settings(&[], &[]).unwrap().create.is_empty(), "a typo must not begin a sequence");
        for wrong in ["[1]", "[\"a\"", "[\"\"]"] {
            assert!(settings(&[("sequence_create", wrong)], &[]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_and_times_have_their_ranges_and_what_is_for_a_database_is_told() {
        for (name, value) in [
            ("sequence_step", "0"),
            ("sequence_step", "4294967297"),
            ("sequence_step_max", "0"),
            ("sequence_hold", "0"),
            ("sequence_hold", "25h"),
            ("sequence_idle", "25h"),
            ("sequence_limit", "0"),
            ("sequence_witness", "nobody"),
            ("sequence_failover", "maybe"),
            ("sequence_table", "leave"),
            ("sequences_unsafe", "1"),
        ] {
            let said = settings(&[(name, value)], &[]).unwrap_err().to_string();
            assert!(said.contains(name) && said.contains("allowed is"), "{said}");
        }
        let flags = [("sequence_witness", "none"), ("sequence_failover", "lossless")];
        let told = settings(&flags, &[]).unwrap();
        assert_eq!((told.witness, told.lossless), (Some(Witness::None), true));
        let doubts = told.doubts(&merged(&flags, &[]));
        assert!(
            doubts[0].starts_with("sequence_witness, sequence_failover are for a database"),
            "{doubts:?}"
        );
    }
}
