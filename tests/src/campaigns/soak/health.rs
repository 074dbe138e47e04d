//! Memory and descriptors of the servers, read every second, and the rule for what is flat.
//!
//! # The rule
//! - *Memory* is the anonymous resident memory of a process. A life's first [`WARM_UP`] is left out: threads, connections
//!   and the spill's table are made then. A straight line is fitted to what follows, if that is [`FITTED`] or more, and may
//!   not rise by more than [`RISE_OF_A_LIFE`] over it. In a life of [`LONG`] or more, as that of the server which no fault
//!   ends, it may not rise by more than [`RISE`] an hour either. No life, however short, may come above [`MOST`].
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
use super::site::Seat;
use crate::{clock, process};

const EVERY: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_mins(1);
/// A line through less than a minute says nothing.
const FITTED: Duration = Duration::from_mins(1);
/// A line through less says nothing about an hour: a MiB that is taken once, given back later or kept, would be more than
/// [`RISE`].
const LONG: Duration = Duration::from_mins(15);
/// KiB an hour, of a process that has some 3.5 MiB: what doubles it in an hour is a leak.
const RISE: f64 = 4.0 * 1024.0;
/// KiB: half of what a process has.
const RISE_OF_A_LIFE: f64 = 2.0 * 1024.0;
/// KiB: nine times what a process has.
const MOST: u64 = 32 * 1024;
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
            if let Some(line) = Trend::of(readings).filter(|line| line.is_long) {
                tally.note("lives judged for memory", 1);
                #[expect(clippy::cast_sign_loss, reason = "a fall counts as no rise")]
                tally.note("max_rss_rise_kib_an_hour", line.rise_an_hour.max(0.0) as u64);
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
    if let Some(Trend { rise_an_hour, rise, is_long }) = Trend::of(readings)
        && (is_long && rise_an_hour > RISE || rise > RISE_OF_A_LIFE)
    {
        found.push(format!(
            "its memory rises by {rise_an_hour:.0} KiB an hour ({rise:.0} KiB within this life)"
        ));
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

/// The line that is nearest to the memory of a life, by least squares.
#[derive(Debug, Clone, Copy)]
struct Trend {
    /// KiB an hour.
    rise_an_hour: f64,
    /// KiB from the end of the warm-up to the last reading.
    rise: f64,
    /// Of a life of [`LONG`] or more.
    is_long: bool,
}

impl Trend {
    /// Of a life with enough readings after its warm-up.
    fn of(readings: &[Reading]) -> Option<Self> {
        let mine: Vec<(f64, f64)> = readings
            .iter()
            .filter(|reading| reading.at >= WARM_UP)
            .map(|reading| (reading.at.as_secs_f64(), reading.rss_kib as f64))
            .collect();
        let (first, last) = (mine.first()?.0, mine.last()?.0);
        if last - first < FITTED.as_secs_f64() {
            return None;
        }
        let count = mine.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| mine.iter().map(of).sum::<f64>() / count;
        let (at, kib) = (mean(|reading| reading.0), mean(|reading| reading.1));
        let spread: f64 = mine.iter().map(|reading| (reading.0 - at).powi(2)).sum();
        let both: f64 = mine.iter().map(|reading| (reading.0 - at) * (reading.1 - kib)).sum();
        let a_second = both / spread;
        let is_long = last >= LONG.as_secs_f64();
        Some(Self { rise_an_hour: a_second * 3600.0, rise: a_second * (last - first), is_long })
    }
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
        // A life of three minutes may have had a reason, unless it has taken half of what it had.
        let short = findings(&life(180, leaks, |_| 40));
        assert!(short.is_empty(), "{short:?}");
        let found = findings(&life(180, |second| 3_500 + second * 20, |_| 40));
        assert!(found.len() == 1 && found[0].contains("memory rises"), "{found:?}");
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
