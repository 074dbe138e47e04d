//! Logs go to standard error, so that standard output stays what the caller asked for.
//!
//! A command writes its lines itself. A server gives them to a [`Spool`]: what reads standard error may stop to read,
//! and a thread that serves must not wait for it.

mod format;
mod spool;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::panic;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::text::patient;
pub(crate) use format::LogFormat;
use spool::Spool;

/// How long the end of a process waits for its last lines to be written.
const LAST_LINES: Duration = Duration::from_millis(500);

/// As whom a line speaks that no module logged.
const NAME: &str = "xuid";

/// What changes the filter of the log.
type SetFilter = Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>;
static FILTER: OnceLock<SetFilter> = OnceLock::new();

/// The lines of a server.
static SPOOL: OnceLock<Arc<Spool>> = OnceLock::new();

/// For a server: logs what `filter` lets through, and what a panic says, in that form. No thread waits for standard
/// error, but the one that writes there. What waits is written when the guard is dropped, as far as that takes no time.
///
/// # Errors
/// That thread can't be had.
pub(crate) fn init_for_server(filter: &str, format: LogFormat) -> Result<Flush> {
    let spool = Spool::start(Stderr, format).context("failed to start a thread")?;
    let spool = Arc::clone(SPOOL.get_or_init(|| spool));
    init(filter, format, Arc::clone(&spool));
    panic::set_hook(Box::new(move |panic| spool.push(format.words(NAME, &told(panic)).as_bytes())));
    Ok(Flush)
}

/// For commands that end by themselves: what they say is their output, so `filter` lets little more than warnings
/// through.
pub(crate) fn init_for_commands(filter: &str) {
    init(filter, LogFormat::Text, io::stderr);
}

/// Logs what `filter` lets through; it was checked when the settings were read.
fn init(filter: &str, format: LogFormat, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(writer)
        // Else a line that cannot be written is told to standard error in a way that panics where that cannot be
        // written.
        .log_internal_errors(false);
    let has_colours = has_colours(io::stderr().is_terminal(), env::var_os("NO_COLOR").as_deref());
    match format {
        LogFormat::Text => {
            let text = subscriber.with_ansi(has_colours).with_filter_reloading();
            let handle = text.reload_handle();
            begun(text.try_init().is_ok(), move |filter| Ok(handle.reload(filter)?));
        }
        LogFormat::Json => {
            // Fields beside `message`, and not an object deeper, because programs that collect logs look there.
            let json = subscriber.with_ansi(false).json().flatten_event(true);
            let json = json.with_current_span(false).with_span_list(false).with_filter_reloading();
            let handle = json.reload_handle();
            begun(json.try_init().is_ok(), move |filter| Ok(handle.reload(filter)?));
        }
    }
}

/// Keeps what changes the filter. Neither this nor the beginning fails but where there is a subscriber already, which is as
/// good.
fn begun(is_ours: bool, set: impl Fn(EnvFilter) -> Result<()> + Send + Sync + 'static) {
    if is_ours {
        let _ = FILTER.set(Box::new(set));
    }
}

/// From now on this is let through.
pub(crate) fn set_filter(filter: &str) -> Result<()> {
    let Some(set) = FILTER.get() else { return Ok(()) };
    set(EnvFilter::try_new(filter).context("failed to read the filter of the log")?)
}

/// Colours are for terminals, and not where `NO_COLOR` says something, whatever it says (no-color.org).
fn has_colours(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// The last line of a process that failed, behind what it logged.
pub(crate) fn last_line(line: &str) {
    last_line_within(line, LAST_LINES);
}

/// The same for a process whose time is over: a server waits no longer than `limit` for the line to be written.
pub(crate) fn last_line_within(line: &str, limit: Duration) {
    match SPOOL.get() {
        Some(spool) => {
            spool.push(spool.format().words(NAME, line).as_bytes());
            spool.flush(limit);
        }
        None => warning(line),
    }
}

/// A line of a command that no filter keeps back.
pub(crate) fn warning(line: &str) {
    // If standard error is gone too, the exit code has to say it alone.
    let _ = io::stderr().write_all(LogFormat::Text.words(NAME, line).as_bytes());
}

/// Lines that were dropped since the start, because standard error took none.
pub(crate) fn dropped() -> u64 {
    SPOOL.get().map_or(0, |spool| spool.dropped())
}

/// Writes what waits when it is dropped, and waits no longer than [`LAST_LINES`] for that.
#[derive(Debug)]
pub(crate) struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        if let Some(spool) = SPOOL.get() {
            spool.flush(LAST_LINES);
        }
    }
}

/// What a panic says, as the standard library says it.
fn told(panic: &panic::PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let mut text = format!("\nthread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        let _ = write!(text, "\n{backtrace}");
    }
    text
}

/// Standard error, past the standard library's handle: its lock would be held while a write waits, and a thread that
/// says something there would wait for the lock.
#[derive(Debug)]
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Somebody it is shared with may want that it does not block.
        patient::write(io::stderr(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_and_not_where_no_color_says_something() {
        let says = |text: &'static str| Some(OsStr::new(text));
        assert!(has_colours(true, None) && has_colours(true, says("")));
        assert!(!has_colours(true, says("1")) && !has_colours(true, says("0")) && !has_colours(false, None));
    }
}
