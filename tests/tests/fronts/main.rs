//! The fronts beside XUID/1, by the programs and libraries that people have already.

mod figures;
mod http;
mod increments;
mod libraries;
mod strangers;
mod tls;
mod tools;

use std::time::Duration;

use anyhow::Result;
use xuid_tests::{Resp, Serve, Server};

/// A machine that does much else.
const LONG: Duration = Duration::from_mins(2);

/// A server with sequences that also speaks the protocol of Redis; counters are created by their first use.
fn serve() -> Result<Server> {
    let serve = Serve::fresh()?.arg("--resp").arg("127.0.0.1:0").arg("--sequences").arg("registry");
    serve.arg("--sequence-create").arg("counter:*,test:*").start()
}

fn connect(server: &Server) -> Result<Resp> {
    Resp::connect(server.resp()?)
}
