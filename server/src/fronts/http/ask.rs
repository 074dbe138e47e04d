//! What a request asks for, whatever its dialect, and what it gets.

use std::borrow::Cow;
use std::time::Duration;

use xuid_engine::Parts;
use xuid_engine::sequence::{Demand, SequenceInfo};
use xuid_protocol::{Op, Order, Refusal, Status};

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Ask<'a> {
    /// The engine's own ids.
    Ids {
        count: u32,
        order: Order,
        wait: Option<Duration>,
    },
    /// Numbers of a sequence.
    Numbers {
        name: Cow<'a, [u8]>,
        demand: Demand,
    },
    /// A piece of a sequence that its client cuts into ids by itself.
    Segment {
        name: Cow<'a, [u8]>,
    },
    Info {
        name: Cow<'a, [u8]>,
    },
    List {
        after: String,
        limit: u32,
    },
    /// With settings as `SEQ_CREATE` has them.
    Create {
        name: Cow<'a, [u8]>,
        settings: String,
    },
    /// With changes as `SEQ_ALTER` has them.
    Alter {
        name: Cow<'a, [u8]>,
        changes: String,
    },
    /// Nothing that must be asked for.
    Ready(Got),
}

/// What there is for an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Got {
    /// Ids, which the session has.
    Pieces,
    Sequence {
        info: Box<SequenceInfo>,
        is_new: bool,
    },
    Sequences(Vec<SequenceInfo>),
    /// The parts of an id; `None`: it was none.
    Parts(Option<(u64, Parts)>),
    OpenApi,
}

/// In whose words a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Leaf,
    /// Its "Simple" paths have no JSON.
    Tiny {
        is_simple: bool,
    },
    /// The service of `/api/leaf`.
    Api,
    V1,
}

/// In which form ids are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    One,
    List,
    Runs,
}

impl Form {
    /// The op of XUID/1 that brings the same, under which it is counted.
    pub(super) fn op(self, is_named: bool) -> Op {
        match (self, is_named) {
            (Self::One, false) => Op::Next,
            (Self::List, false) => Op::Array,
            (Self::Runs, false) => Op::Runs,
            (Self::One, true) => Op::SeqNext,
            (Self::List, true) => Op::SeqArray,
            (Self::Runs, true) => Op::SeqRuns,
        }
    }
}

/// Why a request does not get what it asked for.
#[derive(Debug, PartialEq)]
pub(super) struct Denial {
    pub(super) refusal: Refusal,
    /// The status of HTTP, where that is not what the refusal's own comes to.
    pub(super) http: Option<u16>,
    /// Methods that there are.
    pub(super) allow: Option<&'static str>,
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, http: None, allow: None }
    }
}

impl Denial {
    pub(super) fn bad(text: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(Status::BAD_REQUEST, text).into()
    }

    /// A path that is none.
    pub(super) fn not_found() -> Self {
        let text =
            "there is nothing at this path: /v1/openapi.json has those of /v1, docs/fronts.md the others";
        Self { http: Some(404), ..Refusal::new(Status::UNKNOWN_OP, text).into() }
    }

    /// A path that has other methods.
    pub(super) fn method(allow: &'static str) -> Self {
        let text = format!("this path has no such method; allowed: {allow}");
        Self { http: Some(405), allow: Some(allow), ..Refusal::new(Status::UNKNOWN_OP, text).into() }
    }

    /// A page that anybody may have made, in the browser of somebody who can reach this port.
    pub(super) fn other_page() -> Self {
        let text =
            "a page of another place asked for this, in a browser (Sec-Fetch-Site): let its own server ask";
        Refusal::new(Status::FORBIDDEN, text).into()
    }

    /// A body of another kind.
    pub(super) fn media_type() -> Self {
        Self { http: Some(415), ..Self::bad("the body is to be of Content-Type: application/json") }
    }
}
