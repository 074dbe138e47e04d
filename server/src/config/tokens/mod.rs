//! Who may use a server: named tokens, from a file and from the variable `XUID_TOKEN`.
//!
//! # Invariants
//! - I1 no error and no log shows a secret, and neither does `Debug`;
//! - I2 a secret belongs to one token, so that a client has one name and one limit;
//! - I3 how long a comparison takes depends on the lengths and the number of secrets, and on nothing that is in them.

pub(crate) mod rights;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use subtle::{ConditionallySelectable, ConstantTimeEq};
use toml::Value;

use self::rights::{Right, SequenceRights};
use super::secrets::{Secret, open_to_all};
use super::sources::{Merged, Origin, Reading, parse_toml};
use crate::text::exit::{Usage, usage};

/// The key of the file.
const FILE: &str = "tokens";

/// What the token of `XUID_TOKEN` is called.
const DEFAULT_NAME: &str = "default";

/// What a token's table may say.
const FIELDS: [&str; 4] = ["secrets", "ids_per_second", "names", "rights"];

/// No server issues more.
pub(super) const MOST_IDS: i64 = 1_000_000_000;

/// The longest name: it stands in lines of the log.
const LONGEST_NAME: usize = 64;

/// All tokens of a server; none: everybody may use it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    named: Vec<NamedToken>,
    file: Option<PathBuf>,
    /// The variable that one of them was in.
    variable: Option<String>,
}

/// One token: any of its secrets proves it, so that a secret can be replaced while clients still use the one before.
#[derive(Debug, Clone)]
pub(crate) struct NamedToken {
    pub(crate) name: String,
    secrets: Vec<Secret>,
    /// What all its clients together may take a second; 0: no limit.
    pub(crate) ids_per_second: u64,
    /// What it may do with which named sequences.
    pub(crate) sequences: SequenceRights,
}

impl Tokens {
    /// Those of the file that the key `tokens` names, and the one of the key `token`.
    pub(super) fn from_merged(from: &Merged) -> Result<Self> {
        let file: Option<PathBuf> = from.optional(FILE, |text| (!text.is_empty()).then(|| text.into()))?;
        let mut named = file.as_deref().map(|path| read(path, from.reading)).transpose()?.unwrap_or_default();
        if let Some(secret) = from.optional("token", Secret::new)? {
            if let (Some(origin), Some(_)) =
                (from.origin("token"), named.iter().find(|token| token.name == DEFAULT_NAME))
            {
                let shown = file.unwrap_or_default();
                let text = format!(
                    "the token {DEFAULT_NAME} is in {} and in token ({origin}); allowed is one of them",
                    shown.display()
                );
                return Err(usage(text).into());
            }
            let name = DEFAULT_NAME.to_owned();
            let sequences = SequenceRights::default();
            named.push(NamedToken { name, secrets: vec![secret], ids_per_second: 0, sequences });
        }
        let variable = match from.origin("token") {
            Some(Origin::Variable(name)) => Some(name.clone()),
            _ => None,
        };
        let tokens = Self { named, file, variable };
        tokens.check_secrets()?;
        Ok(tokens)
    }

    /// One token, as `XUID_TOKEN` makes it.
    #[cfg(test)]
    pub(crate) fn of(secret: &str) -> Self {
        Self::parse(&format!("[token.{DEFAULT_NAME}]\nsecrets = [{secret:?}]")).unwrap()
    }

    /// Those of a file with this text.
    #[cfg(test)]
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let tokens = Self { named: parse(Path::new("tokens.toml"), text)?, ..Self::default() };
        tokens.check_secrets()?;
        Ok(tokens)
    }

    /// Whether everybody may use the server.
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// All of them.
    pub(crate) fn each(&self) -> &[NamedToken] {
        &self.named
    }

    /// The variable that one of them is in, which is the same for the life of a process.
    pub(crate) fn variable(&self) -> Option<&str> {
        self.variable.as_deref()
    }

    /// Which one a client has proved: its place in [`each`](Self::each).
    pub(crate) fn find(&self, given: &[u8]) -> Option<usize> {
        let mut found = u32::MAX;
        for (place, token) in (0..).zip(&self.named) {
            for secret in &token.secrets {
                // Each is compared, and each to its end: the time must not tell which one was nearly right.
                found.conditional_assign(&place, secret.bytes().ct_eq(given));
            }
        }
        (found != u32::MAX).then_some(found as usize)
    }

    /// What is wrong with the file, if anything is.
    pub(crate) fn warning(&self) -> Option<String> {
        open_to_all(self.file.as_deref()?, "holds tokens")
    }

    fn check_secrets(&self) -> Result<(), Usage> {
        let mut seen = HashSet::new();
        for token in &self.named {
            if token.secrets.iter().any(|secret| !seen.insert(secret)) {
                let name = &token.name;
                return Err(usage(format!(
                    "a secret of the token {name} is there twice; allowed is a secret in one place only: a client is known \
                     by it"
                )));
            }
        }
        Ok(())
    }
}

