//! Lines on their way out of the process: in memory, until a thread of their own has written them.
//!
//! Any thread adds lines; the spool's thread writes them, one by one, and waits where that has to wait.
//!
//! # Invariants
//! - I1 a thread that adds a line waits for no write: under the lock lines are copied, and nothing else is done;
//! - I2 memory is bounded: at most [`MOST`] bytes wait, and as many are being written;
//! - I3 a line that does not come out is counted, and where lines are missing a line says how many.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::Level;

use super::format::LogFormat;

/// The most bytes that wait. Two thousand lines: what a busy server says in a minute.
const MOST: usize = 256 * 1024;

/// Lines that wait, and how many could not.
#[derive(Debug, Default)]
pub(super) struct Spool {
    /// The form of the lines that the spool makes itself.
    format: LogFormat,
    state: Mutex<State>,
    /// Something waits.
    filled: Condvar,
    /// Nothing waits, and nothing is being written.
    idle: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines dropped behind those that wait. Until that was said every line is: it belongs behind the gap.
    missing: u64,
    is_writing: bool,
}

impl Spool {
    /// A spool, and its thread, which writes to `out` as long as the process lives.
    pub(super) fn start(mut out: impl Write + Send + 'static, format: LogFormat) -> io::Result<Arc<Self>> {
        let spool = Arc::new(Self { format, ..Self::default() });
        let own = Arc::clone(&spool);
        thread::Builder::new().name("xuid-log".to_owned()).spawn(move || {
            loop {
                own.write_out(&mut out);
            }
        })?;
        Ok(spool)
    }

    /// The form of its lines.
    pub(super) fn format(&self) -> LogFormat {
        self.format
    }

    /// Adds a line, or counts it as dropped.
    pub(super) fn push(&self, line: &[u8]) {
        // Cut, if it is longer than all room: it would never find any, and what comes behind it waits for the gap.
        if line.len() > MOST {
            self.add(&self.format.cut(line, MOST));
        } else {
            self.add(line);
        }
    }

    fn add(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.missing > 0 || line.len() > MOST - state.waiting.len() {
            state.missing += 1;
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        state.waiting.extend_from_slice(line);
        drop(state);
        self.filled.notify_one();
    }

    /// Waits until everything is written, but no longer than `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        drop(self.idle.wait_timeout_while(self.lock(), limit, is_busy));
    }

    /// Lines that were not written and never will be.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Waits for lines, and writes those that there are.
    fn write_out(&self, out: &mut impl Write) {
        let state = self.filled.wait_while(self.lock(), |state| state.waiting.is_empty());
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        let (lines, missing) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.missing));
        drop(state);
        // One by one: what others write to the same pipe comes between two lines, and not into one.
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if out.write_all(line).is_err() {
                self.dropped.fetch_add(1, Relaxed);
            }
        }
        if missing > 0 {
            // It was counted as so many already.
            let _ = out.write_all(gap(self.format, missing).as_bytes());
        }
        drop(lines);
        let mut state = self.lock();
        state.is_writing = false;
        if state.waiting.is_empty() {
            self.idle.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds what is written at once as one line.
impl Write for &Spool {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What stands where lines are missing.
fn gap(format: LogFormat, missing: u64) -> String {
    let message = format!("{missing} lines are missing here: what reads standard error was too slow");
    format.line(Level::WARN, module_path!(), &message)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A pipe whose reader takes a line when it likes.
    struct Pipe(SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(line).into_owned();
            self.0.send(text).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn pipe() -> (Arc<Spool>, Receiver<String>) {
        pipe_of(LogFormat::Text)
    }

    fn pipe_of(format: LogFormat) -> (Arc<Spool>, Receiver<String>) {
        let (into, from) = sync_channel(0);
        (Spool::start(Pipe(into), format).unwrap(), from)
    }

    #[test]
    fn lines_are_never_waited_for_and_the_log_says_how_many_are_missing() {
        let (spool, reader) = pipe();
        // Nobody reads: a push that waited would never end.
        let line = |number: u32| format!("{number:>1023}\n");
        let pushed: u32 = 2_000;
        spool.push(line(0).as_bytes());
        // From here on its thread stands in a write: a gap that it told earlier would lie between the lines.
        while !spool.lock().is_writing {
            thread::yield_now();
        }
        (1..pushed).for_each(|number| spool.push(line(number).as_bytes()));
        let dropped = spool.dropped();
        assert!(
            dropped > u64::from(pushed) - 2 * MOST as u64 / 1_024 - 2,
            "{dropped} dropped: memory is bounded"
        );
        let written = u64::from(pushed) - dropped;
        for number in 0..written {
            assert_eq!(
                reader.recv_timeout(PATIENCE).unwrap(),
                line(number as u32),
                "in order, and none missing"
            );
        }
        let told = reader.recv_timeout(PATIENCE).unwrap();
        assert!(
            told.contains(&format!(" xuid::text::logs::spool: {dropped} lines are missing here")),
            "{told}"
        );
        // There is room again.
        spool.push(b"and on\n");
        assert_eq!(reader.recv_timeout(PATIENCE).unwrap(), "and on\n");
        assert_eq!(spool.dropped(), dropped);
    }

    #[test]
    fn a_flush_returns_when_all_is_written_and_in_time_when_nothing_is() {
        let (spool, reader) = pipe();
        spool.push(b"one\n");
        spool.push(b"two\n");
        // Nobody reads: it has to give up by itself.
        spool.flush(Duration::from_millis(10));
        let reading = thread::spawn(move || reader.iter().take(2).collect::<String>());
        spool.flush(PATIENCE);
        assert!(spool.lock().waiting.is_empty() && !spool.lock().is_writing);
        assert_eq!(reading.join().unwrap(), "one\ntwo\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_end_nothing() {
        let (spool, reader) = pipe();
        drop(reader);
        spool.push(b"one\n");
        spool.push(b"two\n");
        spool.flush(PATIENCE);
        assert_eq!(spool.dropped(), 2);
    }

    #[test]
    fn a_line_that_is_longer_than_all_room_does_not_silence_the_log() {
        let (spool, reader) = pipe();
        spool.push(&vec![b'x'; MOST + 1]);
        let cut = reader.recv_timeout(PATIENCE).expect("the beginning of it");
        assert!(cut.len() == MOST && cut.ends_with("x ... (this line was longer, and was cut)\n"));
        spool.push(b"and on\n");
        assert_eq!(reader.recv_timeout(PATIENCE).expect("the log goes on"), "and on\n");
        assert_eq!(spool.dropped(), 0);
    }

    #[test]
    fn a_gap_in_a_log_of_json_is_told_in_json() {
        let (spool, reader) = pipe_of(LogFormat::Json);
        spool.push(b"{}\n");
        while !spool.lock().is_writing {
            thread::yield_now();
        }
        let long = vec![b'x'; MOST];
        spool.push(&long);
        spool.push(&long);
        let said: Vec<String> = reader.iter().take(3).collect();
        let told: serde_json::Value = serde_json::from_str(&said[2]).unwrap();
        assert!(told["message"].as_str().unwrap().contains("1 lines are missing here"), "{told}");
        assert_eq!(told["level"], "WARN");
    }
}
