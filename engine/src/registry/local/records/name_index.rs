//! Which slot has the record of which name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::registry::local::format::{Kind, Place, Row};

/// What is known of a file of sequences. A slot that is used once keeps its name for good, so this only grows.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    slots: BTreeMap<String, u32>,
    /// Names that two slots claim.
    doubled: BTreeSet<String>,
    /// Slots of which nothing tells whose they are.
    lost: BTreeSet<u32>,
    /// All slots below are known. Names are made in the order of the slots.
    next: u32,
}

/// Where a name's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    At(u32),
    /// In two slots.
    Doubled,
    /// It never had one.
    Never,
    /// This slot may have had it.
    PerhapsLost(u32),
}

impl NameIndex {
    /// Takes note of what a slot says; `None` if it says nothing that can be believed.
    pub(super) fn learn(&mut self, place: Place, row: Option<&Row>) {
        if place.kind != Kind::Sequence {
            return;
        }
        let (slot, named) = (place.slot, row.map(|row| row.named.as_deref()));
        match named {
            Some(None) => return,
            Some(Some(named)) if !named.is_lost => {
                self.lost.remove(&slot);
                if self.slots.insert(named.name.clone(), slot).is_some_and(|before| before != slot) {
                    self.doubled.insert(named.name.clone());
                }
            }
            Some(Some(_)) | None => _ = self.lost.insert(slot),
        }
        if slot == self.next {
            self.next += 1;
        }
    }

    pub(super) fn find(&self, name: &str) -> Found {
        match (self.slots.get(name), self.lost.first()) {
            _ if self.doubled.contains(name) => Found::Doubled,
            (Some(slot), _) => Found::At(*slot),
            (None, Some(lost)) => Found::PerhapsLost(*lost),
            (None, None) => Found::Never,
        }
    }

    /// The first slot that is not known.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The slots of which nothing tells whose they were.
    pub(super) fn lost(&self) -> impl Iterator<Item = u32> {
        self.lost.iter().copied()
    }

    /// The names after one and not before the first with a prefix, in order.
    pub(super) fn from<'a>(&'a self, prefix: &str, after: &str) -> impl Iterator<Item = &'a str> {
        let begin = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        self.slots.range::<str, _>((begin, Bound::Unbounded)).map(|(name, _)| name.as_str())
    }
}