fn read(path: &Path, reading: Reading) -> Result<Vec<NamedToken>, Usage> {
    let text = reading
        .text(path)
        .map_err(|error| usage(format!("failed to read the file {} of {FILE}: {error}", path.display())))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<NamedToken>, Usage> {
    let file = path.display();
    let mut named = Vec::new();
    for (key, value) in parse_toml(path, text)? {
        let ("token", Value::Table(tokens)) = (&*key, value) else {
            return Err(usage(format!(
                "{file} has {key:?}; allowed are tables [token.NAME] with {}",
                FIELDS.join(" and ")
            )));
        };
        for (name, value) in tokens {
            named.push(token(path, name, value)?);
        }
    }
    if named.is_empty() {
        return Err(usage(format!("{file} has no token; needed is at least one table [token.NAME]")));
    }
    Ok(named)
}

fn token(path: &Path, name: String, value: Value) -> Result<NamedToken, Usage> {
    let wrong = |found: &str, allowed: &str| {
        usage(format!("{found} (token {name:?} in {}); allowed {allowed}", path.display()))
    };
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
        return Err(wrong("a name", "are 1 to 64 of the characters A-Z a-z 0-9 . _ -"));
    }
    let Value::Table(table) = value else {
        return Err(wrong("it is no table", "is [token.NAME]"));
    };
    let (mut secrets, mut ids_per_second, mut sequences) = (Vec::new(), 0, SequenceRights::default());
    for (key, value) in table {
        match (&*key, value) {
            ("secrets", Value::Array(values)) => {
                let secret = |value: &Value| value.as_str().and_then(Secret::new);
                secrets = values.iter().map(secret).collect::<Option<_>>().unwrap_or_default();
            }
            ("secrets", _) => {}
            ("ids_per_second", Value::Integer(ids @ 1..=MOST_IDS)) => ids_per_second = ids.cast_unsigned(),
            ("ids_per_second", value) => {
                let found = format!("ids_per_second is {value}");
                return Err(wrong(&found, &format!("is a number from 1 to {MOST_IDS}")));
            }
            ("names", value) => match texts(&value) {
                Some(names) => sequences = sequences.of_names(names),
                None => {
                    return Err(wrong(
                        "names is something else",
                        "is a list of patterns, as in [\"order:*\"]",
                    ));
                }
            },
            ("rights", value) => {
                let bounded = texts(&value).and_then(|rights| sequences.only(&rights));
                sequences = bounded.ok_or_else(|| {
                    let all = Right::ALL.map(Right::name).join(", ");
                    wrong("rights is something else", &format!("is a list of some of {all}"))
                })?;
            }
            (other, _) => {
                return Err(wrong(&format!("unknown key {other:?}"), &format!("are {}", FIELDS.join(", "))));
            }
        }
    }
    if secrets.is_empty() {
        return Err(wrong(
            "secrets is absent or something else (not shown)",
            "is a list of one or more texts of 1 to 255 bytes each",
        ));
    }
    Ok(NamedToken { name, secrets, ids_per_second, sequences })
}

