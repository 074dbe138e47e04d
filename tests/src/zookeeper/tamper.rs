//! A hand inside the tree: what an operator, a bug or an accident does to the registry's nodes.
//!
//! Synchronous; a runtime of its own with one thread keeps its session alive between two calls. A call that meets
//! an expired session or a lost connection is made again until [`LIMIT`], which is right for everything here: a test
//! that damages a node twice has damaged it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::runtime::{Builder, Runtime};
use zookeeper_client::{Acl, Acls, Client, CreateMode, Error, SaslOptions, SessionState, Stat};

use super::wire;
use crate::clock;

/// How long a call goes on trying while the ensemble is away.
const LIMIT: Duration = Duration::from_secs(15);
/// Of the session, and so of one attempt to connect.
const SESSION: Duration = Duration::from_secs(5);

/// A node as it was read.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it holds.
    pub data: Vec<u8>,
    /// Versions, times, `ephemeral_owner`.
    pub stat: Stat,
}

/// A persistent subtree in memory, parents before their children.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: Vec<Leaf>,
}

/// What it takes to make a node again.
#[derive(Debug, Clone)]
struct Leaf {
    path: String,
    data: Vec<u8>,
    acls: Vec<Acl>,
}

impl Tree {
    /// The paths and contents of its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.nodes.iter().map(|leaf| (leaf.path.as_str(), leaf.data.as_slice()))
    }
}

/// A session of its own beside those of the servers under test.
#[derive(Debug)]
pub struct Tamper {
    connect_string: String,
    /// User and password of a login by SASL.
    login: Option<(&'static str, &'static str)>,
    client: Mutex<Option<Client>>,
    runtime: Runtime,
}

impl Tamper {
    /// Connects to `host:port,host:port`; paths are absolute.
    pub fn connect(connect_string: &str) -> Result<Self> {
        Self::connect_as(None, connect_string)
    }

