//! Campaigns of the engine's own tests: simulated clusters, power cuts, guards taken out.
//!
//! They need the inside of the engine, so they are ignored tests of it; `XUID_ENGINE_TESTS` names the release build of
//! its test executable. One part is one process of it, given its trials in `XUID_TRIALS`. It prints lines `@progress
//! DONE OF IDS FAILURES`, `@mutant NAME | WHAT | BY | after N histories | FINDING` and at the end one `@part {json}`, a
//! [`Tally`].
//!
//! # Invariants
//! - A process that does not end well although its tally names nothing wrong is a failure of the part.
//! - One that is silent for [`SILENCE`] is a failure, too: what hangs is the program or its simulator, and another run
//!   would hide it.
//! - A process that ends without a tally is an error with what it said last.

use std::collections::VecDeque;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Campaign, Mutant, Need, Progress, Tally};
use crate::zookeeper::spawner;

/// The longest a test may say nothing: progress comes twice a second, one trial takes minutes at the very most.
const SILENCE: Duration = Duration::from_mins(15);
/// Lines kept of what it says besides.
const KEPT: usize = 40;

/// A campaign that is a test of the engine.
#[derive(Debug)]
pub struct EngineCampaign {
    name: &'static str,
    test: &'static str,
    what: &'static str,
}

impl EngineCampaign {
    /// The test `testing::campaigns::TEST`, under the name that people use.
    pub fn new(name: &'static str, test: &'static str, what: &'static str) -> Self {
        Self { name, test, what }
    }
}

impl Campaign for EngineCampaign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn what(&self) -> &'static str {
        self.what
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Installed("setpriv"), Need::EngineTests]
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        let tests = env::var_os("XUID_ENGINE_TESTS").map(PathBuf::from);
        let tests = tests
            .context("XUID_ENGINE_TESTS does not name the engine's tests: start me by tests/campaign")?;
        let mut command = spawner::mortal(tests.to_str().context("a path that is not UTF-8")?);
        command
            .args(["--exact", "--ignored", "--nocapture"])
            .arg(format!("testing::campaigns::{}", self.test));
        command.env("XUID_TRIALS", format!("{}..{}", trials.start, trials.end));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawner::start(command)?;
        let mut said = Said::default();
        let heard = listen(&mut child, &mut said, progress);
        if !matches!(heard, Ok(Heard::All)) {
            // Whatever is left of it has nothing to say any more.
            let _ = child.kill();
        }
        let status = child.wait()?;
        match heard.with_context(|| said.last())? {
            Heard::All => said.tally(status),
            Heard::Silence => Ok(said.hung(self.name)),
        }
    }
}

/// Reads both outputs to their ends.
fn listen(child: &mut Child, said: &mut Said, progress: &Progress) -> Result<Heard> {
    let (lines, heard) = channel();
    let stdout = child.stdout.take().context("no standard output")?;
    let stderr = child.stderr.take().context("no standard error")?;
    pass_on(stdout, lines.clone());
    pass_on(stderr, lines);
    hear(&heard, SILENCE, said, progress)
}

/// How the outputs of a process came to their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    All,
    Silence,
}

fn pass_on(pipe: impl Read + Send + 'static, lines: Sender<std::io::Result<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            // Nobody listens any more: then nobody reads on either.
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}

fn hear(
    lines: &Receiver<std::io::Result<String>>,
    silence: Duration,
    said: &mut Said,
    progress: &Progress,
) -> Result<Heard> {
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => said.hear(&line?, progress)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Heard::All),
            Err(RecvTimeoutError::Timeout) => return Ok(Heard::Silence),
        }
    }
}

/// What a test said so far.
#[derive(Debug, Default)]
struct Said {
    /// Trials, ids and failures.
    so_far: (u64, u64, u64),
    tally: Option<Tally>,
    mutants: Vec<Mutant>,
    last: VecDeque<String>,
}

impl Said {
    /// The frame of the tests may put its own words (`test NAME ... `) before the first of ours on a line.
    fn hear(&mut self, line: &str, progress: &Progress) -> Result<()> {
        let word = |mark: &str| line.split_once(mark).map(|(_, rest)| rest.trim());
        if let Some(json) = word("@part ") {
            ensure!(self.tally.is_none(), "two tallies of one part");
            self.tally = Some(serde_json::from_str(json).with_context(|| format!("no tally: {json}"))?);
        } else if let Some(text) = word("@mutant ") {
            self.mutants.push(mutant(text).with_context(|| format!("no mutant: {text}"))?);
        } else if let Some(numbers) = word("@progress ") {
            let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            let &[done, _, ids, failures] = numbers.as_slice() else { bail!("no progress: {line}") };
            self.so_far = (done, ids, failures);
            progress.set(done, ids, failures);
        } else if !line.trim().is_empty() {
            if self.last.len() == KEPT {
                self.last.pop_front();
            }
            self.last.push_back(line.to_owned());
        }
        Ok(())
    }

