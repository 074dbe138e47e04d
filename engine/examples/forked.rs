//! A program that forks while its threads take ids: what a child must not do, what it may, and that no id is in both.
//!
//! ```sh
//! forked DATA_DIR OUT_DIR BEFORE_MS AFTER_MS
//! ```
//!
//! It has an engine on `DATA_DIR` and takes ids with two threads. After `BEFORE_MS` it forks. The child finds that its
//! parent's engine refuses it, builds an engine of its own on the same folder, and takes ids for `AFTER_MS`; the parent
//! goes on as long. What each was given is appended to `OUT_DIR/parent` and `OUT_DIR/child` as it comes, in records of
//! 16 bytes: the first id (u64, little-endian), how many (u32), four zeros. The campaign `limits` reads them.

#![expect(unsafe_code, reason = "fork has no safe form: that is what this program is about")]
#![expect(clippy::print_stderr, reason = "a program tells its failures")]

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xuid_engine::{Engine, Id, IdError, IdErrorKind, Order};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forked: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, out, before, after] = &arguments[..] else {
        return Err("usage: forked DATA_DIR OUT_DIR BEFORE_MS AFTER_MS".into());
    };
    let (data, out) = (PathBuf::from(data), PathBuf::from(out));
    let (before, after) = (Duration::from_millis(before.parse()?), Duration::from_millis(after.parse()?));
    let engine = Engine::builder().data_dir(&data).build()?;
    let takers = Takers::start(&engine, &out.join("parent"))?;
    thread::sleep(before);
    // SAFETY: the child is a copy of this thread alone. It uses memory, files and threads, which the C library makes
    // usable in a child, and none of this program's locks: the threads that might have held one do not print.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            let code = child(&engine, &data, &out, after);
            // Without the parent's destructors: they are the parent's to run.
            // SAFETY: it only ends the process.
            unsafe { libc::_exit(code) }
        }
        pid => {
            thread::sleep(after);
            takers.finish()?;
            engine.shutdown();
            let mut status = 0;
            // SAFETY: `status` is an int of our own that lives through the call.
            let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            if waited != pid || status != 0 {
                return Err(format!("the child ended with status {status:#x}").into());
            }
            Ok(())
        }
    }
}

/// What the child does; its exit code.
fn child(parents: &Engine, data: &Path, out: &Path, time: Duration) -> i32 {
    let alone = || -> Result<(), Failure> {
        std::fs::write(out.join("child.pid"), std::process::id().to_string())?;
        refused(parents.next_id())?;
        refused(parents.try_next_id())?;
        refused(parents.runs(100, Order::Fresh).map(|_| Id::default()))?;
        let engine = Engine::builder().data_dir(data).build()?;
        let takers = Takers::start(&engine, &out.join("child"))?;
        thread::sleep(time);
        takers.finish()?;
        // It goes on being refused, whatever the child's own engine did meanwhile.
        refused(parents.next_id())?;
        engine.shutdown();
        Ok(())
    };
    match alone() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("forked: child: {error}");
            3
        }
    }
}

/// An engine of the parent's must not answer the child.
fn refused(answer: Result<Id, IdError>) -> Result<(), Failure> {
    match answer {
        Err(error) if error.kind() == IdErrorKind::Forked => Ok(()),
        Err(error) => {
            Err(format!("the parent's engine refuses the child for another reason: {error}").into())
        }
        Ok(id) => Err(format!("the parent's engine gave the child {}", id.raw()).into()),
    }
}

/// Threads that take ids and write them down.
struct Takers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Takers {
    /// One that takes ids one by one, and one that takes runs of all orders.
    fn start(engine: &Engine, file: &Path) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        // Each write is a whole number of records at the end of the file, whoever's turn it is.
        let file = File::options().create(true).append(true).open(file)?;
        let (one, mut sink, over) = (engine.clone(), file.try_clone()?, Arc::clone(&stop));
        let singles = move || {
            // Once at least, however late this thread gets a processor.
            let mut is_over = false;
            while !is_over {
                is_over = over.load(Ordering::Relaxed);
                let mut records = Vec::new();
                for _ in 0..500 {
                    match one.next_id() {
                        Ok(id) => record(&mut records, id, 1),
                        Err(error) => pause(error)?,
                    }
                }
                sink.write_all(&records)?;
            }
            Ok(())
        };
        let (many, mut sink, over) = (engine.clone(), file, Arc::clone(&stop));
        let runs = move || {
            let orders = [Order::Any, Order::Fresh, Order::Ordered];
            for order in orders.into_iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                let mut records = Vec::new();
                match many.runs(20_000, order) {
                    Ok(runs) => runs.iter().for_each(|run| record(&mut records, run.first(), run.len())),
                    Err(error) => pause(error)?,
                }
                sink.write_all(&records)?;
            }
            Ok(())
        };
        Ok(Self { stop, threads: vec![thread::spawn(singles), thread::spawn(runs)] })
    }

    fn finish(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| "a thread that takes ids panicked")??;
        }
        Ok(())
    }
}

fn record(records: &mut Vec<u8>, first: Id, count: u32) {
    records.extend_from_slice(&first.raw().to_le_bytes());
    records.extend_from_slice(&count.to_le_bytes());
    records.extend_from_slice(&[0; 4]);
}

/// Comes back when it was told to; fails where coming back is of no use.
fn pause(error: IdError) -> Result<(), Failure> {
    let Some(time) = error.retry_after() else { return Err(error.to_string().into()) };
    thread::sleep(time.clamp(Duration::from_millis(1), Duration::from_millis(20)));
    Ok(())
}
