//! A Prometheus of the test's own, which scrapes some servers each second.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{Server, clock, http};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// A start, and a scrape, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The process; killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    addr: SocketAddr,
    home: TempDir,
}

impl Prometheus {
    /// Whether there is one on this machine.
    pub fn is_installed() -> bool {
        let asked = Command::new("prometheus").arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    }

    /// Starts one with these rules, and waits until it has seen each server once.
    pub fn start(servers: &[&Server], rules: &Path) -> Result<Self> {
        let home = TempDir::new()?;
        let targets: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.admin)).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{}\"]\n\
             scrape_configs:\n  - job_name: xuid\n    static_configs: [{{targets: [{}]}}]\n",
            fs::canonicalize(rules)?.display(),
            targets.join(", ")
        );
        let (file, data) = (home.path().join("prometheus.yml"), home.path().join("data"));
        fs::write(&file, config)?;
        let log = fs::File::create(home.path().join("log"))?;
        // Free now, and most likely a moment later.
        let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={addr}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let prometheus = Self { child, addr, home };
        let seen = format!("count(xuid_ready) == {}", servers.len());
        let waited = clock::wait_until("every server is scraped", PATIENCE, || {
            Ok(prometheus.query(&seen).is_ok_and(|found| !found.is_empty()))
        });
        waited.with_context(|| prometheus.log())?;
        Ok(prometheus)
    }

    /// What a query of this instant returns: its samples.
    pub fn query(&self, query: &str) -> Result<Vec<Value>> {
        let mut escaped = String::new();
        for byte in query.bytes() {
            if byte.is_ascii_alphanumeric() {
                escaped.push(char::from(byte));
            } else {
                write!(escaped, "%{byte:02X}")?;
            }
        }
        let (status, text) = http::get(self.addr, &format!("/api/v1/query?query={escaped}"))?;
        ensure!(status == 200, "{query}: {text}");
        let answer: Value = serde_json::from_str(&text)?;
        Ok(answer["data"]["result"].as_array().context("no result")?.clone())
    }

    /// Whether this alert fires for this server.
    pub fn fires(&self, alert: &str, server: SocketAddr) -> Result<bool> {
        let query = format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\", instance=\"{server}\"}}");
        Ok(!self.query(&query)?.is_empty())
    }

    /// The alerts that fire for this server.
    pub fn firing(&self, server: SocketAddr) -> Result<BTreeSet<String>> {
        let found = self.query(&format!("ALERTS{{alertstate=\"firing\", instance=\"{server}\"}}"))?;
        Ok(found
            .iter()
            .filter_map(|alert| alert["metric"]["alertname"].as_str().map(str::to_owned))
            .collect())
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
