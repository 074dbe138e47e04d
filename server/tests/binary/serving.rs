//! A server's limits and its end.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use xuid_protocol::{Bulk, Hello, Order, PREFACE, Reply, Status, request_hello, request_next, request_runs};

use crate::support::{Server, failure, get, greet, reply, run, stdout, until, xuid};

fn is_hello(reply: &Reply<'_>) -> bool {
    matches!(reply, Reply::Hello(_))
}

#[test]
fn a_connection_too_many_is_refused_and_the_others_are_served() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--max-connections", "2"], &[]);
    let (mut first, mut second) = (greet(server.addr, ""), greet(server.addr, ""));
    assert!(reply(&mut first, is_hello) && reply(&mut second, is_hello));
    let mut third = Vec::new();
    greet(server.addr, "").read_to_end(&mut third).unwrap();
    assert!(String::from_utf8_lossy(&third).contains("max_connections"), "{third:?}");
    drop(first);
    until("the place is free again", || {
        let mut bytes = [0];
        greet(server.addr, "").read(&mut bytes).is_ok_and(|read| read > 0)
    });
}

#[test]
fn a_token_from_the_environment_is_asked_of_clients_and_sent_by_commands() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[("XUID_TOKEN", "open sesame")]);
    let mut stranger = greet(server.addr, "open");
    let status = reply(&mut stranger, |reply| match reply {
        Reply::Error(error) => Some(error.status),
        _ => None,
    });
    assert_eq!(status, Some(Status::UNAUTHENTICATED));
    assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "and it is closed");
    let address = server.addr.to_string();
    let refused = run(&["next", "--server", &address]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("XUID_TOKEN"));
    let mut next = xuid(&["next", "--server", &address]);
    stdout(&next.env("XUID_TOKEN", "open sesame").output().unwrap());
    let no_text = OsStr::from_bytes(b"\xff\xfe");
    let (code, said) = failure(&next.env("XUID_TOKEN", no_text).output().unwrap());
    assert!(code == Some(1) && said.contains("not UTF-8") && !said.contains("none was sent"), "{said}");
}

#[test]
fn one_thread_is_enough() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &["--threads", "1"], &[]);
    let address = server.addr.to_string();
    let ids = stdout(&run(&["next", "-n", "100000", "--order", "ordered", "--server", &address]));
    let ids: Vec<u64> = ids.lines().map(|line| line.parse().unwrap()).collect();
    assert!(ids.len() == 100_000 && ids.is_sorted_by(|left, right| left < right));
    assert_eq!(get(server.admin, "/readyz").0, 200);
    server.signal("INT");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_client_that_has_shut_its_side_down_gets_every_page_of_the_admin_port() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    for path in ["/livez", "/readyz", "/metrics", "/"] {
        for round in 0..20 {
            let mut client = TcpStream::connect(server.admin).unwrap();
            write!(client, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut page = String::new();
            client.read_to_string(&mut page).unwrap();
            assert!(page.starts_with("HTTP/1.0 200 "), "{path}, round {round}: {page:?}");
        }
    }
}

#[test]
fn silent_connections_of_the_admin_port_keep_no_probe_and_no_client_out() {
    let home = tempfile::tempdir().unwrap();
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=256:256").arg(xuid(&[]).get_program());
    limited.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--threads", "1"]);
    limited.args(["--max-connections", "16", "--data-dir"]).arg(home.path());
    let limited = limited.env_remove("RUST_LOG").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = limited.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let mut found = first.split([' ', ',', '/', '\n']).filter_map(|word| word.parse().ok());
    let server = Server::of(child, found.next().unwrap(), found.next().unwrap());
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(server.admin).unwrap()).collect();
    let patience = Some(Duration::from_secs(10));
    let mut probe = TcpStream::connect(server.admin).unwrap();
    probe.set_read_timeout(patience).unwrap();
    write!(probe, "GET /livez HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    probe.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.0 200 "), "{page}");
    let mut client = greet(server.addr, "");
    client.set_read_timeout(patience).unwrap();
    assert!(reply(&mut client, is_hello));
    drop(silent);
}

