//! A client in another language, written from the specification, gets what it asks for and nothing twice.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Ledger, Serve, Server, process};

const IDS: usize = 1_000_000;

fn python(arguments: &[&str]) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join("xuid_client.py");
    let mut command = Command::new("python3");
    command.arg(script).args(arguments);
    let (code, stdout, stderr) = process::run(command, Duration::from_mins(3))?;
    ensure!(code == Some(0), "the python client {arguments:?} says: {stderr}{stdout}");
    Ok(stdout.trim().to_owned())
}

#[test]
fn a_python_client_gets_a_million_ids_by_each_op_in_each_order_and_none_twice() -> Result<()> {
    let home = TempDir::new()?;
    let server = Server::start(&home.path().join("data"))?;
    let (addr, file) = (server.addr.to_string(), home.path().join("ids.u64"));
    let mut ledger = Ledger::default();
    for op in ["next", "array", "runs"] {
        for order in ["any", "fresh", "ordered"] {
            let (count, out) = (IDS.to_string(), file.to_string_lossy());
            let said = python(&[
                "take", "--server", &addr, "--op", op, "--order", order, "--count", &count, "--out", &out,
            ])?;
            println!("other language: {op} {order}: {said}");
            let bytes = fs::read(&file)?;
            ensure!(bytes.len() == IDS * 8, "{op} {order}: {} bytes", bytes.len());
            for id in bytes.as_chunks::<8>().0 {
                ledger.add_id(u64::from_le_bytes(*id));
            }
        }
    }
    let report = ledger.check()?;
    println!("other language: {report}");
    ensure!(report.ids == 9 * IDS as u64);
    server.stop().map(drop)
}

#[test]
fn every_other_op_answers_a_python_client_as_specified() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let said = python(&["manners", "--server", &server.addr.to_string()])?;
    ensure!(said.contains("cluster"), "INFO names the cluster: {said}");
    server.stop().map(drop)
}
