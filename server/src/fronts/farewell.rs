//! A close after which the last words still arrive, for both ports.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use xuid_protocol::{LINGER_BYTES, LINGER_TIME};

/// What is read and dropped at once. It lies in the task of each connection: small, since thousands may end at a time.
const PIECE: usize = 1024;

/// Shuts down the write side, and reads and drops what the client still sends: bytes left unread would make the kernel
/// reset the connection, and a reset may overtake the last words. A client that sends more than [`LINGER_BYTES`], or
/// for longer than [`LINGER_TIME`], is cut off.
pub(crate) async fn farewell(mut stream: TcpStream) {
    let last_words = async {
        let mut left = LINGER_BYTES;
        let mut open = stream.shutdown().await.is_ok();
        let mut piece = [0; PIECE];
        while open && left > 0 {
            let read = stream.read(&mut piece).await.unwrap_or(0);
            left = left.saturating_sub(read);
            open = read > 0;
        }
    };
    let _ = timeout(LINGER_TIME, last_words).await;
}
