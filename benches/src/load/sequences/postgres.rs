//! A strict sequence: each number is committed by PostgreSQL, and seen by the witness in the folder, before a client has
//! it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use xuid_tests::Postgres;
use xuid_tests::http::Metrics;

use super::asked::{PATIENCE, create, seq_next};
use crate::load::compare::load;
use crate::load::driver::{drive, witness_slow};
use crate::load::process::{Server, xuid};
use crate::rows::{ROUNDS, Row, at_least, figure, median};

const CONNECTIONS: usize = 50;
const IN_FLIGHT: u32 = 16;

/// Thousands of numbers a second.
const TARGET: f64 = 20.0;

pub(super) fn rows() -> Result<Vec<Row>> {
    // With its own settings for what is committed: each commit is synced.
    let postgres = match Postgres::start(&[]) {
        Ok(postgres) => postgres,
        Err(why) => {
            println!("no PostgreSQL for a strict sequence: {why:#}");
            return Ok(Vec::new());
        }
    };
    let url = postgres.url();
    let made = xuid()?.args(["sequence", "init", &url]).output()?;
    ensure!(made.status.success(), "the tables are not made: {}", String::from_utf8_lossy(&made.stderr));
    let words = [&["--sequences", &url, "--sequence-witness", "folder"], &PATIENCE[..]].concat();
    let server = Server::by_default(&words, &[])?;
    create(server.address, r#"{"strict": true}"#)?;
    // Some commits at least.
    witness_slow(seq_next, server.address, 50)?;
    let admin = server.admin.context("it has no admin port")?;
    let (before, mut rates) = (Grants::now(admin)?, Vec::new());
    for _ in 0..ROUNDS {
        let outcome = drive(seq_next, server.address, load(CONNECTIONS, IN_FLIGHT))?;
        rates.push(outcome.rate() / 1e3);
    }
    let text = format!("{}; {}", figure(&rates, "k/s"), Grants::now(admin)?.since(&before));
    let path = format!("strict, PostgreSQL, SEQ_NEXT {CONNECTIONS}x{IN_FLIGHT}");
    Ok(vec![at_least(&path, text, median(&rates), TARGET, "k/s")])
}

/// What the thread that asks has done so far.
struct Grants {
    issued: f64,
    granted: f64,
    /// Seconds, and how often: of the store, and of the witness.
    store: [f64; 2],
    witness: [f64; 2],
}

impl Grants {
    fn now(admin: SocketAddr) -> Result<Self> {
        let metrics = Metrics::scrape(admin)?;
        let times =
            |who| ["_sum", "_count"].map(|part| metrics.sum(&["xuid_sequence_grant_seconds", part, who]));
        Ok(Self {
            issued: metrics.sum(&["xuid_sequence_issued_total"]),
            granted: metrics.sum(&["xuid_sequence_grants_total", "\"granted\""]),
            store: times("store"),
            witness: times("witness"),
        })
    }

    fn since(&self, before: &Self) -> String {
        let mean = |[sum, count]: [f64; 2], [sum_before, count_before]: [f64; 2]| {
            (sum - sum_before) / (count - count_before) * 1e3
        };
        format!(
            "{:.0} numbers a commit; PostgreSQL {:.2} ms and then the witness {:.2} ms on average",
            (self.issued - before.issued) / (self.granted - before.granted),
            mean(self.store, before.store),
            mean(self.witness, before.witness),
        )
    }
}
