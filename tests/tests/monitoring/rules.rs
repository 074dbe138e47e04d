//! The alert rules: right by promtool, told in the docs, and fired by a Prometheus that scrapes servers in trouble.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Client, Prometheus, Serve, Server, clock, process};

use crate::{installed, packaging};

/// The longest rule that is tried waits for half a minute; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// The alerts of the rules.
fn alerts() -> Result<BTreeSet<String>> {
    let rules = fs::read_to_string(packaging("alerts.yml"))?;
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    Ok(names.map(str::to_owned).collect())
}

#[test]
fn every_alert_is_told_in_the_docs_and_tested_by_its_figures() -> Result<()> {
    let alerts = alerts()?;
    ensure!(alerts.len() > 15, "{alerts:?}");
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md"))?;
    let told: BTreeSet<String> =
        docs.lines().filter_map(|line| line.strip_prefix("| `Xuid")).filter_map(name).collect();
    ensure!(told == alerts, "docs/operations.md tells of {told:?}\nthe rules have {alerts:?}");
    let tests = fs::read_to_string(packaging("alerts.test.yml"))?;
    for alert in alerts {
        ensure!(
            tests.contains(&format!("alertname=\"{alert}\"")),
            "{alert} is in no test of alerts.test.yml"
        );
    }
    Ok(())
}

/// The rest of a name up to the closing backtick.
fn name(rest: &str) -> Option<String> {
    Some(format!("Xuid{}", rest.split_once('`')?.0))
}

#[test]
fn the_rules_are_right_and_their_tests_pass() -> Result<()> {
    if !installed("promtool", "promtool on the alert rules")? {
        return Ok(());
    }
    for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let mut command = Command::new("promtool");
        command.args(words).current_dir(packaging(""));
        let (code, said, complained) = process::run(command, PATIENCE)?;
        ensure!(code == Some(0), "promtool {words:?}: {said}{complained}");
    }
    Ok(())
}

#[test]
fn rules_fire_for_servers_in_trouble_and_for_no_other() -> Result<()> {
    if !installed("prometheus", "alerts fired by a real Prometheus")? {
        return Ok(());
    }
    let home = TempDir::new()?;
    let data = home.path().join("data");
    let healthy = Serve::fresh()?.start()?;
    let dies = Serve::fresh()?.start()?;
    let guarded = Serve::fresh()?.arg("--max-connections").arg("1").env("XUID_TOKEN", "right").start()?;
    let restored = Server::start(&data)?;
    let past = fs::read(data.join("registry"))?;
    let prometheus = Prometheus::start(&[&healthy, &dies, &guarded, &restored], &packaging("alerts.yml"))?;
    let (healthy_at, dead, full, put_back) = (healthy.admin, dies.admin, guarded.admin, restored.admin);

    dies.kill()?;
    // A registry that says less than it did is not believed.
    let granted = || Ok(restored.metrics()?.sum(&["xuid_spill_granted_extents_total"]) > 0.0);
    clock::wait_until("the registry has moved the mark", PATIENCE, granted)?;
    fs::write(data.join("registry"), &past)?;
    clock::wait_until("wrong tokens are counted", PATIENCE, || {
        // It has none.
        drop(Client::connect(guarded.addr));
        Ok(guarded.metrics()?.sum(&["xuid_errors_total", "unauthenticated"]) > 20.0)
    })?;
    let _only = Client::silent(guarded.addr)?;
    clock::wait_until("a connection is refused", PATIENCE, || {
        drop(Client::silent(guarded.addr));
        Ok(guarded.metrics()?.sum(&["xuid_connections_total", "refused"]) > 0.0)
    })?;

    for (alert, server) in [
        ("XuidRegistryRefused", put_back),
        ("XuidTokenRejected", full),
        ("XuidConnectionsRefused", full),
        ("XuidDown", dead),
    ] {
        let waited = clock::wait_until(alert, PATIENCE, || prometheus.fires(alert, server));
        println!("monitoring: {alert} fired after another {:?}", waited?);
    }
    for alert in alerts()? {
        ensure!(!prometheus.fires(&alert, healthy_at)?, "{alert} fires for a server that is well");
    }
    println!("monitoring: Prometheus logged:\n{}", prometheus.log());
    Ok(())
}
