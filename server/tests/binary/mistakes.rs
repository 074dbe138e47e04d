//! Mistakes that the commands catch, and what they say of each.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::{Server, failure, get, run, stdout, until, xuid};

/// An id of the default layout, of 2026-10-28.
const ID: &str = "1128275363336683521";

/// A new registry in `folder`.
fn init(folder: &Path, more: &[&str]) -> Output {
    run(&[&["registry", "init", folder.to_str().unwrap()][..], more].concat())
}

/// A command that reads `input`.
fn fed(args: &[&str], input: &[u8]) -> Output {
    let mut command = xuid(args);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // A command that refuses the first line closes the pipe before the rest is written.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn ids_are_decoded_by_the_layout_of_a_folder_or_of_a_server() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let text = folder.to_str().unwrap();
    stdout(&init(&folder, &["--layout", "42/9/12", "--epoch", "1600000000000", "--floor=-1d"]));
    let server = Server::start(&folder, &[], &[]);
    let address = server.addr.to_string();
    let id = stdout(&run(&["next", "--server", &address]));
    let json = |more: &[&str]| -> serde_json::Value {
        let args = [&["decode", "--json", id.trim()][..], more].concat();
        serde_json::from_str(&stdout(&run(&args))).unwrap()
    };
    let given = json(&["--layout", "42/9/12", "--epoch", "1600000000000"]);
    for more in [&["--data-dir", text][..], &["--server", &address]] {
        let found = json(more);
        assert_eq!(found, given, "{more:?}");
        assert!(found.get("doubt").is_none(), "{found}");
        // It was never issued there: it is from before the floor, or from the future.
        for stranger in ["4194304", "9223372036854775807"] {
            let args = [&["decode", "--json", stranger][..], more].concat();
            let object: serde_json::Value = serde_json::from_str(&stdout(&run(&args))).unwrap();
            assert!(object["doubt"].as_str().is_some_and(|doubt| doubt.contains("not of the ")), "{object}");
        }
        // Another layout beside it is a contradiction.
        let (code, said) = failure(&run(&[&["decode", ID, "--layout", "41/10/12"][..], more].concat()));
        assert!(code == Some(2) && said.contains("--layout"), "{code:?}: {said}");
    }
    let wrong = stdout(&run(&["decode", "9223372036854775807"]));
    assert!(wrong.contains("in the future") && wrong.contains("--server"), "{wrong}");
    assert!(!stdout(&run(&["decode", "4194304"])).contains("future"));
}

#[test]
fn ids_are_decoded_from_standard_input() {
    let wanted = stdout(&run(&["decode", "--json", "4194304", "8388608"]));
    for (args, input) in [
        (&["decode", "--json"][..], "4194304\n8388608\n"),
        (&["decode", "--json", "-"], "  4194304\t8388608"),
        (&["decode", "--json", "4194304", "-"], "\n8388608\r\n\n"),
    ] {
        assert_eq!(stdout(&fed(args, input.as_bytes())), wanted, "{args:?} {input:?}");
    }
    let said = fed(&["decode"], b"4194304\ntwelve\n8388608\n");
    let (code, why) = failure(&said);
    assert!(code == Some(1) && why.contains("line 2") && why.contains("twelve"), "{code:?}: {why}");
    assert!(why.contains("character 1 is 't'") && why.contains("1 of what standard input had"), "{why}");
    assert_eq!(
        String::from_utf8_lossy(&said.stdout).lines().count(),
        2,
        "a wrong line does not stop the others"
    );
    let long = [&b"1".repeat(100_000)[..], b"\n4194304\n"].concat();
    let said = fed(&["decode"], &long);
    assert_eq!(String::from_utf8_lossy(&said.stdout).lines().count(), 1, "nor does a long one");
    let (code, why) = failure(&said);
    assert!(code == Some(1) && why.contains("longer than 1024 bytes"), "{code:?}: {why}");
    for args in [&["decode"][..], &["decode", "-"], &["provenance", "-"]] {
        let (code, why) = failure(&fed(args, b" \n"));
        assert!(code == Some(2) && why.contains("no id is given"), "{args:?}: {code:?}: {why}");
    }
}

#[test]
fn what_is_no_id_of_its_form_is_wrong_usage_and_its_first_wrong_character_is_told() {
    for (args, words) in [
        (&["decode", "--form", "base62", "1LLVoUFd7e!"][..], &["character 11 is '!'", "base62"][..]),
        (&["decode", "--form", "base58", "1LLVoUFd7l"], &["character 10 is 'l'", "as in 3cuJwaTbR1J"]),
        (&["decode", "--form", "hex", "fa8707710820001"], &["15 digits", "16"]),
        (&["decode", "--form", "base36", "zzzzzzzzzzzzz"], &["above 9223372036854775807"]),
        (
            &["decode", "--prefix", "ord_", ID],
            &["character 1 is '1'", "'o'", "as in ord_1128275363336683521"],
        ),
        (&["decode", "4194304", "twelve"], &["twelve", "character 1 is 't'"]),
        (&["decode", "--form", "base64", ID], &["base64", "crockford32", "bwmarrin-base58"]),
        (&["next", "--prefix", "or d"], &["character 3 is ' '", "as in ord_"]),
        (&["decode", "--at", "yesterday"], &["yesterday", "2026-11-21T10:00:00Z", "Unix milliseconds"]),
        (
            &["decode", "--at", "1795255200"],
            &["before the epoch", "2018-04-19T16:00:00.000Z", "milliseconds"],
        ),
        (&["decode", "--at", "2099-01-01T00:00:00Z"], &["after the last tick", "2087-"]),
        (&["decode", "--at", "1795255200000", ID], &["--at"]),
    ] {
        let output = run(args);
        let (code, said) = failure(&output);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}: nothing is told before the mistake");
    }
}

