//! How far a campaign is, for the people who wait for it.
//!
//! [`Progress`] is what a campaign under way tells, from any of its threads. [`shown`] shows it: a bar on a terminal, a
//! line every ten seconds elsewhere. Nothing here decides anything: what counts is the tally.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Tally;
use crate::clock;

/// Redraws of the bar; often enough to be seen alive, too seldom to cost anything.
const REDRAW: Duration = Duration::from_millis(250);
/// Lines where there is no terminal: a log of an hour stays readable.
const LINE: Duration = Duration::from_secs(10);
/// The text has a line of its own: beside it, eighty columns would leave nothing of the bar.
const TEMPLATE: &str = "{prefix} {wide_bar} {percent}%\n{msg}";

/// Trials, ids and failures of a part under way.
#[derive(Debug, Default)]
pub struct Progress(Mutex<(u64, u64, u64)>);

impl Progress {
    /// So many trials are done, so many ids checked, and so many things went wrong.
    pub fn set(&self, trials: u64, ids: u64, failures: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (trials, ids, failures);
    }

    /// So much is in this tally.
    pub fn tell(&self, tally: &Tally) {
        self.set(tally.trials, tally.ids, tally.failures.len() as u64);
    }

    /// Trials, ids and failures so far.
    pub fn so_far(&self) -> (u64, u64, u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was done before the part under way, and what there is to do.
#[derive(Debug, Clone, Default)]
pub(super) struct Before {
    /// The campaign and its part, in a few words.
    pub(super) heading: String,
    /// Recorded parts, summed.
    pub(super) tally: Tally,
    /// Seconds that they took.
    pub(super) seconds: f64,
    /// Trials of the whole campaign.
    pub(super) of: u64,
}

/// Does some work that tells its progress, and shows that meanwhile.
pub(super) fn shown<T>(before: &Before, work: impl FnOnce(&Progress) -> T) -> T {
    let (progress, (over, ended)) = (&Progress::default(), channel::<()>());
    thread::scope(|scope| {
        scope.spawn(move || show(before, progress, &ended));
        let result = work(progress);
        drop(over);
        result
    })
}

fn show(before: &Before, progress: &Progress, ended: &Receiver<()>) {
    let begin = clock::now();
    let bar = ProgressBar::new(before.of).with_prefix(before.heading.clone());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    let pause = if bar.is_hidden() { LINE } else { REDRAW };
    let mut is_over = false;
    while !is_over {
        is_over = ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
        let text = told(before, progress.so_far(), begin.elapsed());
        if bar.is_hidden() {
            eprintln!("{}: {text}", before.heading);
        } else {
            bar.set_position(before.tally.trials + progress.so_far().0);
            bar.set_message(text);
        }
    }
    bar.finish_and_clear();
}

/// `1,200 of 5,000 trials, 31,000 ids, 0 failures, 3 min left`.
fn told(before: &Before, (trials, ids, failures): (u64, u64, u64), spent: Duration) -> String {
    let done = before.tally.trials + trials;
    let failed = before.tally.failures.len() as u64 + before.tally.duplicates;
    let seconds = before.seconds + spent.as_secs_f64();
    let left = if done == 0 {
        "time left unknown".to_owned()
    } else {
        let pace = seconds / done as f64;
        format!("{} left", coarse(pace * before.of.saturating_sub(done) as f64))
    };
    format!(
        "{} of {} trials, {} ids, {} failures, {left}",
        grouped(done),
        grouped(before.of),
        grouped(before.tally.ids + ids),
        grouped(failed + failures),
    )
}

/// Seconds as somebody would say them.
pub(super) fn coarse(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis().div_ceil(1_000) as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7_200 => format!("{} min", whole.div_ceil(60)),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// A number with its thousands apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_told_as_people_read_them() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (seconds, text) in [(0.0, "0 s"), (119.0, "119 s"), (120.5, "3 min"), (7_260.0, "2 h 1 min")] {
            assert_eq!(coarse(seconds), text);
        }
    }

    #[test]
    fn the_time_left_counts_recorded_parts_and_the_one_under_way() {
        let tally = Tally { trials: 40, ids: 5, duplicates: 1, ..Tally::default() };
        let before = Before { heading: "x".to_owned(), tally, seconds: 40.0, of: 100 };
        let text = told(&before, (10, 5, 1), Duration::from_secs(10));
        assert_eq!(text, "50 of 100 trials, 10 ids, 2 failures, 50 s left");
        let none = Before { of: 100, ..Before::default() };
        assert!(told(&none, (0, 0, 0), Duration::from_secs(9)).ends_with("time left unknown"));
    }
}
