//! The spill file: opening, appending, taking.

use std::path::Path;

use anyhow::{Result, ensure};
use xuid_spill::{DEFAULT_BYTES, Expected, Extent, Identity, Log, MappedFile, SpillId};

use crate::measure::now;
use crate::rows::{ROUNDS, Row, at_most, figure, median};

const STRIDE: u64 = 1 << 22;

/// Extents of a grant.
const GRANT: u64 = 64;

fn identity() -> Identity {
    let spill = SpillId::from_bytes(*b"a spill measured");
    Identity { spill, cluster: [1; 16], stride: STRIDE, layout: *b"41/10/12 at 1 ms" }
}

fn second(number: u64) -> Extent {
    Extent { first: (1 + number * 1_000) * STRIDE, len: 4_096, ticks: 1_000 }
}

/// The rows of the spill.
pub(super) fn rows() -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let (mut appends, mut takes, mut opens) = (Vec::new(), Vec::new(), Vec::new());
    let mut extents = 0;
    for round in 0..ROUNDS {
        let path = folder.path().join(round.to_string());
        extents = append(&path, &mut appends)?;
        open_and_take(&path, extents, &mut opens, &mut takes)?;
        std::fs::remove_file(&path)?;
    }
    let (open, append, take) = (figure(&opens, "ms"), figure(&appends, "ns"), figure(&takes, "ns"));
    Ok(vec![
        at_most(&format!("open a spill of {extents} extents"), open, median(&opens), 200.0, "ms"),
        at_most("append an extent, without the sync", append, median(&appends), 1_000.0, "ns"),
        at_most("take an extent, without the mark's sync", take, median(&takes), 1_000.0, "ns"),
    ])
}

/// Fills a log, a grant's worth at a time.
fn append(path: &Path, appends: &mut Vec<f64>) -> Result<u64> {
    let mut log = Log::create(Box::new(MappedFile::create(path)?), identity(), DEFAULT_BYTES)?;
    let capacity = log.capacity();
    let begin = now();
    for first in (0..capacity).step_by(GRANT as usize) {
        let batch: Vec<Extent> = (first..(first + GRANT).min(capacity)).map(second).collect();
        ensure!(log.append(&batch).is_ok(), "the disk failed");
    }
    appends.push(begin.elapsed().as_secs_f64() * 1e9 / capacity as f64);
    log.sync()?;
    Ok(capacity)
}

fn open_and_take(path: &Path, extents: u64, opens: &mut Vec<f64>, takes: &mut Vec<f64>) -> Result<()> {
    let Identity { cluster, stride, layout, .. } = identity();
    let begin = now();
    let (mut log, report) =
        Log::open(Box::new(MappedFile::open(path)?), &Expected { cluster, stride, layout })?;
    // Nothing of it was granted yet.
    log.resume_at(0);
    opens.push(begin.elapsed().as_secs_f64() * 1e3);
    ensure!(report.stock.extents == extents && report.damaged == 0, "not what was appended: {report:?}");
    let mut batch = Vec::with_capacity(GRANT as usize);
    let (begin, mut count) = (now(), 0);
    for first in (log.tail()..log.head()).step_by(GRANT as usize) {
        batch.clear();
        let damage = log.read(first..(first + GRANT).min(log.head()), &mut batch)?;
        ensure!(damage.records == 0, "damaged: {damage:?}");
        count += batch.len() as u64;
        log.resume_at((first + GRANT).min(extents));
    }
    ensure!(count == extents, "{count} of {extents} extents were taken");
    takes.push(begin.elapsed().as_secs_f64() * 1e9 / extents as f64);
    Ok(())
}
