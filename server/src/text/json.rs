//! What programs read, where several commands say it.

use serde_json::{Value, json};
use xuid_engine::Layout;

/// A layout, as INFO tells it.
pub(crate) fn layout(layout: &Layout) -> Value {
    json!({
        "time_bits": layout.time_bits(),
        "worker_bits": layout.worker_bits(),
        "sequence_bits": layout.sequence_bits(),
        "tick_us": layout.tick_us(),
        "epoch_ms": layout.epoch_ms(),
    })
}
