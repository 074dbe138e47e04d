//! Frames of XUID/1 as bytes: a header of 16 bytes, then the body, little-endian.

/// The 8 bytes a client sends first.
pub const PREFACE: [u8; 8] = [0x89, b'X', b'U', b'I', b'D', 0x0d, 0x0a, 0x1a];

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 16;

/// Ops of requests; a reply has bit 7 set.
pub mod op {
    /// Opens the conversation.
    pub const HELLO: u8 = 0x01;
    /// Comes back as it was sent.
    pub const PING: u8 = 0x02;
    /// One id.
    pub const NEXT: u8 = 0x10;
    /// Many ids, one by one.
    pub const ARRAY: u8 = 0x11;
    /// Many ids, as runs.
    pub const RUNS: u8 = 0x12;
    /// The fields of an id.
    pub const DECODE: u8 = 0x20;
    /// What the server is, as JSON.
    pub const INFO: u8 = 0x21;
    /// What the server counted, as JSON.
    pub const STATS: u8 = 0x22;
    /// Where an id came from, as JSON.
    pub const PROVENANCE: u8 = 0x23;
    /// One number of a sequence.
    pub const SEQ_NEXT: u8 = 0x30;
    /// Many numbers of a sequence, one by one.
    pub const SEQ_ARRAY: u8 = 0x31;
    /// Many numbers of a sequence, as runs.
    pub const SEQ_RUNS: u8 = 0x32;
    /// What a sequence is, as JSON.
    pub const SEQ_INFO: u8 = 0x38;
    /// Begins a sequence.
    pub const SEQ_CREATE: u8 = 0x3a;
    /// The server asks the client to leave.
    pub const GOAWAY: u8 = 0x7e;
    /// The client leaves.
    pub const BYE: u8 = 0x7f;
}

/// Status codes; bit 15 means that the same request may be tried again.
pub mod status {
    /// A body too short, a field out of range, or a request out of turn.
    pub const BAD_REQUEST: u16 = 0x0001;
    /// No protocol version in common.
    pub const VERSION: u16 = 0x0002;
    /// An op that does not exist.
    pub const UNKNOWN_OP: u16 = 0x0003;
    /// A frame above `max_body`.
    pub const TOO_LARGE: u16 = 0x0004;
    /// A count of 0 or above `max_count`.
    pub const COUNT: u16 = 0x0005;
    /// Another cluster than the client expects.
    pub const WRONG_CLUSTER: u16 = 0x0007;
    /// Nothing is left for ever.
    pub const EXHAUSTED: u16 = 0x0008;
    /// Opaque ids have no order.
    pub const NO_ORDER: u16 = 0x000c;
    /// No window of ticks is held yet.
    pub const NOT_READY: u16 = 0x8010;
    /// Nothing left within the wait.
    pub const OVERLOADED: u16 = 0x8011;
    /// The clock is behind what was issued.
    pub const CLOCK_BEHIND: u16 = 0x8012;
    /// The window of ticks was lost.
    pub const WINDOW_LOST: u16 = 0x8013;
    /// The server is about to end.
    pub const SHUTTING_DOWN: u16 = 0x8014;
    /// The store of sequences does not answer.
    pub const STORE_AWAY: u16 = 0x8016;
    /// The store of sequences may have gone back.
    pub const STORE_BEHIND: u16 = 0x8017;
}

/// One frame as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The op, with bit 7 set in a reply.
    pub op: u8,
    /// 0 in version 1.
    pub flags: u8,
    /// 0 in a successful reply.
    pub status: u16,
    /// The id of the request.
    pub request_id: u64,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// Appends a request to `out`.
pub fn encode(out: &mut Vec<u8>, op: u8, flags: u8, request_id: u64, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&[op, flags, 0, 0]);
    out.extend_from_slice(&request_id.to_le_bytes());
    out.extend_from_slice(body);
}

/// A HELLO body for these versions and this cluster (zeros: any), without a token.
pub fn hello_body(min_version: u16, max_version: u16, cluster: [u8; 16]) -> Vec<u8> {
    let name = b"xuid-tests";
    let mut body = Vec::new();
    body.extend_from_slice(&min_version.to_le_bytes());
    body.extend_from_slice(&max_version.to_le_bytes());
    body.extend_from_slice(&0_u32.to_le_bytes());
    body.extend_from_slice(&cluster);
    body.push(0);
    body.push(name.len() as u8);
    body.extend_from_slice(name);
    body
}

/// Reads fields off the front of a body; `None` when it is too short.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_of_the_specification() {
        let mut out = Vec::new();
        encode(&mut out, op::NEXT, 0, 0x0102_0304_0506_0708, &[2]);
        assert_eq!(out, [1, 0, 0, 0, 0x10, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 2]);
        assert_eq!(hello_body(1, 1, [0; 16])[..8], [1, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(hello_body(1, 1, [0; 16]).len(), 2 + 2 + 4 + 16 + 1 + 1 + 10);
    }

    #[test]
    fn fields_end_where_the_body_ends() {
        let mut fields = Fields::new(&[1, 2, 0, 3, 0, 0, 0, 9]);
        assert_eq!((fields.u8(), fields.u16(), fields.u32()), (Some(1), Some(2), Some(3)));
        assert_eq!((fields.u64(), fields.u8(), fields.u8()), (None, Some(9), None));
    }
}