#[test]
fn a_layout_that_is_none_is_blamed_on_its_variable_wherever_it_is_read() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    for args in [&["decode", ID][..], &["serve", "--data-dir", data.to_str().unwrap()]] {
        for (name, value) in [("XUID_LAYOUT", "bad"), ("XUID_EPOCH", "yesterday")] {
            let (code, said) = failure(&xuid(args).env(name, value).output().unwrap());
            assert_eq!(code, Some(2), "{args:?}: {said}");
            assert!(said.contains(&format!("variable {name}")) && said.contains(value), "{args:?}: {said}");
        }
    }
    let (code, said) = failure(&run(&["decode", ID, "--layout", "bad"]));
    assert!(code == Some(2) && said.contains("flag --layout"), "{code:?}: {said}");
    let mut right = xuid(&["decode", "--json", ID, "--epoch", "0"]);
    let told = stdout(&right.env("XUID_LAYOUT", "42/9/12").env("XUID_EPOCH", "bad").output().unwrap());
    assert!(told.contains("\"unix_ms\":538"), "a flag goes before a variable: {told}");
    assert!(!data.exists());
}

#[test]
fn a_registry_says_until_when_it_lasts_and_refuses_an_epoch_that_is_to_come() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let (code, said) = failure(&init(&folder, &["--epoch", "4102444800000", "--yes"]));
    assert!(code == Some(2) && said.contains("2100-01-01") && said.contains("--epoch"), "{code:?}: {said}");
    // Unix seconds, taken for milliseconds.
    let (code, said) = failure(&init(&folder, &["--epoch", "1700000000"]));
    assert!(code == Some(2) && said.contains("--yes"), "{code:?}: {said}");
    assert!(said.contains("1970-01-20") && said.contains("--epoch 1700000000000"), "{said}");
    assert!(!folder.exists(), "nothing was made");
    let made = stdout(&init(&folder, &["--epoch", "1700000000", "--yes"]));
    assert!(made.contains("lasts     until 2039-"), "{made}");
    let shown = stdout(&run(&["registry", "show", folder.to_str().unwrap()]));
    assert!(shown.contains("lasts     until 2039-"), "{shown}");
}

#[test]
fn a_worker_that_there_will_never_be_is_wrong_usage_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    let (data, small) = (home.path().join("data"), home.path().join("small"));
    stdout(&init(&small, &["--workers", "16"]));
    let before = std::fs::read_dir(&small).unwrap().count();
    for (folder, more, last) in [
        (&data, &["--worker", "99999"][..], "0 to 1023"),
        (&data, &["--worker", "512", "--layout", "42/9/12"], "0 to 511"),
        (&data, &["--worker", "1024", "--layout", "40/12/11"], "0 to 1023"),
        (
            &data,
            &["--worker", "512", "--layout", "42/9/12", "--registry", "zookeeper://127.0.0.1:1/x"],
            "0 to 511",
        ),
        (&small, &["--worker", "16"], "0 to 15"),
    ] {
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--data-dir"];
        let args = [&ports[..], &[folder.to_str().unwrap()], more].concat();
        let (code, said) = failure(&run(&args));
        assert!(
            code == Some(2) && said.contains("worker") && said.contains(last),
            "{args:?}: {code:?}, {said}"
        );
    }
    assert!(!data.exists(), "nothing was made");
    assert_eq!(std::fs::read_dir(&small).unwrap().count(), before);
}

#[test]
fn a_folder_of_a_later_version_is_refused_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().to_str().unwrap();
    stdout(&init(home.path(), &[]));
    let node = home.path().join("node.json");
    std::fs::write(&node, "{\"version\":2}").unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--data-dir", folder];
    for args in [&serve[..], &["inspect", folder]] {
        let output = run(args);
        let (code, said) = failure(&output);
        let said = said + &String::from_utf8_lossy(&output.stdout);
        assert!(code == Some(1) && said.contains("node.json"), "{args:?}: {code:?}, {said}");
        assert!(said.contains("version 2") || said.contains("version is 2"), "{said}");
        assert!(said.contains("knows version 1") && said.contains("use "), "{said}");
    }
    assert_eq!(std::fs::read_to_string(node).unwrap(), "{\"version\":2}");
}

#[test]
fn a_variable_that_is_no_setting_is_told_with_the_nearest_that_is() {
    let home = tempfile::tempdir().unwrap();
    let mut command = xuid(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir"]);
    command.arg(home.path()).env("XUID_MAXAGE", "1h").env("XUID_PORT", "7654");
    let log = home.path().join("log");
    let child = command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let server = Server::of(child, ([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 1).into());
    let said = || std::fs::read_to_string(&log).unwrap();
    until("it warns", || said().contains("XUID_MAXAGE (the nearest is XUID_MAX_AGE), XUID_PORT"));
    drop(server);
}

#[test]
fn days_are_a_time_wherever_one_is_given() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    stdout(&init(&data, &["--floor=-400d"]));
    let server = Server::start(&data, &["--max-age", "500d", "--backfill", "450d"], &[]);
    assert_eq!(get(server.admin, "/readyz").0, 200);
}

#[test]
fn the_help_of_each_setting_says_what_is_allowed() {
    let help = stdout(&run(&["serve", "--help"]));
    let settings = help.matches("[env: XUID_").count();
    assert!(settings > 20, "{help}");
    assert_eq!(help.matches("[allowed: ").count(), settings, "{help}");
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(words.join(" ").contains("[allowed: a time from 0 to 60s, as in 50ms]"), "{help}");
}
