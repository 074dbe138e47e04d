//! As whom an ensemble is used: `user:password`, said in a variable, in the file of settings, or in a file of its own,
//! and the scheme by which the ensemble learns them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use tracing::warn;
use xuid_engine::registry::zookeeper::{AuthScheme, Credentials};

use super::keys::Key;
use super::secrets::open_to_all;
use super::sources::{Flags, Merged, Reading, variables};
use super::values::between;
use crate::text::exit::{Usage, usage};

/// The key of a file with credentials.
const AUTH_FILE: &str = "registry_auth_file";
const AUTH_SCHEME: &str = "registry_auth_scheme";

/// How an ensemble is used.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) session: Duration,
    pub(crate) credentials: Option<Credentials>,
    /// Where the credentials were read, if it was a file of their own.
    pub(crate) auth_file: Option<PathBuf>,
    pub(crate) scheme: AuthScheme,
}

/// The flags with which a command is let into an ensemble.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct AccessArgs {
    #[arg(long, value_name = "FILE", help = help_of(AUTH_FILE))]
    registry_auth_file: Option<String>,
    #[arg(long, value_name = "SCHEME", help = help_of(AUTH_SCHEME))]
    registry_auth_scheme: Option<String>,
}

fn help_of(name: &str) -> String {
    Key::find(name).map(|key| format!("{} [env: {}]", key.help, key.variable())).unwrap_or_default()
}

impl AccessArgs {
    /// What the flags say, else what a server would be told by its variables and its file of settings. Warns of a
    /// secret that others may read.
    pub(crate) fn load(&self) -> Result<Access> {
        let flags = Flags::of(&[
            (AUTH_FILE, self.registry_auth_file.as_deref()),
            (AUTH_SCHEME, self.registry_auth_scheme.as_deref()),
        ]);
        let access = Access::from_merged(&Merged::new(&flags, &variables()?)?)?;
        if let Some(warning) = access.warning() {
            warn!("{warning}");
        }
        Ok(access)
    }
}

impl Access {
    pub(super) fn from_merged(from: &Merged) -> Result<Self> {
        let session = from.required("session", between(Duration::from_secs(1), Duration::from_mins(1)))?;
        let said = from.optional("registry_auth", Credentials::new)?;
        let auth_file = from.optional(AUTH_FILE, |text| (!text.is_empty()).then(|| text.into()))?;
        if let (Some(text), Some(file)) = (from.origin("registry_auth"), from.origin(AUTH_FILE)) {
            let found = format!("registry_auth ({text}) and registry_auth_file ({file}) are both there");
            return Err(usage(format!("{found}; allowed is one of them")).into());
        }
        let scheme = from.required(AUTH_SCHEME, scheme)?;
        let read = auth_file.as_deref().map(|path| credentials_in(path, from.reading)).transpose()?;
        let refused = |why: &str| {
            usage(format!(
                "registry_auth_scheme is sasl, and {why}; allowed is sasl with registry_auth \
                 (XUID_REGISTRY_AUTH=user:password) or registry_auth_file, in ASCII"
            ))
        };
        let credentials = match said.or(read) {
            Some(found) => {
                let found = found.with_scheme(scheme);
                Some(found.ok_or_else(|| refused("user or password has characters beyond ASCII"))?)
            }
            None if scheme == AuthScheme::Sasl => return Err(refused("there is no user to log in as").into()),
            None => None,
        };
        Ok(Self { session, credentials, auth_file, scheme })
    }

    /// What is wrong with the file of the credentials, if anything is.
    pub(crate) fn warning(&self) -> Option<String> {
        open_to_all(self.auth_file.as_deref()?, "holds a password")
    }
}

fn scheme(text: &str) -> Option<AuthScheme> {
    match text {
        "digest" => Some(AuthScheme::Digest),
        "sasl" => Some(AuthScheme::Sasl),
        _ => None,
    }
}

