//! The settings as a person is shown them: each with its value and where that was found, and no secret among them.

use anyhow::Result;

use super::keys::KEYS;
use super::secrets::without_password;
use super::settings::Settings;
use super::sources::{Flags, Merged, Origin, variables};

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    pub(crate) found: Found,
    /// `flag --wait`, `variable XUID_WAIT`, `file xuid.toml`, `default`.
    pub(crate) origin: String,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Value(String),
    /// A secret that is set.
    Secret,
    /// A secret that is not.
    NoSecret,
    /// Nobody gave a value, and there is no default one: the help says what holds then.
    Nothing,
}

/// Every setting in the order of the help, and what a server would make of them.
///
/// # Errors
/// They cannot even be read, as a file that is not TOML.
pub(crate) fn shown(flags: &Flags) -> Result<(Vec<Shown>, Result<Settings>)> {
    let variables = variables()?;
    // Once: the file may be a pipe.
    let merged = Merged::new(flags, &variables)?;
    Ok((all(&merged), Settings::of(&merged, &variables)))
}

fn all(merged: &Merged) -> Vec<Shown> {
    let one = |key: &'static super::keys::Key| {
        let given = merged.given(key.name);
        let found = match given {
            Some(_) if key.is_secret() => Found::Secret,
            Some((text, _)) => Found::Value(without_password(text).into_owned()),
            None if key.is_secret() => Found::NoSecret,
            None => Found::Nothing,
        };
        let origin = given.map_or(&Origin::Default, |(_, origin)| origin).to_string();
        Shown { name: key.name, found, origin }
    };
    KEYS.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_setting_is_shown_with_its_origin_and_no_secret_with_its_value() {
        let variables: BTreeMap<String, String> = [("XUID_TOKEN", "hunter2"), ("XUID_WAIT", "2s")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let merged = Merged::new(&Flags::of(&[("idle", Some("9m"))]), &variables).unwrap();
        let all = all(&merged);
        assert_eq!(all.len(), KEYS.len());
        let of = |name| {
            all.iter().find(|one| one.name == name).map(|one| (one.found.clone(), one.origin.as_str()))
        };
        let value = |text: &str| Found::Value(text.to_owned());
        assert_eq!(of("idle"), Some((value("9m"), "flag --idle")));
        assert_eq!(of("wait"), Some((value("2s"), "variable XUID_WAIT")));
        assert_eq!(of("max_age"), Some((value("1h"), "default")));
        assert_eq!(of("worker"), Some((Found::Nothing, "default")));
        assert_eq!(of("token"), Some((Found::Secret, "variable XUID_TOKEN")));
        assert_eq!(of("registry_auth"), Some((Found::NoSecret, "default")));
        assert!(!format!("{all:?}").contains("hunter2"));
    }
}
