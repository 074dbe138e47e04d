//! What is drawn.

use crate::subject::Kind;

/// All of one supply and mode.
pub(super) struct Panel {
    pub(super) title: String,
    /// What the scale is of.
    pub(super) axis: &'static str,
    pub(super) unit: fn(f64) -> String,
    pub(super) groups: Vec<Group>,
}

/// All at one number of threads.
pub(super) struct Group {
    pub(super) heading: String,
    pub(super) rows: Vec<Row>,
}

/// One bar.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) value: f64,
    /// From where to where the whisker goes.
    pub(super) whisker: (f64, f64),
    pub(super) label: String,
    pub(super) void: bool,
}
