//! TLS on both ports, and in the commands.

mod certificates;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};
use xuid_client::{Client, ClientError, Options, Tls};
use xuid_protocol::{
    Bulk, Hello, Order, PREFACE, ParsedReply, Reply, parse_reply, request_hello, request_ping, request_runs,
};

use self::certificates::{Authority, Identity};
use crate::support::{Server, failure, get, greet, reply, run, stdout, until, xuid};

const PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A connection that trusts `ca`, and shows a certificate if it has one.
fn shake_hands(addr: SocketAddr, ca: &str, identity: Option<&Identity>) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { cert, key }) => {
            let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
        }
    };
    let name = ServerName::try_from("127.0.0.1").unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        TcpStream::connect(addr).unwrap(),
    )
}

/// `GET path` over HTTPS: status and body.
fn https(mut stream: Stream, path: &str, more: &str) -> (u16, String) {
    write!(stream, "GET {path} HTTP/1.0\r\n{more}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn serve(home: &Path, own: &Identity, more: &[&str]) -> Server {
    serve_at(&PORTS, home, own, more, &[])
}

fn serve_at(
    ports: &[&str],
    home: &Path,
    own: &Identity,
    more: &[&str],
    variables: &[(&str, &str)],
) -> Server {
    let more = [&["--tls-cert", &*own.cert, "--tls-key", &*own.key], more].concat();
    let log = File::create(home.join("log")).unwrap();
    Server::start_at(ports, &home.join("data"), &more, variables, log)
}

fn next(server: &Server, more: &[&str]) -> Output {
    run(&[&["next", "--server", &server.addr.to_string()], more].concat())
}

#[test]
fn commands_talk_tls_by_flags_and_by_variables() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let mut server = serve(home.path(), &ours.issue("server", &["127.0.0.1"]), &[]);
    let ids = stdout(&next(&server, &["--tls", "--ca", &ours.ca, "-n", "200000", "--order", "ordered"]));
    let ids: Vec<u64> = ids.lines().map(|line| line.parse().unwrap()).collect();
    assert!(ids.len() == 200_000 && ids.is_sorted_by(|left, right| left < right));
    let address = server.addr.to_string();
    let mut by_variables = xuid(&["next", "--server", &address]);
    stdout(&by_variables.env("XUID_TLS", "true").env("XUID_CA", &ours.ca).output().unwrap());
    for load in [&["--runs", "--count", "100000"][..], &["--count", "5000"], &["--pipeline", "100"]] {
        let bench =
            ["bench", "--server", &address, "--tls", "--ca", &ours.ca, "--seconds", "1", "--warmup", "0"];
        let report = stdout(&run(&[&bench, load, &["--verify", "--json"]].concat()));
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["settings"]["tls"], true, "{report}");
    }
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_server_without_the_right_certificate_gets_no_client() {
    let home = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(home.path(), "ours"), Authority::new(home.path(), "other"));
    for (own, words) in [
        (other.issue("foreign", &["127.0.0.1"]), "UnknownIssuer"),
        (ours.issue_expired("expired", &["127.0.0.1"]), "expired"),
        (ours.issue("elsewhere", &["example.org"]), "not valid for"),
    ] {
        let server = serve(home.path(), &own, &[]);
        let (code, said) = failure(&next(&server, &["--tls", "--ca", &ours.ca]));
        assert!(code == Some(1) && said.contains("no TLS with") && said.contains(words), "{words}: {said}");
        let log = || fs::read_to_string(home.path().join("log")).unwrap();
        until("the server says who did not like it", || {
            log().lines().any(|line| line.contains("no TLS with a client") && line.contains("127.0.0.1"))
        });
    }
}

#[test]
fn a_client_needs_a_certificate_where_the_server_asks_for_one() {
    let home = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(home.path(), "ours"), Authority::new(home.path(), "other"));
    let own = ours.issue("server", &["127.0.0.1"]);
    let server = serve(home.path(), &own, &["--tls-client-ca", &ours.ca]);
    let asked = |identity: Option<&Identity>| {
        let mut more = vec!["--tls", "--ca", &*ours.ca];
        if let Some(Identity { cert, key }) = identity {
            more.extend(["--cert", cert, "--key", key]);
        }
        next(&server, &more)
    };
    stdout(&asked(Some(&ours.issue("client", &["client"]))));
    let (expired, foreign) = (ours.issue_expired("old", &["old"]), other.issue("foreign", &["foreign"]));
    for identity in [None, Some(&expired), Some(&foreign)] {
        let (code, said) = failure(&asked(identity));
        assert!(code == Some(1) && said.contains("alert"), "{said}");
    }
    let log = || fs::read_to_string(home.path().join("log")).unwrap();
    until("it is logged by address", || log().lines().any(|line| line.contains("no TLS with a client")));
    let page = https(shake_hands(server.admin, &ours.ca, None), "/metrics", "").1;
    assert!(page.contains("\nxuid_failed_handshakes_total 3\n"), "{page}");
}

