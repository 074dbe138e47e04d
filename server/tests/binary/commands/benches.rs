//! What a benchmark says, and how it ends.

use std::process::Stdio;

use crate::support::{Server, failure, get, run, stdout, until, xuid};

#[test]
fn a_bench_that_fails_does_so_also_where_its_reader_had_enough() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[], &[]);
    let address = server.addr.to_string();
    let mut command = xuid(&["bench", "--server", &address, "--warmup", "0", "--seconds", "600"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    until("the load is on", || get(server.admin, "/metrics").1.lines().any(is_loaded));
    server.signal("KILL");
    server.exit_code();
    let (code, said) = failure(&child.wait_with_output().unwrap());
    assert!(code == Some(1) && said.contains(&address), "{code:?}: {said}");
}

/// Whether a server's metrics show in this line that it has issued ids to somebody.
fn is_loaded(line: &str) -> bool {
    let issued = line.strip_prefix("xuid_issued_ids_total ").and_then(|count| count.parse::<u64>().ok());
    issued.is_some_and(|count| count > 100)
}

#[test]
fn a_bench_finds_no_duplicate_and_says_how_fast_it_was() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let address = server.addr.to_string();
    for more in [
        &["--server", &address, "--pipeline", "4"][..],
        &["--server", &address, "--count", "100", "--runs", "--wait", "500"],
        &["--server", &address, "--rate", "2000", "--order", "fresh"],
        &["--embedded", "--count", "64"],
        &["--embedded", "--rate", "3000", "--threads", "2"],
        &["--embedded", "--threads", "1"],
    ] {
        let args = [&["bench", "--seconds", "1", "--warmup", "0", "--verify", "--json"], more].concat();
        let json: serde_json::Value = serde_json::from_str(&stdout(&run(&args))).unwrap();
        assert_eq!((&json["duplicates"], &json["unverified_ids"]), (&0.into(), &0.into()), "{json}");
        assert!(json["ids"].as_u64().unwrap() > 100 && json["max_us"].as_f64().unwrap() > 0.0, "{json}");
        assert_eq!(json["mode"], if more.contains(&"--rate") { "open" } else { "closed" }, "{json}");
    }
}

#[test]
fn a_bench_that_makes_no_sense_is_wrong_usage() {
    for (args, words) in [
        (&["--rate", "0"][..], &["--rate", "1..=1000000000"][..]),
        (&["--embedded", "--connections", "3"], &["--embedded", "--connections"]),
        (&["--embedded", "--server", "127.0.0.1:1"], &["--embedded", "--server"]),
        (&["--wait", "5"], &["--wait", "--runs"]),
        (&["--server", "nowhere"], &["--server", "nowhere"]),
        (&["--verify-memory", "1GiB"], &["--verify"]),
        (&["--verify", "--verify-memory", "lots"], &["--verify-memory", "lots", "GiB"]),
    ] {
        let (code, said) = failure(&run(&[&["bench"], args].concat()));
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
}

#[test]
fn a_bench_that_finds_no_such_server_says_why() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[("XUID_TOKEN", "open sesame")]);
    let (address, admin) = (server.addr.to_string(), server.admin.to_string());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap().to_string();
    for (server, words) in [
        ("127.0.0.1:1", &["failed to connect", "xuid serve"][..]),
        (&address, &["UNAUTHENTICATED", "XUID_TOKEN"]),
        (&admin, &[]),
        (&silent_address, &["did not answer HELLO", "XUID/1"]),
    ] {
        let (code, said) = failure(&run(&["bench", "--server", server, "--seconds", "1"]));
        assert_eq!(code, Some(1), "{server}: {said}");
        assert!(said.contains(server) && words.iter().all(|word| said.contains(word)), "{server}: {said}");
    }
    drop(silent);
    let mut command = xuid(&["bench", "--server", &address, "--count", "4000000"]);
    let (code, said) = failure(&command.env("XUID_TOKEN", "open sesame").output().unwrap());
    assert!(code == Some(2) && said.contains("--count") && said.contains("131072"), "{code:?}: {said}");
}

#[test]
fn a_bench_that_is_interrupted_tells_what_it_measured() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let address = server.addr.to_string();
    let mut command = xuid(&["bench", "--server", &address, "--warmup", "0", "--seconds", "600", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the load is on", || get(server.admin, "/metrics").1.lines().any(is_loaded));
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let json: serde_json::Value = serde_json::from_str(&stdout(&child.wait_with_output().unwrap())).unwrap();
    assert!(json["interrupted"] == true && json["ids"].as_u64().unwrap() > 0, "{json}");
    assert!(json["seconds"].as_f64().unwrap() < 60.0, "{json}");
}
