//! The real clocks: the harness times real processes, so there is nothing to simulate here.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "real processes are timed, so the real clock is read")]
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since the Unix epoch, by the wall clock of this machine.
#[expect(clippy::disallowed_methods, reason = "ids are compared with the wall clock the server reads too")]
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Asks `ready` every few milliseconds until it says yes, or fails after `limit` naming `what`.
pub fn wait_until(what: &str, limit: Duration, mut ready: impl FnMut() -> Result<bool>) -> Result<Duration> {
    wait_for(what, limit, || Ok(ready()?.then_some(()))).map(|((), took)| took)
}

/// Asks for a thing in the same way until there is one; that, and how long it took.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut find: impl FnMut() -> Result<Option<T>>,
) -> Result<(T, Duration)> {
    let begin = now();
    loop {
        if let Some(found) = find()? {
            return Ok((found, begin.elapsed()));
        }
        if begin.elapsed() > limit {
            bail!("waited {limit:?} in vain: {what}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets time pass. Only for tests whose subject is time that passes (an idle minute), never to wait for an event.
pub fn idle(time: Duration) {
    std::thread::sleep(time);
}
