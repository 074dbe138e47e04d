//! What programs read, where several commands say it.

use serde_json::{Value, json};
use xuid_engine::Layout;

use crate::text::human_time::rfc3339_ms;

/// A layout, as INFO tells it.
pub(crate) fn layout(layout: &Layout) -> Value {
    json!({
        "time_bits": layout.time_bits(),
        "worker_bits": layout.worker_bits(),
        "sequence_bits": layout.sequence_bits(),
        "face": layout.face().to_string(),
        "tick_us": layout.tick_us(),
        "epoch_ms": layout.epoch_ms(),
    })
}

/// A tick in three forms, under `name`, `name_ms` and `name_time`.
pub(crate) fn tick(object: &mut Value, name: &str, layout: &Layout, tick: u64) {
    let unix_ms = layout.tick_to_ms(tick);
    object[name] = tick.into();
    object[format!("{name}_ms")] = unix_ms.into();
    object[format!("{name}_time")] = rfc3339_ms(unix_ms).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_told_as_number_as_milliseconds_and_as_time() {
        let mut object = json!({});
        tick(&mut object, "floor", &Layout::default(), 7);
        let wanted = json!({
            "floor": 7,
            "floor_ms": 1_524_153_600_007_u64,
            "floor_time": "2018-04-19T16:00:00.007Z",
        });
        assert_eq!(object, wanted);
    }
}
