//! Named sequences of a server: numbers, and what may be asked about a name.

use std::fmt::{self, Write};
use std::time::Duration;

use xuid_protocol::{Order, Request, Run, SeqBulk, SeqList, SequenceName};

use crate::client::Client;
use crate::error::ClientError;
use crate::link::answer::Answer;

/// What every server takes of a request, in bytes. A longer one would end the connection, for all its callers.
const REQUEST_MAX: usize = 4_096;

/// The numbers of one name, from whatever server its [`Client`] is connected to. Clones share the client.
///
/// Numbers of one server ascend. Those of several interleave, except where the sequence is `strict`.
///
/// ```no_run
/// # async fn example(client: xuid_client::Client) -> Result<(), xuid_client::ClientError> {
/// use std::time::Duration;
/// let orders = client.sequence("orders");
/// let one = orders.next().await?;
/// let block = orders.contiguous(100, Duration::from_millis(50)).await?;
/// # drop((one, block));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sequence {
    client: Client,
    name: String,
    order: Order,
}

impl Client {
    /// The sequence of that name. It need not exist, and nothing is sent: a name that cannot be one is the error of the
    /// calls.
    #[must_use]
    pub fn sequence(&self, name: impl Into<String>) -> Sequence {
        Sequence { client: self.clone(), name: name.into(), order: Order::Ordered }
    }

    /// Up to `limit` (1 to 1,000) sequences whose names begin with `prefix` and are greater than `after`, by the bytes of
    /// their names: a JSON array of objects as of [`Sequence::info`].
    pub async fn sequences(&self, prefix: &str, after: &str, limit: u32) -> Result<String, ClientError> {
        for (name, part) in [("prefix", prefix), ("after", after)] {
            if part.len() > SequenceName::MAX {
                let (found, allowed) = (part.len() as u64, "a length of at most 128 bytes");
                return Err(ClientError::Invalid { name, found, allowed });
            }
        }
        self.json(&Request::SeqList(SeqList { limit, prefix, after })).await
    }
}

impl Sequence {
    /// The same in no order: the fastest for many numbers at once. [`next`](Self::next) stays ordered.
    #[must_use]
    pub fn any(mut self) -> Self {
        self.order = Order::Any;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One number. The server decides how long it waits for one.
    ///
    /// # Errors
    /// [`ClientError::Name`] for a name that no sequence can have; else as any call. Among the refusals are `NO_SEQUENCE`,
    /// `FORBIDDEN` and `EXHAUSTED`, which stay, and `STORE_AWAY` and `STORE_BEHIND`, which may pass.
    pub async fn next(&self) -> Result<u64, ClientError> {
        match self.client.call(&Request::SeqNext { name: self.checked()? }).await? {
            Answer::Id(number) => Ok(number),
            other => Err(self.client.mismatch(&other)),
        }
    }

    /// Exactly `count` numbers, or an error after `wait`.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn array(&self, count: u32, wait: Duration) -> Result<Vec<u64>, ClientError> {
        match self.client.call(&Request::SeqArray(self.bulk(count, wait)?)).await? {
            Answer::Ids(numbers) => Ok(numbers),
            other => Err(self.client.mismatch(&other)),
        }
    }

    /// Exactly `count` numbers as runs, or an error after `wait`. Their stride is the increment of the sequence.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn runs(&self, count: u32, wait: Duration) -> Result<Vec<Run>, ClientError> {
        self.runs_of(self.bulk(count, wait)?).await
    }

    /// Exactly `count` numbers in one run, or an error after `wait`.
    ///
    /// # Errors
    /// As [`next`](Self::next), and `COUNT` where the server cannot put so many into one run.
    pub async fn contiguous(&self, count: u32, wait: Duration) -> Result<Run, ClientError> {
        let runs = self.runs_of(self.bulk(count, wait)?.contiguous()).await?;
        // The link let no other number of runs through.
        runs.first().copied().ok_or_else(|| self.client.mismatch(&Answer::Runs(runs)))
    }

    /// What the server knows of it: a JSON object.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn info(&self) -> Result<String, ClientError> {
        self.client.json(&Request::SeqInfo { name: self.checked()? }).await
    }

    /// Begins it. The same once more succeeds and changes nothing. The answer is as of [`info`](Self::info).
    ///
    /// # Errors
    /// As [`next`](Self::next), and `EXISTS` if there is one with other settings.
    pub async fn create(&self, settings: &NewSequence) -> Result<String, ClientError> {
        let (name, settings) = (self.checked()?, settings.to_string());
        fits(&name, &settings)?;
        self.client.json(&Request::SeqCreate { name, settings: &settings }).await
    }

    /// Changes what is said. The answer is as of [`info`](Self::info).
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn alter(&self, changes: &SequenceChanges) -> Result<String, ClientError> {
        let (name, changes) = (self.checked()?, changes.to_string());
        fits(&name, &changes)?;
        self.client.json(&Request::SeqAlter { name, changes: &changes }).await
    }

    fn bulk(&self, count: u32, wait: Duration) -> Result<SeqBulk<'_>, ClientError> {
        Ok(SeqBulk::new(self.checked()?, count, self.order, wait))
    }

    async fn runs_of(&self, asked: SeqBulk<'_>) -> Result<Vec<Run>, ClientError> {
        match self.client.call(&Request::SeqRuns(asked)).await? {
            Answer::Runs(runs) => Ok(runs),
            other => Err(self.client.mismatch(&other)),
        }
    }

    fn checked(&self) -> Result<SequenceName<'_>, ClientError> {
        SequenceName::new(self.name.as_bytes()).map_err(|source| ClientError::Name { source })
    }
}

