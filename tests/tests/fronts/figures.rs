//! What a server tells of its fronts.

use std::net::TcpStream;

use anyhow::{Result, ensure};
use xuid_tests::{Client, Resp, Serve, Server, clock, http};

use crate::LONG;

/// A figure of `/metrics`, as it stands there.
fn figure(server: &Server, name: &str) -> Result<String> {
    Ok(server.metrics()?.value(name).map_or_else(String::new, |value| value.to_string()))
}

/// Connections open at this front.
fn open(server: &Server, front: &str) -> Result<String> {
    figure(server, &format!("xuid_front_connections_open{{front=\"{front}\"}}"))
}

#[test]
fn open_connections_are_told_by_front() -> Result<()> {
    let server = Serve::fresh()?.arg("--resp").arg("127.0.0.1:0").arg("--http").arg("127.0.0.1:0").start()?;
    let are = |xuid: u64, resp: u64, http: u64| {
        clock::wait_until("connections are counted", LONG, || {
            Ok(open(&server, "xuid")? == xuid.to_string()
                && open(&server, "resp")? == resp.to_string()
                && open(&server, "http")? == http.to_string()
                && figure(&server, "xuid_connections_open")? == (xuid + resp + http).to_string())
        })
    };
    are(0, 0, 0)?;
    let _client = Client::connect(server.addr)?;
    let redis = [Resp::connect(server.resp()?)?, Resp::connect(server.resp()?)?];
    let _curl = TcpStream::connect(server.http()?)?;
    are(1, 2, 1)?;
    let (_, page) = http::get(server.admin, "/")?;
    ensure!(page.contains("<td>4 (xuid 1, resp 2, http 1, admin "), "{page}");
    drop(redis);
    are(1, 0, 1)?;
    // The one that reads the page is open meanwhile, and no client's.
    let admin: u64 = open(&server, "admin")?.parse()?;
    ensure!((1..8).contains(&admin), "{admin} connections of the admin port");
    server.stop().map(drop)
}
