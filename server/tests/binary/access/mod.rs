//! Who is let in, and what becomes of the others.

mod tls;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xuid_protocol::{Bulk, Order, Reply, Status, request_next, request_runs};

use crate::support::{Server, failure, get, greet, now, reply, run, stdout, until, xuid};

const PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

fn status(stream: &mut TcpStream) -> Option<Status> {
    reply(stream, |reply| match reply {
        Reply::Error(error) => Some(error.status),
        _ => None,
    })
}

#[test]
fn each_secret_of_a_file_is_a_token_beside_the_variable_s_and_a_wrong_one_is_late_counted_and_logged() {
    let home = tempfile::tempdir().unwrap();
    let tokens = file(home.path(), "tokens.toml", "[token.web]\nsecrets = [\"old hat\", \"new hat\"]\n");
    let log = home.path().join("log");
    let tokens = tokens.to_str().unwrap();
    let variables = [("XUID_TOKENS", tokens), ("XUID_TOKEN", "third hat")];
    let data = home.path().join("data");
    let server = Server::start_at(&PORTS, &data, &[], &variables, File::create(&log).unwrap());
    for token in ["old hat", "new hat", "third hat"] {
        assert_eq!(status(&mut greet(server.addr, token)), None, "{token}");
    }
    let begin = now();
    let mut stranger = greet(server.addr, "hunter2 hat");
    assert_eq!(status(&mut stranger), Some(Status::UNAUTHENTICATED));
    assert!(begin.elapsed() >= Duration::from_millis(200), "it came after {:?}", begin.elapsed());
    assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "and it is closed");
    assert!(get(server.admin, "/metrics").1.contains("\nxuid_rejected_tokens_total 1\n"));
    let logged = || fs::read_to_string(&log).unwrap();
    until("it is logged by address", || {
        logged().lines().any(|line| line.contains("token is missing or wrong") && line.contains("127.0.0.1"))
    });
    assert!(!logged().contains("hunter2") && !logged().contains(" hat"), "{}", logged());
}

#[test]
fn wrong_tokens_wait_for_their_answers_side_by_side_and_hold_nobody_else_up() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--threads", "1"], &[("XUID_TOKEN", "sesame")]);
    let begin = now();
    let mut strangers: Vec<_> = (0..100).map(|_| greet(server.addr, "open")).collect();
    let address = server.addr.to_string();
    stdout(
        &xuid(&["next", "-n", "1000", "--server", &address]).env("XUID_TOKEN", "sesame").output().unwrap(),
    );
    for stranger in &mut strangers {
        assert_eq!(status(stranger), Some(Status::UNAUTHENTICATED));
    }
    // One after the other they would take half a minute.
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[test]
fn a_token_s_limit_is_told_to_a_client_that_asks_for_more() {
    let home = tempfile::tempdir().unwrap();
    let text = "[token.few]\nsecrets = [\"a\"]\nids_per_second = 10\n";
    let tokens = file(home.path(), "tokens.toml", text);
    let server = Server::start(home.path(), &["--tokens", tokens.to_str().unwrap()], &[]);
    let address = server.addr.to_string();
    let next = |count: &str| {
        xuid(&["next", "-n", count, "--server", &address]).env("XUID_TOKEN", "a").output().unwrap()
    };
    assert_eq!(stdout(&next("1000")).lines().count(), 1_000, "a full bucket lets one large request through");
    let (code, said) = failure(&next("1"));
    assert!(code == Some(1) && said.contains("RATE") && said.contains("10 ids a second"), "{said}");
    assert!(get(server.admin, "/metrics").1.contains("xuid_errors_total{status=\"rate\"} 1\n"));
}

