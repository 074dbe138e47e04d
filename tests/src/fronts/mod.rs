//! Ids and numbers of sequences by any of the fronts, from clients that know nothing of each other.

mod http;
mod resp;
mod wanted;

use std::net::SocketAddr;
use std::time::Duration;

use crate::Server;
use crate::client::{Client, ClientError, Refusal};
use crate::http::HttpConnection;
use crate::resp::Resp;

pub use wanted::{Form, Wanted};
use wanted::{Result, run};

/// A way into a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// XUID/1.
    Xuid,
    /// The protocol of Redis.
    Resp,
    /// HTTP.
    Http,
}

impl Front {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Xuid, Self::Resp, Self::Http];
}

/// Where the fronts of a server are.
#[derive(Debug, Clone, Copy)]
pub struct Doors([SocketAddr; 3]);

impl Doors {
    /// Arguments of a server that has all of them.
    pub const ARGUMENTS: [&str; 4] = ["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"];

    /// Those of a server that has all of them.
    pub fn of(server: &Server) -> anyhow::Result<Self> {
        Ok(Self([server.addr, server.resp()?, server.http()?]))
    }

    /// One at which only XUID/1 is spoken.
    pub fn of_xuid(addr: SocketAddr) -> Self {
        Self([addr; 3])
    }

    fn at(self, front: Front) -> SocketAddr {
        self.0[front as usize]
    }
}

/// A client of one front.
#[derive(Debug)]
pub enum Caller {
    /// Of XUID/1.
    Xuid(Client),
    /// Of the protocol of Redis.
    Resp(Resp),
    /// Of HTTP.
    Http(HttpConnection),
}

impl Caller {
    /// Connects; where the front has a greeting, that must come within `limit`.
    pub fn connect(doors: Doors, front: Front, limit: Duration) -> Result<Self> {
        let addr = doors.at(front);
        Ok(match front {
            Front::Xuid => Self::Xuid(Client::connect_within(addr, limit)?),
            Front::Resp => Self::Resp(Resp::connect(addr).map_err(resp::failed)?),
            Front::Http => Self::Http(HttpConnection::open(addr)?),
        })
    }

    /// Whether the server has said that it goes.
    pub fn is_going_away(&self) -> bool {
        match self {
            Self::Xuid(client) => client.is_going_away(),
            Self::Resp(_) => false,
            Self::Http(connection) => connection.is_closed(),
        }
    }

    /// What was asked for, to the number.
    pub fn take(&mut self, wanted: &Wanted<'_>) -> Result<Vec<u64>> {
        let mut all = Vec::new();
        self.take_many(1, wanted, |mut numbers| all.append(&mut numbers))?;
        Ok(all)
    }

    /// So many requests in one piece. What each brings goes to `got` as it comes; the first refusal is the error, and what
    /// comes behind it counts, too.
    pub fn take_many(
        &mut self,
        requests: usize,
        wanted: &Wanted<'_>,
        mut got: impl FnMut(Vec<u64>),
    ) -> Result<()> {
        let mut refused = None;
        match self {
            Self::Xuid(client) => {
                for _ in 0..requests {
                    got(of_xuid(client, wanted)?);
                }
            }
            Self::Resp(client) => {
                let bytes = resp::request(wanted).repeat(requests);
                client.send(&bytes).map_err(resp::failed)?;
                for _ in 0..requests {
                    keep_first(&mut refused, resp::reply(client, wanted).map(&mut got))?;
                }
            }
            Self::Http(connection) => {
                let bytes = http::request(wanted).repeat(requests);
                connection.send(&bytes)?;
                for _ in 0..requests {
                    keep_first(&mut refused, http::reply(connection, wanted).map(&mut got))?;
                }
            }
        }
        refused.map_or(Ok(()), |refusal: Refusal| Err(refusal.into()))
    }
}

/// Puts a refusal aside; any other error ends the reading.
fn keep_first(refused: &mut Option<Refusal>, answer: Result<()>) -> Result<()> {
    match answer {
        Err(ClientError::Refused(refusal)) => {
            refused.get_or_insert(refusal);
            Ok(())
        }
        other => other,
    }
}

fn of_xuid(client: &mut Client, wanted: &Wanted<'_>) -> Result<Vec<u64>> {
    let Wanted { sequence, count, order, wait, form } = *wanted;
    match (sequence, form) {
        (Some((name, _)), Form::One) => client.seq_next(name).map(|number| vec![number]),
        (Some((name, _)), Form::List) => client.seq_array(name, count, wait, order),
        (Some((name, _)), _) => client.seq_runs(name, count, wait, order, form == Form::Piece),
        (None, Form::One) => client.next(order).map(|id| vec![id]),
        (None, Form::List) => client.array(count, wait, order),
        (None, _) => {
            let runs = client.runs(count, wait, order)?.into_iter();
            Ok(runs.flat_map(|each| run(each.first, each.count.into(), each.stride.into())).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Order;

    #[test]
    fn requests_are_what_a_client_of_each_front_sends() {
        let wanted = |form| Wanted {
            sequence: Some(("a", 3)),
            count: 2,
            order: Order::Ordered,
            wait: Duration::ZERO,
            form,
        };
        assert_eq!(resp::request(&wanted(Form::One)), b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n");
        let batch = b"*3\r\n$10\r\nXUID.BATCH\r\n$1\r\n2\r\n$1\r\na\r\n";
        assert_eq!(resp::request(&wanted(Form::List)), batch);
        assert!(http::request(&wanted(Form::One)).starts_with(b"GET /api/segment/get/a HTTP/1.1\r\n"));
        let piece = String::from_utf8(http::request(&wanted(Form::Piece))).unwrap();
        assert!(piece.starts_with("POST /v1/sequences/a/next?as=runs HTTP/1.1\r\n"), "{piece}");
        assert!(
            piece.ends_with("\r\n\r\n{\"contiguous\":true,\"count\":2,\"order\":\"ordered\"}"),
            "{piece}"
        );
    }
}
