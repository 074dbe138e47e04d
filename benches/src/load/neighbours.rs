//! What the clients of one server keep beside others that ask for too much, say nothing or lie; and what TLS and an idle
//! server cost.
//!
//! A figure beside such neighbours stands in one row with the figure without them, of the same run and the same server.
//! Server and clients share the machine's cores, but for the rate of TLS.

mod crowd;
mod flood;
mod greed;
mod life;
mod party;
mod strangers;
mod tls;
mod tokens;
mod watch;
mod words;

use crate::table::Group;

/// All groups.
pub const NEIGHBOURS: [Group; 9] = [
    // First: nothing else has run on the machine.
    ("life", life::rows),
    ("greed", greed::rows),
    ("shares", greed::shares),
    ("flood", flood::rows),
    ("strangers", strangers::rows),
    ("fronts", strangers::fronts),
    ("admin", strangers::admin),
    ("tokens", tokens::rows),
    ("tls", tls::rows),
];
