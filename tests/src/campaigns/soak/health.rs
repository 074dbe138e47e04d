//! Memory and descriptors of the servers, read every second, and the rule for what is flat.
//!
//! # The rule
//! - *Memory* is the anonymous resident memory of a process. No life may come above [`MOST`]. In one of [`LONG`] or
//!   more, as that of the server which no fault ends, a straight line is fitted to what follows the first [`WARM_UP`],
//!   and may not rise by more than [`RISE`] an hour. What rises without being a leak are pages of the spill's table
//!   that are touched for the first time (8 bytes an extent, 4 MiB in all), and the allocator's arenas, which keep what
//!   a thread's connections once needed: a megabyte when another thread gets connections for the first time.
//! - *Descriptors* go up and down with connections that come and go. Between two faults they stand still: the lowest
//!   count of each such calm is compared with that of the life's first one, and may not be above it by more than
//!   [`MORE_FILES`].

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::super::Tally;
use super::cluster::Seat;
use crate::{clock, process};

const EVERY: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_mins(1);
/// A line through less says nothing about an hour: a MiB that is taken once, given back later or kept, would be more
/// than [`RISE`].
const LONG: Duration = Duration::from_mins(15);
/// KiB an hour, of a process that has some 3.5 MiB: what doubles it in an hour is a leak.
const RISE: f64 = 4.0 * 1024.0;
/// KiB: twice as much as was ever seen. The spill's table and the buffers of nine connections could come to 7 MiB more
/// than a process begins with.
const MOST: u64 = 12 * 1024;
/// A connection to the registry that is being made while another is being closed.
const MORE_FILES: u64 = 3;

/// One reading.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// From the first one of this life on.
    at: Duration,
    rss_kib: u64,
    files: u64,
    /// The number of the calm in which it was read, if in one.
    calm: Option<u64>,
}

/// By server and life.
type Lives = BTreeMap<(usize, u64), Vec<Reading>>;

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    is_calm: AtomicBool,
    calms: AtomicU64,
    lives: Mutex<Lives>,
}

/// The thread that reads.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Of the servers in these seats.
    pub(super) fn start(seats: &[Arc<Seat>]) -> Self {
        let shared = Arc::new(Shared::default());
        let (mine, seats) = (Arc::clone(&shared), seats.to_vec());
        let thread = thread::spawn(move || watch(&mine, &seats));
        Self { shared, thread }
    }

    /// Between two faults, or no longer.
    pub(super) fn calm(&self, calm: bool) {
        self.shared.calms.fetch_add(u64::from(calm), Ordering::Relaxed);
        self.shared.is_calm.store(calm, Ordering::Relaxed);
    }

    /// Judges all lives.
    pub(super) fn finish(self, tally: &mut Tally) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tally.fail("the watch of memory and descriptors panicked");
        }
        let lives = self.shared.lives.lock().unwrap_or_else(PoisonError::into_inner);
        for ((server, life), readings) in &*lives {
            tally.note("lives", 1);
            for reading in readings {
                tally.note("max_rss_anon_kib", reading.rss_kib);
                tally.note("max_descriptors", reading.files);
            }
            for why in findings(readings) {
                tally.fail(format!("life {life} of server {server}: {why}"));
            }
            if let Some(rise) = rise_an_hour(readings) {
                tally.note("lives judged for memory", 1);
                #[expect(clippy::cast_sign_loss, reason = "a fall counts as no rise")]
                tally.note("max_rss_rise_kib_an_hour", rise.max(0.0) as u64);
            }
        }
    }
}

fn watch(shared: &Shared, seats: &[Arc<Seat>]) {
    let mut born: BTreeMap<(usize, u64), Instant> = BTreeMap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        for (number, seat) in seats.iter().enumerate() {
            let Some((pid, life)) = seat.life() else { continue };
            // Read before the process: a fault that begins in between ends the calm of the next reading only.
            let calm = shared.is_calm.load(Ordering::Relaxed).then(|| shared.calms.load(Ordering::Relaxed));
            // A process that ends while it is looked at has nothing to tell.
            let (Ok(rss), Ok(files)) = (process::rss_anon(pid), files(pid)) else { continue };
            let calm = calm.filter(|_| shared.is_calm.load(Ordering::Relaxed));
            let at = born.entry((number, life)).or_insert_with(clock::now).elapsed();
            let reading = Reading { at, rss_kib: rss / 1024, files, calm };
            let mut lives = shared.lives.lock().unwrap_or_else(PoisonError::into_inner);
            lives.entry((number, life)).or_default().push(reading);
        }
        thread::sleep(EVERY);
    }
}

