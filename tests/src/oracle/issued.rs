//! What a server logged before it sent it: the file that the crash-point build appends to, read after the process is
//! gone.
//!
//! # Invariants
//! - L1 a record is 16 bytes: the first id in 8, the count in 4, both little-endian, and 4 zeros;
//! - L2 only the last record can be cut off, by the kill that ended its writer: no byte of its reply was sent.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Run;

const RECORD: usize = 16;

/// The runs of a log, in order; none where there is no file, because the process died before it opened one.
pub fn read_issued(path: &Path) -> Result<Vec<Run>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&bytes).with_context(|| format!("{}", path.display()))
}

fn parse(bytes: &[u8]) -> Result<Vec<Run>> {
    let (records, _cut_off) = bytes.as_chunks::<RECORD>();
    let mut runs = Vec::with_capacity(records.len());
    for (number, record) in records.iter().enumerate() {
        let word = u128::from_le_bytes(*record);
        let (first, count, zeros) = (word as u64, (word >> 64) as u32, word >> 96);
        let is_run = count > 0 && zeros == 0 && first.checked_add(u64::from(count)).is_some();
        ensure!(is_run, "record {number} of {} is no run: {record:02x?}", records.len());
        runs.push(Run { first, count, stride: 1 });
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(first: u64, count: u32) -> Vec<u8> {
        [&first.to_le_bytes()[..], &count.to_le_bytes(), &[0; 4]].concat()
    }

    #[test]
    fn the_record_that_the_kill_cut_off_was_not_sent() {
        let whole = [record(7, 2), record(1 << 62, 4096)].concat();
        let runs = [Run { first: 7, count: 2, stride: 1 }, Run { first: 1 << 62, count: 4096, stride: 1 }];
        assert_eq!(parse(&whole).unwrap(), runs);
        assert_eq!(parse(&whole[..31]).unwrap(), runs[..1]);
        assert!(parse(&whole[..15]).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let shifted = [&[1; 4][..], &record(7, 2), &record(8, 3)].concat();
        assert!(parse(&shifted).is_err(), "a torn record in the middle shifts all that follow");
        assert!(parse(&record(7, 0)).is_err());
        assert!(parse(&record(u64::MAX, 1)).is_err());
    }

    #[test]
    fn a_process_that_died_early_logged_nothing() {
        let home = tempfile::TempDir::new().unwrap();
        assert!(read_issued(&home.path().join("log")).unwrap().is_empty());
    }
}
