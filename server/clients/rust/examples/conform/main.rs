//! Speaks JSON lines for the suite that drives the clients of all languages: a request is begun when its line is read,
//! and answers are written in the order in which they are done. Numbers of 64 bits are decimal texts.

mod vectors;

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use tokio::task::{AbortHandle, JoinSet};
use xuid_client::{
    Client, ClientError, Ids, NewSequence, Options, Order, Prefetch, PrefetchOptions, Run, Sequence,
    SequenceChanges, Tls,
};

/// What all requests share.
#[derive(Debug, Default)]
struct Program {
    client: Mutex<Option<Client>>,
    /// The one source of ids ahead of need, made at its first use.
    ahead: tokio::sync::Mutex<Option<(Prefetch, Ids)>>,
    running: Mutex<HashMap<u64, AbortHandle>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let program = Arc::<Program>::default();
    for line in stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let id = asked["id"].as_u64().context("a request without a number")?;
        let (entered, body) = (Arc::clone(&program), Arc::clone(&program));
        // Entered before it runs, so that it can be cancelled from the next line on.
        let mut running = lock(&program.running);
        let task = runtime.spawn(async move { body.perform(&asked).await });
        running.insert(id, task.abort_handle());
        drop(running);
        runtime.spawn(async move {
            let mut answer = match task.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => json!({ "error": described(&error) }),
                Err(_) => json!({ "error": { "kind": "cancelled" } }),
            };
            lock(&entered.running).remove(&id);
            answer["id"] = id.into();
            // Nobody reads any more: there is nobody to tell.
            let _ = writeln!(stdout(), "{answer}");
        });
    }
    if let Some(client) = program.client() {
        runtime.block_on(client.close());
    }
    runtime.shutdown_background();
    Ok(())
}

impl Program {
    fn client(&self) -> Option<Client> {
        lock(&self.client).clone()
    }

    async fn perform(&self, asked: &Value) -> Result<Value> {
        let deed = asked["do"].as_str().unwrap_or_default();
        match deed {
            "connect" => return self.connect(asked).await,
            "cancel" => {
                if let Some(task) = asked["of"].as_u64().and_then(|id| lock(&self.running).remove(&id)) {
                    task.abort();
                }
                return Ok(json!({}));
            }
            "vectors" => return Ok(checked(asked["file"].as_str().unwrap_or_default())),
            _ => {}
        }
        let client = self.client().context("connect first")?;
        let (count, order, wait) = (small(asked, "count")?, order(asked, "any"), wait(asked));
        Ok(match deed {
            "next" => repeat(asked, move || one(client.clone(), order)).await?,
            "array" => json!({ "ids": texts(&client.array(count, order, wait).await?) }),
            "runs" => json!({ "runs": of_runs(&client.runs(count, order, wait).await?) }),
            "decode" => {
                let decoded = client.decode(number(&asked["number"])?).await?;
                let unix_ms = decoded.unix_ms.to_string();
                json!({ "unix_ms": unix_ms, "worker": decoded.worker, "sequence": decoded.sequence })
            }
            "time_of" => time_of(&client, number(&asked["number"])?)?,
            "info" => json!({ "info": read(&client.info().await?)? }),
            "ping" => client.ping(b"there?").await.map(|()| json!({}))?,
            "prefetch" => self.draw(&client, small(asked, "times")?).await?,
            "seq_list" => {
                let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
                let limit = asked["limit"].as_u64().unwrap_or(1_000) as u32;
                json!({ "list": read(&client.sequences(&text("prefix"), &text("after"), limit).await?)? })
            }
            "close" => {
                client.close().await;
                json!({})
            }
            _ if deed.starts_with("seq_") => of_sequence(&client, deed, asked).await?,
            _ => json!({ "error": { "kind": "unsupported", "text": format!("there is no {deed} here") } }),
        })
    }

