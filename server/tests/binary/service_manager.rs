//! What the binary tells a service manager, read by one.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::support::{Server, greet, reply, until};

use xuid_protocol::Reply;

/// The manager's socket is read with patience: nothing here takes so long.
fn message(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 512];
    let length = manager.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// Runs a server under this manager from its start to its end.
fn a_life_is_told(manager: &UnixDatagram, address: &str) {
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let home = tempfile::tempdir().unwrap();
    let variables = [("NOTIFY_SOCKET", address), ("WATCHDOG_USEC", "100000")];
    let mut server = Server::start(home.path(), &["--drain", "2s"], &variables);
    assert_eq!(message(manager), format!("READY=1\nSTATUS=serving on {}", server.addr));
    assert!(reply(&mut greet(server.addr, ""), |reply| matches!(reply, Reply::Hello(_))));
    for _ in 0..3 {
        assert_eq!(message(manager), "WATCHDOG=1");
    }
    server.signal("TERM");
    let last = std::iter::repeat_with(|| message(manager)).find(|told| told != "WATCHDOG=1");
    assert_eq!(last.unwrap(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000000\nSTATUS=stopping within 3s");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_manager_is_told_by_a_path_that_the_server_serves_turns_and_stops() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    a_life_is_told(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
}

#[test]
fn a_manager_is_told_by_an_abstract_name_as_well() {
    let name = format!("xuid-binary-{}", std::process::id());
    let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    a_life_is_told(&manager, &format!("@{name}"));
}

#[test]
fn a_reload_in_a_stop_is_not_told_to_the_manager() {
    let home = tempfile::tempdir().unwrap();
    let (path, log) = (home.path().join("notify"), home.path().join("log"));
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--lame-duck", "60s"];
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let data = home.path().join("data");
    let mut server = Server::start_at(&ports, &data, &[], &variables, File::create(&log).unwrap());
    let reload = |count: usize| {
        server.signal("HUP");
        until("it is reloaded", || {
            fs::read_to_string(&log).unwrap().matches("SIGHUP: reloaded").count() == count
        });
    };
    assert!(message(&manager).starts_with("READY=1\n"));
    reload(1);
    assert!(message(&manager).starts_with("RELOADING=1\n"));
    assert!(message(&manager).starts_with("READY=1\n"));
    server.signal("TERM");
    assert!(message(&manager).starts_with("STOPPING=1\n"));
    reload(2);
    // The third is read once the second is over, with all that it told.
    reload(3);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(1), "the second signal ends it at once");
    manager.set_nonblocking(true).unwrap();
    assert_eq!(manager.recv(&mut [0; 512]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_manager_that_is_gone_and_one_that_never_reads_stop_no_server() {
    let home = tempfile::tempdir().unwrap();
    let deaf = home.path().join("deaf");
    let _never_read = UnixDatagram::bind(&deaf).unwrap();
    for address in [home.path().join("gone"), deaf] {
        let variables = [("NOTIFY_SOCKET", address.to_str().unwrap()), ("WATCHDOG_USEC", "2000")];
        let mut server = Server::start(&home.path().join("data"), &[], &variables);
        // Longer than a socket has room for messages.
        for _ in 0..200 {
            assert!(reply(&mut greet(server.addr, ""), |reply| matches!(reply, Reply::Hello(_))));
        }
        server.signal("TERM");
        assert_eq!(server.exit_code(), Some(0));
    }
}
