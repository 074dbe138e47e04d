//! How long the ensemble takes to answer a write, while a test demands time of what waits for such answers: its Java runs
//! on this machine, and is none of the server's doing.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Error, Result};

use super::Tamper;
use crate::clock;
use crate::longest::Longest;

const PATH: &str = "/write-delay";
const PAUSE: Duration = Duration::from_millis(5);

/// A session that writes a node of its own again and again, and knows the longest that took.
#[derive(Debug)]
pub struct WriteDelay {
    longest: Longest,
    failure: Arc<Mutex<Option<Error>>>,
}

impl WriteDelay {
    /// Writes from now on, to `host:port,host:port`.
    pub fn watch(connect_string: &str) -> Result<Self> {
        let tamper = Tamper::connect(connect_string)?;
        tamper.create(PATH, &[])?;
        let failure = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&failure);
        let longest = Longest::of(move || {
            thread::sleep(PAUSE);
            let begin = clock::now();
            if let Err(error) = tamper.write(PATH, &[]) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
            begin.elapsed()
        });
        Ok(Self { longest, failure })
    }

    /// Writes no more; the longest it took.
    pub fn stop(self) -> Result<Duration> {
        let longest = self.longest.get();
        drop(self.longest);
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(longest), Err)
    }
}