#[test]
fn an_address_s_limit_counts_for_all_its_connections_and_is_read_again_at_sighup() {
    let home = tempfile::tempdir().unwrap();
    let settings = |most: u32| format!("address_ids_per_second = {most}\n");
    let config = file(home.path(), "xuid.toml", &settings(10));
    let server = Server::start(home.path(), &["--config", config.to_str().unwrap()], &[]);
    let address = server.addr.to_string();
    let next = |count: &str| xuid(&["next", "-n", count, "--server", &address]).output().unwrap();
    assert_eq!(stdout(&next("1000")).lines().count(), 1_000, "a full bucket lets one large request through");
    let (code, said) = failure(&next("1"));
    assert!(code == Some(1) && said.contains("RATE") && said.contains("address (of IPv6"), "{said}");
    let page = get(server.admin, "/metrics").1;
    assert!(page.contains("xuid_limited_requests_total{by=\"address\"} 1\n"), "{page}");
    assert!(page.contains("\nxuid_limited_addresses 1\n"), "{page}");
    file(home.path(), "xuid.toml", &settings(0));
    hup(&server, "the limit is gone", || next("1").status.success());
    let mut open = greet(server.addr, "");
    assert_eq!(status(&mut open), None);
    let page = get(server.admin, "/metrics").1;
    assert!(page.contains("\nxuid_limited_addresses 0\n"), "{page}");
    file(home.path(), "xuid.toml", &settings(10));
    let mut ask = Vec::new();
    request_runs(&mut ask, 2, Bulk::new(1_000, Order::Any, Duration::from_secs(20)));
    hup(&server, "the new limit counts for an open connection", || {
        open.write_all(&ask).unwrap();
        status(&mut open) == Some(Status::RATE)
    });
}

#[test]
fn a_file_of_tokens_that_is_wrong_keeps_the_server_from_starting_and_is_not_shown() {
    let home = tempfile::tempdir().unwrap();
    let tokens = file(home.path(), "tokens.toml", "[token.a]\nsecret = [\"hunter2\"]\n");
    let data = home.path().join("data");
    let (code, said) =
        failure(&run(&["serve", "--data-dir", data.to_str().unwrap(), "--tokens", tokens.to_str().unwrap()]));
    assert!(
        code == Some(2) && said.contains("\"secret\"") && said.contains("secrets, ids_per_second"),
        "{said}"
    );
    assert!(!said.contains("hunter2") && !data.exists(), "{said}");
}

#[test]
fn an_address_that_others_reach_is_refused_unless_it_is_meant_and_then_banner_and_log_say_so() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve = |ports: [&str; 4], more: &[&str]| {
        let mut command = xuid(&["serve", "--data-dir", data.to_str().unwrap()]);
        command.args(ports).args(more).output().unwrap()
    };
    for (ports, key) in [
        (["--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0"], "listen is bound to 0.0.0.0:"),
        (["--listen", "127.0.0.1:0", "--admin", "[::]:0"], "admin is bound to [::]:"),
    ] {
        for more in [&[][..], &["--insecure-listen=false"]] {
            let (code, said) = failure(&serve(ports, more));
            assert!(code == Some(2) && said.contains(key) && said.contains("--insecure-listen"), "{said}");
        }
    }
    assert!(!data.exists(), "nothing was made for that");
    let log = home.path().join("log");
    let ports = ["--listen", "0.0.0.0:0", "--admin", "off", "--insecure-listen"];
    let mut command = xuid(&["serve", "--data-dir", data.to_str().unwrap()]);
    command.args(ports).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let lines: Vec<_> =
        BufReader::new(child.stdout.take().unwrap()).lines().take(4).map(Result::unwrap).collect();
    let addr: SocketAddr = lines[0].split([' ', ',']).find_map(|word| word.parse().ok()).unwrap();
    let server = Server::of(child, (Ipv4Addr::LOCALHOST, addr.port()).into(), addr);
    let said = "listen is bound to 0.0.0.0:";
    assert!(lines.iter().any(|line| line.contains("insecure: ") && line.contains(said)), "{lines:?}");
    until("the log says so", || fs::read_to_string(&log).unwrap().lines().any(|line| line.contains(said)));
    assert_eq!(status(&mut greet(server.addr, "")), None, "and it serves");
}