    async fn connect(&self, asked: &Value) -> Result<Value> {
        let mut options = Options::new();
        let ms = |field: &str| asked[field].as_u64().map(Duration::from_millis);
        if let Some(limit) = ms("timeout_ms") {
            options = options.timeout(limit);
        }
        if let Some(limit) = ms("connect_timeout_ms") {
            options = options.connect_timeout(limit);
        }
        if let Some(limit) = ms("retry_for_ms") {
            options = options.retry_for(limit);
        }
        if let Some(span) = ms("return_after_ms") {
            options = options.return_after(span);
        }
        if let Some(most) = asked["max_in_flight"].as_u64() {
            options = options.max_in_flight(most as u32);
        }
        if let Some(token) = asked["token"].as_str() {
            options = options.token(token);
        }
        if let Some(cluster) = asked["cluster"].as_str() {
            options = options.cluster(cluster.parse()?);
        }
        if asked["tls"].is_object() {
            options = options.tls(tls(&asked["tls"])?);
        }
        let servers = asked["servers"].as_array().context("no servers")?;
        let client = Client::connect_any(servers.iter().filter_map(Value::as_str), options).await?;
        let served = client.served();
        *self.ahead.lock().await = None;
        *lock(&self.client) = Some(client);
        Ok(json!({
            "cluster": served.cluster.to_string(),
            "server": *served.server,
            "layout": {
                "epoch_ms": served.epoch_ms.to_string(),
                "tick_us": served.tick_us,
                "time_bits": served.time_bits,
                "worker_bits": served.worker_bits,
                "sequence_bits": served.sequence_bits,
            },
        }))
    }

    async fn draw(&self, client: &Client, times: u32) -> Result<Value> {
        let mut ahead = self.ahead.lock().await;
        if ahead.is_none() {
            let source = client.prefetch(PrefetchOptions::new())?;
            let ids = source.ids();
            *ahead = Some((source, ids));
        }
        let (source, ids) = ahead.as_mut().context("no source")?;
        let mut drawn = Vec::new();
        for _ in 0..times {
            drawn.push(ids.next().await?);
        }
        Ok(json!({ "ids": texts(&drawn), "held": source.stats().held }))
    }
}

fn checked(file: &str) -> Value {
    vectors::check(file)
        .unwrap_or_else(|error| json!({ "error": { "kind": "vectors", "text": format!("{error:#}") } }))
}

async fn one(client: Client, order: Order) -> Result<u64, ClientError> {
    client.next(order).await
}

/// So many calls, so many of them at once; their ids in the order in which they came.
async fn repeat<F, T>(asked: &Value, call: F) -> Result<Value>
where
    F: Fn() -> T + Send + Sync + Clone + 'static,
    T: Future<Output = Result<u64, ClientError>> + Send + 'static,
{
    let times = asked["times"].as_u64().unwrap_or(1);
    let in_flight = asked["in_flight"].as_u64().unwrap_or(1);
    let (begun, found) = (Arc::<AtomicU64>::default(), Arc::<Mutex<Vec<u64>>>::default());
    let mut takers = JoinSet::new();
    for _ in 0..in_flight.min(times) {
        let (begun, found, call) = (Arc::clone(&begun), Arc::clone(&found), call.clone());
        takers.spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < times {
                let id = call().await?;
                lock(&found).push(id);
            }
            Ok::<_, ClientError>(())
        });
    }
    while let Some(ended) = takers.join_next().await {
        ended??;
    }
    let found = texts(&lock(&found));
    Ok(json!({ "ids": found }))
}

async fn of_sequence(client: &Client, deed: &str, asked: &Value) -> Result<Value> {
    let sequence = client.sequence(asked["name"].as_str().unwrap_or_default());
    let (count, wait) = (small(asked, "count")?, wait(asked));
    let ordered = order(asked, "ordered") == Order::Ordered;
    let bulk = || if ordered { sequence.clone() } else { sequence.clone().any() };
    Ok(match deed {
        "seq_next" => repeat(asked, move || number_of(sequence.clone())).await?,
        "seq_array" => json!({ "ids": texts(&bulk().array(count, wait).await?) }),
        "seq_runs" if asked["contiguous"] == true => {
            json!({ "runs": of_runs(&[bulk().contiguous(count, wait).await?]) })
        }
        "seq_runs" => json!({ "runs": of_runs(&bulk().runs(count, wait).await?) }),
        "seq_info" => json!({ "info": read(&sequence.info().await?)? }),
        "seq_create" => json!({ "info": read(&sequence.create(&settings(&asked["settings"])?).await?)? }),
        "seq_alter" => json!({ "info": read(&sequence.alter(&changes(&asked["settings"])?).await?)? }),
        _ => json!({ "error": { "kind": "unsupported" } }),
    })
}

async fn number_of(sequence: Sequence) -> Result<u64, ClientError> {
    sequence.next().await
}

