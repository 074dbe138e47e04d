//! Whether the registry is still the one that was opened: open, in its era, and not restored from a backup.

use std::collections::BTreeSet;

use zookeeper_client::{Client, CreateMode, Error, MultiReadResult};

use super::{Standing, Tree, unavailable};
use crate::registry::ReadError;
use crate::registry::connection::News;
use crate::registry::zookeeper::inspect::{Era, children, read_all, read_era};
use crate::registry::zookeeper::link::Failure;
use crate::registry::zookeeper::restore_check::{Comparison, Learnt, NodeVersion, Relation};
use crate::registry::zookeeper::znode::{self, CLOCK, ENDED, GENESIS, ended_path, era_path, known_path};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

impl Tree {
    /// Looks whether the registry is still the one it was, open, and not older than it was.
    pub(super) fn look_around(&mut self, client: &Client) -> Result<(), ReadError> {
        // A server that lags behind would look like a restored one.
        if Guard::SyncFirst.holds() {
            self.link.ask(client.sync("/")).map_err(|failure| unavailable(&failure))?;
        }
        self.look_at_genesis(client)?;
        if self.standing == Standing::Open {
            self.look_at_what_is_known(client)?;
        }
        match &self.standing {
            Standing::Open => {
                self.sample_clock(client);
                self.link.connection().told(&News::Accepted);
            }
            Standing::Closed(why) | Standing::Foreign(why) => {
                self.link.connection().told(&News::Refused(why));
            }
        }
        Ok(())
    }

    fn look_at_genesis(&mut self, client: &Client) -> Result<(), ReadError> {
        let url = self.link.url();
        let gone = format!(
            "there is no registry at {url} any more: if it was deleted, restore it and run `xuid registry fence {url}`, or make a new one with `xuid registry init {url}` and give it new data folders"
        );
        self.standing = match self.link.ask(client.get_data(GENESIS)) {
            Ok((data, stat)) => match znode::decode_genesis(&data) {
                Ok(genesis) if genesis == self.genesis => self.look_at_era(client, stat.czxid)?,
                Ok(other) if other.cluster != self.genesis.cluster => Standing::Foreign(format!(
                    "the registry at {url} is cluster {} now, and was {}: stop, and start with a data folder of its own",
                    other.cluster, self.genesis.cluster
                )),
                Ok(_) => Standing::Foreign(format!("the genesis of {url} was changed")),
                Err(why) => Standing::Closed(format!("the registry at {url} is damaged: {why}")),
            },
            Err(Failure::Said(Error::NoNode)) => Standing::Closed(gone),
            Err(failure) => return Err(unavailable(&failure)),
        };
        Ok(())
    }

    fn look_at_era(&mut self, client: &Client, genesis_birth: i64) -> Result<Standing, ReadError> {
        let found = read_era(&self.link, client, genesis_birth).map_err(|failure| unavailable(&failure))?;
        let url = self.link.url();
        match found {
            Ok(era) if era == self.era => {
                if !self.witnessed {
                    self.seen_file.learn_of_ended(self.ended(client)?);
                }
                self.witnessed = true;
                self.refused = None;
                Ok(Standing::Open)
            }
            Ok(era) if era.name == self.era.name => Ok(Standing::Closed(format!(
                "the era of the registry at {url} was deleted and made again by hand: run `xuid registry fence {url}`"
            ))),
            Ok(era) if self.is_past(client, &era)? => {
                // By its name: were it only a server that lags behind, the ensemble would have nothing of that name to
                // delete.
                let what = "it is in an era that a fence had ended";
                Ok(if self.witnessed {
                    self.close(client, &era.name, what)
                } else {
                    self.refuse(client, what)
                })
            }
            Ok(era) => {
                let ended = self.ended(client)?;
                let (url, name) = (url.to_string(), era.name.clone());
                deferred_log::log(move || {
                    tracing::warn!(
                        url,
                        era = name,
                        "the registry was fenced: windows of before are left at their ends"
                    );
                });
                self.eras += 1;
                self.seen_nodes.clear();
                self.forget_names();
                self.seen_file.begin(Learnt::now(era.clone()));
                self.seen_file.learn_of_ended(ended);
                self.inherited.clear();
                self.era = era;
                self.witnessed = true;
                Ok(Standing::Open)
            }
            Err(why) => Ok(Standing::Closed(format!(
                "the registry at {url} is closed, because {why}: unless a fence is at work, run `xuid registry fence {url}`"
            ))),
        }
    }

    /// The eras that the registry names as over. What had ended when an era began is among them once that era was read.
    fn ended(&self, client: &Client) -> Result<Vec<String>, ReadError> {
        children(&self.link, client, ENDED).map_err(|failure| unavailable(&failure))
    }

    /// Whether an era was over before the known one began. Where only clocks say so, the registry may know better: that
    /// the known one was over before the last fence.
    fn is_past(&self, client: &Client, era: &Era) -> Result<bool, ReadError> {
        match self.seen_file.relation(era) {
            Relation::After => Ok(false),
            Relation::Over => Ok(true),
            Relation::Before => {
                let told = self.link.ask(client.check_stat(&ended_path(&self.era.name)));
                Ok(told.map_err(|failure| unavailable(&failure))?.is_none())
            }
        }
    }

