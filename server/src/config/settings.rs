//! The settings of a server, checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use xuid_engine::registry::zookeeper::ZooKeeperUrl as Url;
use xuid_engine::{Face, Floor, Layout};

use super::access::Access;
use super::keys::Key;
use super::log_filter::{log_filter, log_of_environment};
use super::secrets::opaque_key::OpaqueKey;
use super::sequences::SequenceSettings;
use super::sources::{Flags, Merged, strangers, variables};
use super::tls::ServerTls;
use super::tokens::{MOST_IDS, Tokens};
use super::values::{self, address, between, cores, duration, number};
use crate::text::exit::usage;
use crate::text::logs::LogFormat;

/// The shortest idle time of a server (`idle`).
pub(crate) const LEAST_IDLE: Duration = Duration::from_secs(1);

/// A hundred years: more than a layout's 41 bits of milliseconds hold.
const CENTURY: Duration = Duration::from_hours(100 * 366 * 24);

/// What `xuid serve` was asked to do.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) listen: String,
    pub(crate) admin: Option<String>,
    /// Where clients of Redis connect.
    pub(crate) resp: Option<String>,
    /// Where clients of HTTP connect.
    pub(crate) http: Option<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) registry: RegistrySetting,
    pub(crate) access: Access,
    pub(crate) worker: Option<u32>,
    pub(crate) workers: u32,
    pub(crate) max_age: Duration,
    pub(crate) wait: Duration,
    pub(crate) backfill: Duration,
    pub(crate) floor: Floor,
    /// `None`: whatever the registry has.
    pub(crate) layout: Option<Layout>,
    /// `None`: its ids are not opaque.
    pub(crate) opaque_key: Option<OpaqueKey>,
    pub(crate) window_max: Duration,
    pub(crate) rollback_wait: Duration,
    pub(crate) drift: Duration,
    pub(crate) max_forward: Duration,
    pub(crate) idle: Duration,
    pub(crate) drain: Duration,
    pub(crate) lame_duck: Duration,
    /// `None`: as many as memory and descriptors allow.
    pub(crate) max_connections: Option<usize>,
    pub(crate) threads: usize,
    pub(crate) tokens: Tokens,
    /// What all clients of one address may take a second; 0: no limit.
    pub(crate) address_ids_per_second: u64,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) sequences: SequenceSettings,
    pub(crate) insecure_listen: bool,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    /// What is allowed, and not as it should be.
    pub(crate) warnings: Vec<String>,
}

/// Which registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RegistrySetting {
    /// The data folder.
    Local,
    /// An ensemble.
    ZooKeeper(Url),
}

impl Settings {
    /// Reads and checks every key.
    pub(crate) fn load(flags: &Flags) -> Result<Self> {
        let variables = variables()?;
        Self::of(&Merged::new(flags, &variables)?, &variables)
    }

    /// The same once more, while a server runs.
    pub(crate) fn load_again(flags: &Flags) -> Result<Self> {
        let variables = variables()?;
        Self::of(&Merged::again(flags, &variables)?, &variables)
    }

    /// The same, of what was read.
    pub(super) fn of(merged: &Merged, variables: &BTreeMap<String, String>) -> Result<Self> {
        let mut settings = Self::from_merged(merged)?;
        settings.warnings = settings.doubts(merged, variables);
        settings.check_together()?;
        Ok(settings)
    }

    /// Only what a file of that text says, and defaults.
    #[cfg(test)]
    pub(crate) fn of_file(text: &str) -> Result<Self> {
        Self::from_merged(&Merged::of_file(text)?)
    }

    pub(super) fn from_merged(from: &Merged) -> Result<Self> {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        let or_off = |text: &str| if text == "off" { Some(None) } else { address(text).map(Some) };
        let small = |text: &str, least, most| Some(number(text, least, most)? as u32);
        Ok(Self {
            listen: from.required("listen", address)?,
            admin: from.required("admin", or_off)?,
            resp: from.required("resp", or_off)?,
            http: from.required("http", or_off)?,
            data_dir: from.required("data_dir", |text| (!text.is_empty()).then(|| PathBuf::from(text)))?,
            registry: from.required("registry", |text| RegistrySetting::parse(text).ok())?,
            access: Access::from_merged(from)?,
            worker: from.optional("worker", |text| small(text, 0, (1 << 22) - 1))?,
            workers: from.required("workers", |text| small(text, 1, 64))?,
            max_age: from.required("max_age", between(2 * second, CENTURY))?,
            wait: from.required("wait", between(Duration::ZERO, minute))?,
            backfill: from.required("backfill", duration)?,
            floor: from.required("floor", values::floor)?,
            layout: layout_from(from)?,
            opaque_key: OpaqueKey::from_merged(from)?,
            window_max: from.required("window_max", between(second, Duration::from_secs(100)))?,
            rollback_wait: from.required("rollback_wait", between(Duration::ZERO, minute))?,
            drift: from.required("drift", between(Duration::ZERO, minute))?,
            max_forward: from
                .required("max_forward", between(Duration::from_millis(100), Duration::from_secs(100)))?,
            idle: from.required("idle", between(LEAST_IDLE, Duration::from_hours(24)))?,
            drain: from.required("drain", between(Duration::ZERO, Duration::from_hours(1)))?,
            lame_duck: from.required("lame_duck", between(Duration::ZERO, Duration::from_hours(1)))?,
            max_connections: from
                .optional("max_connections", |text| small(text, 1, 1_000_000))?
                .map(|count| count as usize),
            threads: from
                .optional("threads", |text| small(text, 1, 256))?
                .map_or_else(cores, |count| count as usize),
            tokens: Tokens::from_merged(from)?,
            address_ids_per_second: from
                .required("address_ids_per_second", |text| number(text, 0, MOST_IDS.cast_unsigned()))?,
            tls: ServerTls::from_merged(from)?,
            sequences: SequenceSettings::from_merged(from)?,
            insecure_listen: from.required("insecure_listen", |text| text.parse().ok())?,
            log: from
                .checked("log", log_filter)?
                .unwrap_or_else(|| log_of_environment("info,zookeeper_client=warn")),
            log_format: from.required("log_format", LogFormat::parse)?,
            warnings: Vec::new(),
        })
    }