#[test]
fn a_token_that_is_not_ascii_is_known_on_both_ports() {
    let home = tempfile::tempdir().unwrap();
    let ports = ["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--insecure-listen"];
    let variables = [("XUID_TOKEN", "geheimniß")];
    let server = Server::start_at(&ports, home.path(), &[], &variables, Stdio::null());
    let page = |token: &str| {
        let mut stream = TcpStream::connect(server.admin).unwrap();
        write!(stream, "GET / HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(["geheimniß", "geheimniss", "geheimni\u{df}\u{df}"].map(page), ["200", "401", "401"]);
    assert_eq!(status(&mut greet(server.addr, "geheimniß")), None);
}

#[test]
fn strangers_that_ask_the_admin_port_without_end_keep_no_probe_off() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let ports = ["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--insecure-listen"];
    let variables = [("XUID_TOKEN", "sesame")];
    let data = home.path().join("data");
    let server = Server::start_at(&ports, &data, &[], &variables, File::create(&log).unwrap());
    let flood = |path: &str| -> Vec<_> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(200);
        let connect = |_| {
            let mut stranger = TcpStream::connect(server.admin).unwrap();
            stranger.write_all(request.as_bytes()).unwrap();
            stranger
        };
        (0..64).map(connect).collect()
    };
    let strangers = flood("/");
    until("each of them was refused once", || fs::read_to_string(&log).unwrap().contains("rejected=64"));
    for _ in 0..20 {
        assert_eq!(get(server.admin, "/livez").0, 200);
    }
    drop(strangers);
    let strangers = flood("/readyz");
    for path in ["/livez", "/readyz"].repeat(20) {
        assert_eq!(get(server.admin, path).0, 200);
    }
    drop(strangers);
}

#[test]
fn a_page_that_is_refused_ends_its_connection() {
    let home = tempfile::tempdir().unwrap();
    let ports = ["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--insecure-listen"];
    let variables = [("XUID_TOKEN", "sesame")];
    let server = Server::start_at(&ports, home.path(), &[], &variables, Stdio::null());
    let mut stranger = TcpStream::connect(server.admin).unwrap();
    // Less than a connection may be quiet after a reply.
    stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stranger.read_to_string(&mut text).expect("it is closed");
    let (status, head) = text.split_once("\r\n").unwrap();
    assert!(status.contains(" 401 ") && head.contains("connection: close\r\n"), "{text}");
}

/// Signals until it is so: a signal says nothing of when it was heard.
fn hup(server: &Server, what: &str, condition: impl FnMut() -> bool) {
    server.signal("HUP");
    until(what, condition);
}

