//! What the binary tells a service manager, read by one.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::support::{Server, greet, reply};

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