/// A list of texts.
fn texts(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sources::Flags;
    use super::*;

    const TWO: &str = "[token.web]\nsecrets = [\"old secret\", \"new secret\"]\nids_per_second = 1000\n\
                       [token.batch]\nsecrets = [\"another\"]\n";

    #[test]
    fn any_secret_of_a_token_proves_it_and_nothing_else_does() {
        let tokens = Tokens::parse(TWO).unwrap();
        let name = |given: &str| {
            tokens
                .find(given.as_bytes())
                .map(|place| (&*tokens.named[place].name, tokens.named[place].ids_per_second))
        };
        assert_eq!(name("old secret"), Some(("web", 1_000)));
        assert_eq!(name("new secret"), Some(("web", 1_000)));
        assert_eq!(name("another"), Some(("batch", 0)));
        for wrong in ["", "old", "old secret ", "OLD SECRET", "web"] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
        assert!(Tokens::default().is_empty() && Tokens::default().find(b"").is_none());
    }

    #[test]
    fn a_file_that_is_wrong_is_wrong_usage_that_shows_no_secret() {
        for (text, words) in [
            ("", &["no token", "[token.NAME]"][..]),
            ("[token.a]\nsecrets = [\"hunter2\"", &["line 2", "not TOML"]),
            (
                "[token.a]\nsecrets = [\"hunter2\"]\nright = 1",
                &["\"right\"", "secrets, ids_per_second, names, rights", "\"a\""],
            ),
            ("[token.a]\nsecrets = [\"hunter2\"]\nrights = 1", &["rights", "next, create, alter"]),
            ("[token.a]\nsecrets = [\"hunter2\"]\nrights = [\"delete\"]", &["rights", "next, create, alter"]),
            ("[token.a]\nsecrets = [\"hunter2\"]\nnames = \"x\"", &["names", "order:*"]),
            ("[tokens.a]\nsecrets = [\"hunter2\"]", &["tokens", "[token.NAME]"]),
            ("[token.a]\nsecrets = []", &["secrets", "one or more"]),
            ("[token.a]\nsecrets = \"hunter2\"", &["secrets", "list"]),
            ("[token.a]\nsecrets = [\"hunter2\", \"\"]", &["secrets", "1 to 255"]),
            ("[token.a]\nids_per_second = 5", &["secrets"]),
            (
                "[token.a]\nsecrets = [\"hunter2\"]\nids_per_second = 0",
                &["ids_per_second", "1 to 1000000000"],
            ),
            ("[token.'a b']\nsecrets = [\"hunter2\"]", &["name", "A-Z"]),
            ("[token.a]\nsecrets = [\"hunter2\", \"hunter2\"]", &["twice", "token a"]),
            ("[token.a]\nsecrets = [\"hunter2\"]\n[token.b]\nsecrets = [\"hunter2\"]", &["twice"]),
        ] {
            let error = Tokens::parse(text).unwrap_err();
            let said = error.to_string();
            assert!(error.is::<Usage>() && words.iter().all(|word| said.contains(word)), "{text:?}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        let long = format!("[token.a]\nsecrets = [\"{}\"]", "x".repeat(256));
        assert!(Tokens::parse(&long).is_err() && Tokens::parse(&long.replace("xx", "x")).is_ok());
        assert!(!format!("{:?}", Tokens::of("hunter2")).contains("hunter2"));
    }

    fn merged(variables: &[(&str, &str)]) -> Result<Tokens> {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Tokens::from_merged(&Merged::new(&Flags::default(), &variables)?)
    }

    #[test]
    fn the_variable_s_token_is_called_default_and_stands_beside_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let file = path.to_str().unwrap();
        std::fs::write(&path, TWO).unwrap();
        let tokens = merged(&[("XUID_TOKENS", file), ("XUID_TOKEN", "third")]).unwrap();
        let names: Vec<_> = tokens.each().iter().map(|token| &*token.name).collect();
        assert_eq!(names, ["batch", "web", "default"]);
        assert_eq!(tokens.find(b"third"), Some(2));
        assert!(merged(&[]).unwrap().is_empty());
        std::fs::write(&path, "[token.default]\nsecrets = [\"x\"]").unwrap();
        let said = merged(&[("XUID_TOKENS", file), ("XUID_TOKEN", "y")]).unwrap_err().to_string();
        assert!(said.contains("XUID_TOKEN") && said.contains(file), "{said}");
        let said = merged(&[("XUID_TOKENS", "/nowhere/at/all")]).unwrap_err().to_string();
        assert!(said.contains("/nowhere/at/all") && said.contains("tokens"), "{said}");
    }

    #[test]
    fn a_file_that_everybody_may_read_is_warned_of() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        std::fs::write(&path, TWO).unwrap();
        let warning = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            merged(&[("XUID_TOKENS", path.to_str().unwrap())]).unwrap().warning()
        };
        assert!(warning(0o604).is_some_and(|text| text.contains("chmod 600") && text.contains("604")));
        assert_eq!((warning(0o640), warning(0o600)), (None, None));
    }
}
