//! The settings of a server, checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use tracing_subscriber::EnvFilter;
use xuid_engine::Layout;

use super::sources::{Flags, Merged, strangers, variables};
use super::values::{self, address, cores, duration, number};
use crate::failure::usage;

/// A hundred years: more than a layout's 41 bits of milliseconds hold.
const CENTURY: Duration = Duration::from_hours(100 * 366 * 24);

/// What `xuid serve` was asked to do.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) listen: String,
    pub(crate) admin: Option<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) registry: RegistrySetting,
    pub(crate) worker: Option<u32>,
    pub(crate) workers: u32,
    pub(crate) max_age: Duration,
    pub(crate) wait: Duration,
    pub(crate) backfill: Duration,
    pub(crate) floor: FloorSetting,
    /// `None`: whatever the registry has.
    pub(crate) layout: Option<Layout>,
    pub(crate) window_max: Duration,
    pub(crate) idle: Duration,
    pub(crate) max_connections: usize,
    pub(crate) threads: usize,
    pub(crate) token: Option<Token>,
    pub(crate) log: String,
    /// `XUID_*` variables that are no settings.
    pub(crate) strangers: Vec<String>,
}

/// Which registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RegistrySetting {
    /// The data folder.
    Local,
    /// A URL that begins with `zookeeper://`.
    ZooKeeper(String),
}

/// The earliest tick that a registry which is created now may ever grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloorSetting {
    /// The present.
    Now,
    /// Some time ago.
    Before(Duration),
    /// Tick 0.
    Epoch,
}

/// A secret that no log shows.
#[derive(Clone)]
pub(crate) struct Token(Box<[u8]>);

impl Token {
    /// The secret itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A token of 1 to 255 bytes: HELLO carries its length in one.
    pub(crate) fn new(text: &str) -> Option<Self> {
        (1..=255).contains(&text.len()).then(|| Self(text.as_bytes().into()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Settings {
    /// Reads and checks every key.
    pub(crate) fn load(flags: &Flags) -> Result<Self> {
        let variables = variables();
        let merged = Merged::new(flags, &variables)?;
        let mut settings = Self::from_merged(&merged)?;
        settings.strangers = strangers(&variables);
        settings.check_together()?;
        Ok(settings)
    }

    fn from_merged(from: &Merged) -> Result<Self> {
        let between = |least: Duration, most: Duration| {
            move |text: &str| duration(text).filter(|time| (least..=most).contains(time))
        };
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        // Checked although the local registry, which has no sessions, does not ask for it.
        from.required("session", between(second, minute))?;
        let small = |text: &str, least, most| Some(number(text, least, most)? as u32);
        let widths = from.optional("layout", |text| text.parse::<Layout>().ok())?;
        let epoch = from.optional("epoch", |text| number(text, 0, u64::MAX >> 20))?;
        Ok(Self {
            listen: from.required("listen", address)?,
            admin: from
                .required("admin", |text| if text == "off" { Some(None) } else { address(text).map(Some) })?,
            data_dir: from.required("data_dir", |text| (!text.is_empty()).then(|| PathBuf::from(text)))?,
            registry: from.required("registry", RegistrySetting::parse)?,
            worker: from.optional("worker", |text| small(text, 0, (1 << 20) - 1))?,
            workers: from.required("workers", |text| small(text, 1, 64))?,
            max_age: from.required("max_age", between(2 * second, CENTURY))?,
            wait: from.required("wait", between(Duration::ZERO, minute))?,
            backfill: from.required("backfill", duration)?,
            floor: from.required("floor", values::floor)?,
            layout: values::layout(widths, epoch),
            window_max: from.required("window_max", between(second, Duration::from_secs(100)))?,
            idle: from.required("idle", between(second, Duration::from_hours(24)))?,
            max_connections: from.required("max_connections", |text| small(text, 1, 1_000_000))? as usize,
            threads: from
                .optional("threads", |text| small(text, 1, 256))?
                .map_or_else(cores, |count| count as usize),
            token: from.optional("token", Token::new)?,
            log: from.optional("log", log_filter)?.unwrap_or_else(|| log_of_environment("info")),
            strangers: Vec::new(),
        })
    }

    /// What two keys must agree on.
    fn check_together(&self) -> Result<()> {
        if self.backfill > self.max_age {
            let (backfill, most) = (self.backfill, self.max_age);
            return Err(usage(format!(
                "backfill is {backfill:?}; allowed is a time from 0 to max_age, {most:?}"
            ))
            .into());
        }
        if let (Some(worker), 2..) = (self.worker, self.workers) {
            let count = self.workers;
            return Err(
                usage(format!("workers is {count}; allowed is 1 where worker names one, {worker}")).into()
            );
        }
        Ok(())
    }
}

impl RegistrySetting {
    /// `local`, or the URL of an ensemble.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "local" => Some(Self::Local),
            url if url.starts_with("zookeeper://") => Some(Self::ZooKeeper(url.to_owned())),
            _ => None,
        }
    }

    /// The registry that a command names as a URL or as a folder.
    pub(crate) fn of_target(target: &Path) -> Result<PathBuf> {
        match target.to_str().and_then(Self::parse) {
            Some(Self::ZooKeeper(url)) => Err(Self::unsupported(&url)),
            Some(Self::Local) => Ok(PathBuf::from(super::DEFAULT_DATA_DIR)),
            None => Ok(target.to_owned()),
        }
    }

    /// Says that a registry cannot be had.
    pub(crate) fn unsupported(url: &str) -> anyhow::Error {
        anyhow::anyhow!(
            "{url}: this build has no ZooKeeper support yet; use a local registry (--registry local)"
        )
    }
}

fn log_filter(text: &str) -> Option<String> {
    EnvFilter::try_new(text).is_ok().then(|| text.to_owned())
}

/// `RUST_LOG` where it says something that can be understood, else `default`.
pub(crate) fn log_of_environment(default: &str) -> String {
    let asked = std::env::var("RUST_LOG").ok();
    asked.as_deref().and_then(log_filter).unwrap_or_else(|| default.to_owned())
}
