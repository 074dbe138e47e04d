//! What the notes of a folder say together: which process had which ticks, and who was granted which extents.
//!
//! # Invariants
//! - H1 a window that may have been handed back, or ended, in notes that are lost names no holder.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use xuid_spill::SpillId;

use super::note::{Event, Note, SpillKey};
use super::windows_log;
use crate::registry::{ClusterId, Token, printable};

/// Windows of a worker that a hand-back may reach into: it goes down to the tick that runs, and a window is renewed while
/// the one before lasts.
const NEAR: usize = 3;

/// A window of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) ticks: Range<u64>,
    token: Token,
    /// When it was granted, in Unix milliseconds.
    pub(super) at_ms: u64,
    /// Notes behind it are lost before one that shows that it was not handed back.
    is_doubtful: bool,
}

/// A grant of extents.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    spill: SpillKey,
    extents: Range<u64>,
    token: Token,
    pub(super) at_ms: u64,
}

/// What a folder's notes say.
#[derive(Debug, Default)]
pub(super) struct History {
    windows: HashMap<u32, Vec<Held>>,
    grants: Vec<Granted>,
    names: HashMap<[u8; 16], Vec<u8>>,
    next: Option<u64>,
}

impl History {
    pub(super) fn read(folder: &Path, cluster: ClusterId) -> io::Result<Self> {
        Ok(Self::of(windows_log::read(folder, cluster)?))
    }

    /// Of notes in their order.
    fn of(notes: impl IntoIterator<Item = Note>) -> Self {
        let mut history = Self::default();
        notes.into_iter().for_each(|note| history.add(note));
        history
    }

    fn add(&mut self, note: Note) {
        let Note { index, token, at_ms, event } = note;
        if self.next.is_some_and(|next| next != index) {
            let last = self.windows.values_mut().flat_map(|held| held.iter_mut().rev().take(NEAR));
            last.for_each(|held| held.is_doubtful = true);
        }
        self.next = Some(index + 1);
        match event {
            Event::Window { worker, ticks } => {
                let held = self.windows.entry(worker).or_default();
                // Nothing was handed back between windows that follow upon each other.
                let mut next = ticks.start;
                for before in held.iter_mut().rev() {
                    if before.token != token || before.ticks.end != next || !before.is_doubtful {
                        break;
                    }
                    before.is_doubtful = false;
                    next = before.ticks.start;
                }
                held.push(Held { ticks, token, at_ms, is_doubtful: false });
            }
            Event::HandBack { worker, from } => {
                let held = self.windows.entry(worker).or_default();
                for window in held.iter_mut().rev().take_while(|held| held.ticks.end > from) {
                    if window.token == token {
                        window.ticks.end = from.max(window.ticks.start);
                        window.is_doubtful = false;
                    }
                }
            }
            Event::Grant { spill, extents } => self.grants.push(Granted { spill, extents, token, at_ms }),
            Event::Name { part, text } => {
                let name = self.names.entry(token.0).or_default();
                if part == 0 {
                    name.clear();
                }
                name.extend(text);
            }
        }
    }

    /// The window that a tick of a worker is in: the one that was granted last, if there are several.
    pub(super) fn window(&self, worker: u32, tick: u64) -> Option<&Held> {
        let held = self.windows.get(&worker)?;
        held.iter().rev().find(|held| held.ticks.contains(&tick)).filter(|held| !held.is_doubtful)
    }

    /// The grant that an extent was in.
    pub(super) fn grant(&self, spill: SpillId, index: u64) -> Option<&Granted> {
        let key = spill.into();
        self.grants.iter().rev().find(|grant| grant.spill == key && grant.extents.contains(&index))
    }

    fn name(&self, token: Token) -> Option<String> {
        let name = self.names.get(&token.0)?;
        Some(printable(&String::from_utf8_lossy(name)))
    }

    pub(super) fn holder(&self, held: &Held) -> Option<String> {
        self.name(held.token)
    }

    pub(super) fn grantee(&self, granted: &Granted) -> Option<String> {
        self.name(granted.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Token = Token([1; 16]);
    const THEM: Token = Token([2; 16]);

    fn window(token: Token, ticks: Range<u64>) -> (Token, Event) {
        (token, Event::Window { worker: 3, ticks })
    }

    fn hand_back(token: Token, from: u64) -> (Token, Event) {
        (token, Event::HandBack { worker: 3, from })
    }

    fn history(events: Vec<(Token, Event)>, lost: &[u64]) -> History {
        let notes =
            (0..).zip(events).map(|(index, (token, event))| Note { index, token, at_ms: index, event });
        History::of(notes.filter(|note| !lost.contains(&note.index)))
    }

    fn holder(history: &History, tick: u64) -> Option<(Token, Range<u64>)> {
        history.window(3, tick).map(|held| (held.token, held.ticks.clone()))
    }

    #[test]
    fn a_tick_is_in_the_window_that_was_granted_for_it_until_what_was_handed_back() {
        let events = vec![window(US, 10..20), window(US, 20..40), hand_back(US, 25), window(THEM, 25..60)];
        let history = history(events, &[]);
        assert_eq!(holder(&history, 9), None);
        assert_eq!(holder(&history, 19), Some((US, 10..20)));
        assert_eq!(holder(&history, 24), Some((US, 20..25)));
        assert_eq!(holder(&history, 25), Some((THEM, 25..60)));
        assert_eq!(holder(&history, 60), None);
        assert!(history.window(4, 15).is_none());
    }

    #[test]
    fn a_renewal_that_was_never_used_ends_with_what_was_handed_back() {
        let events = vec![window(US, 10..20), window(US, 20..40), hand_back(US, 15)];
        let history = history(events, &[]);
        assert_eq!(holder(&history, 14), Some((US, 10..15)));
        assert!([15, 20, 39].iter().all(|tick| holder(&history, *tick).is_none()));
    }

    /// A process that became another one hands nothing back of what it had before.
    #[test]
    fn a_hand_back_by_another_identity_shortens_no_window() {
        let history = history(vec![window(US, 10..20), hand_back(THEM, 15)], &[]);
        assert_eq!(holder(&history, 18), Some((US, 10..20)));
    }

    #[test]
    fn the_window_of_another_process_does_not_show_that_nothing_was_handed_back_before_it() {
        let events = vec![window(US, 10..20), hand_back(US, 15), window(THEM, 20..40)];
        assert_eq!(holder(&history(events, &[1]), 18), None);
    }

    #[test]
    fn where_a_hand_back_may_be_lost_no_holder_is_named() {
        let renewed = [0..10, 10..20, 20..40, 40..80, 80..160].map(|ticks| window(US, ticks));
        let events = || [&renewed[..], &[hand_back(US, 60), window(THEM, 60..100)]].concat();
        assert_eq!(holder(&history(events(), &[]), 45), Some((US, 40..60)));
        let lost = history(events(), &[5]);
        assert_eq!(holder(&lost, 15), Some((US, 10..20)), "it was renewed often enough");
        assert!([30, 45, 59, 110].iter().all(|tick| holder(&lost, *tick).is_none()));
        assert_eq!(holder(&lost, 65), Some((THEM, 60..100)));
        // What was renewed behind the gap was not handed back in it.
        let lost = history(events(), &[2]);
        assert_eq!((holder(&lost, 15), holder(&lost, 45)), (None, Some((US, 40..60))));
    }
}
