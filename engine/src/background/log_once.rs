//! What the log is told of clock and registry: each change once, however many turns it lasts. What was told of the
//! registry is kept by its health, since others than the producer tell it, too.

use std::sync::Mutex;

use xuid_id::Layout;

use crate::clock::{Course, SECOND, Verdict};
use crate::registry::health::{News, Tally};
use crate::sys::atomics::lock;
use crate::sys::deferred_log;

/// Between two lines about the clock at least. One that swings would fill the log; the next line counts what it did.
const QUIET: u64 = SECOND;

const DAY: u64 = 86_400 * SECOND;

/// From how many days before the layout's last tick on it is said, once a day: what takes its place (another layout,
/// another namespace, wider columns) takes years to bring to everybody who keeps ids.
pub(crate) const FEW_DAYS: u64 = 1_000;

/// Days until the time bits of a layout run out.
pub(crate) fn days_left(layout: &Layout, unix_ns: u64) -> u64 {
    layout.tick_to_ns(layout.last_tick()).saturating_sub(unix_ns) / DAY
}

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct LogOnce {
    /// When the last line about the clock was written, and how many verdicts had been entered then.
    clock_said: Option<u64>,
    verdicts: u64,
    behind_registry: bool,
    days_said: Option<u64>,
}

impl LogOnce {
    /// The verdict, if it is another one than at the last line.
    pub(crate) fn clock(&mut self, course: &Course, boot: u64) {
        let Some(changes) = self.changes(course, boot) else { return };
        let verdict = course.verdict.name();
        let ms = |ns: u64| ns / 1_000_000;
        let after_ms = ms(course.since.saturating_sub(course.unsteady_since));
        let now = course.verdict;
        deferred_log::log(move || match now {
            Verdict::Steady => tracing::info!(verdict, after_ms, changes, "the clock is steady again"),
            Verdict::Stand { lead } => tracing::warn!(
                verdict,
                lead_ms = ms(lead),
                changes,
                "the wall clock went back a little: ids are stamped with the last time again until it is reached"
            ),
            Verdict::CatchUp { lead } => tracing::warn!(
                verdict,
                lead_ms = ms(lead),
                changes,
                "the wall clock went back: the engine's clock runs at nine tenths of the pace until it is reached"
            ),
            Verdict::Behind { lead } => tracing::warn!(
                verdict,
                lead_ms = ms(lead),
                changes,
                "the wall clock went back far: another worker is wanted, and until then nothing new is minted"
            ),
            Verdict::Ahead { by } => tracing::warn!(
                verdict,
                by_ms = ms(by),
                changes,
                "the wall clock is ahead of what boot time or the registry's clock explains: it is not followed yet"
            ),
        });
    }

    /// How often the verdict changed since the last line, if it is time for another.
    fn changes(&mut self, course: &Course, boot: u64) -> Option<u64> {
        let changes = course.entered.total() - self.verdicts;
        if changes == 0 || self.clock_said.is_some_and(|said| boot < said.saturating_add(QUIET)) {
            return None;
        }
        (self.clock_said, self.verdicts) = (Some(boot), course.entered.total());
        Some(changes)
    }

    /// How far the wall clock is behind the registry's, in nanoseconds, and how much of that is nothing to speak of.
    pub(crate) fn behind_registry(&mut self, ns: u64, most: u64) {
        if (ns > most) != self.behind_registry {
            self.behind_registry = ns > most;
            if ns > most {
                deferred_log::log(move || {
                    tracing::warn!(
                        behind_ms = ns / 1_000_000,
                        "the wall clock is behind the registry's: ids are stamped too early; check both clocks"
                    );
                });
            }
        }
    }

    /// The time bits run out, once a day.
    pub(crate) fn time_left(&mut self, layout: &Layout, unix_ns: u64, boot: u64) {
        let days = days_left(layout, unix_ns);
        if days >= FEW_DAYS || self.days_said.is_some_and(|said| boot < said.saturating_add(DAY)) {
            return;
        }
        self.days_said = Some(boot);
        let layout = *layout;
        deferred_log::log(move || {
            tracing::warn!(days, %layout, "the layout's time bits run out; plan for another layout, or a later epoch");
        });
    }
}

/// The registry went, or came back, if that was not told yet.
pub(crate) fn tell_registry(tally: &Mutex<Tally>, boot: u64) {
    let Some(news) = lock(tally).health.untold(boot) else { return };
    deferred_log::log(move || match news {
        News::Away { why } => {
            tracing::warn!(why, "the registry is away: windows that are held go on to their ends");
        }
        News::Refused { why } => tracing::error!(
            why,
            "the registry may not be used any more: windows that are held go on to their ends, and none is reserved"
        ),
        News::Back { after } => {
            tracing::info!(after_ms = after / 1_000_000, "the registry is back");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Reading, Supervisor, Thresholds};

    const MS: u64 = 1_000_000;

    #[test]
    fn a_verdict_is_told_once_however_many_turns_it_lasts() {
        let (mut log_once, start) = (LogOnce::default(), 1_793_000_000 * SECOND);
        let mut supervisor = Supervisor::new(Thresholds::default(), Reading { wall: start, boot: 0 });
        let mut told = Vec::new();
        for boot in (0..30 * SECOND).step_by(10 * MS as usize) {
            // Half a second is caught up with in five.
            let wall = start + boot - if boot >= SECOND { SECOND / 2 } else { 0 };
            supervisor.observe(Reading { wall, boot });
            let course = supervisor.course();
            told.extend(log_once.changes(&course, boot).map(|changes| (course.verdict.name(), changes)));
        }
        assert_eq!(told, [("catch_up", 1), ("steady", 1)]);
    }

    #[test]
    fn a_clock_that_swings_gets_a_line_a_second_that_counts() {
        let (mut log_once, start) = (LogOnce::default(), 1_793_000_000 * SECOND);
        let mut supervisor = Supervisor::new(Thresholds::default(), Reading { wall: start, boot: 0 });
        let (mut lines, mut counted) = (0, 0);
        for turn in 0..1_000 {
            let boot = turn * 10 * MS;
            supervisor.observe(Reading { wall: start + boot - turn % 2 * 12 * MS, boot });
            let changes = log_once.changes(&supervisor.course(), boot);
            lines += u64::from(changes.is_some());
            counted += changes.unwrap_or(0);
        }
        assert!(lines <= 10 && counted > 900, "{lines} lines of {counted} changes in ten seconds");
    }
}
