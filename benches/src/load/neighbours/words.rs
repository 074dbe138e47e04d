//! What clients say at each port, true and not.

use anyhow::Result;
use xuid_protocol::{HEADER_LEN, Header, Op};

use crate::load::driver::greeting;

/// A port for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// XUID/1.
    Binary,
    /// That for clients of Redis.
    Resp,
    /// That for clients of HTTP.
    Http,
}

impl Port {
    /// What a client says first.
    pub(super) fn greeting(self) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Binary => greeting(b"")?,
            Self::Resp => b"*1\r\n$4\r\nPING\r\n".to_vec(),
            Self::Http => self.request(),
        })
    }

    /// Asks for an id.
    pub(super) fn request(self) -> Vec<u8> {
        match self {
            Self::Binary => Header::request(Op::Next, 0, 7).encode().to_vec(),
            Self::Resp => b"*2\r\n$4\r\nINCR\r\n$4\r\n@any\r\n".to_vec(),
            Self::Http => b"GET /api/snowflake/get/any HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
        }
    }

    /// Something that is not true: a body of 4 GiB, four thousand million ids, another protocol, frames of nothing.
    pub(super) fn lie(self, number: usize) -> Result<Vec<u8>> {
        let another: [&[u8]; 2] = [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", &[0x16; HEADER_LEN]];
        let lies: [&[u8]; 5] = match self {
            Self::Binary => return lie_of_frames(number, another),
            Self::Resp => [
                b"*1\r\n$1073741824\r\n",
                b"*2147483648\r\n",
                b"*2\r\n$6\r\nINCRBY\r\n$-7\r\n",
                another[0],
                another[1],
            ],
            Self::Http => [
                b"POST /v1/ids HTTP/1.1\r\nHost: here\r\nContent-Length: 4294967296\r\n\r\n",
                b"POST /v1/ids HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                b"*1\r\n$4\r\nPING\r\n",
                another[1],
            ],
        };
        Ok(lies[number % lies.len()].to_vec())
    }
}

fn lie_of_frames(number: usize, another: [&[u8]; 2]) -> Result<Vec<u8>> {
    let mut bytes = greeting(b"")?;
    match number % 5 {
        0 => bytes.extend_from_slice(&Header::request(Op::Array, u32::MAX, 7).encode()),
        1 => {
            bytes.extend_from_slice(&Header::request(Op::Array, 12, 7).encode());
            bytes.extend_from_slice(&[0xff; 12]);
        }
        2 => bytes = another[0].to_vec(),
        3 => bytes = another[1].to_vec(),
        _ => bytes.extend_from_slice(&[0x5a; 8 * HEADER_LEN]),
    }
    Ok(bytes)
}
