//! HTTP over a plain socket: one GET, a connection that stays open, and the metrics page as numbers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::ClientError;

/// No answer may take longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Status and body of `GET path`.
pub fn get(addr: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).with_context(|| format!("reading {path}"))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").context("no HTTP head")?;
    ensure!(head.starts_with("HTTP/1."), "not HTTP: {head}");
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    Ok((status, body.to_owned()))
}

/// A connection of HTTP/1.1 that stays open.
#[derive(Debug)]
pub struct HttpConnection {
    stream: BufReader<TcpStream>,
    is_closed: bool,
}

impl HttpConnection {
    /// Connects.
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self { stream: BufReader::new(stream), is_closed: false })
    }

    /// Whether the last reply said that the connection ends with it.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Sends requests as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Status and body of the next reply, which says how long it is.
    pub fn reply(&mut self) -> Result<(u16, String), ClientError> {
        let first = self.line()?;
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or(ClientError::Broken("no reply of HTTP"))?;
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            self.is_closed |= line == "connection: close";
            length = line.strip_prefix("content-length: ").and_then(|text| text.parse().ok()).or(length);
        }
        let mut body = vec![0; length.ok_or(ClientError::Broken("a reply without its length"))?];
        self.stream.read_exact(&mut body)?;
        let body = String::from_utf8(body).map_err(|_| ClientError::Broken("a text that is not UTF-8"))?;
        Ok((status, body))
    }

    fn line(&mut self) -> Result<String, ClientError> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        Ok(line.strip_suffix("\r\n").ok_or_else(cut)?.to_owned())
    }
}

/// One line of the metrics page.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name with its labels, as printed.
    pub name: String,
    /// The value.
    pub value: f64,
}

/// The metrics page.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

impl Metrics {
    /// Reads `/metrics`.
    pub fn scrape(admin: SocketAddr) -> Result<Self> {
        let (status, body) = get(admin, "/metrics")?;
        ensure!(status == 200, "/metrics answered {status}: {body}");
        Ok(Self::parse(&body))
    }

    /// Reads the text format: `name{labels} value`, comments skipped.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
            let value = line[end..].split_whitespace().next()?.parse().ok()?;
            Some(Sample { name: line[..end].to_owned(), value })
        });
        Self { samples: samples.collect() }
    }

    /// The sum of all samples whose name with labels contains each of `words`.
    pub fn sum(&self, words: &[&str]) -> f64 {
        let mine = |sample: &&Sample| words.iter().all(|word| sample.name.contains(word));
        self.samples.iter().filter(mine).map(|sample| sample.value).sum()
    }

    /// The samples that only rise, by their names with labels.
    pub fn counters(&self) -> impl Iterator<Item = (&str, f64)> {
        let only_rises = |sample: &&Sample| sample.name.contains("_total");
        self.samples.iter().filter(only_rises).map(|sample| (sample.name.as_str(), sample.value))
    }

    /// The sample of this name with labels.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.samples.iter().find(|sample| sample.name == name).map(|sample| sample.value)
    }

    /// The samples whose name with labels contains `word`, a line each: for the output of a test.
    pub fn show(&self, word: &str) -> String {
        let mine = self.samples.iter().filter(|sample| sample.name.contains(word));
        let lines: Vec<String> = mine.map(|sample| format!("    {} {}", sample.name, sample.value)).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_words_of_name_and_labels() {
        let page =
            "# TYPE a counter\na_total{tier=\"ring\",x=\"y z\"} 5\na_total{tier=\"spill\"} 7 99\nb 1.5\n";
        let metrics = Metrics::parse(page);
        assert!((metrics.sum(&["a_total"]) - 12.0).abs() < 1e-9);
        assert!((metrics.sum(&["a_total", "spill"]) - 7.0).abs() < 1e-9);
        assert!((metrics.sum(&["b"]) - 1.5).abs() < 1e-9);
        assert_eq!(metrics.counters().map(|(_, value)| value).sum::<f64>().to_string(), "12");
        assert_eq!((metrics.value("b"), metrics.value("a_total")), (Some(1.5), None));
        assert_eq!(metrics.show("ring"), "    a_total{tier=\"ring\",x=\"y z\"} 5");
    }
}
