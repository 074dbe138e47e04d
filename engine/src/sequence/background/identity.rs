//! The store's identity as this node knows it: what is watched where there is no witness.
//!
//! The node's folder remembers it, in `sequences.store`, so that a store that is another one after a restart is noticed,
//! too.
//!
//! # Invariants
//! - I1 another store is gone on with after a fence of its own that is news: one that was left is not believed for the fence
//!   that it had then, nor any for one that is older than the known store's. Where it could not be read what was written in a
//!   store, the first time that is read later is none of a fence that is news;
//! - I2 where there is a folder, what is known is in it;
//! - I3 where the lives before this one had another witness, or none, or this one has none, the store is another one: a witness
//!   that begins has not seen what was granted before, and without one nobody notices what the store lost before.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sequence::store::Identity;
use crate::sys::draft;
use crate::sys::guards::Guard;

const NAME: &str = "sequences.store";
const MOST_BYTES: usize = 64 * 1024;
const VERSION: u32 = 1;

/// What is written of a witness that is not there.
pub(crate) const NO_WITNESS: &str = "none";

/// Stores that were left, and are remembered.
const MOST_LEFT: usize = 16;

/// A store, and when it was fenced last, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    identity: String,
    #[serde(default)]
    fenced: Option<String>,
    /// What is written in it could be read: without a time it never was fenced.
    #[serde(default)]
    is_read: bool,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    #[serde(flatten)]
    known: Seen,
    /// The latest last.
    #[serde(default)]
    left: Vec<Seen>,
    /// Who saw its grants.
    #[serde(default)]
    witness: Option<String>,
    /// That was another one once, or none.
    #[serde(default)]
    was_changed: bool,
}

/// What this node knows.
#[derive(Debug, Default)]
pub(crate) struct KnownIdentity {
    folder: Option<PathBuf>,
    known: Option<Seen>,
    /// Those that it left, the latest last.
    left: Vec<Seen>,
    /// The witness's kind and cluster, or [`NO_WITNESS`]: in the lives before this one, and now. `None`: not known, or the store
    /// cannot go back.
    witness_before: Option<String>,
    witness: Option<String>,
    was_changed: bool,
}

/// What an answer of the store shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shows {
    /// The store that is known.
    Known,
    /// A store, and none was known before.
    First,
    /// Another store, which was fenced: the command that did it wrote the store's identity into it.
    Fenced,
    /// Another store.
    Other(String),
}

