//! The sequence that all groups ask for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_load::{Ask, SequenceAsk, Shape};
use xuid_protocol::{HEADER_LEN, Header, Order, SequenceName, request_seq_create};

use crate::load::driver::greet;

/// Servers let a request wait so long: how long it does is measured, and a machine that is busy makes no run void.
pub(super) const PATIENCE: [&str; 2] = ["--wait", "5s"];

/// The sequence that is asked for.
const NAME: &str = "measured";

/// `SEQ_NEXT` of [`NAME`] on a connection.
pub(super) fn seq_next(stream: &mut TcpStream) -> Result<SequenceAsk> {
    greet(stream)?;
    let ask = Ask { shape: Shape::Next, count: 1, order: Order::Ordered, wait: Duration::ZERO };
    Ok(SequenceAsk::new(SequenceName::new(NAME.as_bytes())?, ask))
}

/// Makes [`NAME`] at a server, of these settings.
pub(super) fn create(server: SocketAddr, settings: &str) -> Result<()> {
    let mut stream = TcpStream::connect(server)?;
    greet(&mut stream)?;
    let mut request = Vec::new();
    request_seq_create(&mut request, 1, SequenceName::new(NAME.as_bytes())?, settings);
    stream.write_all(&request)?;
    let mut head = [0; HEADER_LEN];
    stream.read_exact(&mut head).context("the sequence was not made")?;
    let header = Header::decode(head);
    let mut body = vec![0; header.body_len as usize];
    stream.read_exact(&mut body)?;
    ensure!(header.status == 0, "the sequence was not made: {}", String::from_utf8_lossy(&body));
    Ok(())
}
