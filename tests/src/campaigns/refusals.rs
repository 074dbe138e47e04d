//! Names of status codes, by the specification of the protocol.

/// The name of a status code; an unnamed one is shown as its number.
pub(super) fn code(status: u16) -> String {
    let name = match status {
        0x0001 => "BAD_REQUEST",
        0x0002 => "VERSION",
        0x0003 => "UNKNOWN_OP",
        0x0004 => "TOO_LARGE",
        0x0005 => "COUNT",
        0x0006 => "UNAUTHENTICATED",
        0x0007 => "WRONG_CLUSTER",
        0x0008 => "EXHAUSTED",
        0x8010 => "NOT_READY",
        0x8011 => "OVERLOADED",
        0x8012 => "CLOCK_BEHIND",
        0x8013 => "WINDOW_LOST",
        0x8014 => "SHUTTING_DOWN",
        0x8015 => "INTERNAL",
        0x801a => "RATE",
        other => return format!("{other:04x}"),
    };
    name.to_owned()
}