impl KnownIdentity {
    /// Reads what the folder remembers.
    pub(crate) fn open(folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else { return Ok(Self::default()) };
        draft::sweep(folder, NAME);
        let (known, left, witness_before, was_changed) =
            match xuid_spill::read_regular(&folder.join(NAME), MOST_BYTES) {
                Ok(bytes) => {
                    let Kept { version, known, left, witness, was_changed } = serde_json::from_slice(&bytes)?;
                    if version != VERSION {
                        let text =
                            format!("its version is {version}, and this program knows version {VERSION}");
                        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                    }
                    (Some(known), left, witness, was_changed)
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => (None, Vec::new(), None, false),
                Err(error) => return Err(error),
            };
        let folder = Some(folder.to_owned());
        Ok(Self { folder, known, left, witness_before, witness: None, was_changed })
    }

    /// To which witness this life shows grants, or [`NO_WITNESS`]; `None` where the store cannot go back.
    pub(crate) fn with_witness(self, witness: Option<String>) -> Self {
        Self { witness, ..self }
    }

    /// The lives before this one had another witness, or none and this one has one, or the other way round (I3).
    pub(crate) fn is_witness_changed(&self) -> bool {
        let (before, now) = (self.witness_before.as_ref(), self.witness.as_ref());
        before.zip(now).is_some_and(|(before, now)| before != now) && Guard::WitnessChangeFenced.holds()
    }

    /// The witness may not have seen all that processes of this folder were granted: it was another one once, or none.
    pub(crate) fn has_witness_missed(&self) -> bool {
        self.was_changed || self.is_witness_changed()
    }

    /// What an answer shows.
    pub(crate) fn shows(&self, found: &Identity) -> Shows {
        let is_recorded = found.recorded.as_ref().is_none_or(|recorded| *recorded == found.current);
        if !Guard::IdentityCompared.holds() {
            return Shows::Known;
        }
        let Identity { current, recorded, .. } = found;
        let is_changed = self.is_witness_changed();
        match &self.known {
            Some(known) if known.identity == *current && is_recorded && !is_changed => Shows::Known,
            None if is_recorded => Shows::First,
            Some(known)
                if (known.identity != *current || is_changed) && recorded.as_ref() == Some(current) =>
            {
                if self.is_fenced_anew(known, found) || !Guard::FenceIsNews.holds() {
                    return Shows::Fenced;
                }
                if is_changed {
                    return Shows::Other(self.change(found));
                }
                let known = &known.identity;
                Shows::Other(format!(
                    "the store is {current}, and it was {known}: no fence of it came later than that one's, by their clocks"
                ))
            }
            _ if is_changed => Shows::Other(self.change(found)),
            known => {
                let known = known.as_ref().map(|known| &known.identity).or(recorded.as_ref());
                let known = known.map_or("another one", String::as_str);
                Shows::Other(format!("the store is {current}, and it was {known}"))
            }
        }
    }

    /// What a witness that is new, or is there no more, leaves open.
    fn change(&self, found: &Identity) -> String {
        let text = |witness: &Option<String>| witness.clone().unwrap_or_default();
        let (before, now) = (text(&self.witness_before), text(&self.witness));
        let hint = match (&found.recorded, &found.fenced) {
            (None, _) => {
                " (it says nothing of fences: they are written to xuid_store, which this program must be able to read)".into()
            }
            (Some(_), Some(at)) => format!(" (its fence of {at}, by its clock, is not news here: fence it once more)"),
            (Some(_), None) => String::new(),
        };
        format!("the witness of this data folder's numbers was '{before}', and is '{now}' now{hint}")
    }

    /// Whether a store in which its own identity is written was fenced since this node left it for the known one (I1), or since
    /// it was known (I3). One that was there before has its identity from then.
    fn is_fenced_anew(&self, known: &Seen, found: &Identity) -> bool {
        let seen = [known].into_iter().chain(&self.left).find(|seen| seen.identity == found.current);
        let is_news = seen.is_none_or(|seen| match times(found.fenced.as_ref(), seen.fenced.as_ref()) {
            Some((found, seen)) => found > seen,
            None => found.fenced != seen.fenced && (seen.fenced.is_some() || seen.is_read),
        });
        // A store that was never fenced has its identity from `xuid sequence init`, which raises no mark.
        // Nor is one that the known store tells of as well: it is a copy of this one, which has gone on since.
        is_news && is_later(found.fenced.as_ref(), known.fenced.as_ref())
    }

    /// Notes when a store that is not gone on with was fenced, if that could not be read before: a later fence is one that is
    /// news.
    pub(crate) fn note_fence(&mut self, found: &Identity) -> io::Result<()> {
        if found.recorded.is_none() {
            return Ok(());
        }
        let (mut now_known, mut left) = (self.known.clone(), self.left.clone());
        let mut all = now_known.iter_mut().chain(&mut left);
        let is_unread =
            |seen: &&mut Seen| seen.identity == found.current && seen.fenced.is_none() && !seen.is_read;
        let Some(seen) = all.find(is_unread) else { return Ok(()) };
        (seen.fenced, seen.is_read) = (found.fenced.clone(), true);
        self.keep(now_known.as_ref(), &left, self.witness_before.as_ref(), self.was_changed)?;
        (self.known, self.left) = (now_known, left);
        Ok(())
    }

    /// This store is the known one from now on. Nothing is learnt that cannot be written down: the next life would go on with
    /// the store that was left.
    pub(crate) fn learn(&mut self, found: &Identity) -> io::Result<()> {
        let Identity { current, recorded, fenced } = found;
        let (mut now_known, mut left) = (self.known.clone(), self.left.clone());
        let witness = self.witness.clone().or_else(|| self.witness_before.clone());
        let was_changed = self.has_witness_missed();
        match &mut now_known {
            Some(known) if known.identity == *current => {
                let is_older =
                    times(fenced.as_ref(), known.fenced.as_ref()).is_some_and(|(found, known)| found < known);
                // What may not be read for once was not taken back, nor was what an old dump does not have.
                if fenced.is_some() && !is_older {
                    known.fenced.clone_from(fenced);
                }
                known.is_read |= recorded.is_some();
                if now_known == self.known && witness == self.witness_before {
                    return Ok(());
                }
            }
            known => {
                left.retain(|left| left.identity != *current);
                let before = known.replace(Seen {
                    identity: current.clone(),
                    fenced: fenced.clone(),
                    is_read: recorded.is_some(),
                });
                left.extend(before);
                let surplus = left.len().saturating_sub(MOST_LEFT);
                left.drain(..surplus);
            }
        }
        self.keep(now_known.as_ref(), &left, witness.as_ref(), was_changed)?;
        (self.known, self.left, self.witness_before) = (now_known, left, witness);
        self.was_changed = was_changed;
        Ok(())
    }

    /// Writes it down, where there is a folder.
    fn keep(
        &self,
        known: Option<&Seen>,
        left: &[Seen],
        witness: Option<&String>,
        was_changed: bool,
    ) -> io::Result<()> {
        let (Some(folder), Some(known)) = (&self.folder, known) else { return Ok(()) };
        let (mut file, beside) = draft::make(folder, NAME)?;
        let mut write = || {
            let kept = Kept {
                version: VERSION,
                known: known.clone(),
                left: left.to_vec(),
                witness: witness.cloned(),
                was_changed,
            };
            file.write_all(&serde_json::to_vec(&kept)?)?;
            file.sync_all()?;
            std::fs::rename(&beside, folder.join(NAME))?;
            draft::sync_folder(folder)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_file(&beside);
        })
    }

