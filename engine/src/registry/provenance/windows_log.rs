//! `windows.log` in a data folder: who was granted what, and when, for people who ask later where an id came from.
//!
//! The registry thread notes what has become known, after the fact. No code but [`Evidence`](super::Evidence) reads the
//! file, it is never synced, and nothing rests on it: what cannot be noted is not, and a file that is damaged, cut off or
//! gone answers less.
//!
//! # Invariants
//! - I1 nothing here fails a start or a job, or waits for another process: a note that cannot be written at once is written
//!   before the next one, and the oldest of too many are dropped;
//! - I2 of several processes of a folder one writes at a time, behind what the others wrote.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::note::{Event, NAME_BYTES, NOTE_BYTES, Note, SLOTS};
use crate::registry::{ClusterId, Token};
use crate::sys::deferred_log;
use crate::sys::file_lock::try_lock;

/// Its name in the data folder.
pub(super) const NAME: &str = "windows.log";

/// A name is written again after so many notes, since the ring runs over it.
const NAME_EVERY: u32 = 256;

/// Notes that are kept while none can be written: some hours of one worker.
const MOST_UNWRITTEN: usize = 256;

/// How often the lock is tried for: another process has it for some microseconds.
const LOCK_TRIES: u32 = 64;

/// The notes of one process.
#[derive(Debug)]
pub(crate) struct WindowsLog {
    folder: PathBuf,
    cluster: ClusterId,
    /// Whose notes they are, for people.
    owner: String,
    open: Option<Opened>,
    /// Of which identity the name was written, and how many notes ago.
    named: Option<(Token, u32)>,
    /// Notes that could not be written yet, the oldest first.
    unwritten: VecDeque<Unwritten>,
    /// It was said that notes cannot be written.
    is_told: bool,
}

#[derive(Debug, Clone)]
struct Unwritten {
    token: Token,
    at_ms: u64,
    event: Event,
}

#[derive(Debug)]
struct Opened {
    file: File,
    /// The index of the next note, if no other process writes one before.
    next: u64,
}

impl WindowsLog {
    /// The notes of this folder. Nothing is opened before the first one.
    pub(crate) fn new(folder: &Path, cluster: ClusterId, owner: String) -> Self {
        let folder = folder.to_owned();
        let (open, named, unwritten) = (None, None, VecDeque::new());
        Self { folder, cluster, owner, open, named, unwritten, is_told: false }
    }

    /// Notes what became known of a process with that token, now or with the next one (I1).
    pub(crate) fn note(&mut self, token: Token, at_ms: u64, event: Event) {
        if self.unwritten.len() == MOST_UNWRITTEN {
            self.unwritten.pop_front();
        }
        self.unwritten.push_back(Unwritten { token, at_ms, event });
        self.write();
    }

    /// The last chance for what is not written yet.
    pub(crate) fn close(&mut self) {
        self.write();
    }

    /// Writes what is not written yet.
    fn write(&mut self) {
        if let Err(error) = self.try_write() {
            self.open = None;
            if !std::mem::replace(&mut self.is_told, true) {
                let path = self.folder.join(NAME);
                deferred_log::log(move || {
                    tracing::info!(
                        path = %path.display(), %error,
                        "what was granted is not noted: `xuid provenance` will know less, and nothing else changes"
                    );
                });
            }
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        while let Some(Unwritten { token, at_ms, event }) = self.unwritten.front().cloned() {
            self.try_note(token, at_ms, event)?;
            self.unwritten.pop_front();
        }
        Ok(())
    }

    fn try_note(&mut self, token: Token, at_ms: u64, event: Event) -> io::Result<()> {
        let opened = match self.open.take() {
            Some(opened) if opened.has_name(&self.folder.join(NAME)) => opened,
            // The first note, or the file was moved, removed or replaced.
            _ => {
                self.named = None;
                open_to_write(&self.folder, self.cluster)?
            }
        };
        let opened = self.open.insert(opened);
        let mut events = Vec::new();
        let is_named = self.named.is_some_and(|(named, since)| named == token && since < NAME_EVERY);
        if !is_named {
            let parts = (0..).zip(self.owner.as_bytes().chunks(NAME_BYTES));
            events.extend(parts.map(|(part, text)| Event::Name { part, text: text.to_vec() }));
        }
        events.push(event);
        opened.append(self.cluster, token, at_ms, events)?;
        let since = if is_named { self.named.map_or(0, |(_, since)| since) } else { 0 };
        self.named = Some((token, since + 1));
        Ok(())
    }
}

impl Opened {
    /// Whether it is still the file of that name.
    fn has_name(&self, path: &Path) -> bool {
        let [own, named] = [self.file.metadata(), fs::metadata(path)];
        own.and_then(|own| named.map(|named| (own.dev(), own.ino()) == (named.dev(), named.ino())))
            .unwrap_or(false)
    }

