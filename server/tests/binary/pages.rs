//! The page for people, and what it polls.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::{Server, get, run, stdout};

/// Head and body of a page.
fn whole(server: &Server, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.admin).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn the_page_says_without_a_script_what_a_person_wants_to_know_first() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let (head, page) = whole(&server, "/");
    for words in ["<th>ready</th><td>yes</td>", "<th>workers held</th><td>", " (window: ", "<th>clock</th>"] {
        assert!(page.contains(words), "{words} is not in {page}");
    }
    assert!(page.contains(&format!("<th>listening on</th><td>{}</td>", server.addr)), "{page}");
    assert!(!page.contains("{{"), "a place was not filled in: {page}");
    let nonce = page.split("nonce=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(head.contains(&format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'")), "{head}");
    assert!(
        head.contains("default-src 'none'") && head.contains("x-content-type-options: nosniff"),
        "{head}"
    );
    assert!(!whole(&server, "/").1.contains(nonce), "each reply has a number of its own");
}

#[test]
fn the_figures_that_the_page_polls_move_with_the_ids() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let figures = || -> Value { serde_json::from_str(&get(server.admin, "/status.json").1).unwrap() };
    let before = figures();
    stdout(&run(&["next", "-n", "1000", "--server", &server.addr.to_string()]));
    let after = figures();
    assert_eq!(after["issued"].as_u64().unwrap() - before["issued"].as_u64().unwrap(), 1_000);
    let timed = |figures: &Value| -> u64 {
        figures["times"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
    };
    assert!(timed(&after) > timed(&before));
    assert_eq!(after["times"].as_array().unwrap().len(), after["bounds_us"].as_array().unwrap().len());
    assert_eq!((&after["layout"]["worker_bits"], &after["ready"]), (&10.into(), &true.into()));
    for tier in ["ring", "queue", "threads", "memory", "spill"] {
        assert!(after["tiers"][tier].is_u64() && after["full"][tier].as_u64() > Some(0), "{after}");
    }
}
