//! The named sequences of a server, and how they are told in JSON.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use xuid_engine::sequence::store::{Alteration, HIGHEST, MOST_STEP, NewLast, NewSequence, SequenceSettings};
use xuid_engine::sequence::{NameState, SequenceInfo, SequenceName, Sequences, StoreStatus};

use crate::state::tiny_tokens::TinyTokens;

/// The largest increment: the column of a database has 31 bits.
const MOST_INCREMENT: u64 = i32::MAX as u64;

/// The longest description, in bytes.
const MOST_DESCRIPTION: usize = 256;

/// The longest page of sequences in JSON: what a reply may hold. A longer one shortens their descriptions.
const LONGEST_LIST: usize = 1 << 20;

/// What is left of each description then, in bytes.
const SHORTENED: usize = 32;

/// What a server serves names with.
#[derive(Debug)]
pub(crate) struct ServedSequences {
    pub(crate) all: Sequences,
    /// The step of what is created without one.
    pub(crate) step: u64,
    /// Who may have numbers at tinyid's paths, where they are in a table of tinyid's.
    pub(crate) tiny_tokens: Option<Arc<TinyTokens>>,
}

impl ServedSequences {
    /// Whether this process knows that the store has a sequence of that name, or holds numbers of it that an earlier life left.
    pub(crate) fn knows(&self, name: &SequenceName) -> bool {
        self.all.figures(name).is_some_and(|here| {
            let is_told =
                here.settings.is_some() && !matches!(here.state, NameState::Absent | NameState::Unused);
            is_told || here.figures.held > 0
        })
    }

    /// A sentence about each thing that is not as it should be.
    pub(crate) fn notes(&self) -> Vec<String> {
        notes(&self.all.status())
    }

    /// What INFO says of them.
    pub(crate) fn info(&self) -> Value {
        let status = self.all.status();
        json!({
            "store": status.store,
            "witness": status.witness,
            "identity": status.identity,
            "notes": notes(&status),
        })
    }

    /// What `SEQ_CREATE` asks for; the error is a sentence.
    pub(crate) fn parse_new(&self, text: &str) -> Result<NewSequence, String> {
        let mut fields = Fields::parse(if text.is_empty() { "{}" } else { text })?;
        let settings = SequenceSettings {
            step: fields.number("step", 1, MOST_STEP)?.unwrap_or(self.step),
            increment: fields.number("increment", 1, MOST_INCREMENT)?.unwrap_or(1) as u32,
            remainder: fields.number("remainder", 0, MOST_INCREMENT - 1)?.unwrap_or(0) as u32,
            last: fields.number("last", 0, HIGHEST)?.unwrap_or(HIGHEST),
            strict: fields.boolean("strict")?.unwrap_or(false),
        };
        let start = fields.number("start", 0, HIGHEST)?.unwrap_or(1);
        let description = fields.text("description")?;
        fields.end("start, step, increment, remainder, last, strict, description")?;
        if settings.remainder >= settings.increment {
            let (remainder, increment) = (settings.remainder, settings.increment);
            return Err(format!(
                "remainder is {remainder}; allowed is a number below increment, which is {increment}"
            ));
        }
        if start > settings.last {
            return Err(format!("start is {start}; allowed is a number up to last, {}", settings.last));
        }
        Ok(NewSequence { start, settings, description })
    }

    /// What `SEQ_ALTER` asks for; the error is a sentence.
    pub(crate) fn parse_changes(text: &str) -> Result<Alteration, String> {
        let mut fields = Fields::parse(text)?;
        let step = fields.number("step", 1, MOST_STEP)?;
        let last = match fields.0.get("last").and_then(Value::as_str) {
            Some(RETIRED) => {
                fields.0.remove("last");
                Some(NewLast::Retired)
            }
            _ => fields.number("last", 0, HIGHEST)?.map(NewLast::At),
        };
        let description = fields.text("description")?;
        fields.end("step, last, description")?;
        Ok(Alteration { step, last, description })
    }
}

/// The value of `last` that ends a sequence.
const RETIRED: &str = "retired";