/// Descriptors that a process has open.
fn files(pid: u32) -> std::io::Result<u64> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

/// What of a life is not flat.
fn findings(readings: &[Reading]) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(most) = readings.iter().map(|reading| reading.rss_kib).max().filter(|most| *most > MOST) {
        found.push(format!("{most} KiB of anonymous memory, more than {MOST}"));
    }
    if let Some(rise) = rise_an_hour(readings).filter(|rise| *rise > RISE) {
        found.push(format!("its memory rises by {rise:.0} KiB an hour"));
    }
    let mut calms: BTreeMap<u64, u64> = BTreeMap::new();
    for reading in readings {
        if let Some(calm) = reading.calm {
            let least = calms.entry(calm).or_insert(reading.files);
            *least = reading.files.min(*least);
        }
    }
    if let (Some((_, first)), Some((_, most))) =
        (calms.first_key_value(), calms.iter().max_by_key(|calm| calm.1))
        && *most > first + MORE_FILES
    {
        found.push(format!("{first} descriptors in its first calm, {most} in a later one"));
    }
    found
}

/// KiB an hour by which the line rises that is nearest to the memory of a life, by least squares; none of a short one.
fn rise_an_hour(readings: &[Reading]) -> Option<f64> {
    readings.last().filter(|last| last.at >= LONG)?;
    let mine: Vec<(f64, f64)> = readings
        .iter()
        .filter(|reading| reading.at >= WARM_UP)
        .map(|reading| (reading.at.as_secs_f64(), reading.rss_kib as f64))
        .collect();
    let count = mine.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| mine.iter().map(of).sum::<f64>() / count;
    let (at, kib) = (mean(|reading| reading.0), mean(|reading| reading.1));
    let spread: f64 = mine.iter().map(|reading| (reading.0 - at).powi(2)).sum();
    let both: f64 = mine.iter().map(|reading| (reading.0 - at) * (reading.1 - kib)).sum();
    Some(both / spread * 3600.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading a second; calm for the first half of every 20 seconds.
    fn life(seconds: u64, rss_kib: impl Fn(u64) -> u64, files: impl Fn(u64) -> u64) -> Vec<Reading> {
        let reading = |second| Reading {
            at: Duration::from_secs(second),
            rss_kib: rss_kib(second),
            files: files(second),
            calm: (second % 20 < 10).then_some(second / 20),
        };
        (0..seconds).map(reading).collect()
    }

    #[test]
    fn a_life_that_warms_up_and_swings_is_flat() {
        let swings = |second: u64| if second < 60 { second * 60 } else { 3_500 + second % 7 * 100 };
        let found = findings(&life(1_200, swings, |second| 40 + u64::from(second % 20 == 15) * 30));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_slow_leak_of_memory_is_found() {
        // 5 MiB an hour, read in pages of 4 KiB.
        let leaks = |second: u64| 3_500 + second * 5 * 1_024 / 3_600 / 4 * 4;
        let found = findings(&life(1_200, leaks, |_| 40));
        assert!(found.len() == 1 && found[0].contains("memory rises"), "{found:?}");
        // A life of three minutes may have had a reason.
        let short = findings(&life(180, leaks, |_| 40));
        assert!(short.is_empty(), "{short:?}");
    }

    #[test]
    fn what_is_taken_once_and_kept_is_no_leak() {
        let found = findings(&life(1_200, |second| if second < 600 { 3_500 } else { 4_200 }, |_| 40));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn descriptors_that_do_not_come_back_are_found() {
        let found = findings(&life(200, |_| 3_500, |second| 40 + second / 20));
        assert!(found.len() == 1 && found[0].contains("descriptors"), "{found:?}");
    }

    #[test]
    fn too_much_memory_is_too_much_however_short_the_life() {
        assert!(!findings(&life(5, |_| 40 * 1024, |_| 40)).is_empty());
    }
}
