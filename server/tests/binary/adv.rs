//! Adversary B: what the mends of GOAWAY, inspect and the admin port leave open.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use xuid_protocol::{Hello, Order, PREFACE, Reply, request_hello, request_next};

use crate::support::{Server, now, reply, run, shell, xuid};

/// docs/protocol.md, GOAWAY: a server reads on for 250 ms after it.
#[test]
fn a_request_soon_after_the_goaway_behind_a_late_hello_is_answered() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let mut client = TcpStream::connect(server.addr).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(&PREFACE).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    server.signal("TERM");
    // Within the 250 ms for which the server reads on after the beginning of its drain.
    std::thread::sleep(Duration::from_millis(200));
    let mut hello = Vec::new();
    request_hello(&mut hello, 1, &Hello::new("late")).unwrap();
    client.write_all(&hello).unwrap();
    assert!(reply(&mut client, |reply| matches!(reply, Reply::Hello(_))));
    assert!(reply(&mut client, |reply| *reply == Reply::GoAway));
    let told = now();
    // It crossed the GOAWAY: a client 100 ms away.
    std::thread::sleep(Duration::from_millis(100));
    let mut next = Vec::new();
    request_next(&mut next, 2, Order::Any);
    client.write_all(&next).unwrap();
    let mut answer = Vec::new();
    let read = client.read_to_end(&mut answer);
    assert!(!answer.is_empty(), "no reply to a request {:?} after GOAWAY, but {read:?}", told.elapsed());
}

#[test]
fn inspect_tells_of_a_name_that_is_not_utf_8_as_json_too() {
    let home = tempfile::tempdir().unwrap();
    drop(Server::start(home.path(), &[], &[]));
    let folder = home.path().to_str().unwrap();
    std::fs::write(home.path().join(std::ffi::OsStr::from_bytes(b"spill-\xff.refused")), b"x").unwrap();
    let text = run(&["inspect", folder]);
    assert_eq!(text.status.code(), Some(0), "{text:?}");
    let json = run(&["inspect", "--json", folder]);
    assert_eq!(json.status.code(), Some(0), "{json:?}");
}

/// Descriptors of a process.
fn files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn connections_of_the_admin_port_that_say_nothing_stop_no_client() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().to_str().unwrap();
    // The server raises the limit to what its clients need.
    let mut limit = std::process::Command::new("prlimit");
    let own = xuid(&[]);
    limit.arg("--nofile=256:256").arg(own.get_program());
    limit.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--threads", "1", "--max-connections", "16"]);
    let mut child = limit.args(["--data-dir", folder]).env_remove("RUST_LOG").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut first).unwrap();
    let mut found = first.split([' ', ',', '/', '\n']).filter_map(|word| word.parse().ok());
    let (addr, admin): (std::net::SocketAddr, std::net::SocketAddr) = (found.next().unwrap(), found.next().unwrap());
    let server = Server::of(child, addr, admin);
    let quiet: Vec<_> = (0..400).filter_map(|_| TcpStream::connect(admin).ok()).collect();
    std::thread::sleep(Duration::from_secs(45));
    let mut client = TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut hello = PREFACE.to_vec();
    request_hello(&mut hello, 1, &Hello::new("client")).unwrap();
    client.write_all(&hello).unwrap();
    let read = client.read(&mut [0; 16]);
    assert!(read.is_ok_and(|read| read > 0), "after 45 s {} silent connections of the admin port keep a client out", quiet.len());
    drop(server);
}

#[test]
fn half_closed_clients_of_the_admin_port_leave_no_descriptor_behind() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let pid: u32 = {
        let out = std::process::Command::new("pgrep").args(["-n", "-f", home.path().to_str().unwrap()]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).trim().parse().unwrap()
    };
    let before = files(pid);
    let said: [&[u8]; 8] = [
        b"",
        b"G",
        b"PRI * HT",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ];
    let mut held = Vec::new();
    for say in said {
        for _ in 0..5 {
            let mut client = TcpStream::connect(server.admin).unwrap();
            client.write_all(say).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            held.push(client);
        }
    }
    std::thread::sleep(Duration::from_secs(4));
    let after = files(pid);
    assert!(after <= before + 1, "{before} before, {after} after");
    let mut both = String::new();
    held.remove(25).read_to_string(&mut both).unwrap();
    assert_eq!(both.matches("HTTP/1.1 200").count(), 2, "{both}");
}

#[test]
fn a_token_that_is_not_utf_8_is_not_said_to_be_none() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[("XUID_TOKEN", "sesame")]);
    let mut next = xuid(&["next", "--server", &server.addr.to_string()]);
    let output = next.env("XUID_TOKEN", std::ffi::OsStr::from_bytes(b"\xff\xfe")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("none was sent"), "{said}");
    let _ = shell("true", &[]);
}