    /// Looks at every node that was written by this process, or by one before it in the same folder.
    fn look_at_what_is_known(&mut self, client: &Client) -> Result<(), ReadError> {
        // In one request: after many crashes a folder knows many nodes, and one after the other they would be as many
        // ways to the ensemble and back before a first id.
        let (paths, sights): (Vec<String>, Vec<NodeVersion>) = self.relied_upon().into_iter().unzip();
        let results = read_all(&self.link, client, &paths).map_err(|failure| unavailable(&failure))?;
        for ((path, known), result) in paths.into_iter().zip(sights).zip(results) {
            let found = match result {
                MultiReadResult::Data { stat, .. } => stat,
                MultiReadResult::Error { err: Error::NoNode } => continue,
                // Its age is told even to those who may not read it.
                _ => {
                    let found = self.link.ask(client.check_stat(&path));
                    let Some(stat) = found.map_err(|failure| unavailable(&failure))? else { continue };
                    stat
                }
            };
            if known.compare(NodeVersion::of(&found)) == Comparison::Older {
                self.close_if_restored(client, &path, known)?;
                if !matches!(self.standing, Standing::Open) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The nodes that this process and those of its folder wrote, as they were seen last: the past has all of them.
    fn relied_upon(&self) -> Vec<(String, NodeVersion)> {
        let written = self.seen_file.nodes().iter().map(|(path, _)| path);
        let paths: BTreeSet<&String> = written.chain(&self.inherited).collect();
        paths
            .into_iter()
            .filter_map(|path| Some((path.clone(), self.seen_nodes.node_version(path)?)))
            .collect()
    }

    /// A node looks older than it was. If that stays so after a write that a quorum has taken, the data was put back
    /// (I2).
    pub(super) fn close_if_restored(
        &mut self,
        client: &Client,
        path: &str,
        known: NodeVersion,
    ) -> Result<(), ReadError> {
        self.link.ask(client.set_data(CLOCK, b"", None)).map_err(|failure| unavailable(&failure))?;
        let found = self.link.ask(client.check_stat(path)).map_err(|failure| unavailable(&failure))?;
        if found.is_none_or(|found| known.compare(NodeVersion::of(&found)) != Comparison::Older) {
            return Ok(());
        }
        let what = format!("its node {path} is older than it was");
        self.standing = if self.seen_nodes.is_own(path) {
            self.close(client, &self.era.name, &what)
        } else {
            self.refuse(client, &what)
        };
        Ok(())
    }

    /// Closes the registry for everybody, by what this process saw itself.
    fn close(&self, client: &Client, era: &str, what: &str) -> Standing {
        let url = self.link.url();
        let why = format!(
            "the registry at {url} was restored from a backup ({what}): what was granted since is not in it, so nobody may use \
             it until `xuid registry fence {url}`; if it was fenced since the restore, the fence was made by a clock that \
             was behind: fence it once more"
        );
        let reason = why.clone();
        deferred_log::log(move || tracing::error!(why = %reason, "the registry is closed"));
        if let Err(failure) = self.end(client, era) {
            let why = failure.why().clone();
            deferred_log::log(move || tracing::error!(why, "it could not be closed for others"));
        }
        self.link.connection().told(&News::Refused(&why));
        Standing::Closed(why)
    }

    /// Ends an era, and says which one is known instead.
    fn end(&self, client: &Client, era: &str) -> Result<(), Failure> {
        match self.link.ask(client.delete(&era_path(era), None)) {
            // The latter: another process closed it, or it was a server that lags behind.
            Ok(()) | Err(Failure::Said(Error::NoNode)) => self.tell_known(client),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Leaves the name of the known era for the next fence: an era of that fence is after it, whatever the clocks say.
    /// By itself the name allows nothing.
    fn tell_known(&self, client: &Client) {
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        // There already, or no place for it in a registry of an earlier program: then a person has to help.
        let _ = self.link.ask(client.create(&known_path(&self.era.name), b"", &options));
    }

    /// Refuses the registry for this process alone: others may know better.
    fn refuse(&mut self, client: &Client, what: &str) -> Standing {
        let url = self.link.url();
        let forget = self
            .seen_file
            .place()
            .map_or_else(String::new, |files| format!(", or stop this process and remove {files}"));
        let why = format!(
            "the registry at {url} was restored from a backup ({what}, as this process remembers it): what was granted since is \
             not in it, so this process does not use it until `xuid registry fence {url}`; if it was fenced since the \
             restore, fence it once more: that fence knows of this{forget}"
        );
        if self.refused.as_ref() != Some(&why) {
            self.refused = Some(why.clone());
            self.tell_known(client);
            let reason = why.clone();
            deferred_log::log(
                move || tracing::error!(why = %reason, "the registry is refused by this process"),
            );
        }
        self.link.connection().told(&News::Refused(&why));
        Standing::Closed(why)
    }
}