#[test]
fn plain_clients_on_a_tls_port_are_told_so_and_the_other_way_round() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let server = serve(home.path(), &ours.issue("server", &["127.0.0.1"]), &[]);
    let (code, said) = failure(&next(&server, &[]));
    assert!(code == Some(1) && said.contains("speaks TLS only") && said.contains("--tls"), "{said}");
    let (status, text) = get(server.admin, "/readyz");
    assert!(status == 400 && text.contains("HTTPS"), "{text}");
    let mut http = TcpStream::connect(server.addr).unwrap();
    http.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut line = String::new();
    http.read_to_string(&mut line).unwrap();
    assert!(line.contains("within TLS"), "{line}");
    let plain = Server::start(&home.path().join("plain"), &[], &[]);
    let (code, said) = failure(&next(&plain, &["--tls", "--ca", &ours.ca]));
    assert!(code == Some(1) && said.contains("does it speak TLS"), "{said}");
    assert!(reply(&mut greet(plain.addr, ""), |reply| matches!(reply, Reply::Hello(_))));
}

#[test]
fn one_connection_too_many_within_tls_is_an_error_that_waiting_helps() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let own = ours.issue("server", &["127.0.0.1"]);
    let server = serve(home.path(), &own, &["--max-connections", "1", "--idle", "3s"]);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let connect = |options: Options| {
        runtime.block_on(Client::connect(server.addr, options.tls(Tls::with_ca(&ours.ca).unwrap())))
    };
    let patient = connect(Options::new().retry_for(Duration::from_secs(30))).unwrap();
    let page = || https(shake_hands(server.admin, &ours.ca, None), "/metrics", "").1;
    until("it was idle for too long", || page().contains("\nxuid_connections_open 0\n"));
    let mut first = shake_hands(server.addr, &ours.ca, None);
    let mut hello = PREFACE.to_vec();
    request_hello(&mut hello, 1, &Hello::new("test")).unwrap();
    first.write_all(&hello).unwrap();
    first.read_exact(&mut [0]).unwrap();
    let error = connect(Options::new()).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }) && error.is_retryable(), "{error:?}");
    let waiting = runtime.spawn(async move { patient.next(Order::Any).await });
    let mut ping = Vec::new();
    request_ping(&mut ping, 2, b"");
    until("that one was refused as well", || {
        first.write_all(&ping).unwrap();
        !page().contains("xuid_connections_total{kind=\"refused\"} 1\n")
    });
    drop(first);
    runtime.block_on(waiting).unwrap().unwrap();
}

#[test]
fn files_that_do_not_fit_together_keep_server_and_commands_from_starting() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let (one, two) = (ours.issue("one", &["127.0.0.1"]), ours.issue("two", &["127.0.0.1"]));
    let data = home.path().join("data");
    let serve = ["serve", "--data-dir", data.to_str().unwrap()];
    for (more, words) in [
        (&["--tls-cert", &*one.cert][..], "tls_key is not given"),
        (&["--tls-key", &*one.key], "tls_cert is not given"),
        (&["--tls-client-ca", &*ours.ca], "tls_cert is not given"),
        (&["--tls-cert", &*one.cert, "--tls-key", &*two.key], "cannot be used with the key"),
        (&["--tls-cert", &*one.key, "--tls-key", &*one.key], "no certificate"),
        (&["--tls-cert", &*one.cert, "--tls-key", &*one.cert], "no private key"),
        (&["--tls-cert", "/nowhere", "--tls-key", &*one.key], "/nowhere"),
    ] {
        let (code, said) = failure(&run(&[&serve, more].concat()));
        assert!(code == Some(2) && said.contains(words), "{words}: {said}");
        assert!(!said.contains("PRIVATE KEY") && !data.exists(), "{said}");
    }
    for (more, words) in [
        (&["--ca", &*ours.ca][..], "without --tls"),
        (&["--tls"], "needs --ca"),
        (&["--tls", "--ca", &*ours.ca, "--cert", &*one.cert], "go together"),
        (&["--tls", "--ca", &*ours.ca, "--cert", &*one.cert, "--key", &*two.key], "cannot be used"),
    ] {
        let (code, said) = failure(&run(&[&["next"], more].concat()));
        assert!(code == Some(2) && said.contains(words), "{words}: {said}");
    }
}