    pub(crate) fn known(&self) -> Option<&str> {
        self.known.as_ref().map(|known| known.identity.as_str())
    }

    /// When the known store was fenced last, as it told at any time.
    pub(crate) fn fenced(&self) -> Option<&String> {
        self.known.as_ref()?.fenced.as_ref()
    }
}

/// Whether a fence is told of that is later than the one that was told of before.
pub(crate) fn is_later(found: Option<&String>, before: Option<&String>) -> bool {
    found.is_some() && times(found, before).map_or(found != before, |(found, before)| found > before)
}

/// When two fences were, where both are told as a number that rises.
fn times(found: Option<&String>, known: Option<&String>) -> Option<(f64, f64)> {
    Some((found?.parse().ok()?, known?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(current: &str, recorded: Option<&str>) -> Identity {
        Identity { current: current.to_owned(), recorded: recorded.map(str::to_owned), fenced: None }
    }

    #[test]
    fn a_store_is_another_one_until_it_is_fenced_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownIdentity::open(Some(folder.path())).unwrap();
        assert_eq!(known.shows(&identity("a", None)), Shows::First);
        assert!(matches!(known.shows(&identity("b", Some("a"))), Shows::Other(_)), "a copy, at first sight");
        known.learn(&identity("a", None)).unwrap();
        let known = KnownIdentity::open(Some(folder.path())).unwrap();
        assert_eq!((known.known(), known.shows(&identity("a", Some("a")))), (Some("a"), Shows::Known));
        assert!(matches!(known.shows(&identity("b", None)), Shows::Other(_)));
        assert!(matches!(known.shows(&identity("b", Some("a"))), Shows::Other(_)), "promoted");
        assert!(matches!(known.shows(&identity("b", Some("b"))), Shows::Other(_)), "no fence wrote that");
        assert_eq!(known.shows(&fenced("b", "1")), Shows::Fenced);
        assert!(matches!(known.shows(&identity("a", Some("b"))), Shows::Other(_)), "put back");
    }

    fn fenced(current: &str, at: &str) -> Identity {
        Identity { fenced: Some(at.to_owned()), ..identity(current, Some(current)) }
    }

    #[test]
    fn a_store_that_was_left_is_gone_on_with_after_a_later_fence_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || KnownIdentity::open(Some(folder.path())).unwrap();
        let mut known = open();
        known.learn(&identity("a", Some("a"))).unwrap();
        known.learn(&fenced("a", "100.25")).unwrap();
        for older in [identity("a", None), fenced("a", "99")] {
            known.learn(&older).unwrap();
        }
        assert_eq!(open().shows(&fenced("b", "200")), Shows::Fenced);
        assert!(matches!(open().shows(&fenced("b", "100")), Shows::Other(_)), "before the known one was");
        known.learn(&fenced("b", "200")).unwrap();
        let mut known = open();
        assert_eq!((known.known(), known.shows(&fenced("b", "200"))), (Some("b"), Shows::Known));
        let is_other =
            |known: &KnownIdentity, found: &Identity| matches!(known.shows(found), Shows::Other(_));
        for (current, at) in [("a", "100.25"), ("a", "99"), ("a", "150"), ("c", "199.9")] {
            assert!(is_other(&known, &fenced(current, at)), "{current} fenced at {at}");
        }
        assert!(is_other(&known, &identity("a", None)) && is_other(&known, &identity("c", None)));
        for (current, at) in [("a", "200.5"), ("a", "1000"), ("c", "200.5")] {
            assert_eq!(known.shows(&fenced(current, at)), Shows::Fenced, "{current} fenced at {at}");
        }
        // In words that are no numbers, another one is a later one.
        known.learn(&fenced("c", "on monday")).unwrap();
        known.learn(&fenced("d", "on tuesday")).unwrap();
        assert!(is_other(&open(), &fenced("c", "on monday")));
        assert_eq!(open().shows(&fenced("c", "on sunday")), Shows::Fenced);
    }

    /// Whether a life goes on after one that had that witness: at once, and after a fence.
    fn goes_on_after(before: &str, now: &str) -> [bool; 2] {
        let folder = tempfile::tempdir().unwrap();
        let open = |witness: Option<&str>| {
            KnownIdentity::open(Some(folder.path())).unwrap().with_witness(witness.map(str::to_owned))
        };
        open(Some(before)).learn(&fenced("a", "100")).unwrap();
        // The registry was the store for a while, which says nothing of it.
        open(None).learn(&identity("registry", None)).unwrap();
        open(None).learn(&fenced("a", "100")).unwrap();
        let mut known = open(Some(now));
        let at_once = known.shows(&fenced("a", "100")) == Shows::Known;
        for unproven in [identity("a", Some("a")), fenced("a", "99"), identity("a", None)] {
            assert!(!known.is_witness_changed() || matches!(known.shows(&unproven), Shows::Other(_)));
        }
        let news = fenced("a", "101");
        let after_fence = [Shows::Known, Shows::Fenced].contains(&known.shows(&news));
        known.learn(&news).unwrap();
        assert_eq!(open(Some(now)).shows(&news), Shows::Known, "a change is one once");
        [at_once, after_fence]
    }

    #[test]
    fn a_witness_that_is_new_or_gone_needs_a_fence() {
        for (before, now) in [("zookeeper", NO_WITNESS), (NO_WITNESS, "local"), ("local", "zookeeper")] {
            assert_eq!(goes_on_after(before, now), [false, true]);
            assert_eq!(goes_on_after(now, now), [true, true]);
            let goes_on = Guard::without(&[Guard::WitnessChangeFenced], || goes_on_after(before, now));
            assert_eq!(goes_on, [true, true]);
        }
    }

    /// A replica that was promoted, and that was gone on with without a fence: with a witness none was needed.
    #[test]
    fn a_store_is_not_gone_back_to_for_the_fence_that_its_copy_tells_of() {
        for at in ["100", "on monday"] {
            let mut known = KnownIdentity::default();
            known.learn(&Identity { fenced: Some(at.to_owned()), ..identity("b", Some("a")) }).unwrap();
            assert!(matches!(known.shows(&fenced("a", at)), Shows::Other(_)), "{at}");
        }
    }

    #[test]
    fn of_stores_that_were_left_the_latest_are_remembered_and_a_file_of_before_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), br#"{"version":1,"identity":"a"}"#).unwrap();
        let mut known = KnownIdentity::open(Some(folder.path())).unwrap();
        assert_eq!(known.shows(&fenced("a", "1")), Shows::Known);
        for round in 0..40 {
            known.learn(&fenced(&format!("host {}", round % 20), &round.to_string())).unwrap();
        }
        let known = KnownIdentity::open(Some(folder.path())).unwrap();
        let left: Vec<&str> = known.left.iter().map(|left| left.identity.as_str()).collect();
        let latest: Vec<String> = (3..19).map(|host| format!("host {host}")).collect();
        assert_eq!((known.known(), left), (Some("host 19"), latest.iter().map(String::as_str).collect()));
    }

    /// Its user may read `xuid_store` by now, or `xuid sequence init` has just made it: neither raised a mark.
    #[test]
    fn a_time_that_could_not_be_read_before_is_no_fence() {
        let folder = tempfile::tempdir().unwrap();
        let open = |witness: &str| {
            KnownIdentity::open(Some(folder.path())).unwrap().with_witness(Some(witness.to_owned()))
        };
        open("zookeeper").learn(&identity("a", None)).unwrap();
        let mut known = open(NO_WITNESS);
        let is_other =
            |known: &KnownIdentity, found: &Identity| matches!(known.shows(found), Shows::Other(_));
        for _ in 0..2 {
            assert!(is_other(&known, &identity("a", None)));
            assert!(is_other(&known, &fenced("a", "100")), "of a fence of long ago, perhaps");
            known.note_fence(&identity("a", None)).unwrap();
            known.note_fence(&fenced("a", "100")).unwrap();
        }
        known = open(NO_WITNESS);
        assert!(is_other(&known, &fenced("a", "100")));
        assert_eq!(known.shows(&fenced("a", "101")), Shows::Fenced);
    }

    /// What could be read, and said that there was none, is no reason to wait for two.
    #[test]
    fn the_first_fence_of_a_store_that_could_be_read_before_is_news() {
        let folder = tempfile::tempdir().unwrap();
        let open = |witness: &str| {
            KnownIdentity::open(Some(folder.path())).unwrap().with_witness(Some(witness.to_owned()))
        };
        open("zookeeper").learn(&identity("a", Some("a"))).unwrap();
        assert!(matches!(open(NO_WITNESS).shows(&identity("a", Some("a"))), Shows::Other(_)));
        assert_eq!(open(NO_WITNESS).shows(&fenced("a", "100")), Shows::Fenced);
    }

    /// Else no change of it would ever be noticed there.
    #[test]
    fn a_folder_of_before_notes_its_witness_with_the_next_grant() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), br#"{"version":1,"identity":"a"}"#).unwrap();
        let open = |witness: &str| {
            KnownIdentity::open(Some(folder.path())).unwrap().with_witness(Some(witness.to_owned()))
        };
        open("local").learn(&identity("a", None)).unwrap();
        assert_eq!(open("local").shows(&identity("a", None)), Shows::Known);
        assert!(matches!(open(NO_WITNESS).shows(&identity("a", None)), Shows::Other(_)));
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), br#"{"version":2,"identity":"a"}"#).unwrap();
        assert!(KnownIdentity::open(Some(folder.path())).unwrap_err().to_string().contains("version is 2"));
    }
}