/// The fields of a JSON object that were not read yet.
struct Fields(Map<String, Value>);

impl Fields {
    fn parse(text: &str) -> Result<Self, String> {
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err("what follows the name is no JSON object: write one, as in {\"step\":1000}".into()),
            Err(error) => Err(format!("what follows the name is not JSON: {error}")),
        }
    }

    /// A number, written as one or as a text.
    fn number(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, String> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let number = match &value {
            // Not `+5`, which the library takes for a number.
            Value::String(text) if !text.starts_with('+') => text.parse().ok(),
            other => other.as_u64(),
        };
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{name} is {value}; allowed is a number from {least} to {most}")),
        }
    }

    fn boolean(&mut self, name: &str) -> Result<Option<bool>, String> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::Bool(is_on)) => Ok(Some(is_on)),
            Some(value) => Err(format!("{name} is {value}; allowed is true or false")),
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= MOST_DESCRIPTION => Ok(Some(text)),
            Some(_) => Err(format!(
                "{name} is something else; allowed is a text of at most {MOST_DESCRIPTION} bytes"
            )),
        }
    }

    fn end(&self, known: &str) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("{name:?} is no field here; known are {known}")),
        }
    }
}

fn notes(status: &StoreStatus) -> Vec<String> {
    let mut notes = Vec::new();
    let lasts = |lasts: Duration| format!("{:.0?}", Duration::from_secs(lasts.as_secs()));
    if let Some(trouble) = &status.store_trouble {
        let shortest = status
            .shortest
            .as_ref()
            .map(|(name, left)| format!("; the sequence {name:?} runs out first, in {}", lasts(*left)));
        let since = lasts(trouble.lasts);
        notes.push(format!(
            "the store of the sequences ({}) has not answered for {since}: {}{}",
            status.store,
            trouble.why,
            shortest.unwrap_or_default()
        ));
    }
    if let Some(trouble) = &status.witness_trouble {
        let witness = status.witness.as_deref().unwrap_or("none");
        let since = lasts(trouble.lasts);
        notes.push(format!(
            "the witness of the sequences ({witness}) has not answered for {since}: {}",
            trouble.why
        ));
    }
    if let Some(why) = &status.behind {
        notes.push(format!("no numbers of sequences are granted before `xuid sequence fence`: {why}"));
    }
    notes.extend(status.leftovers.as_ref().map(|why| format!("leftovers of sequences: {why}")));
    notes
}

/// A page of sequences, within [`LONGEST_LIST`].
pub(crate) fn list_as_json(infos: &[SequenceInfo]) -> String {
    let page = |most| infos.iter().map(|info| described(info, most)).collect::<Value>().to_string();
    let whole = page(MOST_DESCRIPTION);
    if whole.len() <= LONGEST_LIST { whole } else { page(SHORTENED) }
}

/// A sequence as `SEQ_INFO` answers.
pub(crate) fn as_json(info: &SequenceInfo) -> Value {
    described(info, MOST_DESCRIPTION)
}

/// The same with so many bytes of its description at most: a database may hold longer ones, and control characters would take
/// six bytes each.
fn described(info: &SequenceInfo, most: usize) -> Value {
    let shown = |text: &String| {
        let text = &text[..text.floor_char_boundary(most)];
        text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect::<String>()
    };
    let (row, here) = (&info.row, &info.here);
    let settings = &row.settings;
    let text = |number: u64| number.to_string();
    json!({
        "name": row.name.as_str(),
        "next": text(row.next),
        "last": text(settings.last),
        "step": text(settings.step),
        "increment": text(settings.increment.into()),
        "remainder": text(settings.remainder.into()),
        "strict": settings.strict,
        "description": row.description.as_ref().map(shown),
        "held": text(here.figures.held),
        "issued": text(here.figures.issued),
        "wasted": text(here.figures.wasted.total()),
        "rate": format!("{:.1}", here.rate),
        "hold_ms": here.hold.map_or_else(String::new, |hold| hold.as_millis().to_string()),
        "store": info.store,
        "state": here.state.as_str(),
    })
}