#[test]
fn several_threads_share_the_connections_and_a_stop_says_goodbye_on_each() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &["--threads", "3"], &[]);
    let mut clients: Vec<_> = (0..7).map(|_| greet(server.addr, "")).collect();
    let mut seen = HashSet::new();
    for client in &mut clients {
        assert!(reply(client, is_hello));
        let mut bytes = Vec::new();
        (0..500).for_each(|request_id| request_next(&mut bytes, request_id, Order::Any));
        client.write_all(&bytes).unwrap();
    }
    for client in &mut clients {
        for _ in 0..500 {
            let id = reply(client, |reply| if let Reply::Next(id) = reply { Some(*id) } else { None });
            assert!(seen.insert(id.unwrap()), "{id:?} came twice");
        }
    }
    server.signal("TERM");
    for client in &mut clients {
        assert!(reply(client, |reply| *reply == Reply::GoAway));
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "and it is closed");
    }
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_request_that_crosses_the_goaway_behind_a_late_hello_is_answered() {
    // A loaded machine may be too late with HELLO or with the request; it is not so each time.
    assert!((0..5).any(|_| is_answered_behind_a_late_hello()));
}

fn is_answered_behind_a_late_hello() -> bool {
    // Nothing else in a reply looks like it.
    const REQUEST: u64 = 0x0123_4567_89ab_cdef;
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let mut client = TcpStream::connect(server.addr).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(&PREFACE).unwrap();
    until("it is accepted", || get(server.admin, "/metrics").1.contains("\nxuid_connections_open 1\n"));
    server.signal("TERM");
    until("it drains", || get(server.admin, "/readyz").0 == 503);
    std::thread::sleep(Duration::from_millis(120));
    let mut bytes = Vec::new();
    request_hello(&mut bytes, 1, &Hello::new("late")).unwrap();
    let greeted = client.write_all(&bytes).and_then(|()| client.read(&mut [0; 1]));
    // Later than 250 ms after the stop, and sooner than 250 ms after GOAWAY.
    std::thread::sleep(Duration::from_millis(160));
    bytes.clear();
    request_next(&mut bytes, REQUEST, Order::Any);
    let mut answers = Vec::new();
    let _ = client.write_all(&bytes).and_then(|()| client.read_to_end(&mut answers));
    greeted.is_ok() && answers.windows(8).any(|bytes| bytes == REQUEST.to_le_bytes())
}

#[test]
fn what_was_sent_behind_goaway_while_the_server_stood_still_is_answered() {
    const REQUESTS: u64 = 300 * 1_024 / 16;
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--idle", "1s"], &[]);
    let mut bytes = Vec::new();
    (0..REQUESTS).for_each(|request_id| request_next(&mut bytes, request_id, Order::Any));
    assert_eq!(bytes.len(), 300 * 1_024);
    // On a loaded machine the server may close before it stands still. It does not do so each time.
    let mut client =
        (0..5).find_map(|_| sent_away(&server)).expect("a connection that is open behind GOAWAY");
    client.write_all(&bytes).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    server.signal("CONT");
    let mut seen = HashSet::new();
    for _ in 0..REQUESTS {
        let id = reply(&mut client, |reply| if let Reply::Next(id) = reply { Some(*id) } else { None });
        assert!(seen.insert(id.unwrap()), "{id:?} came twice");
    }
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "and it is closed");
}

/// An idle connection that has just got its GOAWAY, at a server that stands still from then on; `None`, and the server goes
/// on, if it was closed before.
fn sent_away(server: &Server) -> Option<TcpStream> {
    let mut client = greet(server.addr, "");
    // The socket of a server that stands still takes less than this test sends.
    set_socket_send_buffer_size(&client, 1 << 20).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(reply(&mut client, is_hello) && reply(&mut client, |reply| *reply == Reply::GoAway));
    stood_still(server, client)
}

