//! Where an id came from, as the command and the protocol tell it: the evidence of a registry and of data folders, and the
//! answer in JSON.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use xuid_engine::registry::provenance::{Evidence, Provenance};
use xuid_engine::{Engine, Face, Id, Layout};

use crate::registries::target::Target;
use crate::registries::view::View;
use crate::text::human_time::rfc3339_ms;

/// What a registry and these folders say of its ids.
pub(crate) fn evidence(view: &View, folders: &[PathBuf]) -> Evidence {
    let mut evidence = Evidence::new(view.genesis);
    // One that was put back says less than was granted.
    if view.is_current {
        evidence.add_registry(&format!("registry {}", view.place), &view.workers, &view.marks);
    }
    for folder in folders {
        evidence.add_folder(&folder.display().to_string(), folder);
    }
    evidence
}

/// What is known of an id, and what could not be read that may tell more.
pub(crate) fn as_json(id: Id, layout: &Layout, found: &Provenance, unread: &[String]) -> Value {
    let window = found.window.as_ref().map(|ticks| {
        json!({
            "from_unix_ms": layout.tick_to_ms(ticks.start),
            "to_unix_ms": layout.tick_to_ms(ticks.end),
        })
    });
    let mut said = json!({
        "id": id.to_string(),
        "issued": if found.verdict.may_be_issued() { "maybe" } else { "no" },
        "verdict": found.verdict.name(),
        "worker": found.place.map(|(worker, _)| worker),
        "tick_unix_ms": found.place.map(|(_, tick)| layout.tick_to_ms(tick)),
        "window": window,
        "holder": found.holder,
        "when": found.when_ms.map(rfc3339_ms),
        "sources": found.sources,
    });
    if !unread.is_empty() {
        said["unread"] = json!(unread);
    }
    said
}

/// A registry that failed is not asked again for so long: each look at one that does not answer takes a session's time.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// What a server looks at to say where an id came from.
pub(crate) struct Looks {
    registry: Target,
    folder: PathBuf,
    /// When the registry failed.
    failed: Mutex<Option<Instant>>,
}

impl Looks {
    pub(crate) fn new(registry: Target, folder: PathBuf) -> Self {
        Self { registry, folder, failed: Mutex::default() }
    }

    /// What a server at `name` knows of an id, by itself, by its folder and by its registry. Reads files, and asks the registry:
    /// it blocks, and not within an async runtime.
    pub(crate) fn at(&self, engine: &Engine, name: &str, id: Id) -> Value {
        let genesis = engine.genesis();
        let mut evidence = Evidence::new(genesis);
        let uncut = engine.is_uncut(id).then_some(name);
        let opened = opened(engine, id);
        let by_itself = evidence.judge(opened, uncut);
        if !by_itself.verdict.may_be_issued() {
            return as_json(id, &genesis.layout, &by_itself, evidence.unread());
        }
        match self.view() {
            Some(view) if view.genesis == genesis => {
                evidence = self::evidence(&view, std::slice::from_ref(&self.folder));
            }
            // Away, or another one by now: the folder alone says less.
            _ => evidence.add_folder(&self.folder.display().to_string(), &self.folder),
        }
        as_json(id, &genesis.layout, &evidence.judge(opened, None), evidence.unread())
    }

    /// The registry, unless it failed a moment ago.
    fn view(&self) -> Option<View> {
        let failed = || self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed().is_some_and(|at| at.elapsed() < AFTER_FAILURE) {
            return None;
        }
        let view = self.registry.look().ok();
        *failed() = view.is_none().then(Instant::now);
        view
    }
}

/// An opaque id opened, and any other as it is.
fn opened(engine: &Engine, id: Id) -> Id {
    let layout = engine.layout();
    if layout.face() != Face::Opaque {
        return id;
    }
    let parts = engine.decode(id);
    layout.encode(parts.tick, parts.worker, parts.sequence)
}