#[test]
fn sighup_takes_new_tokens_and_a_new_log_filter_and_ends_no_connection() {
    let home = tempfile::tempdir().unwrap();
    let tokens = file(home.path(), "tokens.toml", "[token.a]\nsecrets = [\"old\"]\n");
    let settings = |level: &str| format!("tokens = {:?}\nlog = {level:?}\n", tokens.to_str().unwrap());
    let config = file(home.path(), "xuid.toml", &settings("info"));
    let log = home.path().join("log");
    let data = home.path().join("data");
    let more = ["--config", config.to_str().unwrap()];
    let variables = [("XUID_TOKEN", "kept")];
    let mut server = Server::start_at(&PORTS, &data, &more, &variables, File::create(&log).unwrap());
    let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    let mut standing = greet(server.addr, "old");
    assert_eq!(status(&mut standing), None);
    assert!(!logged("greeted"), "that is for debug");

    file(home.path(), "tokens.toml", "[token.a]\nsecrets = [\"new\"]\n");
    file(home.path(), "xuid.toml", &settings("debug"));
    hup(&server, "it is reloaded, and says what is not", || {
        logged("the token of XUID_TOKEN is the one of the start")
    });
    assert!(logged("SIGHUP: reloaded"));
    assert_eq!(status(&mut greet(server.addr, "new")), None);
    assert_eq!(status(&mut greet(server.addr, "old")), Some(Status::UNAUTHENTICATED));
    until("the log says more", || logged("greeted"));
    let mut ping = Vec::new();
    request_next(&mut ping, 7, Order::Any);
    standing.write_all(&ping).unwrap();
    assert!(reply(&mut standing, |reply| matches!(reply, Reply::Next(_))), "who was let in stays in");

    for broken in ["[token.a]\nsecrets = []\n", "[token", ""] {
        file(home.path(), "tokens.toml", broken);
        let before = fs::read_to_string(&log).unwrap().matches("nothing was reloaded").count();
        hup(&server, "it says that nothing was reloaded", || {
            fs::read_to_string(&log).unwrap().matches("nothing was reloaded").count() > before
        });
        assert_eq!(status(&mut greet(server.addr, "new")), None, "what was there counts on");
    }
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn sighup_takes_no_token_away_reads_no_pipe_again_and_says_what_is_open() {
    let home = tempfile::tempdir().unwrap();
    let (config, pipe) = (file(home.path(), "xuid.toml", "token = \"sesame\"\n"), home.path().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let into_pipe = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, "token = \"sesame\"\n").unwrap()
    });
    for (config, refused) in [(config, "is empty"), (pipe, "no regular file")] {
        let log = home.path().join("log");
        let data = tempfile::tempdir().unwrap();
        let ports = ["--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--insecure-listen"];
        let more = ["--config", config.to_str().unwrap()];
        let server = Server::start_at(&ports, data.path(), &more, &[], File::create(&log).unwrap());
        let logged = |text: &str| fs::read_to_string(&log).unwrap().matches(text).count();
        if refused == "is empty" {
            hup(&server, "it says again what is open", || logged("listen is bound to 0.0.0.0:") > 1);
            file(home.path(), "xuid.toml", "# Its token has gone.\n");
            hup(&server, "it refuses that", || logged("no token any more") > 0);
            file(home.path(), "xuid.toml", "");
        }
        hup(&server, "it refuses", || logged(refused) > 0);
        assert!(logged("nothing was reloaded") > 0);
        assert_eq!(status(&mut greet(server.addr, "")), Some(Status::UNAUTHENTICATED), "{refused}");
        assert_eq!(status(&mut greet(server.addr, "sesame")), None, "{refused}");
    }
    into_pipe.join().unwrap();
}

#[test]
fn a_file_of_settings_that_is_being_written_takes_no_token_away_that_stands_beside_a_variable_s() {
    let home = tempfile::tempdir().unwrap();
    let tokens = file(home.path(), "tokens.toml", "[token.a]\nsecrets = [\"of a file\"]\n");
    let config = file(home.path(), "xuid.toml", &format!("tokens = {:?}\n", tokens.to_str().unwrap()));
    let log = home.path().join("log");
    let data = home.path().join("data");
    let more = ["--config", config.to_str().unwrap()];
    let variables = [("XUID_TOKEN", "of a variable")];
    let server = Server::start_at(&PORTS, &data, &more, &variables, File::create(&log).unwrap());
    file(home.path(), "xuid.toml", "");
    hup(&server, "the reload is over", || fs::read_to_string(&log).unwrap().contains("reloaded"));
    assert_eq!(status(&mut greet(server.addr, "of a file")), None);
}

#[test]
fn sighup_leaves_no_port_open_to_strangers_that_was_not_meant_to_be() {
    for front in ["resp", "http"] {
        let home = tempfile::tempdir().unwrap();
        let config = file(home.path(), "xuid.toml", "insecure_listen = true\n");
        let (log, data) = (home.path().join("log"), home.path().join("data"));
        let flag = format!("--{front}");
        let more = ["--config", config.to_str().unwrap(), &flag, "0.0.0.0:0"];
        let server = Server::start_at(&PORTS, &data, &more, &[], File::create(&log).unwrap());
        file(home.path(), "xuid.toml", "# Nobody means it any more.\n");
        let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
        hup(&server, "it refuses", || logged("nothing was reloaded"));
        let found = format!("{front} is bound to 0.0.0.0:");
        assert!(logged(&found), "{}", fs::read_to_string(&log).unwrap());
    }
}
