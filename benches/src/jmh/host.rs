//! Starting forks, and hearing what they say.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail};

use super::plan::{ClockCost, Event, Figure, Plan};

/// How long a fork may be silent beyond the iteration it is in: setting up, checking and stopping take under a second
/// each on an idle machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// All that one fork told.
#[derive(Debug, Clone, Default)]
pub(super) struct Raw {
    pub(super) checked: u64,
    pub(super) duplicates: u64,
    pub(super) iterations: Vec<Figure>,
    pub(super) objection: Option<String>,
    pub(super) clock: Option<ClockCost>,
}

/// Starts forks.
pub(super) struct Host<'a> {
    /// The command whose process carries a plan out.
    launch: &'a dyn Fn(&Plan) -> anyhow::Result<Command>,
    patience: Duration,
}

/// A child process that does not outlive its owner.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // Both fail only where the process is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> Host<'a> {
    pub(super) fn new(launch: &'a dyn Fn(&Plan) -> anyhow::Result<Command>) -> Self {
        Self { launch, patience: PATIENCE }
    }

    /// Runs one fork to its end; `heard` is called with each event as it comes.
    pub(super) fn fork(
        &self,
        plan: &Plan,
        heard: &mut dyn FnMut(&Event) -> anyhow::Result<()>,
    ) -> anyhow::Result<Raw> {
        let mut command = (self.launch)(plan)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = Kept(child.context("cannot start a process for a fork")?);
        let lines = lines(&mut child.0)?;
        let silence = self.patience + plan.warmup.time.max(plan.measurement.time);
        let (mut raw, mut done) = (Raw::default(), false);
        loop {
            let line = match lines.recv_timeout(silence) {
                Ok(line) => line.context("cannot read what a fork prints")?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("a fork was silent for {silence:?} and was ended"),
            };
            // A subject may print too; events are objects.
            if !line.starts_with('{') {
                continue;
            }
            let event = serde_json::from_str(&line).with_context(|| format!("a fork printed '{line}'"))?;
            heard(&event)?;
            done |= raw.take(event)?;
        }
        let status = child.0.wait().context("cannot learn how a fork ended")?;
        if !done || !status.success() {
            bail!("a fork ended with {status}{}", if done { "" } else { " before it was done" });
        }
        Ok(raw)
    }
}

impl Raw {
    /// Whether that was the last event.
    fn take(&mut self, event: Event) -> anyhow::Result<bool> {
        match event {
            Event::Checked { ids, duplicates } => (self.checked, self.duplicates) = (ids, duplicates),
            Event::Warmup { .. } => {}
            Event::Iteration { figure } => self.iterations.push(figure),
            Event::Failed { reason } => bail!("{reason}"),
            Event::Done { objection, clock } => {
                (self.objection, self.clock) = (objection, clock);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The lines that a child prints, read by a thread of their own so that waiting for one can end.
fn lines(child: &mut Child) -> anyhow::Result<Receiver<std::io::Result<String>>> {
    let out = child.stdout.take().context("a fork has no output")?;
    let (line, lines) = channel();
    std::thread::spawn(move || {
        for read in BufReader::new(out).lines() {
            if line.send(read).is_err() {
                break;
            }
        }
    });
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jmh::fork;
    use crate::jmh::plan::Mode;
    use crate::jmh::samples::{SUBJECTS, plan};

    const VARIABLE: &str = "XUID_TEST_FORK_PLAN";

    /// The test executable, asked to run the test below as a fork.
    fn launch(plan: &Plan) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "jmh::host::tests::as_a_fork", "--ignored", "--nocapture"]);
        command.args(["--test-threads", "2"]).env(VARIABLE, serde_json::to_string(plan)?);
        Ok(command)
    }

    #[test]
    #[ignore = "the body of a fork, run in a process of its own by the tests beside it"]
    fn as_a_fork() {
        // Nobody's fork: all ignored tests were asked for.
        let Ok(plan) = std::env::var(VARIABLE) else { return };
        let plan = serde_json::from_str(&plan).unwrap();
        let mut out = std::io::stdout();
        println!();
        if let Err(error) = fork::run(&plan, &SUBJECTS, &mut out) {
            fork::emit(&mut out, &Event::Failed { reason: error.to_string() }).unwrap();
        }
    }

    #[test]
    fn a_fork_in_a_process_of_its_own_is_heard_to_its_end() {
        let host = Host::new(&launch);
        let mut events = 0;
        let raw = host
            .fork(&plan("xuid/next_id", 2, Mode::Throughput), &mut |_| {
                events += 1;
                Ok(())
            })
            .unwrap();
        assert!(raw.checked > 0);
        assert_eq!(raw.duplicates, 0);
        assert_eq!((raw.iterations.len(), events), (2, 5));
        assert!(raw.objection.is_none() && raw.clock.is_none());
    }

    #[test]
    fn a_fork_that_cannot_go_on_says_why() {
        let host = Host::new(&launch);
        let fork =
            |name| host.fork(&plan(name, 1, Mode::Throughput), &mut |_| Ok(())).unwrap_err().to_string();
        assert!(fork("peer/panics").contains("out of patience"));
        assert!(fork("nobody").contains("nobody"));
    }

    #[test]
    fn a_silent_fork_is_ended() {
        let host = Host { launch: &launch, patience: Duration::from_millis(500) };
        let stuck = host.fork(&plan("peer/stuck", 1, Mode::Throughput), &mut |_| Ok(()));
        assert!(stuck.unwrap_err().to_string().contains("silent"));
    }

    #[test]
    fn a_fork_that_ends_early_is_not_taken_for_done() {
        let nothing = |_: &Plan| Ok(Command::new("true"));
        let host = Host::new(&nothing);
        let error = host.fork(&plan("xuid/next_id", 1, Mode::Throughput), &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("before it was done"), "{error}");
    }
}
