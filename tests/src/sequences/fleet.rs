//! The servers of a site.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

use super::{Name, Site};
use crate::fronts::Doors;
use crate::{Client, Server};

/// Where each node serves, and which life of it that is; none while it is down.
#[derive(Debug)]
pub struct Seats(Vec<Mutex<Option<(Doors, usize)>>>);

impl Seats {
    /// Where this node serves.
    pub fn of(&self, node: usize) -> Option<(Doors, usize)> {
        *self.0[node].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, node: usize, to: Option<(Doors, usize)>) {
        *self.0[node].lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    /// How many nodes there are, up or down.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The servers; they are killed when this is dropped.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Option<Server>>,
    seats: Arc<Seats>,
    lives: usize,
}

impl Fleet {
    /// Starts so many servers.
    pub fn start(site: &Site, nodes: usize) -> Result<Self> {
        let seats = Arc::new(Seats((0..nodes).map(|_| Mutex::new(None)).collect()));
        let mut fleet = Self { servers: (0..nodes).map(|_| None).collect(), seats, lives: 0 };
        for node in 0..nodes {
            fleet.start_node(site, node)?;
        }
        Ok(fleet)
    }

    /// Starts a node that is down.
    pub fn start_node(&mut self, site: &Site, node: usize) -> Result<&Server> {
        let server = site.serve(node)?.start()?;
        self.seats.set(node, Some((Doors::of(&server)?, self.lives)));
        self.lives += 1;
        Ok(self.servers[node].insert(server))
    }

    /// Where they are.
    pub fn seats(&self) -> Arc<Seats> {
        Arc::clone(&self.seats)
    }

    /// A node that is up.
    pub fn node(&self, node: usize) -> Result<&Server> {
        self.servers[node].as_ref().context("this node is down")
    }

    /// Which life this node is in.
    pub fn life(&self, node: usize) -> Result<usize> {
        Ok(self.seats.of(node).context("this node is down")?.1)
    }

    /// A connection to a node.
    pub fn client(&self, node: usize) -> Result<Client> {
        self.node(node)?.client()
    }

    /// Creates sequences through the first node.
    pub fn create(&self, names: &[Name]) -> Result<()> {
        let mut client = self.client(0)?;
        names.iter().try_for_each(|name| name.create(&mut client).with_context(|| name.text.clone()))
    }

    /// Kills a node or stops it cleanly.
    pub fn end(&mut self, node: usize, cleanly: bool) -> Result<()> {
        self.seats.set(node, None);
        self.servers[node].take().map_or(Ok(()), |server| server.end(cleanly).map(drop))
    }

    /// Stops all cleanly.
    pub fn stop(mut self) -> Result<()> {
        (0..self.servers.len()).try_for_each(|node| self.end(node, true))
    }
}
