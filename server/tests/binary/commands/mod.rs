//! Commands that need no server, or end with one.

mod benches;
mod fences;
mod origins;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use xuid_protocol::{Reply, SequenceName, request_seq_create};

use crate::support::{Server, failure, get, greet, reply, run, shell, stdout, until, xuid};

#[test]
fn an_id_is_decoded_to_the_millisecond_in_both_forms() {
    let id = "1128275363336683521";
    let text = stdout(&run(&["decode", id]));
    assert!(text.starts_with(id) && text.contains("2026-10-28T02:43:28.962Z"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&stdout(&run(&["decode", "--json", id]))).unwrap();
    assert_eq!(json["unix_ms"], 1_793_155_408_962_u64);
    assert_eq!((json["id"].as_str(), json["time"].as_str()), (Some(id), Some("2026-10-28T02:43:28.962Z")));
}

#[test]
fn ids_are_printed_and_read_in_each_form_with_a_prefix() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let address = server.addr.to_string();
    for (form, width) in [
        ("decimal", 19),
        ("hex", 16),
        ("crockford32", 13),
        ("base36", 13),
        ("base58", 11),
        ("base62", 11),
        ("bwmarrin-base32", 12),
        ("bwmarrin-base36", 12),
        ("bwmarrin-base58", 11),
    ] {
        let flags = ["--form", form, "--prefix", "ord_"];
        let ask = [&["next", "--json", "-n", "3", "--server", &address][..], &flags].concat();
        let texts: Vec<String> = serde_json::from_str(&stdout(&run(&ask))).unwrap();
        assert!(texts.iter().all(|text| text.len() == width + 4), "{form}: {texts:?}");
        let words: Vec<&str> = texts.iter().map(String::as_str).collect();
        let told = stdout(&run(&[&["decode", "--json", "--server", &address][..], &flags, &words].concat()));
        let told: Vec<serde_json::Value> =
            told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(told.len(), 3, "{form}");
        for (object, text) in told.iter().zip(&texts) {
            assert!(object.get("doubt").is_none() && object["text"] == text.as_str(), "{form}: {object}");
        }
    }
    let line = stdout(&run(&["next", "--form", "base62", "--prefix", "ord_", "--server", &address]));
    assert!(line.starts_with("ord_") && line.len() == 16, "{line}");
}

