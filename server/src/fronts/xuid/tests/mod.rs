//! The conversation without a socket: bytes in, bytes out.

mod answers;
mod greeting;
mod ids;
mod sequences;
mod waiting;

use std::sync::{Arc, OnceLock};

use tokio::runtime::Builder;
use xuid_engine::{Engine, Floor};
use xuid_protocol::{
    Bulk, Decoded, EARLY_PINGS, Hello, Limits as ProtocolLimits, Order, PREFACE, ParsedReply, Reply, Status,
    parse_reply, request_array, request_bye, request_decode, request_hello, request_info, request_next,
    request_ping, request_runs, request_stats,
};

use super::*;
use crate::config::Tokens;
use crate::state::access::AccessRules;
use crate::state::sequences::ServedSequences;
use crate::state::server::{Limits, Places};

/// So long may ids take that must come: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server in a folder of its own, with ten years declared unused so that nothing is ever short of `any` ids.
struct Home {
    server: Arc<Server>,
    _folder: tempfile::TempDir,
}

impl Home {
    fn new(tokens: Tokens) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let decade = Duration::from_hours(10 * 365 * 24);
        let engine =
            Engine::builder().data_dir(folder.path()).floor(Floor::Epoch).max_age(decade).backfill(decade);
        let limits = Limits { wait: PATIENCE, protocol: ProtocolLimits::default() };
        let address = "127.0.0.1:7654".parse().unwrap();
        let places = Places {
            listen: address,
            admin: Some("127.0.0.1:7655".parse().unwrap()),
            resp: None,
            http: None,
        };
        let server = Server::new(engine.build().unwrap(), limits, AccessRules::new(tokens, None), places);
        Self { server: Arc::new(server), _folder: folder }
    }

    /// One for all tests that only ask.
    fn shared() -> Arc<Server> {
        static HOME: OnceLock<Home> = OnceLock::new();
        Arc::clone(&HOME.get_or_init(|| Self::new(Tokens::default())).server)
    }
}

/// A client and its session, with buffers in between.
struct Talk {
    session: Session,
    inbox: Inbox,
    outbox: Outbox,
}

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
    fn new(server: Arc<Server>) -> Self {
        Self::from(server, None)
    }

    fn from(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        Self { session: Session::new(server, address), inbox: Inbox::default(), outbox: Outbox::default() }
    }

    fn greeted(server: Arc<Server>) -> Self {
        Self::new(server).greet(&Hello::new("test"))
    }

    fn greet(mut self, hello: &Hello<'_>) -> Self {
        assert_eq!(self.say(&greeting(hello)), Need::Input);
        assert_eq!(self.replies(), [(1, Said::Hello)]);
        self
    }

    /// How long requests of each op took that were written `took` after they were read, and those that waited.
    fn timed(&mut self, took: Duration) -> Vec<(Op, u64, Duration)> {
        let now = self.session.came.unwrap() + took;
        self.session.written_at(now);
        let times = self.session.server.traffic.times();
        times.map(|(op, times)| (op, times.count(), times.sum())).filter(|(_, count, _)| *count > 0).collect()
    }

    fn say(&mut self, bytes: &[u8]) -> Need {
        self.inbox.room(bytes.len()).extend_from_slice(bytes);
        self.session.receive(&mut self.inbox, &mut self.outbox, usize::MAX)
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

    /// Waits until nothing waits any more.
    fn settle(&mut self) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while self.session.in_flight() > 0 {
                let done = self.session.waited().await;
                self.session.finish(done, &mut self.outbox);
            }
        });
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
        Reply::Info(json) | Reply::Stats(json) | Reply::Sequence(json) => Said::Json((*json).to_owned()),
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