/// Refuses settings that no server would take.
fn fits(name: &SequenceName<'_>, settings: &str) -> Result<(), ClientError> {
    let found = 1 + name.as_str().len() + settings.len();
    if found <= REQUEST_MAX {
        return Ok(());
    }
    let allowed = "a request of at most 4,096 bytes";
    Err(ClientError::Invalid { name: "settings", found: found as u64, allowed })
}

/// What a new sequence is to be; what is not said is the server's default.
///
/// ```
/// use xuid_client::NewSequence;
/// let settings = NewSequence::new().start(1_000_000).step(5_000).description("orders of the shop");
/// # drop(settings);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewSequence(Fields);

impl NewSequence {
    /// The defaults: 1, 2, 3, ...
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No number is below. Defaults to 1.
    #[must_use]
    pub fn start(mut self, start: u64) -> Self {
        self.0.number("start", start);
        self
    }

    /// The least that a server is granted at once. Too small, and its store is asked often; too large, and a crash leaves
    /// a wider gap. Defaults to 1,000.
    #[must_use]
    pub fn step(mut self, step: u64) -> Self {
        self.0.number("step", step);
        self
    }

    /// Issued are numbers that leave `remainder` when they are divided by `increment`. Defaults to all.
    #[must_use]
    pub fn increment(mut self, increment: u32, remainder: u32) -> Self {
        self.0.number("increment", increment.into());
        self.0.number("remainder", remainder.into());
        self
    }

    /// No number is above. Defaults to 2^63 - 1.
    #[must_use]
    pub fn last(mut self, last: u64) -> Self {
        self.0.number("last", last);
        self
    }

    /// Whether it ascends over all servers, at the cost of a change of the store for each batch of requests. Defaults to
    /// no.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.0.raw("strict", strict.to_string());
        self
    }

    /// For people, up to 256 characters. Defaults to nothing.
    #[must_use]
    pub fn description(mut self, text: &str) -> Self {
        self.0.text("description", text);
        self
    }
}

/// What is to change of a sequence; what is not said stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceChanges(Fields);

impl SequenceChanges {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The least that a server is granted at once, from its next grant on.
    #[must_use]
    pub fn step(mut self, step: u64) -> Self {
        self.0.number("step", step);
        self
    }

    /// The highest number: above the one before, or the number before `next`, which ends the sequence.
    #[must_use]
    pub fn last(mut self, last: u64) -> Self {
        self.0.number("last", last);
        self
    }

    /// For people.
    #[must_use]
    pub fn description(mut self, text: &str) -> Self {
        self.0.text("description", text);
        self
    }
}

impl fmt::Display for NewSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SequenceChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fields of a JSON object, in the order in which they were said first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn raw(&mut self, key: &'static str, json: String) {
        self.0.retain(|(said, _)| *said != key);
        self.0.push((key, json));
    }

    /// As a string: many readers keep numbers in 53 bits.
    fn number(&mut self, key: &'static str, number: u64) {
        self.raw(key, format!("\"{number}\""));
    }

    fn text(&mut self, key: &'static str, text: &str) {
        let mut json = "\"".to_owned();
        for char in text.chars() {
            match char {
                '"' | '\\' => json.extend(['\\', char]),
                // Writing to a string does not fail.
                char if char < ' ' => drop(write!(json, "\\u{:04x}", u32::from(char))),
                char => json.push(char),
            }
        }
        json.push('"');
        self.raw(key, json);
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('{')?;
        for (at, (key, json)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}\"{key}\":{json}")?;
        }
        f.write_char('}')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_json_whatever_their_text_holds() {
        assert_eq!(NewSequence::new().to_string(), "{}");
        let settings = NewSequence::new().start(7).start(u64::MAX >> 1).increment(3, 1).strict(true);
        assert_eq!(
            settings.to_string(),
            r#"{"start":"9223372036854775807","increment":"3","remainder":"1","strict":true}"#
        );
        let changes = SequenceChanges::new().step(5).description("a \"b\" \\ \n\u{1f} ä");
        assert_eq!(changes.to_string(), r#"{"step":"5","description":"a \"b\" \\ \u000a\u001f ä"}"#);
    }
}