#[test]
fn the_lowest_id_of_an_instant_is_printed_alone() {
    for time in ["2026-10-28T02:43:28.962Z", "1793155408962"] {
        assert_eq!(stdout(&run(&["decode", "--at", time])), "1128275363336552448\n", "{time}");
        assert_eq!(stdout(&run(&["decode", "--at", time, "--form", "hex"])), "0fa8707710800000\n", "{time}");
        let told = stdout(&run(&["decode", "--at", time, "--json"]));
        assert!(told.contains("\"unix_ms\":1793155408962"), "{told}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_names_key_value_and_range() {
    for (args, words) in [
        (&["serve", "--wait", "-3s"][..], &["wait", "-3s", "0 to 60s"][..]),
        (&["serve", "--layout", "41/10/13"], &["layout", "41/10/13", "63"]),
        (&["serve", "--floor", "3h"], &["floor", "3h", "-3h"]),
        (&["serve", "--max-age", "36601d"], &["max_age", "36601d", "36600d"]),
        (&["serve", "--log", "inf"], &["log", "inf", "the nearest is info"]),
        (&["serve", "--log", "info,xuid_engin"], &["log", "xuid_engin", "the nearest is xuid_engine"]),
        (&["serve", "--workers", "2", "--worker", "1"], &["workers", "worker"]),
        (&["serve", "--backfill", "2h"], &["backfill", "max_age"]),
        (&["serve", "--token", "x"], &["--token"]),
        (&["next", "--order", "sideways"], &["sideways", "ordered"]),
        (&["registry", "init", "/tmp/x", "--floor", "later"], &["--floor", "later"]),
    ] {
        let (code, said) = failure(&run(args));
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
}

#[test]
fn what_a_stranger_wrote_into_a_registry_moves_no_terminal() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--worker", "3"], &[]);
    let folder = home.path().to_str().unwrap();
    let seat = home.path().join("registry.seat-0");
    let mut line: serde_json::Value = serde_json::from_slice(&std::fs::read(&seat).unwrap()).unwrap();
    assert_eq!(line["workers"], serde_json::json!([3]));
    line["host"] = "\u{1b}[2J\u{9b}31mevil\r\nxuid: all is well\u{7}".into();
    // In place, as the server holds its lock.
    std::fs::write(&seat, line.to_string() + "\n").unwrap();
    let pinned =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--worker", "3", "--data-dir", folder];
    for args in [
        &["workers", "--data-dir", folder][..],
        &["workers", "--data-dir", folder, "--json"],
        &["registry", "fence", "--restored", folder, "--yes"],
        &pinned,
    ] {
        let output = shell("exec \"$@\"", args);
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let evil = told.lines().find(|line| line.contains("evil")).expect(&told);
        assert!(evil.contains("all is well"), "one line: {told:?}");
        assert!(!told.contains(|char: char| char.is_control() && char != '\n'), "{args:?}: {told:?}");
    }
    drop(server);
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let address = server.addr.to_string();
    let mut command = xuid(&["next", "-n", "2000000", "--server", &address]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.trim().parse::<u64>().is_ok(), "{line}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_command_that_cannot_write_its_output_fails_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let (data, new) = (home.path().join("data"), home.path().join("new"));
    let server = Server::start(&data, &[], &[]);
    let (address, data) = (server.addr.to_string(), data.to_str().unwrap());
    let load = ["--seconds", "1", "--warmup", "0"];
    for args in [
        &["--help"][..],
        &["--version"],
        &["registry", "fence", "--help"],
        &["config", "print"],
        &["completions", "bash"],
        &["man", new.to_str().unwrap()],
        &["decode", "1128275363336683521"],
        &["next", "--server", &address],
        &["inspect", data],
        &["workers", "--data-dir", data],
        &["registry", "show", data],
        &["registry", "init", new.to_str().unwrap()],
        &["registry", "init", new.to_str().unwrap(), "--json"],
        &[&["bench", "--server", &address][..], &load].concat(),
        &[&["bench", "--embedded"][..], &load].concat(),
    ] {
        // Closed, for reading only, and on a full disk.
        for script in ["exec \"$@\" >&-", "exec \"$@\" 1</dev/null", "exec \"$@\" >/dev/full"] {
            let (code, said) = failure(&shell(script, args));
            assert!(
                code == Some(1) && said.contains("standard output"),
                "{args:?} {script}: {code:?}, {said}"
            );
            if script.ends_with("full") {
                // It was done, and that is told too.
                assert!(!args.contains(&"init") || said.contains("has a new registry"), "{said}");
            } else {
                assert!(!new.exists(), "nothing is done where nothing can be told");
            }
        }
        // Where nobody wants it, nothing is missed.
        for script in ["exec \"$@\" >/dev/null", "exec \"$@\" 1<>/dev/null", "\"$@\" | true"] {
            let _ = std::fs::remove_dir_all(&new);
            let (code, said) = failure(&shell(script, args));
            assert_eq!(code, Some(0), "{args:?} {script}: {said}");
        }
        let _ = std::fs::remove_dir_all(&new);
    }
}

#[test]
fn a_sequence_is_not_changed_where_nothing_can_be_told() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[], &[]);
    let (address, folder) = (server.addr.to_string(), home.path().to_str().unwrap());
    let through = ["--server", address.as_str()];
    let said = |args: &[&str]| stdout(&run(&[args, &through].concat()));
    said(&["sequence", "create", "there"]);
    let before = (said(&["sequence", "list"]), said(&["sequence", "show", "there"]));
    let refused = |args: &[&str]| {
        let (code, said) = failure(&shell("exec \"$@\" >&-", args));
        assert!(code == Some(1) && said.contains("standard output"), "{args:?}: {code:?}, {said}");
    };
    for args in
        [&["create", "new"][..], &["alter", "there", "--step", "7"], &["retire", "there"], &["next", "there"]]
    {
        refused(&[&["sequence"], args, &through].concat());
        assert_eq!((said(&["sequence", "list"]), said(&["sequence", "show", "there"])), before, "{args:?}");
    }
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let fence = ["sequence", "fence", folder, "--above", "300", "--margin", "0", "--yes"];
    refused(&fence);
    assert_eq!(stdout(&run(&fence)), "there  1 -> 300\n");
}

#[test]
fn a_list_that_is_read_slowly_outlives_the_servers_idle_end() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--idle", "1s", "--sequence-create", "orders"], &[]);
    for what in [&["next"][..], &["sequence", "next", "orders"]] {
        let all = read_slowly(&server, &[what, &["-n", "200000"]].concat());
        let ids: HashSet<u64> = all.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!((ids.len(), all.lines().count()), (200_000, 200_000), "{what:?}");
    }
}

