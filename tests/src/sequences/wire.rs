//! The ops of named sequences, by the specification alone.

use std::time::Duration;

use serde_json::Value;

use crate::frame::Fields;
use crate::{Client, ClientError, Order, op};

type Result<T> = std::result::Result<T, ClientError>;

impl Client {
    /// One ordered number.
    pub fn seq_next(&mut self, name: &str) -> Result<u64> {
        let body = self.call(op::SEQ_NEXT, &named(name))?;
        Fields::new(&body).u64().ok_or(ClientError::Broken("the reply to SEQ_NEXT is too short"))
    }

    /// Exactly `count` numbers.
    pub fn seq_array(&mut self, name: &str, count: u32, wait: Duration, order: Order) -> Result<Vec<u64>> {
        let body = self.call(op::SEQ_ARRAY, &bulk(name, count, wait, order, false))?;
        let mut fields = Fields::new(&body);
        if fields.u32() != Some(count) || fields.u32() != Some(0) {
            return Err(ClientError::Broken("SEQ_ARRAY is all or nothing: the count differs"));
        }
        let numbers: Vec<u64> = std::iter::from_fn(|| fields.u64()).collect();
        if numbers.len() != count as usize {
            return Err(ClientError::Broken("SEQ_ARRAY says more or fewer numbers than it carries"));
        }
        Ok(numbers)
    }

    /// Exactly `count` numbers that came as runs; as one run if they are to be contiguous.
    pub fn seq_runs(
        &mut self,
        name: &str,
        count: u32,
        wait: Duration,
        order: Order,
        contiguous: bool,
    ) -> Result<Vec<u64>> {
        let body = self.call(op::SEQ_RUNS, &bulk(name, count, wait, order, contiguous))?;
        let mut fields = Fields::new(&body);
        let (said, runs) = (fields.u32(), fields.u32().unwrap_or(0));
        if contiguous && runs != 1 {
            return Err(ClientError::Broken("contiguous numbers in several runs"));
        }
        let mut numbers = Vec::new();
        for _ in 0..runs.min(count) {
            let (Some(first), Some(count), Some(stride)) = (fields.u64(), fields.u32(), fields.u32()) else {
                return Err(ClientError::Broken("SEQ_RUNS says more runs than it carries"));
            };
            numbers.extend((0..u64::from(count)).map(|at| first + at * u64::from(stride)));
        }
        if said != Some(count) || numbers.len() != count as usize {
            return Err(ClientError::Broken("SEQ_RUNS is all or nothing: the count differs"));
        }
        Ok(numbers)
    }

    /// Begins a sequence; what it is.
    pub fn seq_create(&mut self, name: &str, settings: &Value) -> Result<Value> {
        let mut body = named(name);
        body.extend(settings.to_string().into_bytes());
        self.told(op::SEQ_CREATE, &body)
    }

    /// What a sequence is, and what the server holds of it.
    pub fn seq_info(&mut self, name: &str) -> Result<Value> {
        self.told(op::SEQ_INFO, &named(name))
    }

    fn told(&mut self, op: u8, body: &[u8]) -> Result<Value> {
        let reply = self.call(op, body)?;
        serde_json::from_slice(&reply).map_err(|_| ClientError::Broken("what is told of a sequence is JSON"))
    }
}

/// A byte of length, and the name.
fn named(name: &str) -> Vec<u8> {
    let mut body = vec![name.len() as u8];
    body.extend(name.as_bytes());
    body
}

fn bulk(name: &str, count: u32, wait: Duration, order: Order, contiguous: bool) -> Vec<u8> {
    let mut body = count.to_le_bytes().to_vec();
    body.extend((wait.as_millis() as u32).to_le_bytes());
    body.extend([order as u8, u8::from(contiguous), 0, 0]);
    body.extend(named(name));
    body
}