fn settings(said: &Value) -> Result<NewSequence> {
    let mut settings = NewSequence::new();
    if !said["start"].is_null() {
        settings = settings.start(number(&said["start"])?);
    }
    if !said["step"].is_null() {
        settings = settings.step(number(&said["step"])?);
    }
    if !said["increment"].is_null() {
        let remainder = if said["remainder"].is_null() { 0 } else { number(&said["remainder"])? };
        settings = settings.increment(number(&said["increment"])? as u32, remainder as u32);
    }
    if !said["last"].is_null() {
        settings = settings.last(number(&said["last"])?);
    }
    if let Some(strict) = said["strict"].as_bool() {
        settings = settings.strict(strict);
    }
    Ok(settings)
}

fn changes(said: &Value) -> Result<SequenceChanges> {
    let mut changes = SequenceChanges::new();
    if !said["step"].is_null() {
        changes = changes.step(number(&said["step"])?);
    }
    if !said["last"].is_null() {
        changes = changes.last(number(&said["last"])?);
    }
    Ok(changes)
}

/// A number, in a text or not.
fn number(value: &Value) -> Result<u64> {
    let read = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    read.with_context(|| format!("{value} is no number"))
}

fn small(asked: &Value, field: &str) -> Result<u32> {
    asked[field].as_u64().map_or(Ok(0), |number| Ok(u32::try_from(number)?))
}

fn wait(asked: &Value) -> Duration {
    Duration::from_millis(asked["wait_ms"].as_u64().unwrap_or(50))
}

fn order(asked: &Value, default: &str) -> Order {
    match asked["order"].as_str().unwrap_or(default) {
        "fresh" => Order::Fresh,
        "ordered" => Order::Ordered,
        _ => Order::Any,
    }
}

fn texts(ids: &[u64]) -> Vec<String> {
    ids.iter().map(u64::to_string).collect()
}

fn of_runs(runs: &[Run]) -> Vec<Value> {
    let text = |number: u64| number.to_string();
    runs.iter()
        .map(|run| json!({ "first": text(run.first), "count": run.count, "stride": text(run.stride.into()) }))
        .collect()
}

fn read(text: &str) -> Result<Value> {
    Ok(serde_json::from_str(text)?)
}

/// The fields of an id by the layout that the server told.
fn time_of(client: &Client, id: u64) -> Result<Value> {
    let served = client.served();
    ensure!(served.face < 2, "the ids of this server are opaque: ask it, by decode");
    let low = |bits: u8, number: u64| number & ((1 << bits) - 1);
    let (worker_at, sequence_at) =
        if served.face == 0 { (served.sequence_bits, 0) } else { (0, served.worker_bits) };
    let (worker, sequence) =
        (low(served.worker_bits, id >> worker_at), low(served.sequence_bits, id >> sequence_at));
    let tick = u128::from(id >> (served.worker_bits + served.sequence_bits));
    let unix_ms = tick * u128::from(served.tick_us) / 1_000 + u128::from(served.epoch_ms);
    Ok(json!({ "unix_ms": unix_ms.to_string(), "worker": worker, "sequence": sequence }))
}

fn tls(asked: &Value) -> Result<Tls> {
    let file = |field: &str| asked[field].as_str();
    let ca = file("ca").context("this client trusts no CA of the system: name one by ca")?;
    Ok(match (file("cert"), file("key")) {
        (Some(cert), Some(key)) => Tls::with_identity(ca, cert, key)?,
        _ => Tls::with_ca(ca)?,
    })
}

fn described(error: &anyhow::Error) -> Value {
    let mut described = Map::new();
    let kind = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused { status, retry_after, .. }) => {
            described.insert("status".into(), status.name().unwrap_or_default().into());
            described.insert("code".into(), status.code().into());
            described.insert("retry_after_ms".into(), (retry_after.as_millis() as u64).into());
            "refused"
        }
        Some(ClientError::Lost { .. }) => "lost",
        Some(ClientError::Timeout { .. } | ClientError::NotYet { .. }) => "timeout",
        Some(ClientError::Unreachable { .. } | ClientError::Tls { .. }) => "unreachable",
        Some(ClientError::ClustersDiffer { .. } | ClientError::WrongCluster { .. }) => "wrong_cluster",
        Some(ClientError::Protocol { .. }) => "protocol",
        Some(ClientError::Closed) => "closed",
        _ => "usage",
    };
    described.insert("kind".into(), kind.into());
    described.insert("text".into(), format!("{error:#}").into());
    described.into()
}
