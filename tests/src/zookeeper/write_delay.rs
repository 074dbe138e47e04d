//! How long the ensemble takes for a write, while a test demands time of what waits for such writes: its disk and its Java
//! are this machine's, and none of the server's doing.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::Tamper;
use crate::clock;
use crate::longest::Longest;

const PATH: &str = "/write-delay";
const PAUSE: Duration = Duration::from_millis(5);

/// A session that writes a node of its own again and again, and knows the longest that took.
#[derive(Debug)]
pub struct WriteDelay {
    longest: Longest,
}

impl WriteDelay {
    /// Writes from now on, to `host:port,host:port`.
    pub fn watch(connect_string: &str) -> Result<Self> {
        let tamper = Tamper::connect(connect_string)?;
        tamper.create(PATH, &[])?;
        let longest = Longest::of(move || {
            thread::sleep(PAUSE);
            let begin = clock::now();
            // A write that fails took what it took.
            drop(tamper.write(PATH, &[]));
            begin.elapsed()
        });
        Ok(Self { longest })
    }

    /// The longest so far.
    pub fn worst(&self) -> Duration {
        self.longest.get()
    }
}
