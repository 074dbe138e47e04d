//! The conversation without a socket: bytes in, bytes out.

mod answers;
mod greeting;
mod ids;
mod sequences;
mod turns;
mod waiting;

use xuid_protocol::{
    Bulk, Decoded, EARLY_PINGS, Hello, Order, PREFACE, ParsedReply, Reply, Status, parse_reply,
    request_array, request_bye, request_decode, request_hello, request_info, request_next, request_ping,
    request_runs, request_stats,
};

use super::*;
use crate::config::Tokens;
use crate::fronts::fixture::{self, Home, PATIENCE};

type Talk = fixture::Talk<Session>;

/// A reply without its borrow.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Hello,
    Ping(Vec<u8>),
    Ids(Vec<u64>),
    Decoded(Decoded),
    Json(String),
    Bye,
    GoAway,
    Error(Status),
}

impl Talk {
    fn of(server: Arc<Server>) -> Self {
        Self::from(server, None)
    }

    fn from(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        Self::new(Session::new(server, address))
    }

    fn greeted(server: Arc<Server>) -> Self {
        Self::of(server).greet(&Hello::new("test"))
    }

    fn greet(mut self, hello: &Hello<'_>) -> Self {
        assert_eq!(self.send(&greeting(hello)), Need::Input);
        assert_eq!(self.replies(), [(1, Said::Hello)]);
        self
    }

    /// How long requests of each op took that were written `took` after they were read, and those that waited.
    fn timed(&mut self, took: Duration) -> Vec<(Op, u64, Duration)> {
        let now = self.session.client.came.unwrap() + took;
        self.session.written_at(now);
        let times = self.session.client.server.traffic.times();
        times.map(|(op, times)| (op, times.count(), times.sum())).filter(|(_, count, _)| *count > 0).collect()
    }

    /// What was answered since the last look.
    fn replies(&mut self) -> Vec<(u64, Said)> {
        let mut said = Vec::new();
        while let Ok(ParsedReply::Frame { consumed, request_id, reply, .. }) =
            parse_reply(self.outbox.rest(), u32::MAX)
        {
            said.push((request_id, owned(&reply)));
            self.outbox.consume(consumed);
        }
        assert!(self.outbox.is_empty(), "half a frame was answered: {:?}", self.outbox.rest());
        said
    }
}

fn owned(reply: &Reply<'_>) -> Said {
    match reply {
        Reply::Hello(_) => Said::Hello,
        Reply::Ping(bytes) => Said::Ping(bytes.to_vec()),
        Reply::Next(id) => Said::Ids(vec![*id]),
        Reply::Array(ids) => Said::Ids(ids.iter().collect()),
        Reply::Runs(runs) => Said::Ids(runs.iter().flatten().collect()),
        Reply::Decode(decoded) => Said::Decoded(*decoded),
        Reply::Info(json) | Reply::Stats(json) | Reply::Provenance(json) | Reply::Sequence(json) => {
            Said::Json((*json).to_owned())
        }
        Reply::Bye => Said::Bye,
        Reply::GoAway => Said::GoAway,
        Reply::Error(error) => Said::Error(error.status),
    }
}

fn greeting(hello: &Hello<'_>) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    request_hello(&mut bytes, 1, hello).unwrap();
    bytes
}

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// Lets tasks do what they can.
async fn tasks_go_on() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}
