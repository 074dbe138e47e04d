//! `xuid decode`: by the arithmetic of a layout alone. Offline, unless a server is named, which is asked for its layout.

mod args;
mod namespace;

use std::io::{self, BufRead, BufReader, IsTerminal, Read};

use anyhow::{Context, Result, bail};
use serde_json::json;
use xuid_engine::{Id, Parts};

use crate::text::exit::usage;
use crate::text::human_time::{distance, now_ns, rfc3339_ms};
use crate::text::stdout::Printer;
pub(crate) use args::Args;
use args::Given;
use namespace::Namespace;

/// The longest line of standard input: dozens of ids.
const LINE_MOST: u64 = 1024;

/// Takes the ids apart.
pub(crate) fn run(args: &Args) -> Result<()> {
    let out = Printer::new()?;
    let mut teller = Teller { namespace: Namespace::of(args)?, json: args.json, out, told: 0 };
    for given in &args.ids {
        match given {
            Given::Id(id) => teller.tell(*id)?,
            Given::Stdin => teller.tell_all(io::stdin().lock())?,
        }
    }
    if args.ids.is_empty() {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            teller.tell_all(stdin.lock())?;
        }
        if teller.told == 0 {
            return Err(usage(
                "no id is given; allowed are decimal numbers, as arguments or on standard input",
            )
            .into());
        }
    }
    teller.out.flush()
}

struct Teller {
    namespace: Namespace,
    json: bool,
    out: Printer,
    told: u64,
}

impl Teller {
    /// Takes apart what `input` has, as it comes.
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
                self.out.flush()?;
                bail!("line {number} of standard input is longer than {LINE_MOST} bytes: no id is");
            }
            for word in String::from_utf8_lossy(&line).split_whitespace() {
                match word.parse() {
                    Ok(id) => self.tell(id)?,
                    Err(error) => {
                        // What was right before it is told.
                        self.out.flush()?;
                        bail!("line {number} of standard input has {word:?}: {error}");
                    }
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, id: Id) -> Result<()> {
        self.told += 1;
        let parts = self.namespace.layout().decode(id);
        let Parts { unix_ms, worker, sequence, .. } = parts;
        let now_ms = now_ns() / 1_000_000;
        let (time, doubt) = (rfc3339_ms(unix_ms), self.namespace.doubt(&parts, now_ms));
        if self.json {
            let id = id.to_string();
            let mut object =
                json!({ "id": id, "unix_ms": unix_ms, "worker": worker, "sequence": sequence, "time": time });
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