    /// What is allowed and probably not meant.
    fn doubts(&self, merged: &Merged, variables: &BTreeMap<String, String>) -> Vec<String> {
        let strangers = strangers(variables);
        let unknown = (!strangers.is_empty())
            .then(|| format!("these variables are no settings of xuid: {}", strangers.join(", ")));
        let idle_floor = match &self.registry {
            RegistrySetting::ZooKeeper(url) if merged.is_given("floor") => Some(format!(
                "floor is for a local registry that is created; {url} has the one that `xuid registry init --floor` gave it"
            )),
            _ => None,
        };
        let key = self.tls.as_ref().and_then(ServerTls::warning);
        let of_ids = self.opaque_key.as_ref().and_then(OpaqueKey::warning);
        let open = [self.access.warning(), self.tokens.warning(), key, of_ids, merged.warning()];
        let of_sequences = self.sequences.doubts(merged);
        unknown.into_iter().chain(open.into_iter().flatten()).chain(idle_floor).chain(of_sequences).collect()
    }

    /// What two keys must agree on.
    pub(super) fn check_together(&self) -> Result<()> {
        if self.backfill > self.max_age {
            let (backfill, most) = (self.backfill, self.max_age);
            return Err(usage(format!(
                "backfill is {backfill:?}; allowed is a time from 0 to max_age, {most:?}"
            ))
            .into());
        }
        if self.rollback_wait > self.drift {
            let (wait, most) = (self.rollback_wait, self.drift);
            return Err(usage(format!(
                "rollback_wait is {wait:?}; allowed is a time from 0 to drift, {most:?}"
            ))
            .into());
        }
        self.check_opaque()?;
        if let (Some(worker), 2..) = (self.worker, self.workers) {
            let count = self.workers;
            return Err(
                usage(format!("workers is {count}; allowed is 1 where worker names one, {worker}")).into()
            );
        }
        Ok(())
    }
}

impl Settings {
    /// The key and the layout must both be of opaque ids, before anything is made.
    fn check_opaque(&self) -> Result<()> {
        match (self.layout, &self.opaque_key) {
            (Some(layout), Some(_)) => {
                layout.opaque().map_err(|error| usage(format!("layout with opaque_key_file: {error}")))?;
            }
            (Some(layout), None) if layout.face() == Face::Opaque => {
                let text =
                    "layout has opaque ids, and no key is given; allowed is it with opaque_key_file only";
                return Err(usage(text).into());
            }
            _ => {}
        }
        Ok(())
    }
}

/// The layout of two keys; `None` if neither was given.
fn layout_from(from: &Merged) -> Result<Option<Layout>> {
    let widths = from.optional("layout", |text| text.parse::<Layout>().ok())?;
    let epoch = from.optional("epoch", |text| number(text, 0, u64::MAX >> 20))?;
    Ok(values::layout(widths, epoch))
}

/// The layout that two flags of a command say, else the variables of those settings, else the default one. The file of
/// settings is a server's.
pub(crate) fn layout_said(layout: Option<&str>, epoch: Option<&str>) -> Result<Layout> {
    let flags = Flags::of(&[("layout", layout), ("epoch", epoch)]);
    Ok(layout_from(&Merged::without_file(&flags, &variables()?))?.unwrap_or_default())
}

impl RegistrySetting {
    /// `local`, or the URL of an ensemble; else a sentence that begins with what was found.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "local" => Ok(Self::Local),
            url if url.starts_with(Url::SCHEME) => {
                url.parse().map(Self::ZooKeeper).map_err(|error| error.to_string())
            }
            other => {
                let allowed = Key::find("registry").map_or("", |key| key.allowed);
                Err(format!("{other:?} is no kind that there is; allowed is {allowed}"))
            }
        }
    }
}
