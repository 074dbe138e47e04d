//! The store's identity as this node knows it: what is watched where there is no witness.
//!
//! The node's folder remembers it, in `sequences.store`, so that a store that is another one after a restart is noticed,
//! too: a checksum of eight hexadecimal digits, and behind it JSON. What an earlier program wrote has no checksum.
//!
//! # Invariants
//! - I1 another store is gone on with after a fence of its own that is news: one that was left is not believed for the fence
//!   that it had then, nor any for one that is older than the known store's. Where it could not be read what was written in a
//!   store, the first time that is read later is none of a fence that is news;
//! - I2 where there is a folder, what is known is in it;
//! - I3 where the lives before this one had another witness, or none, or this one has none, the store is another one: a witness
//!   that begins has not seen what was granted before, and without one nobody notices what the store lost before;
//! - I4 the fence which that needed stays: a store that tells of none that is as late is another one; and so does each fence where
//!   no witness sees the grants of all.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sequence::store::Identity;
use crate::sys::checksum::{split_checksum, with_checksum};
use crate::sys::draft;
use crate::sys::file_lock::{lock_within, try_lock};
use crate::sys::guards::Guard;

const NAME: &str = "sequences.store";
const MOST_BYTES: usize = 64 * 1024;
const VERSION: u32 = 1;

/// What is written of a witness that is not there.
pub(crate) const NO_WITNESS: &str = "none";

/// The kind of records that may be one host's alone, with which what is written of them begins.
pub(crate) const FOLDER: &str = "local";

/// What helps where a fence is remembered that was made by a clock that was ahead, and was lost with a restore since: none is
/// later than that before its time is reached, but one that is told of it.
pub(crate) const BY_A_FAST_CLOCK: &str = "if that clock was ahead then, fence the store with `--data-dir` of this server (and \
                                          `--above`, if it has no witness of its own)";

/// Why a fence may not be seen.
pub(crate) const NOTHING_OF_FENCES: &str = "it says nothing of fences: they are written to xuid_store, which this program must be able to read; where it gets that right \
     now, give it behind the fence, since it shows fences of before, too";

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

/// What a folder remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    version: u32,
    #[serde(flatten)]
    known: Seen,
    /// Those that were left for it, the latest last.
    #[serde(default)]
    left: Vec<Seen>,
    /// Who saw its grants: a witness's kind and cluster, or [`NO_WITNESS`]. `None`: not known, or the store cannot go back.
    #[serde(default)]
    witness: Option<String>,
    /// That was another one once, or none.
    #[serde(default)]
    was_changed: bool,
    /// Its records were in another place once, or there were none. What an earlier program wrote says so of each change.
    #[serde(default)]
    was_elsewhere: Option<bool>,
    /// A mark went back, and nothing is granted before a fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<Closed>,
}

/// Why names are closed, and when the store was fenced last then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Closed {
    why: String,
    fenced: Option<String>,
}