    fn append(&mut self, cluster: ClusterId, token: Token, at_ms: u64, events: Vec<Event>) -> io::Result<()> {
        self.lock()?;
        let written = self.append_locked(cluster, token, at_ms, events);
        // Not left to the end of the file's descriptor, which a forked child may have as well.
        self.file.unlock()?;
        written
    }

    fn lock(&self) -> io::Result<()> {
        for _ in 0..LOCK_TRIES {
            if try_lock(&self.file)? {
                return Ok(());
            }
            std::thread::yield_now();
        }
        Err(io::Error::new(ErrorKind::WouldBlock, "another process has it locked"))
    }

    fn append_locked(
        &mut self,
        cluster: ClusterId,
        token: Token,
        at_ms: u64,
        events: Vec<Event>,
    ) -> io::Result<()> {
        while let Some(note) = self.slot(cluster, self.next).filter(|note| note.index >= self.next) {
            self.next = note.index + 1;
        }
        for event in events {
            let note = Note { index: self.next, token, at_ms, event };
            self.file.write_all_at(&note.encode(cluster), offset(self.next))?;
            self.next += 1;
        }
        Ok(())
    }

    fn slot(&self, cluster: ClusterId, index: u64) -> Option<Note> {
        let mut raw = [0; NOTE_BYTES];
        self.file.read_exact_at(&mut raw, offset(index)).ok()?;
        Note::decode(&raw, cluster, index % SLOTS)
    }
}

fn offset(index: u64) -> u64 {
    index % SLOTS * NOTE_BYTES as u64
}

fn open_to_write(folder: &Path, cluster: ClusterId) -> io::Result<Opened> {
    let path = folder.join(NAME);
    // Whatever has that name is opened at once, a FIFO as well.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = xuid_spill::file_options(&path);
    let file = options.create(true).truncate(false).custom_flags(flags.bits().cast_signed()).open(&path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    xuid_spill::give_to_owner_of(folder, &file);
    let next = notes_in(&file, cluster)?.last().map_or(0, |note| note.index + 1);
    Ok(Opened { file, next })
}

/// All notes of a folder, in the order in which they were written; none where there is no such file.
pub(super) fn read(folder: &Path, cluster: ClusterId) -> io::Result<Vec<Note>> {
    match xuid_spill::open_regular(&folder.join(NAME)) {
        Ok(file) => notes_in(&file, cluster),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn notes_in(file: &File, cluster: ClusterId) -> io::Result<Vec<Note>> {
    let mut bytes = Vec::new();
    file.take(SLOTS * NOTE_BYTES as u64).read_to_end(&mut bytes)?;
    let (slots, _) = bytes.as_chunks::<NOTE_BYTES>();
    let mut notes: Vec<_> =
        (0..).zip(slots).filter_map(|(slot, raw)| Note::decode(raw, cluster, slot)).collect();
    notes.sort_unstable_by_key(|note| note.index);
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const CLUSTER: ClusterId = ClusterId::from_bytes([3; 16]);

    fn notes_of(folder: &Path) -> WindowsLog {
        WindowsLog::new(folder, CLUSTER, "a host with a name of some length pid 1234".to_owned())
    }

    fn window(tick: u64) -> Event {
        Event::Window { worker: 7, ticks: tick..tick + 1 }
    }

    fn windows(folder: &Path) -> Vec<u64> {
        let first = |note: Note| match note.event {
            Event::Window { ticks, .. } => Some(ticks.start),
            _ => None,
        };
        read(folder, CLUSTER).unwrap().into_iter().filter_map(first).collect()
    }

    #[test]
    fn notes_of_several_processes_stand_behind_each_other_and_outlive_them() {
        let home = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (notes_of(home.path()), notes_of(home.path()));
        for tick in 0..300 {
            let (log, token) =
                if tick % 3 == 0 { (&mut a, Token([1; 16])) } else { (&mut b, Token([2; 16])) };
            log.note(token, tick, window(tick));
        }
        drop((a, b));
        notes_of(home.path()).note(Token([3; 16]), 300, window(300));
        assert_eq!(windows(home.path()), (0..=300).collect::<Vec<_>>());
        // The name in two notes, for each of the three.
        assert_eq!(read(home.path(), CLUSTER).unwrap().len(), 301 + 3 * 2);
    }

    #[test]
    fn the_ring_runs_over_its_oldest_notes_and_never_grows_beyond_its_size() {
        let home = tempfile::tempdir().unwrap();
        let mut log = notes_of(home.path());
        let path = home.path().join(NAME);
        log.note(Token([1; 16]), 0, window(0));
        log.open.as_mut().unwrap().next = SLOTS - 1;
        for tick in 1..4 {
            log.note(Token([1; 16]), 0, window(tick));
        }
        assert_eq!(
            windows(home.path()),
            [0, 1, 2, 3],
            "the name that was in the first slots is written over"
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), SLOTS * NOTE_BYTES as u64);
        drop(log);
        notes_of(home.path()).note(Token([1; 16]), 0, window(4));
        assert_eq!(windows(home.path()), [1, 2, 3, 4]);
    }

    /// A name that is said once is written over while its windows are still there.
    #[test]
    fn a_process_names_itself_again_and_again() {
        let home = tempfile::tempdir().unwrap();
        let mut log = notes_of(home.path());
        for tick in 0..=2 * u64::from(NAME_EVERY) {
            log.note(Token([1; 16]), tick, window(tick));
        }
        let is_name = |note: &Note| matches!(note.event, Event::Name { part: 0, .. });
        assert_eq!(read(home.path(), CLUSTER).unwrap().into_iter().filter(is_name).count(), 3);
    }

    #[test]
    fn whatever_has_its_name_is_let_be_and_a_file_that_was_removed_begins_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NAME);
        let mut log = notes_of(home.path());
        fs::create_dir(&path).unwrap();
        log.note(Token([1; 16]), 0, window(1));
        assert!(read(home.path(), CLUSTER).is_err());
        fs::remove_dir(&path).unwrap();
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, mode, 0).unwrap();
        log.note(Token([1; 16]), 0, window(2));
        assert!(read(home.path(), CLUSTER).is_err());
        fs::remove_file(&path).unwrap();
        log.note(Token([1; 16]), 0, window(3));
        assert_eq!(windows(home.path()), [1, 2, 3]);
        fs::remove_file(&path).unwrap();
        log.note(Token([1; 16]), 0, window(4));
        assert_eq!(windows(home.path()), [4]);
        // Cut off in the middle of a note, and with rubbish behind it.
        File::options().write(true).open(&path).unwrap().set_len(3 * 64 - 10).unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .map(|mut file| {
                file.write_all(&[0xaa; 1_000]).unwrap();
            })
            .unwrap();
        log.note(Token([1; 16]), 0, window(5));
        assert_eq!(windows(home.path()).last(), Some(&5));
    }

    #[test]
    fn a_note_waits_for_no_other_process_that_has_the_file_locked_and_is_written_with_the_next_one() {
        let home = tempfile::tempdir().unwrap();
        let mut log = notes_of(home.path());
        log.note(Token([1; 16]), 0, window(1));
        let other = File::open(home.path().join(NAME)).unwrap();
        other.lock().unwrap();
        log.note(Token([1; 16]), 0, window(2));
        assert_eq!(windows(home.path()), [1]);
        other.unlock().unwrap();
        log.note(Token([1; 16]), 0, window(3));
        assert_eq!(windows(home.path()), [1, 2, 3]);
    }

    #[test]
    fn of_very_many_notes_that_cannot_be_written_the_latest_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NAME);
        let mut log = notes_of(home.path());
        fs::create_dir(&path).unwrap();
        for tick in 0..1_000 {
            log.note(Token([1; 16]), tick, window(tick));
        }
        fs::remove_dir(&path).unwrap();
        log.note(Token([1; 16]), 1_000, window(1_000));
        assert_eq!(windows(home.path()), (745..=1_000).collect::<Vec<_>>());
    }
}
