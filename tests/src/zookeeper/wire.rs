//! What has to be known of ZooKeeper's protocol to break it: frames, and a session that is taken over to be closed.
//!
//! Everything is big-endian. A frame is a length and that many bytes. A connection begins with one frame each way
//! that has no number; after that a request is `xid, op, ...` and a reply `xid, zxid, error, ...`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Longer than any frame the registry's clients send; more is not ZooKeeper.
const LONGEST: usize = 16 << 20;
/// `xid` of a ping and its reply.
pub const PING: i32 = -2;
/// `op` of the end of a session.
const CLOSE_SESSION: i32 = -11;
/// Several changes in one transaction.
const MULTI: i32 = 14;
/// create, delete, setData, multi, create2, createContainer, createTTL.
const WRITES: [i32; 7] = [1, 2, 5, MULTI, 15, 19, 21];

/// Reads one frame, its length included; none at the end of the stream.
pub fn read_frame(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 4];
    if stream.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..])?;
    let len = u32::from_be_bytes(head) as usize;
    if len > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that is too long to be ZooKeeper's"));
    }
    let mut frame = head.to_vec();
    frame.resize(4 + len, 0);
    stream.read_exact(&mut frame[4..])?;
    Ok(Some(frame))
}

fn int(frame: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

/// The number of a request or a reply, not of the first frame of a connection.
pub fn xid(frame: &[u8]) -> Option<i32> {
    int(frame, 4)
}

/// Whether a request changes the tree; the end of a session is not counted.
pub fn is_write(request: &[u8]) -> bool {
    int(request, 8).is_some_and(|op| WRITES.contains(&op))
}

/// Whether a request is a transaction of several changes, the way in which windows and grants are taken.
pub fn is_multi(request: &[u8]) -> bool {
    int(request, 8) == Some(MULTI)
}

/// The error code of a reply: 0 for success.
pub fn error_code(reply: &[u8]) -> Option<i32> {
    int(reply, 16)
}

/// Takes over the session of somebody else and closes it: its ephemeral nodes go at once, and its owner learns on
/// its next connection that it has expired. This is how ZooKeeper's own tests force it.
///
/// Fails too if its owner took it back in the middle, which closes this connection.
pub fn end_session(server: SocketAddr, session: i64) -> Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut body = Vec::new();
    body.extend_from_slice(&0_i32.to_be_bytes()); // version
    body.extend_from_slice(&0_i64.to_be_bytes()); // last zxid seen
    body.extend_from_slice(&10_000_i32.to_be_bytes()); // timeout in milliseconds
    body.extend_from_slice(&session.to_be_bytes());
    let password = password(session);
    body.extend_from_slice(&16_i32.to_be_bytes());
    body.extend_from_slice(&password);
    body.push(0); // not read-only
    let mut close = 1_i32.to_be_bytes().to_vec();
    close.extend_from_slice(&CLOSE_SESSION.to_be_bytes());
    // Both at once: the owner, whose connection the first of them ends, comes back within a millisecond.
    stream.write_all(&[framed(&body), framed(&close)].concat())?;
    let reply = read_frame(&mut stream)?.context("the server closed instead of answering")?;
    // Length, version and timeout come first.
    let found = reply.get(12..20).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
    ensure!(found == Some(session), "session {session:#x} is gone already (answered {found:x?})");
    // The reply to the end, or the end of the connection: either way the ensemble has decided.
    let _ = read_frame(&mut stream);
    Ok(())
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

/// A session's password, which every server derives from its number alone: `new java.util.Random(session ^
/// 0xB3415C00).nextBytes(16)` in `ZooKeeperServer.generatePasswd`.
fn password(session: i64) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = ((session ^ 0xB341_5C00).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut bytes = [0; 16];
    for word in bytes.chunks_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        word.copy_from_slice(&((state >> 16) as u32).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_whole_and_rubbish_is_refused() {
        let bytes = [0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 0];
        let mut stream = &bytes[..12];
        let frame = read_frame(&mut stream).unwrap().unwrap();
        assert_eq!((xid(&frame), is_write(&frame)), (Some(7), true));
        assert!(read_frame(&mut stream).unwrap().is_none());
        assert!(read_frame(&mut &bytes[..9]).is_err());
        assert!(read_frame(&mut &b"GET / HTTP/1.0"[..]).is_err());
    }

    #[test]
    fn passwords_are_those_of_java() {
        // In Java: var b = new byte[16]; new Random(0x01000123456789abL ^ 0xB3415C00L).nextBytes(b);
        let golden = 0x2377_10bc_62d7_7989_a42e_8da7_7022_789d_u128;
        assert_eq!(password(0x0100_0123_4567_89ab), golden.to_be_bytes());
    }
}
