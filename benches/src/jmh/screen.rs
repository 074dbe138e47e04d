//! What a reader sees while it goes on: text as JMH prints it, and on a terminal one bar with the time left.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{FormattedDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::timing::now;

/// Redraws of the bar while nothing is heard.
const TICK: Duration = Duration::from_millis(500);
const TEMPLATE: &str = "{msg} {wide_bar} {percent}% {elapsed_precise}, {eta_precise} left";

/// Text and bar.
pub(super) struct Screen {
    text: Box<dyn Write>,
    bar: ProgressBar,
    planned: Duration,
    done: Duration,
    begin: Instant,
}

impl Screen {
    /// Text goes to the file, or to the standard output; the bar to the standard error if that is a terminal.
    pub(super) fn open(output: Option<&Path>) -> anyhow::Result<Self> {
        let text: Box<dyn Write> = match output {
            Some(path) => Box::new(
                File::create(path).with_context(|| format!("cannot write text to {}", path.display()))?,
            ),
            None => Box::new(std::io::stdout()),
        };
        Ok(Self::over(text, ProgressDrawTarget::stderr()))
    }

    fn over(text: Box<dyn Write>, target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { text, bar, planned: Duration::ZERO, done: Duration::ZERO, begin: now() }
    }

    /// How long the measuring will take.
    pub(super) fn plan(&mut self, planned: Duration) {
        (self.planned, self.done, self.begin) = (planned, Duration::ZERO, now());
        self.bar.set_length(planned.as_millis() as u64);
        self.bar.reset();
        // Nobody sees a hidden bar, and its thread would be one more beside those that are measured.
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(TICK);
        }
    }

    /// What is being measured.
    pub(super) fn name(&self, what: String) {
        self.bar.set_message(what);
    }

    /// So much of the plan is done.
    pub(super) fn advance(&mut self, part: Duration) {
        self.done += part;
        self.bar.set_position(self.done.as_millis() as u64);
    }

    /// One line, or several.
    pub(super) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        let out = &mut self.text;
        self.bar.suspend(|| {
            writeln!(out, "{text}")?;
            out.flush()
        })?;
        Ok(())
    }

    /// `12.50% complete, ETA 00:01:23`: by how fast it went so far, by the plan before that.
    pub(super) fn progress(&self) -> String {
        let share = self.done.as_secs_f64() / self.planned.as_secs_f64().max(1e-9);
        let left = if share > 0.0 {
            self.begin.elapsed().as_secs_f64() * (1.0 - share) / share
        } else {
            self.planned.as_secs_f64()
        };
        let left = FormattedDuration(Duration::from_secs_f64(left.max(0.0).round()));
        format!("{:.2}% complete, ETA {left}", share * 100.0)
    }

    /// Nothing more will be measured.
    pub(super) fn close(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_anything_is_done_the_time_left_is_the_plan() {
        let mut screen = Screen::over(Box::new(std::io::sink()), ProgressDrawTarget::hidden());
        screen.plan(Duration::from_secs(3_723));
        assert_eq!(screen.progress(), "0.00% complete, ETA 01:02:03");
        screen.advance(Duration::from_secs(3_723));
        assert_eq!(screen.progress(), "100.00% complete, ETA 00:00:00");
    }

    #[test]
    fn text_goes_to_the_file_that_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let mut screen = Screen::open(Some(&path)).unwrap();
        screen.say("one\ntwo").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
        assert!(Screen::open(Some(&folder.path().join("no/such/folder"))).is_err());
    }
}
