//! The conversation without a socket: bytes in, bytes out.
