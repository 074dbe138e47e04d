//! A file's lock, which processes share: taken at once, or waited for.

use std::fs::{File, TryLockError};
use std::io;
use std::thread::sleep;
use std::time::Duration;

use crate::clock::boot_ns;

/// Between two looks at a lock: from about a change's length on a fast disk up to one on a slow one. A process that makes
/// one change after the other leaves the lock alone for some microseconds between two, and others have to hit them.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(500));

/// Takes a file's lock; `false` if another one has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes a lock within that time; `false` if another one kept it.
pub(crate) fn lock_within(
    limit: Duration,
    mut try_lock: impl FnMut() -> io::Result<bool>,
) -> io::Result<bool> {
    let (begun, mut pause) = (boot_ns(), PAUSES.0);
    loop {
        if try_lock()? {
            return Ok(true);
        }
        // By the clock: on a busy host a pause is many times as long as it was to be.
        if u128::from(boot_ns().saturating_sub(begun)) >= limit.as_nanos() {
            return Ok(false);
        }
        sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}
