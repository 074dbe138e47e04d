//! Correctness before speed: a benchmark of wrong ids is worth nothing.

use std::collections::HashSet;

use xuid_engine::Engine;

/// Panics if one of the ids came before.
pub(crate) fn assert_unique(who: &str, ids: impl IntoIterator<Item = u64>) {
    let mut seen = HashSet::new();
    for id in ids {
        assert!(seen.insert(id), "{who} made {id} twice");
    }
}

/// Panics if the engine refused a call: its land ran out, or there was none yet, and the figures are void.
pub(crate) fn assert_nobody_was_refused(engine: &Engine) {
    let objection = xuid_benches::land::objection(engine);
    assert!(objection.is_none(), "the run is void: {objection:?}");
}
