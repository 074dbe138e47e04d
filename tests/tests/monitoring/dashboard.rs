//! The dashboard: each of its queries returns data of a server that works.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use xuid_tests::{Order, Prometheus, Serve, clock, op};

use crate::{installed, packaging};

/// Rates need some scrapes, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_mins(1);
const WAIT: Duration = Duration::from_secs(5);

/// Each query with the title of its panel, its variables filled in.
fn queries() -> Result<Vec<(String, String)>> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(packaging("dashboard.json"))?)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = panel["title"].as_str().context("a panel without a title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().with_context(|| format!("{title} has no query"))?;
            let query = query.replace("$job", "xuid").replace("$instance", ".*");
            let query = query.replace("$__rate_interval", "10s");
            ensure!(!query.contains('$'), "{title}: an unknown variable in {query}");
            queries.push((title.to_owned(), query));
        }
    }
    Ok(queries)
}

/// Whether a sample is a number.
fn is_number(sample: &Value) -> bool {
    sample["value"][1].as_str().is_some_and(|value| value.parse::<f64>().is_ok_and(f64::is_finite))
}

#[test]
fn every_query_of_the_dashboard_returns_data() -> Result<()> {
    let mut queries = queries()?;
    ensure!(queries.len() > 25, "{} queries", queries.len());
    if !installed("prometheus", "the queries of the dashboard on a real Prometheus")? {
        return Ok(());
    }
    let server = Serve::fresh()?.start()?;
    let prometheus = Prometheus::start(&[&server], &packaging("alerts.yml"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (until, mut client) = (Arc::clone(&stop), server.client()?);
    let asking = thread::spawn(move || -> Result<()> {
        while !until.load(Ordering::Relaxed) {
            for order in Order::ALL {
                client.next(order)?;
                client.array(10, WAIT, order)?;
                client.runs(10, WAIT, order)?;
            }
            client.call(op::PING, b"")?;
        }
        Ok(())
    });
    let all = queries.len();
    let waited = clock::wait_until("every query returns a number", PATIENCE, || {
        let mut without = Vec::new();
        for (title, query) in queries.drain(..) {
            let found = prometheus.query(&query).with_context(|| title.clone())?;
            if !found.iter().any(is_number) {
                without.push((title, query));
            }
        }
        queries = without;
        Ok(queries.is_empty())
    });
    stop.store(true, Ordering::Relaxed);
    asking.join().map_err(|_| anyhow!("the client panicked"))??;
    println!(
        "monitoring: {all} queries returned numbers after {:?}",
        waited.with_context(|| format!("{queries:?}"))?
    );
    Ok(())
}
