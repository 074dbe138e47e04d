//! The server of the crash-point build: what it issued goes into a log before a client can have it, its sums are
//! written at a clean stop, and half a reply can be its last deed. Only with the feature `crash-points`; `absent`
//! stands in for it otherwise.
//!
//! Called by the threads that serve connections, and once at either end by the main thread.
//!
//! # Invariants
//! - P1 an id that was copied into a reply is in the log before a byte of that reply is given to the socket:
//!   [`settle`] stands at the end of everything that fills an outbox;
//! - P2 one thread at a time is in the log's `write`: a thread that is killed in there leaves whole records and perhaps
//!   one that is cut off, and no thread writes behind that;
//! - P3 a log that cannot be written ends the process, since nothing it issued afterwards would be known.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use xuid_engine::crash_points::{Armed, Point, armed, is_due, point, strike};
use xuid_engine::stats::Stats;

/// Names the file of the log. The sums go beside it, with `.stats` behind its name.
const LOG: &str = "XUID_CRASH_LOG";

/// First id in 8 bytes, how many in 4, both little-endian, and 4 zeros.
const RECORD: usize = 16;

thread_local! {
    /// Runs that are in an outbox of this thread and not yet in the log.
    static ISSUED: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Opens the log and looks at what shall happen. A code if nothing more is to be done: the points are listed, or the
/// variables are wrong.
pub(crate) fn begin() -> Option<ExitCode> {
    match prepare() {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "xuid: {error:#}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Whether the points were listed.
fn prepare() -> Result<bool> {
    if armed().map_err(|why| anyhow!(why))? == Armed::List {
        let mut out = std::io::stdout().lock();
        for point in Point::ALL {
            writeln!(out, "{}", point.name())?;
        }
        return Ok(true);
    }
    if let Some(path) = std::env::var_os(LOG) {
        let file = File::options().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("failed to open {}", Path::new(&path).display()))?;
        let _ = log().set(Log { file: Mutex::new(file), path });
    }
    Ok(false)
}

struct Log {
    file: Mutex<File>,
    path: OsString,
}

fn log() -> &'static OnceLock<Log> {
    static LOG: OnceLock<Log> = OnceLock::new();
    &LOG
}

/// These ids were copied into a reply.
pub(crate) fn issued(first: u64, count: u32) {
    if log().get().is_none() {
        return;
    }
    ISSUED.with_borrow_mut(|runs| match runs.last_mut() {
        Some((start, len)) if *start + u64::from(*len) == first && len.checked_add(count).is_some() => {
            *len += count;
        }
        _ => runs.push((first, count)),
    });
}

/// Everything that this thread issued is in the log when this returns (P1).
pub(crate) fn settle() {
    let Some(log) = log().get() else { return };
    ISSUED.with_borrow_mut(|runs| {
        if runs.is_empty() {
            return;
        }
        let mut bytes = Vec::with_capacity(runs.len() * RECORD);
        for (first, count) in runs.drain(..) {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        let written = log.file.lock().unwrap_or_else(PoisonError::into_inner).write(&bytes);
        if !matches!(written, Ok(length) if length == bytes.len()) {
            tracing::error!(?written, wanted = bytes.len(), "the log of issued ids cannot be written");
            drop(crate::text::logs::Flush);
            std::process::abort();
        }
        point(Point::ReplyLogged);
    });
}

/// How much of a reply may be written now: half of it at the pass that dies of that.
pub(crate) fn portion(rest: &[u8]) -> &[u8] {
    if is_due(Point::ReplyPartWritten) {
        CUT.set(true);
        &rest[..rest.len().div_ceil(2)]
    } else {
        rest
    }
}

thread_local! {
    /// Whether the last portion was cut.
    static CUT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Nothing of the last portion was written.
pub(crate) fn not_written() {
    CUT.set(false);
}

/// So much of the last portion was written.
pub(crate) fn written() {
    if CUT.get() {
        strike();
    }
    point(Point::ReplyWritten);
}

/// Writes the sums of a life beside its log, after every thread that served has ended.
pub(crate) fn account(stats: &Stats) -> Result<()> {
    let Some(log) = log().get() else { return Ok(()) };
    let wasted = stats.wasted;
    let sums = json!({
        "minted": stats.minted,
        "replayed": stats.replayed,
        "issued": stats.issued,
        "spilled": stats.spilled,
        "wasted": {
            "thread": wasted.thread,
            "expired": wasted.expired,
            "trimmed": wasted.trimmed,
            "spill": wasted.spill,
            "grant": wasted.grant,
            "step": wasted.step,
            "panic": wasted.panic,
        },
        "held": stats.held.total(),
    });
    let mut path = log.path.clone();
    path.push(".stats");
    std::fs::write(&path, format!("{sums}\n"))
        .with_context(|| format!("failed to write {}", Path::new(&path).display()))
}