/// What this node knows.
#[derive(Debug, Default)]
pub(crate) struct KnownIdentity {
    folder: Option<PathBuf>,
    /// `None` as long as no store is known. Its witness is that of the lives before this one.
    kept: Option<Kept>,
    /// The one of this life, likewise.
    witness: Option<String>,
    /// It does not see the grants of all.
    is_unproven: bool,
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

/// The latest fence that processes of a folder know of, in their store's words, for a fence that is to be later
/// ([`Fence::after`](super::super::store::Fence::after)). `None` where they know of none, or their store tells no times.
///
/// # Errors
/// A file that cannot be read, or is none of this version.
pub fn fence_known_in(folder: &Path) -> io::Result<Option<String>> {
    let seen = read(folder)?.into_iter().flat_map(|kept| std::iter::once(kept.known).chain(kept.left));
    let told = seen.filter_map(|seen| seen.fenced).filter(|fenced| fenced.parse::<f64>().is_ok());
    Ok(told.reduce(|latest, told| if is_later(Some(&told), Some(&latest)) { told } else { latest }))
}

/// Why the records in a folder may tell less than processes of it were granted: their witness is in another place, or was once,
/// or there is none. `None` where that is not so, or not known.
///
/// # Errors
/// A file that cannot be read, or is none of this version.
pub fn unseen_in(folder: &Path) -> io::Result<Option<String>> {
    Ok(read(folder)?.and_then(|kept| match kept.witness.as_deref() {
        Some(NO_WITNESS) => Some("its server has no witness".to_owned()),
        Some(witness) if !is_in_folder(witness) => Some(format!("the witness of its server is {witness}")),
        _ => kept.was_elsewhere().then(|| "its server had another witness once, or none".to_owned()),
    }))
}

/// What a folder remembers, if there is a file of it.
fn read(folder: &Path) -> io::Result<Option<Kept>> {
    let bytes = match xuid_spill::read_regular(&folder.join(NAME), MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let kept: Kept = serde_json::from_slice(checked(&bytes)?)?;
    if kept.version != VERSION {
        let found = kept.version;
        let text = format!("its version is {found}, and this program knows version {VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Some(kept))
}

impl Kept {
    fn was_elsewhere(&self) -> bool {
        self.was_elsewhere.unwrap_or(self.was_changed)
    }
}

/// Where a witness of that text keeps its records: its kind and cluster. Who shows it grants may change.
fn place(witness: &str) -> (&str, &str) {
    let mut words = witness.split(' ');
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

/// Whether a witness of that text keeps its records in the data folder.
fn is_in_folder(witness: &str) -> bool {
    place(witness).0 == FOLDER
}

impl KnownIdentity {
    /// Reads what the folder remembers.
    pub(crate) fn open(folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else { return Ok(Self::default()) };
        draft::sweep(folder, NAME);
        let kept = read(folder)?;
        Ok(Self { folder: Some(folder.to_owned()), kept, ..Self::default() })
    }

    /// To which witness this life shows grants, or [`NO_WITNESS`]; `None` where the store cannot go back.
    pub(crate) fn with_witness(self, witness: Option<String>) -> Self {
        Self { witness, ..self }
    }

    /// No witness of this life sees the grants of all.
    pub(crate) fn unproven(self, is_unproven: bool) -> Self {
        Self { is_unproven, ..self }
    }

    /// The lives before this one had another witness, or none and this one has one, or the other way round (I3).
    pub(crate) fn is_witness_changed(&self) -> bool {
        let (before, now) = (self.witness_before(), self.witness.as_ref());
        before.zip(now).is_some_and(|(before, now)| before != now) && Guard::WitnessChangeFenced.holds()
    }

    /// The witness may not have seen all that processes of this folder were granted: it was another one once, or none.
    pub(crate) fn has_witness_missed(&self) -> bool {
        self.was_changed() || self.is_witness_changed()
    }

    /// It was, in the lives before this one.
    fn was_changed(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.was_changed)
    }

    /// The records of its witness were in another place in the lives before this one, or there were none.
    fn was_witness_elsewhere(&self) -> bool {
        let (before, now) = (self.witness_before(), self.witness.as_ref());
        let has_moved = before.zip(now).is_some_and(|(before, now)| place(before) != place(now));
        has_moved || self.kept.as_ref().is_some_and(Kept::was_elsewhere)
    }

    /// The known fence is not in the store, nor a later one: it was put back to before that. The marks of names that were not
    /// used since say nothing of it, nor does a witness that a change made new (I4).
    pub(crate) fn lacks_fence(&self, found: &Identity) -> bool {
        let Some(known) = self.fenced().filter(|_| Guard::FenceStays.holds()) else { return false };
        // The same time may be told in other digits, by a later version of the store.
        let is_older = times(found.fenced.as_ref(), Some(known)).is_some_and(|(found, known)| found < known);
        if self.was_changed() {
            return is_older || found.fenced.is_none();
        }
        // Another store is one in any case; and the right to read it may have been taken away.
        let is_known = self.known() == Some(&*found.current) && found.recorded.is_some();
        self.is_unproven && is_known && (is_older || found.fenced.is_none())
    }

    /// A person vouches for the store as it is: a fence that is not in it any more is not waited for.
    pub(crate) fn vouch(&mut self, found: &Identity) -> io::Result<()> {
        self.open_closed()?;
        let is_lacking = |kept: &Kept| kept.known.identity == found.current && self.lacks_fence(found);
        let Some(mut kept) = self.kept.clone().filter(is_lacking) else { return Ok(()) };
        (kept.known.fenced, kept.known.is_read) = (found.fenced.clone(), found.recorded.is_some());
        self.keep(kept)
    }

    /// A mark went back: later lives wait for a fence, too.
    pub(crate) fn close(&mut self, why: &str, fenced: Option<&String>) -> io::Result<()> {
        let closed = Some(Closed { why: why.to_owned(), fenced: fenced.cloned() });
        let Some(mut kept) = self.kept.clone().filter(|kept| kept.closed != closed) else { return Ok(()) };
        kept.closed = closed;
        self.keep(kept)
    }

    /// The store is gone on with.
    pub(crate) fn open_closed(&mut self) -> io::Result<()> {
        let Some(mut kept) = self.kept.clone().filter(|kept| kept.closed.is_some()) else { return Ok(()) };
        kept.closed = None;
        self.keep(kept)
    }

    /// Why names were closed in a life before this one, and when the store was fenced last then.
    pub(crate) fn closed(&self) -> Option<(String, Option<String>)> {
        let closed = self.kept.as_ref()?.closed.clone()?;
        Some((closed.why, closed.fenced))
    }

    /// What an answer shows.
    pub(crate) fn shows(&self, found: &Identity) -> Shows {
        let is_recorded = found.recorded.as_ref().is_none_or(|recorded| *recorded == found.current);
        if !Guard::IdentityCompared.holds() {
            return Shows::Known;
        }
        if self.lacks_fence(found) {
            let fenced = self.fenced().map_or("", String::as_str);
            return Shows::Other(format!(
                "the store does not tell of the fence of {fenced}, by its clock, any more: it may have been put back to before \
                 that, and no witness saw all numbers of then; {BY_A_FAST_CLOCK}"
            ));
        }
        let Identity { current, recorded, .. } = found;
        let is_changed = self.is_witness_changed();
        match self.kept.as_ref().map(|kept| &kept.known) {
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
                    "the store is {current}, and it was {known}: no fence of it came later than that one's, by their clocks; \
                     {BY_A_FAST_CLOCK}"
                ))
            }
            _ if is_changed => Shows::Other(self.change(found)),
            known => {
                let known = known.as_ref().map(|known| &known.identity);
                let known = known.filter(|known| *known != current).or(recorded.as_ref());
                let known = known.map_or("another one", String::as_str);
                Shows::Other(format!("the store is {current}, and it was {known}"))
            }
        }
    }

    /// What a witness that is new, or is there no more, leaves open.
    fn change(&self, found: &Identity) -> String {
        let text = |witness: Option<&String>| witness.cloned().unwrap_or_default();
        let (before, now) = (text(self.witness_before()), text(self.witness.as_ref()));
        let hint = match (&found.recorded, &found.fenced) {
            (None, _) => format!(" ({NOTHING_OF_FENCES})"),
            (Some(_), Some(at)) => format!(
                " (its fence of {at}, by its clock, is not news here: fence it once more; {BY_A_FAST_CLOCK})"
            ),
            (Some(_), None) => String::new(),
        };
        format!("the witness of this data folder's numbers was '{before}', and is '{now}' now{hint}")
    }

    /// Whether a store in which its own identity is written was fenced since this node left it for the known one (I1), or since
    /// it was known (I3). One that was there before has its identity from then.
    fn is_fenced_anew(&self, known: &Seen, found: &Identity) -> bool {
        let left = self.kept.iter().flat_map(|kept| &kept.left);
        let seen = [known].into_iter().chain(left).find(|seen| seen.identity == found.current);
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
        let Some(mut kept) = self.kept.clone().filter(|_| found.recorded.is_some()) else { return Ok(()) };
        let is_unread =
            |seen: &Seen| seen.identity == found.current && seen.fenced.is_none() && !seen.is_read;
        let mut all = std::iter::once(&mut kept.known).chain(&mut kept.left);
        let Some(seen) = all.find(|seen| is_unread(seen)) else { return Ok(()) };
        (seen.fenced, seen.is_read) = (found.fenced.clone(), true);
        self.keep(kept)
    }

    /// This store is the known one from now on. Nothing is learnt that cannot be written down: the next life would go on with
    /// the store that was left.
    pub(crate) fn learn(&mut self, found: &Identity) -> io::Result<()> {
        let Identity { current, recorded, fenced } = found;
        let is_read = recorded.is_some();
        let now = || Seen { identity: current.clone(), fenced: fenced.clone(), is_read };
        let first = || Kept {
            version: VERSION,
            known: now(),
            left: Vec::new(),
            witness: None,
            was_changed: false,
            was_elsewhere: Some(false),
            closed: None,
        };
        let mut kept = self.kept.clone().unwrap_or_else(first);
        if kept.known.identity == *current {
            let is_older = times(fenced.as_ref(), kept.known.fenced.as_ref())
                .is_some_and(|(found, known)| found < known);
            // What may not be read for once was not taken back, nor was what an old dump does not have.
            if fenced.is_some() && !is_older {
                kept.known.fenced.clone_from(fenced);
            }
            kept.known.is_read |= is_read;
        } else {
            kept.left.retain(|left| left.identity != *current);
            kept.left.push(std::mem::replace(&mut kept.known, now()));
            let surplus = kept.left.len().saturating_sub(MOST_LEFT);
            kept.left.drain(..surplus);
        }
        kept.was_elsewhere = Some(self.was_witness_elsewhere());
        kept.was_changed = self.has_witness_missed();
        kept.witness = self.witness.clone().or(kept.witness);
        if self.kept.as_ref() == Some(&kept) {
            return Ok(());
        }
        self.keep(kept)
    }

    /// Writes it down, where there is a folder.
    fn keep(&mut self, kept: Kept) -> io::Result<()> {
        if let Some(folder) = &self.folder {
            // Two that read it, and write it one after the other, would lose what the first one wrote.
            let _lock = locked(folder)?;
            let written = match read(folder) {
                Ok(Some(beside)) => self.joined(&kept, beside),
                _ => kept.clone(),
            };
            let (mut file, beside) = draft::make(folder, NAME)?;
            let mut write = || {
                file.write_all(&with_checksum(serde_json::to_vec(&written)?))?;
                file.sync_all()?;
                std::fs::rename(&beside, folder.join(NAME))?;
                draft::sync_folder(folder)
            };
            write().inspect_err(|_| {
                let _ = std::fs::remove_file(&beside);
            })?;
        }
        self.kept = Some(kept);
        Ok(())
    }

    /// What is to be kept, and what another process of the folder has written meanwhile: that names are closed, a later fence,
    /// and that the witness was changed stays, where this one changes nothing of it.
    fn joined(&self, kept: &Kept, beside: Kept) -> Kept {
        let before = self.kept.as_ref();
        let mut joined = kept.clone();
        joined.was_elsewhere = Some(kept.was_elsewhere() || beside.was_elsewhere());
        let closed = before.and_then(|before| before.closed.as_ref());
        if kept.closed.as_ref() == closed || kept.closed.is_none() && beside.closed.as_ref() != closed {
            joined.closed = beside.closed;
        }
        let is_same = before.is_some_and(|before| before.known == kept.known)
            && beside.known.identity == kept.known.identity;
        if is_same && is_later(beside.known.fenced.as_ref(), kept.known.fenced.as_ref()) {
            joined.known.fenced = beside.known.fenced;
        }
        joined.was_changed |= beside.was_changed;
        joined
    }

    fn witness_before(&self) -> Option<&String> {
        self.kept.as_ref()?.witness.as_ref()
    }

    pub(crate) fn known(&self) -> Option<&str> {
        self.kept.as_ref().map(|kept| kept.known.identity.as_str())
    }

    /// When the known store was fenced last, as it told at any time.
    pub(crate) fn fenced(&self) -> Option<&String> {
        self.kept.as_ref()?.known.fenced.as_ref()
    }
}

/// How long another process of the folder may write.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// The folder, locked for who writes in it what several processes of it know.
fn locked(folder: &Path) -> io::Result<FolderLock> {
    let file = File::open(folder)?;
    if lock_within(LOCK_WAIT, || try_lock(&file))? {
        return Ok(FolderLock(file));
    }
    let text = format!("another process has locked {} for {LOCK_WAIT:?}", folder.display());
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Unlocked, and not closed alone: a child that was forked meanwhile has it open for as long as it lives.
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// The JSON of a file, if it is what was written.
fn checked(bytes: &[u8]) -> io::Result<&[u8]> {
    if bytes.starts_with(b"{") {
        return Ok(bytes);
    }
    let text = "its checksum does not fit: it is damaged. Remove it, and run `xuid sequence fence`";
    let json = split_checksum(bytes).filter(|(_, sound)| *sound).map(|(json, _)| json);
    json.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
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
mod tests;