#[test]
fn off_loopback_pages_but_those_for_probes_are_for_a_token_or_a_certificate() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let own = ours.issue("server", &["127.0.0.1"]);
    let ports = ["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--tls-client-ca", &*ours.ca];
    let server = serve_at(&ports, home.path(), &own, &[], &[("XUID_TOKEN", "open sesame")]);
    let admin = SocketAddr::from(([127, 0, 0, 1], server.admin.port()));
    let asked = |path: &str, more: &str| https(shake_hands(admin, &ours.ca, None), path, more).0;
    for path in ["/livez", "/readyz"] {
        assert_eq!(asked(path, ""), 200, "{path}");
    }
    let client = ours.issue("client", &["client"]);
    for path in ["/", "/metrics"] {
        assert_eq!(asked(path, ""), 401, "{path}");
        assert_eq!(asked(path, "Authorization: Bearer open\r\n"), 401, "{path}");
        assert_eq!(asked(path, "Authorization: Bearer open sesame\r\n"), 200, "{path}");
        assert_eq!(https(shake_hands(admin, &ours.ca, Some(&client)), path, "").0, 200, "{path}");
    }
    let page = https(shake_hands(admin, &ours.ca, Some(&client)), "/metrics", "").1;
    assert!(page.contains("\nxuid_rejected_tokens_total 4\n"), "{page}");
}

#[test]
fn a_stop_answers_what_waits_and_says_tls_s_goodbye() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let mut server = serve(home.path(), &ours.issue("server", &["127.0.0.1"]), &["--threads", "1"]);
    let mut client = shake_hands(server.addr, &ours.ca, None);
    let mut bytes = PREFACE.to_vec();
    request_hello(&mut bytes, 1, &Hello::new("test")).unwrap();
    client.write_all(&bytes).unwrap();
    let mut inbox = vec![0; 1];
    client.read_exact(&mut inbox).unwrap();
    bytes.clear();
    for request_id in 0..20 {
        request_runs(&mut bytes, request_id, Bulk::new(100_000, Order::Any, Duration::from_secs(20)));
    }
    client.write_all(&bytes).unwrap();
    server.signal("TERM");
    // An end without goodbye would be an error.
    client.read_to_end(&mut inbox).unwrap();
    let (mut at, mut runs, mut goaway) = (0, 0, false);
    while let ParsedReply::Frame { consumed, reply, .. } = parse_reply(&inbox[at..], 1 << 24).unwrap() {
        at += consumed;
        runs += u32::from(matches!(reply, Reply::Runs(_)));
        goaway |= reply == Reply::GoAway;
    }
    assert!(at == inbox.len() && runs == 20 && goaway, "{runs} answers, {goaway}, {at} of {}", inbox.len());
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn certificates_are_replaced_while_clients_ask_and_no_request_fails() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(home.path(), "old"), Authority::new(home.path(), "new"));
    let own = old.issue("server", &["127.0.0.1"]);
    let mut server = serve(home.path(), &own, &[]);
    let address = server.addr.to_string();
    let both = home.path().join("both.pem");
    fs::write(&both, [fs::read(&old.ca).unwrap(), fs::read(&new.ca).unwrap()].concat()).unwrap();
    let both = both.to_str().unwrap();
    let asking = std::thread::spawn({
        let (address, both) = (address.clone(), both.to_owned());
        move || {
            for _ in 0..60 {
                stdout(&run(&["next", "-n", "10", "--server", &address, "--tls", "--ca", &both]));
            }
        }
    });
    stdout(&next(&server, &["--tls", "--ca", &old.ca]));
    // A certificate without its key is no reason to stop, or to change anything.
    let replaced = new.issue("replaced", &["127.0.0.1"]);
    fs::copy(&replaced.cert, &own.cert).unwrap();
    server.signal("HUP");
    let log = || fs::read_to_string(home.path().join("log")).unwrap();
    until("it says why not", || log().contains("nothing was reloaded") && log().contains("tls_key"));
    stdout(&next(&server, &["--tls", "--ca", &old.ca]));
    fs::copy(&replaced.key, &own.key).unwrap();
    server.signal("HUP");
    until("it is reloaded", || log().contains("SIGHUP: reloaded"));
    stdout(&next(&server, &["--tls", "--ca", &new.ca]));
    assert_eq!(next(&server, &["--tls", "--ca", &old.ca]).status.code(), Some(1));
    asking.join().unwrap();
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn sighup_lets_no_client_in_without_a_certificate_where_one_was_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let own = ours.issue("server", &["127.0.0.1"]);
    let config = home.path().join("xuid.toml");
    fs::write(&config, format!("tls_client_ca = {:?}\n", ours.ca)).unwrap();
    let server = serve(home.path(), &own, &["--config", config.to_str().unwrap()]);
    fs::write(&config, "# Its CA has gone.\n").unwrap();
    server.signal("HUP");
    let log = || fs::read_to_string(home.path().join("log")).unwrap();
    until("it refuses", || {
        log().contains("nothing was reloaded") && log().contains("no tls_client_ca any more")
    });
    let (code, said) = failure(&next(&server, &["--tls", "--ca", &ours.ca]));
    assert!(code == Some(1) && said.contains("alert"), "{said}");
}

