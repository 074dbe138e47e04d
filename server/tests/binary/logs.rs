//! The two forms of the log.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{failure, run, xuid};

/// A server on free ports whose log is a pipe.
fn serve(more: &[&str]) -> (tempfile::TempDir, Child) {
    let home = tempfile::tempdir().unwrap();
    let mut command = xuid(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir"]);
    command.arg(home.path()).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    (home, child)
}

/// Its log, when it has served and was stopped.
fn log_of(mut child: Child) -> String {
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{log}");
    log
}

/// Each line as an object, which says when, how bad, where and what.
fn objects(log: &str) -> Vec<Value> {
    let object = |line: &str| {
        let object: Value = serde_json::from_str(line).expect(line);
        for key in ["timestamp", "level", "target", "message"] {
            assert!(object[key].is_string(), "no {key} in {line}");
        }
        object
    };
    log.lines().map(object).collect()
}

#[test]
fn each_line_of_a_json_log_is_one_object_with_its_fields() {
    let (_home, child) = serve(&["--log-format", "json", "--log", "info"]);
    let log = log_of(child);
    let objects = objects(&log);
    let serving = objects.iter().find(|object| object["message"] == "serving").expect(&log);
    assert!(serving["listen"].as_str().unwrap().starts_with("127.0.0.1:"), "{serving}");
    assert_eq!((&serving["level"], &serving["ready"]), (&"INFO".into(), &true.into()), "{serving}");
    let last = objects.last().unwrap();
    assert!(last["message"].as_str().unwrap().starts_with("stopped"), "{last}");
    assert!(last["issued"].is_u64(), "{last}");
}

#[test]
fn the_last_words_of_a_server_that_cannot_start_are_json_too() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().to_str().unwrap();
    let args = ["serve", "--listen", &address, "--data-dir", folder, "--log-format", "json"];
    let (code, log) = failure(&run(&args));
    assert_eq!(code, Some(1));
    let objects = objects(&log);
    let last = objects.last().expect("it says why");
    assert!(last["message"].as_str().unwrap().contains(&address) && last["level"] == "ERROR", "{last}");
}

#[test]
fn a_log_is_text_unless_asked_otherwise_and_another_form_is_wrong_usage() {
    let (_home, child) = serve(&[]);
    let log = log_of(child);
    assert!(log.contains(" INFO xuid") && !log.contains('{'), "{log}");
    let (code, said) = failure(&run(&["serve", "--log-format", "xml"]));
    assert_eq!(code, Some(2));
    assert!(["log_format", "xml", "text or json"].iter().all(|word| said.contains(word)), "{said}");
}
