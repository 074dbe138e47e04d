//! What carries a connection's bytes: TCP, or TLS on it.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustix::buffer::spare_capacity;
use rustls::ClientConnection;

/// Reads from a socket that are made of one wake-up: what is left wakes the thread again.
const READS: usize = 32;

/// A connection that does not block.
#[derive(Debug)]
pub enum Wire {
    /// TCP.
    Plain(TcpStream),
    /// TLS, whose handshake is over.
    Tls {
        /// The socket.
        socket: TcpStream,
        /// What is known of TLS on it.
        session: Box<ClientConnection>,
    },
}

impl From<TcpStream> for Wire {
    fn from(socket: TcpStream) -> Self {
        Self::Plain(socket)
    }
}

impl Wire {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) | Self::Tls { socket, .. } => socket,
        }
    }

    /// Whether bytes that were taken wait for room in the socket.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls { session, .. } => session.wants_write(),
        }
    }

    /// Takes some of `bytes`. `WouldBlock`: the socket has no room.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(rustix::io::write(socket, bytes)?),
            Self::Tls { socket, session } => {
                let taken = session.writer().write(bytes)?;
                while session.wants_write() {
                    match session.write_tls(socket) {
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => break,
                        Err(error) => return Err(error),
                    }
                }
                Ok(taken)
            }
        }
    }

    /// Reads what is there, into what `room` has to spare or, of TLS, into more. 0 is the end; `WouldBlock`: nothing.
    pub(crate) fn read(&mut self, room: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(rustix::io::read(socket, spare_capacity(room))?),
            Self::Tls { socket, session } => read_tls(socket, session, room),
        }
    }
}

/// What was decrypted is all taken: nothing wakes the thread for it later.
fn read_tls(socket: &mut TcpStream, session: &mut ClientConnection, room: &mut Vec<u8>) -> io::Result<usize> {
    let begin = room.len();
    let mut outcome = Err(io::ErrorKind::WouldBlock.into());
    for _ in 0..READS {
        match session.read_tls(socket) {
            Ok(0) => {
                outcome = Ok(0);
                break;
            }
            Ok(_) => {}
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        let state = session.process_new_packets().map_err(io::Error::other)?;
        let end = room.len();
        room.resize(end + state.plaintext_bytes_to_read(), 0);
        session.reader().read_exact(&mut room[end..])?;
    }
    if room.len() > begin { Ok(room.len() - begin) } else { outcome }
}