    /// The same, logged in by SASL as that user with that password.
    pub fn connect_as(login: Option<(&'static str, &'static str)>, connect_string: &str) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let connect_string = connect_string.to_owned();
        let tamper = Self { connect_string, login, client: Mutex::new(None), runtime };
        tamper.call("/", &async |client| client.check_stat("/").await)?;
        Ok(tamper)
    }

    /// A node, or none.
    pub fn read(&self, path: &str) -> Result<Option<Node>> {
        let read = self.call(path, &async |client| absent_is_none(client.get_data(path).await))?;
        Ok(read.map(|(data, stat)| Node { data, stat }))
    }

    /// A node that must be there.
    pub fn expect(&self, path: &str) -> Result<Node> {
        self.read(path)?.with_context(|| format!("there is no {path}"))
    }

    /// Sets a node's data whatever its version is.
    pub fn write(&self, path: &str, data: &[u8]) -> Result<Stat> {
        self.call(path, &async |client| client.set_data(path, data, None).await)
    }

    /// Makes a persistent node that everybody may change.
    pub fn create(&self, path: &str, data: &[u8]) -> Result<()> {
        self.create_as(CreateMode::Persistent, path, data)
    }

    /// Makes a node that goes with the session of this hand.
    pub fn create_ephemeral(&self, path: &str) -> Result<()> {
        self.create_as(CreateMode::Ephemeral, path, &[])
    }

    fn create_as(&self, mode: CreateMode, path: &str, data: &[u8]) -> Result<()> {
        let options = mode.with_acls(Acls::anyone_all());
        self.call(path, &async |client| match client.create(path, data, &options).await {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Deletes a node without children; whether it was there.
    pub fn delete(&self, path: &str) -> Result<bool> {
        let deleted = self.call(path, &async |client| absent_is_none(client.delete(path, None).await))?;
        Ok(deleted.is_some())
    }

    /// Deletes a node and everything below it; how many nodes that were.
    pub fn delete_tree(&self, path: &str) -> Result<usize> {
        let mut deleted = 0;
        for child in self.children(path)? {
            deleted += self.delete_tree(&below(path, &child))?;
        }
        Ok(deleted + usize::from(self.delete(path)?))
    }

    /// The names of a node's children, sorted; none of a node that is absent.
    pub fn children(&self, path: &str) -> Result<Vec<String>> {
        let found = self.call(path, &async |client| absent_is_none(client.list_children(path).await))?;
        let mut names = found.unwrap_or_default();
        names.sort();
        Ok(names)
    }

    /// A node and everything below it; ephemeral nodes are left out.
    pub fn dump(&self, path: &str) -> Result<Tree> {
        let mut tree = Tree { nodes: Vec::new() };
        self.dump_into(path, &mut tree)?;
        Ok(tree)
    }

    fn dump_into(&self, path: &str, tree: &mut Tree) -> Result<()> {
        let Some(node) = self.read(path)?.filter(|node| node.stat.ephemeral_owner == 0) else {
            return Ok(());
        };
        let (acls, _) = self.call(path, &async |client| client.get_acl(path).await)?;
        tree.nodes.push(Leaf { path: path.to_owned(), data: node.data, acls });
        self.children(path)?.iter().try_for_each(|child| self.dump_into(&below(path, child), tree))
    }

    /// Writes a dump back: data of nodes that are there, nodes that are not. What came since stays.
    pub fn write_back(&self, tree: &Tree) -> Result<()> {
        for leaf in &tree.nodes {
            let options = CreateMode::Persistent.with_acls(Acls::new(&leaf.acls));
            self.call(
                &leaf.path,
                &async |client| match client.create(&leaf.path, &leaf.data, &options).await {
                    Err(Error::NodeExists) => client.set_data(&leaf.path, &leaf.data, None).await.map(drop),
                    other => other.map(drop),
                },
            )?;
        }
        Ok(())
    }

    /// Ends the session that owns this ephemeral node, as the server does at its timeout: the node goes, and its
    /// owner finds its session expired.
    pub fn expire_owner(&self, path: &str) -> Result<()> {
        let owner = self.expect(path)?.stat.ephemeral_owner;
        ensure!(owner != 0, "{path} is not ephemeral");
        let addrs = self.connect_string.split(',').map(str::parse).collect::<Result<Vec<SocketAddr>, _>>()?;
        let mut last = None;
        // Its owner may be so quick to come back that it takes the session over again before the end of it is sent.
        let gone = clock::wait_until("the ephemeral node is gone", LIMIT, || {
            if self.read(path)?.is_none_or(|node| node.stat.ephemeral_owner != owner) {
                return Ok(true);
            }
            last = addrs.iter().find_map(|addr| wire::end_session(*addr, owner).err());
            Ok(false)
        });
        gone.with_context(|| format!("ending session {owner:#x}: {last:?}"))?;
        Ok(())
    }

    /// Makes `request` with a session that works.
    fn call<T>(
        &self,
        path: &str,
        request: &impl AsyncFn(&Client) -> std::result::Result<T, Error>,
    ) -> Result<T> {
        let begin = clock::now();
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let outcome = self.runtime.block_on(async { request(self.session(&mut slot).await?).await });
            match outcome {
                Ok(value) => return Ok(value),
                Err(error) if passing(&error) && begin.elapsed() < LIMIT => {
                    // A new session each time: an old one's requests may still be queued, and would land late.
                    *slot = None;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => bail!("{path} at {}: {error}", self.connect_string),
            }
        }
    }

    /// The session in the slot, or a new one.
    async fn session<'a>(&self, slot: &'a mut Option<Client>) -> std::result::Result<&'a Client, Error> {
        let client = match slot.take() {
            Some(client) if client.state() == SessionState::SyncConnected => client,
            _ => {
                let mut connector = Client::connector().with_session_timeout(SESSION).with_fail_eagerly();
                if let Some((user, password)) = self.login {
                    connector = connector.with_sasl(SaslOptions::digest_md5(user, password));
                }
                connector.connect(&self.connect_string).await?
            }
        };
        Ok(slot.insert(client))
    }
}

/// Whether it is the way to the ensemble that failed, and not the request.
fn passing(error: &Error) -> bool {
    !matches!(
        error,
        Error::NoNode
            | Error::NoAuth
            | Error::BadVersion
            | Error::NoChildrenForEphemerals
            | Error::NodeExists
            | Error::NotEmpty
            | Error::InvalidAcl
            | Error::AuthFailed
            | Error::BadArguments(_)
    )
}

fn absent_is_none<T>(outcome: std::result::Result<T, Error>) -> std::result::Result<Option<T>, Error> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

fn below(path: &str, child: &str) -> String {
    format!("{}/{child}", path.trim_end_matches('/'))
}
