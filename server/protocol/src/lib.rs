//! XUID/1 as bytes: what a server and its clients say to each other, without sockets, clocks or threads.
//!
//! ```text
//!   client                                          server
//!   request_*  append a frame to a Vec<u8>   --->   check_preface, parse_request   borrow from the input
//!   parse_reply   borrows from the input     <---   reply_*, ArrayWriter, RunsWriter   append to a Vec<u8>
//! ```
//!
//! - Encoders append to a buffer of the caller and allocate nothing else, so that many frames share one write.
//! - Parsers borrow from the input, are incremental, and say how many bytes are still needed. Nothing is ever
//!   allocated, or waited for, because a header claims it: a body above the limit is refused by its header alone.
//! - A [`Refusal`] is a request's error: whether it closes the connection is part of it, so that the rule is
//!   written once. [`Phase`] says whether HELLO was accepted yet, for the same reason.
//! - Numbers that a later version may add to ([`Status`]) are open; what a reply may grow by is not looked at.
//!
//! The bytes are specified in `docs/protocol.md`; `golden/` holds a vector of each frame, which the tests read and
//! write. No function here panics on any input.

mod fields;
mod greeting;
mod header;
mod limits;
mod op;
mod preface;
mod refusal;
mod reply;
mod request;
mod run;
mod status;

/// The crate's README compiles, and what it claims holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use greeting::{Hello, HelloReply, TooLong, VERSION};
pub use header::{HEADER_LEN, Header, REPLY_BIT};
pub use limits::{
    COUNT_CEILING, EARLY_PINGS, FRAME_DEADLINE, GREETING_DEADLINE, LINGER_BYTES, LINGER_TIME, LIST_MAX,
    Limits, PING_MAX, REPLY_ROOM, WAIT_CAP, reply_max,
};
pub use op::Op;
pub use preface::{Foreign, PREFACE, Preface, check_preface, foreign_answer};
pub use refusal::Refusal;
pub use reply::encode::{
    ID_REPLY_LEN, goaway, id_reply, reply_bye, reply_decode, reply_error, reply_hello, reply_id, reply_info,
    reply_ping, reply_provenance, reply_sequence, reply_stats, seq_id_reply,
};
pub use reply::parse::{ParsedReply, parse_reply};
pub use reply::writer::{ArraySlots, ArrayWriter, RunsWriter};
pub use reply::{BadReply, Decoded, ErrorReply, Ids, Reply, Runs};
pub use request::Request;
pub use request::asked::{Bulk, SeqBulk, SeqList};
pub use request::encode::{
    request_array, request_bye, request_decode, request_hello, request_info, request_next, request_ping,
    request_provenance, request_runs, request_stats,
};
pub use request::parse::{ParsedRequest, Phase, parse_request, plain_next};
pub use request::sequence::{
    plain_seq_next, request_seq_alter, request_seq_array, request_seq_create, request_seq_info,
    request_seq_list, request_seq_next, request_seq_runs,
};
pub use run::{Run, RunIds};
pub use status::Status;
pub use xuid_id::{ClusterId, LAST_ID, NameError, Order, ParseClusterIdError, SequenceName, printable};
