//! A blocking client of the protocol of Redis, version 2, written from its specification alone.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// No answer may take longer.
const LIMIT: Duration = Duration::from_secs(30);

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RespValue {
    /// A word, as OK.
    Simple(String),
    /// An error: its kind and a sentence.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Null,
    /// Replies.
    List(Vec<Self>),
}

impl RespValue {
    /// The integer that it is.
    pub fn integer(&self) -> Result<u64> {
        match self {
            Self::Integer(number) => Ok(u64::try_from(*number)?),
            other => bail!("no integer: {other:?}"),
        }
    }

    /// The text that it is.
    pub fn text(&self) -> Result<&str> {
        match self {
            Self::Simple(text) | Self::Error(text) => Ok(text),
            Self::Bulk(bytes) => Ok(str::from_utf8(bytes)?),
            other => bail!("no text: {other:?}"),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Resp {
    stream: BufReader<TcpStream>,
}

impl Resp {
    /// Connects.
    pub fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// What a command is answered with.
    pub fn call(&mut self, words: &[&str]) -> Result<RespValue> {
        self.send(&frame(words))?;
        self.reply()
    }

    /// What so many commands in one piece are answered with.
    pub fn call_all(&mut self, commands: &[Vec<&str>]) -> Result<Vec<RespValue>> {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| frame(words)).collect();
        self.send(&bytes)?;
        commands.iter().map(|_| self.reply()).collect()
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    /// The next reply. A connection that ends before it is whole is an error of `io`.
    pub fn reply(&mut self) -> Result<RespValue> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, format!("no whole line: {line:?}"));
        let line = line.strip_suffix("\r\n").ok_or_else(cut)?;
        let (kind, rest) = line.split_at_checked(1).context("an empty line")?;
        Ok(match kind {
            "+" => RespValue::Simple(rest.to_owned()),
            "-" => RespValue::Error(rest.to_owned()),
            ":" => RespValue::Integer(rest.parse()?),
            "$" if rest == "-1" => RespValue::Null,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                self.stream.read_exact(&mut bytes)?;
                ensure!(bytes.ends_with(b"\r\n"), "no line ends behind a bulk");
                bytes.truncate(bytes.len() - 2);
                RespValue::Bulk(bytes)
            }
            "*" => RespValue::List((0..rest.parse::<usize>()?).map(|_| self.reply()).collect::<Result<_>>()?),
            _ => bail!("no reply: {line:?}"),
        })
    }

    /// All bytes up to the end of the connection.
    pub fn rest(mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// A command as it is sent.
pub(crate) fn frame(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}