fn credentials_in(path: &Path, reading: Reading) -> Result<Credentials, Usage> {
    let text = reading.text(path).map_err(|error| {
        usage(format!("failed to read the file {} of registry_auth_file: {error}", path.display()))
    })?;
    // The file of a secret: what is in it is not shown.
    let line = text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r');
    let found = (!line.contains('\n')).then(|| Credentials::new(line)).flatten();
    found.ok_or_else(|| {
        usage(format!(
            "the file {} of registry_auth_file holds something else; allowed is one line with user:password",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn access(variables: &[(&str, &str)]) -> Result<Access> {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Access::from_merged(&Merged::new(&Flags::default(), &variables)?)
    }

    #[test]
    fn credentials_come_from_a_variable_or_from_a_file_and_without_either_there_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let file = path.to_str().unwrap();
        let wanted = Credentials::new("xuid:a:b c");
        assert!(wanted.is_some() && access(&[]).unwrap().credentials.is_none());
        assert_eq!(access(&[("XUID_REGISTRY_AUTH", "xuid:a:b c")]).unwrap().credentials, wanted);
        for text in ["xuid:a:b c", "xuid:a:b c\n", "xuid:a:b c\r\n"] {
            fs::write(&path, text).unwrap();
            let found = access(&[("XUID_REGISTRY_AUTH_FILE", file)]).unwrap();
            assert_eq!(
                (found.credentials, found.auth_file.as_ref()),
                (wanted.clone(), Some(&path)),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_is_no_secret_is_wrong_usage_that_does_not_show_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let file = path.to_str().unwrap();
        for text in ["hunter2", ":hunter2", "hunter2:", "", "xuid:hunter2\nxuid:hunter3\n"] {
            fs::write(&path, text).unwrap();
            for (name, value) in [("XUID_REGISTRY_AUTH", text), ("XUID_REGISTRY_AUTH_FILE", file)] {
                if name == "XUID_REGISTRY_AUTH" && text.contains('\n') {
                    continue;
                }
                let error = access(&[(name, value)]).unwrap_err();
                assert!(error.is::<Usage>(), "{text:?}: {error}");
                let said = error.to_string();
                assert!(said.contains("user:password") && !said.contains("hunter2"), "{said}");
            }
        }
    }

    #[test]
    fn credentials_from_two_places_are_refused_and_both_places_told() {
        let error =
            access(&[("XUID_REGISTRY_AUTH", "a:b"), ("XUID_REGISTRY_AUTH_FILE", "/nowhere")]).unwrap_err();
        let said = error.to_string();
        assert!(error.is::<Usage>() && said.contains("one of them"), "{said}");
        assert!(said.contains("XUID_REGISTRY_AUTH)") && said.contains("XUID_REGISTRY_AUTH_FILE"), "{said}");
    }

    #[test]
    fn a_login_by_sasl_is_asked_for_and_has_a_user_in_ascii() {
        let (user, scheme) = (("XUID_REGISTRY_AUTH", "xuid:hunter2"), "XUID_REGISTRY_AUTH_SCHEME");
        let found = |variables: &[(&str, &str)]| access(variables).unwrap().credentials;
        let digest = Credentials::new("xuid:hunter2");
        let sasl = digest.clone().and_then(|found| found.with_scheme(AuthScheme::Sasl));
        assert!(found(&[user]) == digest && found(&[user, (scheme, "digest")]) == digest && digest != sasl);
        assert_eq!(found(&[user, (scheme, "sasl")]), sasl);
        let beyond = ("XUID_REGISTRY_AUTH", "xuid:hunter2\u{e9}");
        let sasl = (scheme, "sasl");
        for variables in [&[sasl][..], &[beyond, sasl], &[user, (scheme, "SASL")], &[user, (scheme, "")]] {
            let error = access(variables).unwrap_err();
            let said = error.to_string();
            assert!(error.is::<Usage>() && said.contains("sasl with registry_auth"), "{said}");
            assert!(said.contains("registry_auth_file") && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn a_file_that_everybody_may_read_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "a:b").unwrap();
        let warning = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            access(&[("XUID_REGISTRY_AUTH_FILE", path.to_str().unwrap())]).unwrap().warning()
        };
        assert!(warning(0o644).is_some_and(|text| text.contains("chmod 600") && text.contains("644")));
        assert_eq!((warning(0o640), warning(0o600)), (None, None));
    }

    #[test]
    fn credentials_may_come_through_a_pipe_and_never_without_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (writer, told) = (path.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || fs::write(writer, "a:b"));
        let reader = path.clone();
        std::thread::spawn(move || {
            let found = access(&[("XUID_REGISTRY_AUTH_FILE", reader.to_str().unwrap())]).unwrap();
            // The writer is gone by now: whatever opens the pipe again waits for ever.
            let _ = told.0.send((found.credentials.clone(), found.warning()));
        });
        let (found, warning) = told.1.recv_timeout(Duration::from_secs(30)).expect("it waits for ever");
        assert_eq!((found, warning), (Credentials::new("a:b"), None));
        let error = access(&[("XUID_REGISTRY_AUTH_FILE", "/dev/zero")]).unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("longer than"), "{error}");
    }

    #[test]
    fn a_session_is_between_a_second_and_a_minute() {
        assert_eq!(access(&[("XUID_SESSION", "1s")]).unwrap().session, Duration::from_secs(1));
        for text in ["999ms", "61s", "6"] {
            assert!(access(&[("XUID_SESSION", text)]).unwrap_err().is::<Usage>(), "{text}");
        }
    }
}
