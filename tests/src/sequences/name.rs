//! A sequence and its settings.

use anyhow::Result;

use crate::Client;

/// The highest number there is.
const LAST: u64 = i64::MAX as u64;

/// A sequence, as a test makes it and holds its numbers against it.
#[derive(Debug, Clone)]
pub struct Name {
    /// What it is called.
    pub text: String,
    /// No number is below.
    pub start: u64,
    /// The least that is granted at once.
    pub step: u64,
    /// The distance of two numbers.
    pub increment: u64,
    /// What is left of a number that is divided by the increment.
    pub remainder: u64,
    /// No number is above.
    pub last: u64,
    /// Whether its numbers ascend over all servers.
    pub is_strict: bool,
    /// The only server that is asked for it, if not all are.
    pub node: Option<usize>,
    /// It is no sequence: ids are taken, of which none may come twice either.
    pub is_of_ids: bool,
}

impl Name {
    /// With the settings that a name has by itself.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            start: 1,
            step: 1_000,
            increment: 1,
            remainder: 0,
            last: LAST,
            is_strict: false,
            node: None,
            is_of_ids: false,
        }
    }

    /// Ids, in the list of names.
    pub fn of_ids() -> Self {
        Self { is_of_ids: true, ..Self::new("ids") }
    }

    /// So many names, of every kind: small steps, increments, strict ones, and one that ends.
    pub fn of_every_kind(count: usize) -> Vec<Self> {
        let name = |at: usize| {
            let plain = Self::new(format!("name-{at}"));
            match at % 5 {
                0 => Self { step: 100, ..plain },
                1 => Self { increment: 3, remainder: 1, ..plain },
                2 => Self { is_strict: true, ..plain },
                3 if at == 3 => Self { last: 2_000, ..plain },
                _ => plain,
            }
        };
        (0..count).map(name).collect()
    }

    /// Creates it through a server.
    pub fn create(&self, client: &mut Client) -> Result<()> {
        let Self { start, step, increment, remainder, last, is_strict, .. } = self;
        let settings = serde_json::json!({
            "start": start, "step": step, "increment": increment, "remainder": remainder,
            "last": last.to_string(), "strict": is_strict,
        });
        client.seq_create(&self.text, &settings)?;
        Ok(())
    }
}
