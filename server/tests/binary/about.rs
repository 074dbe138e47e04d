//! What the binary says of itself, of its settings, and to those who meant another port.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::{Server, failure, run, stdout, xuid};

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&run(args))).unwrap()
}

#[test]
fn every_setting_is_printed_with_its_origin_and_no_secret() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("xuid.toml");
    std::fs::write(&file, "idle = \"9m\"\ntoken = \"hunter2\"\n").unwrap();
    let file = file.to_str().unwrap();
    let args = ["config", "print", "--config", file, "--wait", "3s"];
    let mut command = xuid(&args);
    let text = stdout(&command.env("XUID_WORKERS", "2").output().unwrap());
    let line = |name: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.starts_with(name)).expect(&text);
        line.split_whitespace().collect()
    };
    assert_eq!(line("wait "), ["wait", "3s", "flag", "--wait"]);
    assert_eq!(line("workers "), ["workers", "2", "variable", "XUID_WORKERS"]);
    assert_eq!(line("idle "), ["idle", "9m", "file", file]);
    assert_eq!(line("listen "), ["listen", "127.0.0.1:7654", "default"]);
    assert_eq!(line("token "), ["token", "(set)", "file", file]);
    assert_eq!(line("registry_auth "), ["registry_auth", "(not", "set)", "default"]);
    // The longest name there is has its column, too.
    let column = text.find("127.0.0.1:7654").unwrap();
    for shown in text.lines() {
        let (name, value) = shown.split_at(column);
        assert!(name.ends_with("  ") && !value.starts_with(' '), "{shown}");
    }
    assert!(!text.contains("hunter2"), "{text}");

    let object = json(&[&args[..], &["--json"]].concat());
    assert_eq!(object["wait"], serde_json::json!({ "value": "3s", "origin": "flag --wait" }));
    assert_eq!(object["token"]["set"], true);
    assert_eq!(object["worker"]["value"], Value::Null);
    assert_eq!(object.as_object().unwrap().len(), text.lines().count());
}

#[test]
fn settings_that_no_server_would_take_are_printed_and_refused() {
    let output = run(&["config", "print", "--backfill", "2h"]);
    let (code, said) = failure(&output);
    assert!(code == Some(2) && said.contains("backfill") && said.contains("max_age"), "{code:?}: {said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    let line = shown.lines().find(|line| line.starts_with("backfill ")).unwrap();
    assert!(line.split_whitespace().eq(["backfill", "2h", "flag", "--backfill"]), "{line}");
}

#[test]
fn addresses_that_no_server_would_take_without_a_token_and_tls_are_refused_and_told_where_they_are_meant() {
    for (key, address) in [("listen", "0.0.0.0:7654"), ("admin", "[::]:7655"), ("listen", "192.0.2.7:1")] {
        let flag = format!("--{key}");
        let output = run(&["config", "print", &flag, address]);
        let (code, said) = failure(&output);
        let words = format!("{key} is bound to {address}");
        assert!(code == Some(2) && said.contains(&words) && said.contains("--insecure-listen"), "{said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(address), "it is printed, too: {output:?}");
        let meant = run(&["config", "print", &flag, address, "--insecure-listen"]);
        stdout(&meant);
        assert!(failure(&meant).1.contains(&words), "{meant:?}");
    }
    stdout(&run(&["config", "print", "--listen", "[::1]:7654", "--admin", "off"]));
}

#[test]
fn the_version_says_commit_date_and_formats() {
    let long = stdout(&run(&["--version"]));
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(lines[0], format!("xuid {}", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("commit    ") && lines[1].len() > 12, "{long}");
    assert_eq!(lines[2], "speaks    XUID/1");
    assert_eq!(lines[3], "formats   spill 1, local registry 3, ZooKeeper registry 3, node.json 1");
    let short = stdout(&run(&["-V"]));
    assert!(short.starts_with(&format!("{} (", lines[0])) && short.lines().count() == 1, "{short}");
    assert!(short.contains(&lines[1]["commit    ".len()..]), "{short}");
}

#[test]
fn completions_name_every_command_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&run(&["completions", shell]));
        for word in ["serve", "decode", "completions", "max-connections"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let (code, said) = failure(&run(&["completions", "csh"]));
    assert!(code == Some(2) && said.contains("zsh"), "{code:?}: {said}");
}

#[test]
fn a_manual_page_is_written_for_every_command() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("man1");
    stdout(&run(&["man", folder.to_str().unwrap()]));
    for name in ["xuid", "xuid-serve", "xuid-registry", "xuid-registry-init", "xuid-config-print"] {
        let page = std::fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".TH ") && page.contains("xuid"), "{name}: {page}");
    }
    let serve = std::fs::read_to_string(folder.join("xuid-serve.1")).unwrap();
    assert!(serve.contains("a time from 0 to 60s"), "{serve}");
}

#[test]
fn a_registry_is_told_as_json_too() {
    let home = tempfile::tempdir().unwrap();
    let (data, copy) = (home.path().join("data"), home.path().join("copy"));
    let folder = data.to_str().unwrap();
    let made = json(&["registry", "init", folder, "--layout", "42/9/12", "--workers", "16", "--json"]);
    assert_eq!((&made["workers"], &made["again"]), (&16.into(), &false.into()), "{made}");
    assert_eq!(made["layout"]["worker_bits"], 9, "{made}");
    assert!(made["last_time"].as_str().is_some_and(|time| time.starts_with("2157-")), "{made}");
    let shown = json(&["registry", "show", folder, "--json"]);
    assert_eq!(shown["cluster"], made["cluster"]);
    assert_eq!(
        (&shown["open"], &shown["live"], &shown["findings"]),
        (&true.into(), &0.into(), &Value::Array(vec![]))
    );
    let fenced = json(&["registry", "fence", "--restored", folder, "--yes", "--json"]);
    let ms = |object: &Value, name: &str| object[name].as_u64().unwrap();
    assert!(ms(&fenced, "reserved_until_ms") >= ms(&made, "floor_ms") + 125_000, "{fenced}");
    let nothing = json(&["registry", "adopt", folder, "--yes", "--json"]);
    assert_eq!((&nothing["fence"], &nothing["before"]), (&Value::Null, &nothing["cluster"]));
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(data.join("registry"), copy.join("registry")).unwrap();
    let adopted = json(&["registry", "adopt", copy.to_str().unwrap(), "--yes", "--json"]);
    assert_eq!(adopted["before"], made["cluster"]);
    assert_eq!(adopted["fence"]["cluster"], adopted["cluster"]);
    assert_ne!(adopted["cluster"], made["cluster"]);
}

#[test]
fn http_and_tls_on_the_binary_port_are_answered_in_their_own_words() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let answer = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.addr).unwrap();
        stream.write_all(bytes).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    };
    let said = String::from_utf8(answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{said}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{said}");
    assert!(
        body.starts_with("This port speaks XUID/1") && body.contains(&server.admin.to_string()),
        "{said}"
    );
    assert_eq!(answer(&[0x16, 0x03, 0x01, 0x00, 0x05, 1, 0, 0, 1, 0]), [0x15, 3, 3, 0, 2, 2, 0x28]);
    assert!(answer(b"EHLO x\r\n").starts_with(b"This port speaks XUID/1"));
}
