//! What is true of all nodes and lives: who was granted which numbers, and what callers got.

use std::collections::HashSet;

use crate::sequence::Numbers;
use crate::sequence::store::SequenceSettings;

/// Numbers that came to a life: `first .. end` of a grant, or ids of an earlier life.
#[derive(Debug, Clone, Copy)]
struct Came {
    first: u64,
    end: u64,
    /// Held before a leap that the life has seen: a copy of its machine issues them.
    is_void: bool,
}

/// What came to one life, by name.
#[derive(Debug, Default)]
pub(crate) struct Land {
    came: Vec<Vec<Came>>,
    /// A leap that the life has not seen yet: how many it had seen, and how much had come by name.
    leap: Option<(u64, Vec<usize>)>,
}

impl Land {
    pub(crate) fn new(names: usize) -> Self {
        Self { came: vec![Vec::new(); names], leap: None }
    }

    pub(crate) fn add(&mut self, name: usize, first: u64, end: u64) {
        self.came[name].push(Came { first, end, is_void: false });
    }

    /// The machine's clock leaps. The life has seen so many leaps.
    pub(crate) fn leapt(&mut self, seen: u64) {
        self.settle(seen);
        let came = self.came.iter().map(Vec::len).collect();
        let before = self.leap.take().map_or(seen, |(before, _)| before);
        self.leap = Some((before, came));
    }

    /// The life has seen so many leaps by now. Whether it has seen all there were.
    pub(crate) fn settle(&mut self, seen: u64) -> bool {
        let Some((before, counts)) = self.leap.take() else { return true };
        if seen == before {
            self.leap = Some((before, counts));
            return false;
        }
        for (came, count) in self.came.iter_mut().zip(counts) {
            came[..count].iter_mut().for_each(|came| came.is_void = true);
        }
        true
    }

    /// Why a number may not be issued, if so.
    fn flaw(&self, name: usize, number: u64) -> Option<&'static str> {
        let mut holding = self.came[name].iter().filter(|came| came.first <= number && number < came.end);
        match holding.next() {
            None => Some("was not granted to it"),
            Some(first) if first.is_void && holding.all(|came| came.is_void) => {
                Some("was held before a leap of the clock")
            }
            Some(_) => None,
        }
    }
}

/// What a call was promised, as of its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Promise {
    /// Ids above this one, if the call is ordered: the last ordered one of its life.
    pub(crate) above: Option<u64>,
    /// Ids above this one, if the name is strict: the highest of all nodes.
    pub(crate) strictly_above: Option<u64>,
    pub(crate) is_contiguous: bool,
}

/// What is known of a name.
#[derive(Debug)]
struct Known {
    settings: SequenceSettings,
    start: u64,
    issued: HashSet<u64>,
    highest: Option<u64>,
    /// The end of the furthest grant.
    end: u64,
}

/// The judge.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    names: Vec<Known>,
    pub(crate) ids: u64,
    pub(crate) duplicates: u64,
    digest: u64,
}

impl Oracle {
    pub(crate) fn know(&mut self, settings: SequenceSettings, start: u64) {
        self.names.push(Known { settings, start, issued: HashSet::new(), highest: None, end: start });
    }

    pub(crate) fn settings(&self, name: usize) -> SequenceSettings {
        self.names[name].settings
    }

    pub(crate) fn alter(&mut self, name: usize, last: u64) {
        let settings = &mut self.names[name].settings;
        settings.last = settings.last.max(last);
    }

    pub(crate) fn granted(&mut self, name: usize, end: u64) {
        let known = &mut self.names[name];
        known.end = known.end.max(end);
    }

    /// Above every number that was ever granted.
    pub(crate) fn beyond(&self, name: usize) -> u64 {
        self.names[name].end
    }

    pub(crate) fn highest(&self, name: usize) -> Option<u64> {
        self.names[name].highest
    }

    /// Of all that was issued, in its order.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// A call got its numbers. What is wrong with them.
    pub(crate) fn issue(
        &mut self,
        name: usize,
        land: &Land,
        promise: Promise,
        got: Vec<Numbers>,
    ) -> Result<Issued, String> {
        let runs = got.len();
        let known = &mut self.names[name];
        let SequenceSettings { increment, remainder, last, strict, .. } = known.settings;
        let (mut flaw, mut issued) = (None, Issued { count: 0, highest: 0 });
        let mut above = promise.above;
        for number in got.into_iter().flatten() {
            self.ids += 1;
            self.digest = (self.digest ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(9);
            issued.count += 1;
            let why = if !known.issued.insert(number) {
                self.duplicates += 1;
                Some("came twice".to_owned())
            } else if let Some(flaw) = land.flaw(name, number) {
                Some(flaw.to_owned())
            } else if number % u64::from(increment) != u64::from(remainder) || number > last {
                Some(format!("does not fit {increment}, {remainder}, {last}"))
            } else if number < known.start {
                Some(format!("lies below {}, where it begins", known.start))
            } else if above.is_some_and(|above| number <= above && above > 0) {
                Some(format!("is ordered, and came after {above:?}"))
            } else if strict && promise.strictly_above.is_some_and(|above| number <= above) {
                Some(format!("is strict, and came after {:?}", promise.strictly_above))
            } else {
                None
            };
            flaw = flaw.or_else(|| why.map(|why| format!("the number {number} {why}")));
            above = above.map(|above| above.max(number));
            issued.highest = issued.highest.max(number);
        }
        known.highest = known.highest.max(Some(issued.highest));
        if promise.is_contiguous && runs != 1 {
            flaw = flaw.or_else(|| Some(format!("a call got {runs} runs, and wanted its ids in one piece")));
        }
        flaw.map_or(Ok(issued), Err)
    }
}

/// What a call got.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issued {
    pub(crate) count: u64,
    pub(crate) highest: u64,
}