#[test]
fn the_names_of_sequences_are_told_to_a_slow_reader_whatever_the_servers_idle_end() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--idle", "1s"], &[]);
    let mut stream = greet(server.addr, "");
    reply(&mut stream, |_| ());
    // Pages that are longer than what a pipe holds.
    let names: Vec<String> = (0..2_500).map(|number| format!("{number:0>120}")).collect();
    for some in names.chunks(500) {
        let mut creates = Vec::new();
        for (id, name) in (2..).zip(some) {
            request_seq_create(&mut creates, id, SequenceName::new(name.as_bytes()).unwrap(), "{}");
        }
        stream.write_all(&creates).unwrap();
        for _ in some {
            reply(&mut stream, |reply| assert!(matches!(reply, Reply::Sequence(_)), "{reply:?}"));
        }
    }
    drop(stream);
    let all = read_slowly(&server, &["sequence", "list"]);
    assert!(
        all.lines().map(|line| line.split(' ').next().unwrap()).eq(&names),
        "{} lines",
        all.lines().count()
    );
}

/// What a command prints whose reader stops until the server has ended the connection, twice.
fn read_slowly(server: &Server, args: &[&str]) -> String {
    let address = server.addr.to_string();
    let mut command = xuid(args);
    command.args(["--server", &address]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut all = String::new();
    let is_gone = |line: &str| line == "xuid_connections_open 0";
    for _ in 0..2 {
        out.read_line(&mut all).unwrap();
        until("the server has ended the connection", || get(server.admin, "/metrics").1.lines().any(is_gone));
    }
    out.read_to_string(&mut all).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    all
}

#[test]
fn a_server_that_is_gone_for_good_ends_a_list_with_a_reason() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[], &[]);
    let address = server.addr.to_string();
    let mut command = xuid(&["next", "-n", "200000", "--server", &address]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    server.signal("KILL");
    server.exit_code();
    out.read_to_string(&mut String::new()).unwrap();
    let (code, said) = failure(&child.wait_with_output().unwrap());
    assert!(
        code == Some(1) && said.contains("failed to connect") && said.contains(&address),
        "{code:?}: {said}"
    );
}

