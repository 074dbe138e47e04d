//! The program of a client: a process that is asked by one JSON object a line and answers by one a line, in the order in
//! which it is done. `server/clients/README.md` says what may be asked.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use xuid_tests::process;

use crate::languages::Language;

/// No answer may take longer.
const LIMIT: Duration = Duration::from_mins(1);

/// A running program; killed on drop.
#[derive(Debug)]
pub(crate) struct Program {
    language: Language,
    child: Child,
    /// `None` once it was told that nothing follows.
    stdin: Option<ChildStdin>,
    asked: u64,
    answers: Arc<Answers>,
    stderr: NamedTempFile,
}

/// What was asked and may not be answered yet.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct Ticket(pub(crate) u64);

#[derive(Debug, Default)]
struct Answers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By the number of what was asked.
    done: HashMap<u64, Value>,
    /// Why nothing more will come.
    over: Option<String>,
}

impl Answers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(&self, pipe: ChildStdout) {
        let mut why = "it closed its output".to_owned();
        for line in BufReader::new(pipe).lines() {
            match line.context("reading").and_then(|line| read_answer(&line)) {
                Ok((id, answer)) => drop(self.state().done.insert(id, answer)),
                Err(error) => {
                    why = format!("{error:#}");
                    break;
                }
            }
            self.changed.notify_all();
        }
        self.state().over = Some(why);
        self.changed.notify_all();
    }
}

fn read_answer(line: &str) -> Result<(u64, Value)> {
    let answer: Value = serde_json::from_str(line).with_context(|| format!("this is no JSON: {line}"))?;
    let id = answer["id"].as_u64().with_context(|| format!("an answer without a number: {line}"))?;
    Ok((id, answer))
}

impl Program {
    pub(crate) fn start(language: Language) -> Result<Self> {
        let stderr = NamedTempFile::new()?;
        let mut command = language.command()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr.reopen()?);
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let answers = Arc::<Answers>::default();
        let (pipe, reader) = (child.stdout.take().context("no output")?, Arc::clone(&answers));
        thread::spawn(move || reader.collect(pipe));
        let stdin = child.stdin.take();
        Ok(Self { language, child, stdin, asked: 0, answers, stderr })
    }

    /// Starts one and connects it to these servers, by these options.
    pub(crate) fn connected(language: Language, servers: &[SocketAddr], options: &Value) -> Result<Self> {
        let mut program = Self::start(language)?;
        program.connect(servers, options)?;
        Ok(program)
    }

    /// Connects to these servers; what the program says of the one that it is connected to.
    pub(crate) fn connect(&mut self, servers: &[SocketAddr], options: &Value) -> Result<Value> {
        self.ask(&connecting(servers, options))
    }

    /// Asks and waits for nothing.
    pub(crate) fn begin(&mut self, mut what: Value) -> Result<Ticket> {
        self.asked += 1;
        what["id"] = self.asked.into();
        let stdin = self.stdin.as_mut().context("nothing more can be asked")?;
        writeln!(stdin, "{what}").with_context(|| format!("asking {:?}", self.language))?;
        Ok(Ticket(self.asked))
    }

    /// The answer, an error or not.
    pub(crate) fn answer(&self, ticket: Ticket) -> Result<Value> {
        let state = self.answers.state();
        let waits = |state: &mut State| !state.done.contains_key(&ticket.0) && state.over.is_none();
        let waited = self.answers.changed.wait_timeout_while(state, LIMIT, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = state.done.remove(&ticket.0) {
            return Ok(answer);
        }
        let why = state.over.clone().unwrap_or_else(|| format!("no answer within {LIMIT:?}"));
        bail!("{:?}, asked {}: {why}\n{}", self.language, ticket.0, self.said())
    }

    /// Whether it is answered.
    pub(crate) fn is_done(&self, ticket: Ticket) -> bool {
        self.answers.state().done.contains_key(&ticket.0)
    }

    /// The answer, which must be no error.
    pub(crate) fn success(&self, ticket: Ticket) -> Result<Value> {
        let answer = self.answer(ticket)?;
        ensure!(answer.get("error").is_none(), "{:?} answers {answer}\n{}", self.language, self.said());
        Ok(answer)
    }

    /// Asks, and waits for an answer that must be no error.
    pub(crate) fn ask(&mut self, what: &Value) -> Result<Value> {
        let ticket = self.begin(what.clone())?;
        self.success(ticket).with_context(|| format!("asked {what}"))
    }

    /// The error that must be the answer.
    pub(crate) fn failure(&self, ticket: Ticket) -> Result<Failure> {
        let answer = self.answer(ticket)?;
        let error = &answer["error"];
        let kind = error["kind"].as_str().with_context(|| format!("{:?} answers {answer}", self.language))?;
        Ok(Failure { kind: kind.to_owned(), whole: error.to_string() })
    }

    /// Asks, and waits for an error.
    pub(crate) fn refused(&mut self, what: &Value) -> Result<Failure> {
        let ticket = self.begin(what.clone())?;
        self.failure(ticket).with_context(|| format!("asked {what}"))
    }

    /// Ends its input: it must close and exit with 0.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.stdin = None;
        let status = process::wait_exit(&mut self.child, LIMIT)?;
        ensure!(status.code() == Some(0), "{:?} ended with {status:?}\n{}", self.language, self.said());
        Ok(())
    }

    /// What it wrote to its standard error.
    fn said(&self) -> String {
        fs::read_to_string(self.stderr.path()).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An error as it was answered.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: String,
    /// All that was said.
    pub(crate) whole: String,
}

impl Failure {
    /// The kind must be one of these.
    pub(crate) fn is_any(&self, kinds: &[&str]) -> Result<()> {
        ensure!(kinds.contains(&&*self.kind), "{} instead of one of {kinds:?}", self.whole);
        Ok(())
    }
}

/// Whether as much is to be drawn as the promise of the clients names, which takes minutes.
pub(crate) fn is_long() -> bool {
    std::env::var_os("XUID_LONG").is_some()
}

/// A request to connect to these servers, by these options.
pub(crate) fn connecting(servers: &[SocketAddr], options: &Value) -> Value {
    let mut what = options.clone();
    what["do"] = "connect".into();
    what["servers"] = servers.iter().map(SocketAddr::to_string).collect();
    what
}

/// A request for so many single ids, so many of them in flight at once.
pub(crate) fn next(times: u32, in_flight: u32) -> Value {
    json!({ "do": "next", "times": times, "in_flight": in_flight, "order": "any" })
}

/// A number of 64 bits, which is a text wherever it stands.
pub(crate) fn number(value: &Value) -> Result<u64> {
    let text = value.as_str().with_context(|| format!("{value} is no text"))?;
    text.parse().with_context(|| format!("{value} is no number"))
}

/// The ids of an answer.
pub(crate) fn ids(answer: &Value) -> Result<Vec<u64>> {
    answer["ids"].as_array().context("no ids")?.iter().map(number).collect()
}

/// First number, count and stride of each run of an answer.
pub(crate) fn runs(answer: &Value) -> Result<Vec<(u64, u64, u64)>> {
    let read = |run: &Value| {
        let count = run["count"].as_u64().context("no count")?;
        Ok((number(&run["first"])?, count, number(&run["stride"])?))
    };
    answer["runs"].as_array().context("no runs")?.iter().map(read).collect()
}
