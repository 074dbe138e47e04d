//! Replies that bring no ids.

use std::sync::Arc;

use futures_util::FutureExt;
use xuid_engine::Id;
use xuid_engine::sequence::SequenceName;
use xuid_protocol::{Op, Refusal, Status};

use super::Session;
use super::command::{COMMANDS, Command, OfClient};
use super::glob::Pattern;
use super::keys::{self, Answer};
use super::reply::Reply;
use super::take::served;
use super::waiting::Ended;
use crate::config::Right;
use crate::fronts::names::may;
use crate::fronts::refusals::{forbidden, of_control};
use crate::state::id_limit::Charged;
use crate::state::sequences::as_json;
use crate::state::server::VERSION;

/// The version of Redis whose commands these are, for libraries that look at it.
const REDIS_VERSION: &str = "7.0.0";

/// The longest name of a client.
const MOST_NAME: usize = 255;

/// What CONFIG GET knows: what redis-benchmark asks for.
const CONFIG: [(&str, &str); 2] = [("appendonly", "no"), ("save", "")];

impl Session {
    /// Begins to answer a question that the store has its part in; other commands are returned.
    pub(super) fn about_names<'a>(&mut self, command: Command<'a>) -> Result<Option<Command<'a>>, Refusal> {
        let server = Arc::clone(&self.client.server);
        let all = || Ok(served(server.sequences.as_ref())?.all.clone());
        let op = match &command {
            Command::SetIfAbsent { .. } | Command::Create { .. } => Op::SeqCreate,
            Command::Scan(_) | Command::Keys { .. } | Command::Size => Op::SeqList,
            _ => Op::SeqInfo,
        };
        let answer: Box<dyn Future<Output = Answer> + Send + Unpin> = match command {
            Command::Get { name } => Box::new(Box::pin(keys::get(all()?, self.seen(name)?))),
            Command::Type { name } => Box::new(Box::pin(keys::kind(all()?, self.seen(name)?))),
            Command::TimeToLive { name } => Box::new(Box::pin(keys::time_to_live(all()?, self.seen(name)?))),
            Command::Exists { names } => {
                let names = names.into_iter().map(|name| self.seen(name)).collect::<Result<_, _>>()?;
                Box::new(Box::pin(keys::exists(all()?, names)))
            }
            Command::SetIfAbsent { name, value, is_answered_by_number } => {
                let sequences = served(server.sequences.as_ref())?;
                self.check(Right::Create, Op::SeqCreate, name.as_str())?;
                let step = sequences.step;
                Box::new(Box::pin(keys::set_if_absent(all()?, name, value, step, is_answered_by_number)))
            }
            Command::Create { name, settings } => {
                let sequences = served(server.sequences.as_ref())?;
                self.check(Right::Create, Op::SeqCreate, name.as_str())?;
                let new = sequences.parse_new(&settings);
                let new = new.map_err(|text| Refusal::new(Status::BAD_REQUEST, text))?;
                let created = sequences.all.create(&name, new);
                Box::new(
                    created.map(|created| {
                        created.map(|_| Reply::Simple("OK")).map_err(|error| of_control(&error))
                    }),
                )
            }
            Command::SequenceInfo { name } => {
                let info = all()?.info(&self.seen(name)?);
                Box::new(info.map(|info| {
                    info.map(|info| Reply::bulk(as_json(&info).to_string()))
                        .map_err(|error| of_control(&error))
                }))
            }
            Command::Scan(scan) => {
                let (rights, cursors) =
                    (self.client.rights.now(&server.access).clone(), server.cursors.clone());
                Box::new(Box::pin(keys::scan(all()?, rights, keys::owned(scan), cursors)))
            }
            Command::Keys { pattern } => {
                self.client.check_unread(op, keys::MOST_KEYS)?;
                let rights = self.client.rights.now(&server.access).clone();
                Box::new(Box::pin(keys::keys(
                    all()?,
                    rights,
                    pattern.to_owned(),
                    Arc::clone(&server.gathered),
                )))
            }
            Command::Size => {
                let rights = self.client.rights.now(&server.access).clone();
                Box::new(Box::pin(keys::size(all()?, rights)))
            }
            other => return Ok(Some(other)),
        };
        self.client.tally.request(op);
        self.wait_for(op, Charged::default(), answer.map(Ended::Answer));
        Ok(None)
    }

    /// The name, if the client's token may see it.
    fn seen(&mut self, name: SequenceName) -> Result<SequenceName, Refusal> {
        if self.client.rights.now(&self.client.server.access).may_see(name.as_str()) {
            return Ok(name);
        }
        Err(forbidden(Op::SeqInfo, name.as_str()))
    }

    fn check(&mut self, right: Right, op: Op, name: &str) -> Result<(), Refusal> {
        if may(&mut self.client.rights, &self.client.server.access, right, name.as_bytes()) {
            return Ok(());
        }
        Err(forbidden(op, name))
    }

    /// Answers what needs neither ids nor the store.
    pub(super) fn at_once(&mut self, command: &Command<'_>) -> Result<Reply, Refusal> {
        let ok = Reply::Simple("OK");
        Ok(match *command {
            Command::Ping { message: None } => {
                self.client.tally.request(Op::Ping);
                self.client.tally.answered(Op::Ping, 1);
                Reply::Simple("PONG")
            }
            Command::Ping { message: Some(message) } | Command::Echo { message } => {
                self.client.tally.request(Op::Ping);
                self.client.tally.answered(Op::Ping, 1);
                Reply::Bulk(message.to_vec())
            }
            Command::Decode { id } => {
                self.client.tally.request(Op::Decode);
                let parts = self.client.server.engine.decode(Id::from_raw(id).unwrap_or_default());
                Reply::Map(vec![
                    ("unix_ms", Reply::Integer(i64::try_from(parts.unix_ms).unwrap_or(i64::MAX))),
                    ("worker", Reply::Integer(parts.worker.into())),
                    ("sequence", Reply::Integer(parts.sequence.into())),
                ])
            }
            Command::ServerInfo => {
                self.client.tally.request(Op::Info);
                Reply::bulk(self.client.server.info().to_string())
            }
            Command::Info => {
                self.client.tally.request(Op::Info);
                Reply::bulk(format!(
                    "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nxuid_version:{VERSION}\r\n\
                     tcp_port:{}\r\nuptime_in_seconds:{}\r\n# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\n",
                    self.client.server.places.resp.map_or(0, |place| place.port()),
                    self.client.server.uptime().as_secs()
                ))
            }
            Command::Commands { counts: true } => Reply::count(COMMANDS.len()),
            Command::Commands { counts: false } => Reply::List(Vec::new()),
            Command::Config { pattern } => {
                let pattern = Pattern::new(&pattern.to_ascii_lowercase());
                let known = CONFIG.into_iter().filter(|(name, _)| pattern.fits(name));
                Reply::Map(known.map(|(name, value)| (name, Reply::bulk(value))).collect())
            }
            Command::Client(OfClient::SetName(name)) => {
                self.set_name(name)?;
                ok
            }
            Command::Client(OfClient::GetName) if self.name.is_empty() => Reply::Null,
            Command::Client(OfClient::GetName) => Reply::bulk(self.name.clone()),
            Command::Client(OfClient::Id) => Reply::Integer(i64::try_from(self.id).unwrap_or(i64::MAX)),
            Command::Client(OfClient::Noted) | Command::Select | Command::Unwatch => ok,
            _ => unreachable!("answered by the session itself"),
        })
    }

    /// What HELLO is answered with.
    pub(super) fn greeting(&self) -> Reply {
        Reply::Map(vec![
            ("server", Reply::bulk("xuid")),
            ("version", Reply::bulk(VERSION)),
            ("proto", Reply::Integer(if self.is_version_3 { 3 } else { 2 })),
            ("id", Reply::Integer(i64::try_from(self.id).unwrap_or(i64::MAX))),
            ("mode", Reply::bulk("standalone")),
            ("role", Reply::bulk("master")),
            ("modules", Reply::List(Vec::new())),
        ])
    }

    /// What the client calls itself from now on.
    pub(super) fn set_name(&mut self, name: &[u8]) -> Result<(), Refusal> {
        let text = str::from_utf8(name)
            .ok()
            .filter(|text| text.len() <= MOST_NAME && text.bytes().all(|byte| byte.is_ascii_graphic()));
        let text = text.ok_or_else(|| {
            let text = "Client names cannot contain spaces, newlines or special characters, nor have more than 255 bytes.";
            Refusal::new(Status::BAD_REQUEST, text)
        })?;
        tracing::debug!(client = text, "named");
        text.clone_into(&mut self.name);
        Ok(())
    }
}
