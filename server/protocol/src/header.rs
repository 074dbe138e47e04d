//! The 16 bytes in front of every body.

/// Bytes of a header.
pub const HEADER_LEN: usize = 16;

/// Set in the op of a reply.
pub const REPLY_BIT: u8 = 0x80;

/// A frame's header, whatever its fields say.
///
/// ```
/// use xuid_protocol::{Header, Op};
/// let header = Header::request(Op::Next, 1, 7);
/// assert_eq!(header.encode(), [1, 0, 0, 0, 0x10, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
/// assert_eq!(Header::decode(header.encode()), header);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes after the header.
    pub body_len: u32,
    /// The op, with [`REPLY_BIT`] in a reply.
    pub op: u8,
    /// 0 in version 1.
    pub flags: u8,
    /// 0 in a request and in a successful reply.
    pub status: u16,
    /// Chosen by the client, echoed by the server.
    pub request_id: u64,
}

impl Header {
    /// The header of a request.
    #[must_use]
    #[inline]
    pub const fn request(op: crate::Op, body_len: u32, request_id: u64) -> Self {
        Self { body_len, op: op.code(), flags: 0, status: 0, request_id }
    }

    /// The header of a successful reply.
    #[must_use]
    #[inline]
    pub const fn reply(op: crate::Op, body_len: u32, request_id: u64) -> Self {
        Self { body_len, op: op.code() | REPLY_BIT, flags: 0, status: 0, request_id }
    }

    /// Its bytes.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> [u8; HEADER_LEN] {
        // One number of 128 bits instead of five copies: the fields lie from the lowest byte up.
        let number = self.body_len as u128
            | (self.op as u128) << 32
            | (self.flags as u128) << 40
            | (self.status as u128) << 48
            | (self.request_id as u128) << 64;
        number.to_le_bytes()
    }

    /// The header in these bytes.
    #[must_use]
    #[inline]
    pub const fn decode(bytes: [u8; HEADER_LEN]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self {
            body_len: number as u32,
            op: (number >> 32) as u8,
            flags: (number >> 40) as u8,
            status: (number >> 48) as u16,
            request_id: (number >> 64) as u64,
        }
    }
}
