//! What a registry is, and what became of it, as programs read it.

use serde_json::{Value, json};
use xuid_engine::registry::local::sequences::SequencesFenced;
use xuid_engine::registry::{Adopted, Fenced, Genesis};

use crate::registries::view::{Created, View};
use crate::text;

/// What a registry was created with.
pub(crate) fn genesis(place: &str, genesis: &Genesis) -> Value {
    let layout = &genesis.layout;
    let mut object = json!({
        "registry": place,
        "cluster": genesis.cluster.to_string(),
        "layout": text::json::layout(layout),
        "workers": genesis.workers,
        "first_worker": genesis.first_worker,
    });
    text::json::tick(&mut object, "floor", layout, genesis.floor);
    text::json::tick(&mut object, "last", layout, layout.last_tick());
    object
}

/// A registry as it is.
pub(crate) fn view(view: &View) -> Value {
    let mut object = genesis(&view.place, &view.genesis);
    object["open"] = view.open.into();
    object["live"] = view.live().into();
    object["closed"] = view.closed().into();
    object["spills"] = view.marks.len().into();
    object["findings"] = view.findings.clone().into();
    object
}

/// A registry that was created; `again`: there seems to have been one before, so it serves later.
pub(crate) fn created(place: &str, created: &Created) -> Value {
    let mut object = genesis(place, &created.genesis);
    object["again"] = created.again.into();
    object
}

/// What a fence did.
pub(crate) fn fenced(place: &str, fenced: &Fenced) -> Value {
    let mut object = genesis(place, &fenced.genesis);
    text::json::tick(&mut object, "reserved_until", &fenced.genesis.layout, fenced.reserved_until);
    object["spills_given_up"] = fenced.marks.into();
    object["repaired"] = fenced.repaired.into();
    object["remade"] = fenced.remade.into();
    object["sequences_closed"] = fenced.sequences.into();
    object["sequences_lost"] = fenced.lost_sequences.into();
    object["newest_change_ms"] = fenced.newest_change_ms.into();
    object["ensemble_ahead_ms"] = fenced.ensemble_ahead_ms.into();
    object
}

/// What a fence of a folder's sequences did.
pub(crate) fn sequences_fenced(place: &str, fenced: SequencesFenced) -> Value {
    json!({ "folder": place, "closed": fenced.names, "lost": fenced.lost })
}

/// What an adoption did; `fence` is null where there was nothing to adopt.
pub(crate) fn adopted(place: &str, adopted: &Adopted) -> Value {
    json!({
        "registry": place,
        "before": adopted.before.to_string(),
        "cluster": adopted.cluster.to_string(),
        "fence": adopted.fenced.as_ref().map(|done| fenced(place, done)),
    })
}
