//! `xuid decode`: by the arithmetic of a layout alone. Offline, unless a server is named, which is asked for its layout.

mod args;
mod namespace;

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde_json::json;
use xuid_engine::{Id, InstantError, Parts, Prefixed};

use crate::text::exit::{Usage, usage};
use crate::text::form::{example, no_id};
use crate::text::human_time::{distance, now_ns, rfc3339_ms};
use crate::text::logs::last_line;
use crate::text::stdout::Printer;
pub(crate) use args::Args;
use namespace::Namespace;

/// The longest line of standard input: dozens of ids.
const LINE_MOST: u64 = 1024;

/// Takes the ids apart.
pub(crate) fn run(args: &Args) -> Result<()> {
    let out = Printer::new()?;
    let form = args.form.prefixed()?;
    let ids = arguments(&args.ids, form)?;
    let namespace = Namespace::of(args)?;
    let mut teller = Teller { namespace, form, args, out, told: 0, wrong: 0 };
    if let Some(time) = args.at {
        teller.tell_first_at(time)?;
        return teller.out.flush();
    }
    for id in &ids {
        match id {
            Some(id) => teller.tell(*id)?,
            None => teller.tell_all(io::stdin().lock())?,
        }
    }
    let stdin = io::stdin();
    if ids.is_empty() && !stdin.is_terminal() {
        teller.tell_all(stdin.lock())?;
    }
    if teller.told + teller.wrong == 0 {
        return Err(no_id(form).into());
    }
    teller.out.flush()?;
    match teller.wrong {
        0 => Ok(()),
        wrong => bail!("{wrong} of what standard input had are no ids, and {} are", teller.told),
    }
}

/// The ids of the command line; `None`: more are on standard input. All are looked at before one is told.
fn arguments(given: &[String], form: Prefixed<'_>) -> Result<Vec<Option<Id>>, Usage> {
    let id = |text: &String| match text.as_str() {
        "-" => Ok(None),
        text => form
            .parse(text)
            .map(Some)
            .map_err(|error| usage(format!("{text:?} is no id: {error}; as in {}", example(form)))),
    };
    given.iter().map(id).collect()
}

struct Teller<'a> {
    namespace: Namespace,
    form: Prefixed<'a>,
    args: &'a Args,
    out: Printer,
    told: u64,
    /// Words of standard input that are no ids.
    wrong: u64,
}

impl Teller<'_> {
    /// Takes apart what `input` has, as it comes. What is no id is told as well, and does not stop the others.
    fn tell_all(&mut self, input: impl Read) -> Result<()> {
        let mut input = BufReader::new(input);
        let mut line = Vec::new();
        for number in 1_u64.. {
            if input.buffer().is_empty() {
                self.out.flush()?;
            }
            line.clear();
            let read = input.by_ref().take(LINE_MOST).read_until(b'\n', &mut line);
            if read.context("failed to read standard input")? == 0 {
                break;
            }
            if line.len() as u64 == LINE_MOST && !line.ends_with(b"\n") {
                self.blame(&format!(
                    "line {number} of standard input is longer than {LINE_MOST} bytes: no id is"
                ))?;
                input.skip_until(b'\n').context("failed to read standard input")?;
                continue;
            }
            for word in String::from_utf8_lossy(&line).split_whitespace() {
                match self.form.parse(word) {
                    Ok(id) => self.tell(id)?,
                    Err(error) => {
                        self.blame(&format!("line {number} of standard input has {word:?}: {error}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells what is no id, behind what was told before.
    fn blame(&mut self, what: &str) -> Result<()> {
        self.wrong += 1;
        self.out.flush()?;
        last_line(&format!("xuid: {what}"));
        Ok(())
    }

    /// The lowest id of an instant, alone on its line.
    fn tell_first_at(&mut self, time: SystemTime) -> Result<()> {
        let id = self.namespace.ordered()?.first_id_at(time).map_err(|error| {
            usage(match error {
                InstantError::BeforeEpoch { epoch_ms } => format!(
                    "--at is before the epoch of the layout, {}: every id is later (is it in seconds? allowed are milliseconds)",
                    rfc3339_ms(epoch_ms)
                ),
                InstantError::AfterEnd { last_ms } => {
                    format!("--at is after the last tick of the layout, {}: every id is earlier", rfc3339_ms(last_ms))
                }
                other => format!("--at: {other}"),
            })
        })?;
        if self.args.json { self.tell(id) } else { self.out.line(self.form.text(id)) }
    }

    fn tell(&mut self, id: Id) -> Result<()> {
        self.told += 1;
        let parts = self.namespace.parts(id);
        let Parts { unix_ms, worker, sequence, .. } = parts;
        let now_ms = now_ns() / 1_000_000;
        let (time, doubt) = (rfc3339_ms(unix_ms), self.namespace.doubt(&parts, now_ms));
        if self.args.json {
            let mut object = json!({ "id": id.to_string(), "unix_ms": unix_ms, "worker": worker, "sequence": sequence, "time": time });
            if self.args.form.is_given() {
                object["text"] = self.form.text(id).to_string().into();
            }
            if let Some(doubt) = doubt {
                object["doubt"] = doubt.into();
            }
            return self.out.line(object);
        }
        let ago = distance(unix_ms, now_ms);
        let doubt = doubt.map(|doubt| format!("  {doubt}")).unwrap_or_default();
        self.out.line(format_args!("{id:<19}  {time}  worker {worker}  sequence {sequence}  ({ago}){doubt}"))
    }
}