/// The connection, at a server that stands still from now on; `None`, and the server goes on, if it was closed before.
fn stood_still(server: &Server, mut client: TcpStream) -> Option<TcpStream> {
    server.signal("STOP");
    client.set_nonblocking(true).unwrap();
    // A signal takes a moment until every thread of the process stands still.
    std::thread::sleep(Duration::from_millis(20));
    let is_open = client.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    if !is_open {
        server.signal("CONT");
    }
    is_open.then_some(client)
}

#[test]
fn the_last_look_behind_goaway_takes_all_that_one_may() {
    const REQUESTS: usize = 60 * 1_024 / 16;
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--idle", "1s"], &[]);
    let mut one = Vec::new();
    request_next(&mut one, 1, Order::Any);
    let is_next = |reply: &Reply<'_>| matches!(reply, Reply::Next(_));
    // Its time behind GOAWAY is over once, and set anew for what was found, and then over once more.
    let once_more = || {
        let mut client = sent_away(&server)?;
        client.write_all(&one).unwrap();
        std::thread::sleep(Duration::from_millis(400));
        server.signal("CONT");
        assert!(reply(&mut client, is_next));
        stood_still(&server, client)
    };
    let mut client = (0..5).find_map(|_| once_more()).expect("a connection that is open behind GOAWAY");
    client.write_all(&one.repeat(REQUESTS)).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    server.signal("CONT");
    for request in 0..REQUESTS {
        assert!(reply(&mut client, is_next), "{request}");
    }
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "and it is closed");
}

#[test]
fn a_client_that_never_stops_asking_is_closed_behind_goaway_all_the_same() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &["--drain", "1m"], &[]);
    let mut client = greet(server.addr, "");
    assert!(reply(&mut client, is_hello));
    let mut asking = client.try_clone().unwrap();
    let asking = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        (0..100).for_each(|request_id| request_next(&mut bytes, request_id, Order::Any));
        while asking.write_all(&bytes).is_ok() {}
    });
    server.signal("TERM");
    // An end or a reset.
    while client.read(&mut [0; 4_096]).is_ok_and(|count| count > 0) {}
    asking.join().unwrap();
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_stop_is_unready_at_once_answers_what_waits_and_a_second_signal_ends_it() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[], &[]);
    let mut client = greet(server.addr, "");
    assert!(reply(&mut client, is_hello));
    let mut bytes = Vec::new();
    // Many times what a worker mints while the server drains.
    for request_id in 0..400 {
        request_runs(&mut bytes, request_id, Bulk::new(131_072, Order::Fresh, Duration::from_mins(1)));
    }
    client.write_all(&bytes).unwrap();
    assert!(reply(&mut client, |reply| matches!(reply, Reply::Runs(_))), "the first ones are served");
    server.signal("TERM");
    until("it is unready", || get(server.admin, "/readyz").0 == 503);
    assert!(
        reply(&mut client, |reply| matches!(reply, Reply::Runs(_) | Reply::GoAway)),
        "and it goes on meanwhile"
    );
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(1));
}

/// A pipe that is full and that nobody reads, as long as the reader lives.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let filling = writer.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut filling = filling;
        // It waits in there until the reader is gone.
        while filling.write_all(&[b'\n'; 512]).is_ok() {}
    });
    let moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    until("the pipe is full", || {
        let fd = writer.as_fd();
        poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&moment)).unwrap() == 0
    });
    (reader, writer)
}