#[test]
fn servers_are_named_alike_for_every_command_that_takes_them() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let twice = format!("{0}, {0}", server.addr);
    let commands = [&["next"][..], &["bench", "--seconds", "1", "--warmup", "0"]];
    for args in commands {
        stdout(&xuid(args).env("XUID_SERVER", &twice).output().unwrap());
        stdout(&run(&[args, &["--server", &twice]].concat()));
        for bad in ["", "nowhere", "127.0.0.1:1,", ":7", "a:99999"] {
            let (code, said) = failure(&xuid(args).env("XUID_SERVER", bad).output().unwrap());
            assert!(code == Some(2) && said.contains("XUID_SERVER"), "{args:?} {bad:?}: {code:?}, {said}");
            let (code, said) = failure(&run(&[args, &["--server", bad]].concat()));
            assert!(code == Some(2) && said.contains("--server"), "{args:?} {bad:?}: {code:?}, {said}");
        }
    }
    // The first that can be reached is asked, and one that says nothing cannot.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for unreachable in ["127.0.0.1:1", &silent.local_addr().unwrap().to_string()] {
        let servers = format!("{unreachable},{}", server.addr);
        stdout(&xuid(&["next"]).env("XUID_SERVER", servers).output().unwrap());
        let (code, said) = failure(&xuid(&["next"]).env("XUID_SERVER", unreachable).output().unwrap());
        assert!(code == Some(1) && said.contains(unreachable), "{code:?}: {said}");
    }
}

#[test]
fn what_cannot_be_read_of_a_data_folder_is_told_with_the_rest_and_fails() {
    let home = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let data = home.path().join(name);
        stdout(&run(&["registry", "init", data.to_str().unwrap()]));
        data
    };
    let fifo = |path: &std::path::Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let healthy = folder("healthy");
    stdout(&shell("exec \"$@\"", &["inspect", healthy.to_str().unwrap()]));
    // A name need not be text.
    std::fs::write(healthy.join(OsStr::from_bytes(b"spill-\xff.refused")), "x").unwrap();
    for form in [&["inspect"][..], &["inspect", "--json"]] {
        let told = stdout(&shell("exec \"$@\"", &[form, &[healthy.to_str().unwrap()]].concat()));
        assert!(told.contains("spill-\u{fffd}.refused"), "{told}");
    }

    let (spill, node, link, socket) = (folder("fifo"), folder("node"), folder("link"), folder("socket"));
    fifo(&spill.join("spill-0"));
    fifo(&node.join("node.json"));
    symlink(spill.join("spill-0"), link.join("spill-7")).unwrap();
    let _socket = UnixListener::bind(socket.join("spill-0")).unwrap();
    let (device, deep, absent, noise) = (folder("device"), folder("deep"), folder("absent"), folder("noise"));
    symlink("/dev/zero", device.join("spill-0")).unwrap();
    std::fs::create_dir(deep.join("spill-0")).unwrap();
    symlink("nothing", absent.join("spill-0")).unwrap();
    std::fs::write(noise.join("spill-0"), "noise").unwrap();
    let (seat, log) = (folder("seat"), folder("log"));
    fifo(&seat.join("registry.seat-7"));
    symlink("windows.log", log.join("windows.log")).unwrap();
    for data in [&spill, &node, &link, &socket, &device, &deep, &absent, &noise, &seat, &log] {
        for form in [&["inspect"][..], &["inspect", "--json"]] {
            let output = shell("exec \"$@\"", &[form, &[data.to_str().unwrap()]].concat());
            let (code, said) = failure(&output);
            assert!(code == Some(1) && said.contains("1 file"), "{data:?} {form:?}: {code:?}, {said}");
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(
                told.contains("41/10/12")
                    && ["node.json", "spill-", "seat-7", "windows.log"]
                        .iter()
                        .any(|name| told.contains(name)),
                "{told}"
            );
        }
    }
    let registry = folder("registry");
    std::fs::remove_file(registry.join("registry")).unwrap();
    fifo(&registry.join("registry"));
    let registry = registry.to_str().unwrap();
    for args in [
        &["inspect", registry][..],
        &["workers", "--data-dir", registry],
        &["registry", "show", registry],
        &["registry", "fence", "--restored", registry, "--yes"],
        &["registry", "adopt", registry, "--yes"],
        &["registry", "init", registry],
        &["serve", "--data-dir", registry, "--listen", "127.0.0.1:0", "--admin", "off"],
    ] {
        let (code, said) = failure(&shell("exec \"$@\"", args));
        assert_eq!(code, Some(1), "{args:?}: {said}");
    }
}
