//! Opaque ids by the commands: who has the key, and who has none, or another.

use std::fs;
use std::path::Path;

use crate::support::{Server, failure, run, stdout, until};

const KEY: &str = "1b1a1918131211100b0a090803020100\n";

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(&run(args))).unwrap()
}

/// A file with that text, and its path as an argument.
fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_opaque_registry_is_made_served_and_read_with_its_key_alone() {
    let home = tempfile::tempdir().unwrap();
    let (key, other) = (file(home.path(), "key", KEY), file(home.path(), "other", &KEY.replace('a', "b")));
    let folder = home.path().join("data");
    let data = folder.to_str().unwrap();
    let made = stdout(&run(&["registry", "init", data, "--opaque-key", &key]));
    assert!(made.contains("face opaque"), "{made}");

    for (args, words) in [
        (&["serve", "--data-dir", data][..], &["opaque", "no key was given", "--opaque-key-file"][..]),
        (&["serve", "--data-dir", data, "--opaque-key-file", &other], &["key", "not the one"]),
        (&["decode", "--data-dir", data, "1"], &["no key was given"]),
        (&["decode", "--data-dir", data, "--opaque-key-file", &other, "1"], &["not the one"]),
    ] {
        let args =
            [args, if args[0] == "serve" { &["--listen", "127.0.0.1:0", "--admin", "off"] } else { &[] }];
        let (code, said) = failure(&run(&args.concat()));
        assert!(code == Some(1) && words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        assert!(!said.contains("1b1a1918"), "{said}");
    }

    let server = Server::start(&folder, &["--opaque-key-file", &key], &[]);
    let at = server.addr.to_string();
    let id = stdout(&run(&["next", "--server", &at, "--order", "fresh"]));
    let id = id.trim();
    let by_folder = json(&["decode", "--data-dir", data, "--opaque-key-file", &key, "--json", id]);
    assert!(by_folder["doubt"].is_null() && by_folder["id"] == id, "{by_folder}");
    let by_server = json(&["decode", "--server", &at, "--opaque-key-file", &key, "--json", id]);
    let by_layout = json(&["decode", "--layout", "xuid", "--opaque-key-file", &key, "--json", id]);
    assert!(by_server == by_folder && by_layout == by_folder, "{by_server} {by_layout} {by_folder}");
    let known = json(&["provenance", "--data-dir", data, "--opaque-key-file", &key, "--json", id]);
    assert!(known["id"] == id && known["verdict"] == "granted" && known["holder"].is_string(), "{known}");
    assert_eq!(known["worker"], by_folder["worker"], "{known}");
    assert_eq!(json(&["provenance", "--server", &at, "--json", id]), known);
    let (code, said) = failure(&run(&["provenance", "--data-dir", data, id]));
    assert!(code == Some(1) && said.contains("no key was given"), "{said}");
    let shown = json(&["registry", "show", data, "--json"]);
    assert_eq!(shown["layout"]["face"], "opaque", "{shown}");

    for (args, words) in [
        (&["next", "--order", "ordered"][..], &["NO_ORDER", "opaque"][..]),
        (&["decode", id], &["no key was given"]),
        (&["decode", "--opaque-key-file", &other, id], &["not the one"]),
    ] {
        let (code, said) = failure(&run(&[args, &["--server", &at]].concat()));
        assert!(code == Some(1) && words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
    let time = ["decode", "--at", "2026-11-21T10:00:00Z", "--opaque-key-file", &key];
    let (code, said) = failure(&run(&time));
    assert!(code == Some(2) && said.contains("no order"), "{said}");
}

#[test]
fn a_plain_namespace_never_becomes_opaque() {
    let home = tempfile::tempdir().unwrap();
    let key = file(home.path(), "key", KEY);
    let folder = home.path().join("data");
    let data = folder.to_str().unwrap();
    stdout(&run(&["registry", "init", data]));
    let serve =
        ["serve", "--data-dir", data, "--opaque-key-file", &key, "--listen", "127.0.0.1:0", "--admin", "off"];
    for args in [&serve[..], &["decode", "--data-dir", data, "--opaque-key-file", &key, "1"]] {
        let (code, said) = failure(&run(args));
        assert!(code == Some(1) && said.contains("are not opaque and never will be"), "{said}");
    }
}

#[test]
fn what_is_no_key_or_has_too_few_bits_is_wrong_usage_and_makes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (key, short) = (file(home.path(), "key", KEY), file(home.path(), "short", "1b1a1918"));
    let folder = home.path().join("data");
    let data = folder.to_str().unwrap();
    for (args, words) in [
        (
            &["registry", "init", data, "--opaque-key", &short][..],
            &["--opaque-key", "openssl rand -hex 16"][..],
        ),
        (&["registry", "init", data, "--opaque-key", &key, "--layout", "js"], &["63 bits", "53"]),
        (&["registry", "init", data, "--layout", "xuid,face=opaque"], &["--opaque-key"]),
        (&["serve", "--data-dir", data, "--opaque-key-file", &short], &["opaque_key_file", "32 hexadecimal"]),
        (&["serve", "--data-dir", data, "--opaque-key-file", "/nowhere"], &["opaque_key_file", "/nowhere"]),
        (&["serve", "--data-dir", data, "--opaque-key-file", &key, "--layout", "js"], &["63 bits"]),
        (&["serve", "--data-dir", data, "--layout", "xuid,face=opaque"], &["opaque_key_file"]),
    ] {
        let (code, said) = failure(&run(args));
        assert!(code == Some(2) && words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        assert!(!said.contains("1b1a1918"), "{said}");
    }
    assert!(!folder.exists());
}

#[test]
fn another_key_is_refused_at_a_reload_and_not_only_by_the_next_start() {
    let home = tempfile::tempdir().unwrap();
    let (key, log) = (file(home.path(), "key", KEY), home.path().join("log"));
    let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let more = ["--opaque-key-file", key.as_str()];
    let data = home.path().join("data");
    let mut server = Server::start_at(&ports, &data, &more, &[], fs::File::create(&log).unwrap());
    let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    file(home.path(), "key", &KEY.replace('a', "b"));
    server.signal("HUP");
    until("it is heard", || logged("SIGHUP: "));
    assert!(logged("SIGHUP: nothing was reloaded") && logged("not the one"));
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}