#[test]
fn neither_output_has_to_be_read_for_a_server_to_begin_serve_fail_and_stop() {
    let home = tempfile::tempdir().unwrap();
    let (reader, writer) = full_pipe();
    // The banner cannot tell where it is, so the ports are found beforehand.
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (addr, admin) = (free(), free());
    let serve = |folder: &str| {
        let data = home.path().join(folder);
        let mut command =
            xuid(&["serve", "--listen", &addr.to_string(), "--admin", &admin.to_string(), "--data-dir"]);
        command.arg(data).stdout(writer.try_clone().unwrap()).stderr(writer.try_clone().unwrap());
        Server::of(command.spawn().unwrap(), addr, admin)
    };
    let mut server = serve("one");
    until("it is ready", || TcpStream::connect(admin).is_ok() && get(admin, "/readyz").0 == 200);
    assert!(reply(&mut greet(addr, ""), is_hello));
    // The ports are taken: a fatal error that nobody reads still ends the process.
    assert_eq!(serve("two").exit_code(), Some(1));
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    drop(reader);
}

/// A server with all fronts, and where those of Redis and HTTP are.
fn with_fronts(folder: &Path, more: &[&str]) -> (Server, SocketAddr, SocketAddr) {
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).unwrap();
    let (resp, http) = (free(), free());
    let places = [resp.to_string(), http.to_string()];
    let fronts = ["--resp", &places[0], "--http", &places[1], "--sequence-create", "*"];
    (Server::start(folder, &[&fronts, more].concat(), &[]), resp, http)
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// The next bytes of a reply; none at the end.
fn next_of(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 4_096];
    let count = stream.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

/// Its protocol has no word that would tell it that it was to go.
#[test]
fn a_client_of_redis_that_works_again_when_its_idle_time_is_over_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let (_server, resp, _) = with_fronts(home.path(), &["--idle", "1s"]);
    let mut client = connect(resp);
    let mut incr = |number: u64| {
        client.write_all(b"INCR a\r\n").unwrap();
        assert_eq!(next_of(&mut client), format!(":{number}\r\n"));
    };
    incr(1);
    // In the moment that behind a GOAWAY is left to a client that was told.
    std::thread::sleep(Duration::from_millis(1_100));
    for number in 2..30 {
        incr(number);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is closed when it is idle again");
}

#[test]
fn what_was_begun_when_a_stop_began_is_answered_where_no_goaway_was_heard() {
    let home = tempfile::tempdir().unwrap();
    let (mut server, resp, http) = with_fronts(home.path(), &["--drain", "20s"]);
    let (mut redis, mut web) = (connect(resp), connect(http));
    redis.write_all(b"*2\r\n$4\r\nINCR\r\n").unwrap();
    let head = "POST /v1/ids HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n";
    web.write_all(head.as_bytes()).unwrap();
    assert!(next_of(&mut web).starts_with("HTTP/1.1 100"));
    server.signal("TERM");
    std::thread::sleep(Duration::from_secs(1));
    redis.write_all(b"$1\r\na\r\n").unwrap();
    assert_eq!(next_of(&mut redis), ":1\r\n");
    web.write_all(b"{\"count\":2}").unwrap();
    let answer = next_of(&mut web);
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    assert_eq!(server.exit_code(), Some(0));
}

/// The ports close when a stop begins, which resets who waits there to be accepted.
#[test]
fn who_was_let_in_before_a_stop_closes_the_ports_is_answered() {
    let home = tempfile::tempdir().unwrap();
    let (mut server, resp, _) = with_fronts(home.path(), &["--threads", "1"]);
    server.signal("STOP");
    let ask = || {
        let mut client = connect(resp);
        client.write_all(b"INCR a\r\n").unwrap();
        client
    };
    let clients: Vec<_> = (0..20).map(|_| ask()).collect();
    server.signal("TERM");
    server.signal("CONT");
    let mut numbers: Vec<String> = clients.into_iter().map(|mut client| next_of(&mut client)).collect();
    numbers.sort();
    let mut wanted: Vec<String> = (1..=20).map(|number| format!(":{number}\r\n")).collect();
    wanted.sort();
    assert_eq!(numbers, wanted);
    assert_eq!(server.exit_code(), Some(0));
}