    fn last(&self) -> String {
        format!("the engine's test said:\n{}", self.last.iter().cloned().collect::<Vec<_>>().join("\n"))
    }

    /// The tally of a process that said nothing for too long: so far as it came, it is known from its progress alone.
    fn hung(self, name: &str) -> Tally {
        let (trials, ids, failures) = self.so_far;
        let mut tally = Tally { trials, ids, ..Tally::new(name) };
        tally.mutants.clone_from(&self.mutants);
        tally.fail(format!("silent for {SILENCE:?}, after {failures} failures; {}", self.last()));
        tally
    }

    fn tally(mut self, status: ExitStatus) -> Result<Tally> {
        let Some(mut tally) = self.tally.take() else {
            bail!("ended with {status}, no tally; {}", self.last())
        };
        tally.mutants.append(&mut self.mutants);
        if !status.success() && tally.is_clean() {
            tally.fail(format!("ended with {status} though nothing in its tally is wrong; {}", self.last()));
        }
        Ok(tally)
    }
}

/// `NAME | WHAT | BY | after N histories | FINDING`.
fn mutant(text: &str) -> Option<Mutant> {
    let mut fields = text.splitn(5, " | ").map(str::to_owned);
    let (name, invariant, caught_by) = (fields.next()?, fields.next()?, fields.next()?);
    let histories = fields.next()?.strip_prefix("after ")?.strip_suffix(" histories")?.parse().ok()?;
    Some(Mutant { name, invariant, caught_by, histories, found: fields.next()? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const OK: i32 = 0;
    const FAILED: i32 = 101 << 8;

    fn heard(lines: &[&str]) -> (Said, Progress) {
        let (mut said, progress) = (Said::default(), Progress::default());
        for line in lines {
            said.hear(line, &progress).unwrap();
        }
        (said, progress)
    }

    #[test]
    fn a_part_is_read_from_between_the_words_of_the_test_frame() {
        let (said, progress) = heard(&[
            "running 1 test",
            "test testing::campaigns::x ... @progress 3 10 40 0",
            "@progress 7 10 90 1",
            "@mutant floor | U2 [Floor] | simulated histories | after 12 histories | seed 5: twice | or so",
            r#"@part {"campaign":"x","trials":10,"ids":5,"recovery_ms":{"12":3},"notes":{"steps":9}}"#,
            "ok",
        ]);
        assert_eq!(progress.so_far(), (7, 90, 1));
        let tally = said.tally(ExitStatus::from_raw(OK)).unwrap();
        assert_eq!((tally.trials, tally.ids, tally.recovery_percentile(50)), (10, 5, Some(12)));
        let found = Mutant {
            name: "floor".into(),
            invariant: "U2 [Floor]".into(),
            caught_by: "simulated histories".into(),
            histories: 12,
            found: "seed 5: twice | or so".into(),
        };
        assert_eq!(tally.mutants, [found]);
        assert!(tally.is_clean());
    }

    #[test]
    fn silence_is_a_failure_with_what_was_said_last() {
        let (mut said, progress) = (Said::default(), Progress::default());
        let (lines, heard) = channel();
        for line in ["@progress 3 10 40 1", "at seed 77"] {
            lines.send(Ok(line.to_owned())).unwrap();
        }
        // Its end is held open, and nothing more comes.
        assert_eq!(hear(&heard, Duration::from_millis(1), &mut said, &progress).unwrap(), Heard::Silence);
        let tally = said.hung("x");
        assert_eq!((tally.campaign.as_str(), tally.trials, tally.ids), ("x", 3, 40));
        assert!(!tally.is_clean() && tally.failures[0].contains("at seed 77"), "{:?}", tally.failures);
        drop(lines);
        assert_eq!(hear(&heard, SILENCE, &mut Said::default(), &progress).unwrap(), Heard::All);
    }

    #[test]
    fn an_end_that_nothing_explains_is_a_failure() {
        let part = r#"@part {"campaign":"x","trials":10}"#;
        let (said, _) = heard(&[part, "thread 'x' panicked at why"]);
        let tally = said.tally(ExitStatus::from_raw(FAILED)).unwrap();
        assert_eq!(tally.failures.len(), 1);
        assert!(tally.failures[0].contains("panicked at why"), "{:?}", tally.failures);
        let (said, _) = heard(&["thread 'x' panicked at why"]);
        let error = said.tally(ExitStatus::from_raw(FAILED)).unwrap_err();
        assert!(format!("{error:#}").contains("panicked at why"), "{error:#}");
        let (mut said, progress) = heard(&[part]);
        assert!(said.hear(part, &progress).is_err(), "two tallies");
        assert!(said.hear(r#"@part {"trails":1}"#, &progress).is_err(), "a field that nobody knows");
    }
}
