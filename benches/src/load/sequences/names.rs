//! A hundred thousand names at one server: what they cost in memory, and what a name waits for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_engine::Engine;
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::registry::sequences::{MOST_CHANGES, SequenceChange, SequenceRecord, SequenceRecords};
use xuid_engine::sequence::store::SequenceSettings;
use xuid_protocol::{HEADER_LEN, Header, SequenceName, request_seq_next};

use super::asked::{PATIENCE, create, seq_next};
use crate::load::driver::{Load, drive, greet};
use crate::load::process::Server;
use crate::measure::now;
use crate::rows::{Row, at_most, figure, spread};

/// Names at the store.
const NAMES: usize = 100_000;

/// Names whose first id is timed, one after the other.
const TIMED: usize = 1_000;

/// Requests that are sent together where the time of none is measured.
const TOGETHER: usize = 500;

/// The burst beside the timed names.
const BURST: Load = Load {
    connections: 4,
    in_flight: 100,
    warm_up: Duration::from_millis(200),
    span: Duration::from_secs(4),
    low_water: 1,
};

pub(super) fn rows() -> Result<Vec<Row>> {
    let folder = TempDir::new()?;
    make_names(&folder.path().join("data"))?;
    let words = [&["--sequences", "registry"], &PATIENCE[..]].concat();
    let server = Server::in_folder(folder, &words, &[])?;
    let mut client = Client::connect(server.address)?;
    let mut fresh = 0..NAMES;
    let cold = client.first_ids(fresh.by_ref().take(TIMED))?;
    create(server.address, "{}")?;
    let alone = client.first_ids(fresh.by_ref().take(TIMED))?;
    let beside = std::thread::scope(|scope| {
        let burst = scope.spawn(|| drive(seq_next, server.address, BURST));
        std::thread::sleep(BURST.warm_up);
        let beside = client.first_ids(fresh.by_ref().take(TIMED))?;
        let burst = burst.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok::<_, anyhow::Error>((beside, burst.rate() / 1e3))
    })?;
    let (beside, rate) = beside;
    client.all_first_ids(fresh)?;
    let memory = server.anonymous_memory()? as f64 / 1e6;
    let first = |path, times: &[f64], more: String| {
        let text = format!("{}{more}", figure(times, "ms"));
        at_most(path, text, p99(times), 20.0, "ms at p99")
    };
    let more = format!(", p99 {:.2} ms alone; the burst {rate:.0} k/s", p99(&alone));
    Ok(vec![
        first("the first id of each of 1,000 names at a cold server", &cold, String::new()),
        first("the same of others beside one name's burst", &beside, more),
        at_most(
            "anonymous memory with 100,000 names in use",
            format!("{:.0} bytes a name", memory * 1e6 / NAMES as f64),
            memory,
            200.0,
            "MB",
        ),
    ])
}

fn p99(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() * 99 / 100).copied().unwrap_or(spread(times).2)
}

fn name(index: usize) -> String {
    format!("customer:{index:06}")
}

/// Makes the registry of a folder, with all names.
fn make_names(data: &Path) -> Result<()> {
    Engine::builder().data_dir(data).build()?.shutdown();
    let mut records = LocalSequences::open_or_create(data, None)?;
    let SequenceSettings { step, increment, remainder, last, strict } = SequenceSettings::default();
    let record = SequenceRecord { value: 1, gaps: Vec::new(), last, step, increment, remainder, strict };
    let names: Vec<String> = (0..NAMES).map(name).collect();
    for some in names.chunks(MOST_CHANGES) {
        let change = |name| SequenceChange { name, expected: None, record: record.clone() };
        let changes: Vec<_> = some.iter().map(|name| change(name)).collect();
        let mut done = Vec::with_capacity(changes.len());
        records.swap(&changes, &mut done);
        done.into_iter().collect::<Result<(), _>>()?;
    }
    Ok(())
}

/// A connection that asks for the first id of names.
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
}

impl Client {
    fn connect(server: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        greet(&mut stream)?;
        Ok(Self { stream, request: Vec::new() })
    }

    /// Milliseconds to the first id of each of these names, one after the other.
    fn first_ids(&mut self, names: impl Iterator<Item = usize>) -> Result<Vec<f64>> {
        let timed = |index| {
            let begun = now();
            self.ask(&[index])?;
            Ok::<_, anyhow::Error>(begun.elapsed().as_secs_f64() * 1e3)
        };
        names.map(timed).collect()
    }

    /// Takes the first id of each of these names, many at once.
    fn all_first_ids(&mut self, names: impl Iterator<Item = usize>) -> Result<()> {
        let names: Vec<usize> = names.collect();
        names.chunks(TOGETHER).try_for_each(|some| self.ask(some))
    }

    /// The first id of a name is 1.
    fn ask(&mut self, names: &[usize]) -> Result<()> {
        self.request.clear();
        for index in names {
            let name = name(*index);
            request_seq_next(&mut self.request, *index as u64, SequenceName::new(name.as_bytes())?);
        }
        self.stream.write_all(&self.request)?;
        for _ in names {
            let mut head = [0; HEADER_LEN];
            self.stream.read_exact(&mut head).context("a name gets no id")?;
            let header = Header::decode(head);
            let mut body = vec![0; header.body_len as usize];
            self.stream.read_exact(&mut body)?;
            ensure!(header.status == 0, "a name gets no id: {}", String::from_utf8_lossy(&body));
            let id = body.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            ensure!(id == Some(1), "the first id of a name is {id:?}");
        }
        Ok(())
    }
}