#[test]
fn sighup_refuses_a_pipe_in_the_place_of_any_file_and_hears_the_next_signal() {
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(home.path(), "ours");
    let own = ours.issue("server", &["127.0.0.1"]);
    let (tokens, notified) = (home.path().join("tokens.toml"), home.path().join("notify"));
    fs::write(&tokens, "[token.a]\nsecrets = [\"a\"]\n").unwrap();
    let manager = UnixDatagram::bind(&notified).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let told = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let tokens = tokens.to_str().unwrap();
    let more = ["--tokens", tokens, "--tls-client-ca", &*ours.ca];
    let variables = [("NOTIFY_SOCKET", notified.to_str().unwrap())];
    let server = serve_at(&PORTS, home.path(), &own, &more, &variables);
    assert!(told().starts_with("READY=1\n"));
    let logged = |text: &str| fs::read_to_string(home.path().join("log")).unwrap().matches(text).count();
    for (round, file) in [tokens, &*own.cert, &*own.key, &*ours.ca].into_iter().enumerate() {
        let aside = home.path().join("aside");
        fs::rename(file, &aside).unwrap();
        assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
        server.signal("HUP");
        assert!(told().starts_with("RELOADING=1\n"));
        assert!(told().starts_with("READY=1\n"), "{file} is waited for");
        until("it says why not", || logged(&format!("{file} of ")) == 1);
        assert_eq!(logged("it is no regular file"), round + 1);
        fs::rename(&aside, file).unwrap();
        server.signal("HUP");
        assert!(told().starts_with("RELOADING=1\n") && told().starts_with("READY=1\n"));
        until("it is reloaded", || logged("SIGHUP: reloaded") == round + 1);
    }
}

#[test]
fn a_client_that_was_told_of_tls_and_lingers_keeps_its_place_from_nobody() {
    for first in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"\x16\x03\x01\x00\x02??"] {
        let home = tempfile::tempdir().unwrap();
        let ours = Authority::new(home.path(), "ours");
        let own = ours.issue("server", &["127.0.0.1"]);
        let server = serve(home.path(), &own, &["--max-connections", "2"]);
        let (mut plain, mut silent) =
            (TcpStream::connect(server.addr).unwrap(), TcpStream::connect(server.addr).unwrap());
        // Both are strangers for a second: younger ones are not ended.
        std::thread::sleep(Duration::from_millis(1_100));
        plain.write_all(first).unwrap();
        plain.read_to_end(&mut Vec::new()).unwrap();
        // It has its answer, and its place for as long as it may send on: the silent one goes for the new one.
        let mut client = shake_hands(server.addr, &ours.ca, None);
        let mut hello = PREFACE.to_vec();
        request_hello(&mut hello, 1, &Hello::new("test")).unwrap();
        client.write_all(&hello).unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap(), 0, "{first:?}");
    }
}
