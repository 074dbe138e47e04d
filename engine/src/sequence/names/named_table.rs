//! The table of names, and what is kept of those that were not used for long.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, RwLock};

use super::named::Named;
use crate::sequence::chain::line::Wakers;
use crate::sequence::chain::span::{Span, sorted, total};
use crate::sequence::figures::SequenceFigures;
use crate::sequence::name::SequenceName;
use crate::sequence::store::SequenceSettings;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 64;

type Shard = RwLock<HashMap<SequenceName, Arc<Named>>>;

/// What is kept of a name that is not in use: some hundred bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Ids that are left, ascending.
    pub(crate) spans: Vec<Span>,
    /// No ordered id was taken from here on; below, what is left is loose.
    pub(crate) ordered_from: u64,
    pub(crate) settings: Option<SequenceSettings>,
    /// The end of the last grant.
    pub(crate) mark: u64,
}

impl Rest {
    /// The same of a name of which something was kept already.
    fn join(&mut self, other: Self) {
        self.spans.reserve_exact(other.spans.len());
        self.spans.extend(other.spans);
        self.spans = sorted(std::mem::take(&mut self.spans));
        self.ordered_from = self.ordered_from.max(other.ordered_from);
        self.settings = other.settings.or(self.settings);
        self.mark = self.mark.max(other.mark);
    }
}

/// What is known of a name that there was no room for the rest of: without it, what a store that went back grants would be
/// taken for new.
#[derive(Debug, Clone, Copy, Default)]
struct Forgotten {
    ordered_from: u64,
    mark: u64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct NamedTable {
    shards: Box<[Shard]>,
    hasher: RandomState,
    rests: Mutex<Rests>,
}

/// The table of rests gives back what it does not need when it is this much larger than that.
const ROOMY: usize = 4;

/// So often all names are counted at most, while some leave the table and come back.
const COUNTS: usize = 4;

/// A table of so few names is left as it is.
const FEW: usize = 1_024;

/// What was left of names.
#[derive(Debug, Default)]
struct Rests {
    by_name: HashMap<SequenceName, Rest>,
    /// Figures of names that left the table, but for what they held.
    gone: SequenceFigures,
    /// Ids in `by_name`.
    held: u64,
    /// Names that there was no room for the rest of, by their hash.
    forgotten: HashMap<u64, Forgotten>,
    /// The stop has begun: what names left behind stays there, to be saved.
    closed: bool,
    /// Ids that went from there to an entry of the table, which counts them as reclaimed.
    returned: u64,
    /// How often something went from an entry of the table to here, or back.
    moves: u64,
}

impl Rests {
    /// Gives back memory when most names are in use again. Each time the table halves, so a name pays for little.
    fn shrink(&mut self) {
        let len = self.by_name.len().max(FEW);
        if self.by_name.capacity() > ROOMY * len {
            self.by_name.shrink_to(2 * len);
        }
    }
}

impl NamedTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            rests: Mutex::default(),
        }
    }

    fn shard(&self, name: &SequenceName) -> &Shard {
        &self.shards[(self.hasher.hash_one(name) % SHARDS as u64) as usize]
    }

    pub(crate) fn find(&self, name: &SequenceName) -> Option<Arc<Named>> {
        read(self.shard(name)).get(name).cloned()
    }

    /// The name's entry; made by `make` where there is none, with what was left of it.
    pub(crate) fn find_or_make<E>(
        &self,
        name: &SequenceName,
        make: impl FnOnce() -> Result<Named, E>,
    ) -> Result<Arc<Named>, E> {
        if let Some(found) = self.find(name) {
            return Ok(found);
        }
        let mut shard = write(self.shard(name));
        if let Some(found) = shard.get(name) {
            return Ok(found.clone());
        }
        let named = Arc::new(make()?);
        // A name that was just made has no line.
        self.restore(&named).wake();
        shard.insert(name.clone(), named.clone());
        Ok(named)
    }

    /// Gives a name what was left of it, if something was.
    fn restore(&self, named: &Named) -> Wakers {
        // Before the rest is taken: a leap that does not find it there any more waits for the name, and finds it here.
        let state = &mut *named.lock();
        let rest = {
            let mut rests = lock(&self.rests);
            if rests.closed {
                return Wakers::default();
            }
            let mut rest = rests.by_name.remove(&named.name).unwrap_or_default();
            let count = total(&rest.spans);
            rests.held -= count;
            rests.returned += count;
            rests.moves += u64::from(count > 0);
            rests.shrink();
            if let Some(known) = self.forgotten(&rests, &named.name) {
                rest.ordered_from = rest.ordered_from.max(known.ordered_from);
                rest.mark = rest.mark.max(known.mark);
            }
            rest
        };
        if let Some(settings) = rest.settings {
            named.learn(state, settings);
        }
        if rest.mark > 0 {
            // An earlier life had numbers of it.
            state.untold = None;
        }
        state.mark = state.mark.max(rest.mark);
        let ordered_from = if Guard::RestBelowIsLoose.holds() { rest.ordered_from } else { 0 };
        state.chain.raise_top(ordered_from);
        state.count_return(total(&rest.spans));
        let mut wakers = Wakers::default();
        for span in rest.spans {
            let (loose, segment) = span.split_at(ordered_from);
            named.give_back(state, loose.into_iter().collect());
            wakers.extend(segment.map(|segment| named.append(state, segment)).unwrap_or_default());
        }
        wakers
    }

    /// Keeps what an earlier life left, and wastes it if it is void, which is asked under the lock. Names that are in use by
    /// now get theirs at once.
    pub(crate) fn reclaim(
        &self,
        left: impl IntoIterator<Item = (SequenceName, Vec<Span>)>,
        is_void: impl Fn() -> bool,
    ) {
        let mut names = Vec::new();
        {
            let mut rests = lock(&self.rests);
            let is_void = is_void();
            for (name, spans) in left {
                let (count, mark) = (total(&spans), mark_of(&spans));
                rests.gone.reclaimed += count;
                let spans = if is_void {
                    rests.gone.wasted.leap += count;
                    Vec::new()
                } else {
                    rests.held += count;
                    spans
                };
                let rest = Rest { spans, mark, ..Rest::default() };
                rests.by_name.entry(name.clone()).or_default().join(rest);
                names.push(name);
            }
        }
        self.restore_used(names);
    }

    /// Keeps how far the store had come with names, of whose numbers nothing is kept.
    pub(crate) fn remember_marks(&self, marks: impl IntoIterator<Item = (SequenceName, u64)>) {
        let mut names = Vec::new();
        {
            let mut rests = lock(&self.rests);
            for (name, mark) in marks {
                rests.by_name.entry(name.clone()).or_default().join(Rest { mark, ..Rest::default() });
                names.push(name);
            }
        }
        self.restore_used(names);
    }

    /// Gives those of these names that are in use what is kept of them.
    fn restore_used(&self, names: Vec<SequenceName>) {
        for name in names {
            if let Some(named) = self.find(&name) {
                self.restore(&named).wake();
            }
        }
    }

    /// How far the store had come with a name, as far as that is known here.
    pub(crate) fn known_mark(&self, name: &SequenceName) -> u64 {
        if let Some(named) = self.find(name) {
            return named.lock().mark;
        }
        let rests = lock(&self.rests);
        let kept = rests.by_name.get(name).map_or(0, |rest| rest.mark);
        self.forgotten(&rests, name).map_or(kept, |known| kept.max(known.mark))
    }

    /// Forgets how far the store had come with each name.
    pub(crate) fn forget_marks(&self) {
        {
            let rests = &mut *lock(&self.rests);
            rests.by_name.values_mut().for_each(|rest| rest.mark = 0);
            rests.forgotten.values_mut().for_each(|known| known.mark = 0);
        }
        self.each(|named| named.lock().mark = 0);
    }

    /// Wastes what names left behind, for a leap. What is known of them stays: ordered ids go on above those that they issued.
    pub(crate) fn void_rests(&self) {
        let rests = &mut *lock(&self.rests);
        rests.by_name.values_mut().for_each(|rest| rest.spans.clear());
        rests.gone.wasted.leap += std::mem::take(&mut rests.held);
    }

    /// Whether this is a name that was there, and of whose settings nothing is known any more.
    pub(crate) fn was_forgotten(&self, name: &SequenceName) -> bool {
        self.forgotten(&lock(&self.rests), name).is_some()
    }

    /// Whether anything is kept of a name that is not in the table.
    pub(crate) fn remembers(&self, name: &SequenceName) -> bool {
        let rests = lock(&self.rests);
        rests.by_name.contains_key(name) || self.forgotten(&rests, name).is_some()
    }

    /// How many ids are kept of a name that is not in the table.
    pub(crate) fn kept_of(&self, name: &SequenceName) -> u64 {
        lock(&self.rests).by_name.get(name).map_or(0, |rest| total(&rest.spans))
    }

    fn forgotten(&self, rests: &Rests, name: &SequenceName) -> Option<Forgotten> {
        if rests.forgotten.is_empty() {
            None
        } else {
            rests.forgotten.get(&self.hasher.hash_one(name)).copied()
        }
    }

    /// From now on a name that comes into use gets nothing of what was left of it: the stop saves that.
    pub(crate) fn keep_rests(&self) {
        lock(&self.rests).closed = true;
    }

    /// Takes out everything that names left behind; `waste` counts it.
    pub(crate) fn take_rests(&self) -> Vec<(SequenceName, Vec<Span>)> {
        let mut rests = lock(&self.rests);
        rests.held = 0;
        rests.by_name.drain().map(|(name, rest)| (name, rest.spans)).collect()
    }

    /// Counts ids that were [taken out](Self::take_rests).
    pub(crate) fn count_gone(&self, count: impl FnOnce(&mut SequenceFigures)) {
        count(&mut lock(&self.rests).gone);
    }

    /// All names together, those that left the table included.
    pub(crate) fn totals(&self) -> SequenceFigures {
        let mut told = self.count_all();
        for _ in 1..COUNTS {
            // What left meanwhile may be in neither, and what came back in both.
            if lock(&self.rests).moves == told.1 {
                break;
            }
            told = self.count_all();
        }
        told.0
    }

    /// The same, and how often something had moved before.
    fn count_all(&self) -> (SequenceFigures, u64) {
        let (mut sum, returned, moves) = {
            let rests = lock(&self.rests);
            (SequenceFigures { held: rests.held, ..rests.gone }, rests.returned, rests.moves)
        };
        self.each(|named| {
            let figures = named.books(&named.lock());
            add(&mut sum, &figures);
            sum.held += figures.held;
        });
        sum.reclaimed = sum.reclaimed.saturating_sub(returned);
        (sum, moves)
    }

    /// Takes up to `most` names out of the table that no caller has and that `is_over` says so of. What is left of them is
    /// kept for `limit` names, and wasted for more. Returns how many went.
    pub(crate) fn sweep(&self, is_over: impl Fn(&Named) -> bool, most: usize, limit: usize) -> usize {
        let mut swept = 0;
        for shard in &self.shards {
            let unused = |named: &Arc<Named>| Arc::strong_count(named) == 1 && is_over(named);
            if swept >= most || !read(shard).values().any(unused) {
                continue;
            }
            // Under the lock of the shard no caller gets hold of it.
            let mut entries = write(shard);
            entries.retain(|_, named| {
                let goes = swept < most && unused(named);
                if goes {
                    self.put_by(named, limit);
                    swept += 1;
                }
                !goes
            });
        }
        swept
    }

    fn put_by(&self, named: &Named, limit: usize) {
        let state = &mut *named.lock();
        let ordered_from = state.chain.ordered_from();
        let mut spans = named.void(state);
        let count = total(&spans);
        let figures = named.books(state);
        let mut rests = lock(&self.rests);
        rests.moves += 1;
        add(&mut rests.gone, &figures);
        // Also of a name whose row vanished, which is not to be made again. What never was there is not remembered.
        let was_there = count > 0 || state.settings.is_some() || state.mark > 0;
        if rests.by_name.len() >= limit {
            rests.gone.wasted.dropped += count;
            if was_there {
                let known = rests.forgotten.entry(self.hasher.hash_one(&named.name)).or_default();
                known.ordered_from = known.ordered_from.max(ordered_from);
                known.mark = known.mark.max(state.mark);
            }
            return;
        }
        rests.held += count;
        if was_there {
            spans.shrink_to_fit();
            let rest = Rest { spans, ordered_from, settings: state.settings, mark: state.mark };
            // A few bytes that stay among the many that go would keep whole pages from being given back.
            match rests.by_name.entry(named.name.apart()) {
                Entry::Vacant(place) => _ = place.insert(rest),
                // What an earlier life left has just come, and found the name in the table still.
                Entry::Occupied(mut kept) => kept.get_mut().join(rest),
            }
        }
    }

    /// All entries, one after the other.
    pub(crate) fn each(&self, mut work: impl FnMut(&Arc<Named>)) {
        for shard in &self.shards {
            let entries: Vec<Arc<Named>> = read(shard).values().cloned().collect();
            entries.iter().for_each(&mut work);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| read(shard).len()).sum()
    }
}

/// How far a store had come that granted these: all of it was granted, so one that has not gone back goes on above.
pub(crate) fn mark_of(spans: &[Span]) -> u64 {
    spans.iter().map(Span::above).max().unwrap_or_default()
}

fn read(shard: &Shard) -> std::sync::RwLockReadGuard<'_, HashMap<SequenceName, Arc<Named>>> {
    shard.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write(shard: &Shard) -> std::sync::RwLockWriteGuard<'_, HashMap<SequenceName, Arc<Named>>> {
    shard.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Adds figures of a name, but for what it holds.
pub(crate) fn add(sum: &mut SequenceFigures, figures: &SequenceFigures) {
    sum.granted += figures.granted;
    sum.reclaimed += figures.reclaimed;
    sum.issued += figures.issued;
    sum.saved += figures.saved;
    sum.wasted.contiguous += figures.wasted.contiguous;
    sum.wasted.thread += figures.wasted.thread;
    sum.wasted.leap += figures.wasted.leap;
    sum.wasted.strict += figures.wasted.strict;
    sum.wasted.dropped += figures.wasted.dropped;
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::clock::SystemClock;
    use crate::sequence::names::hub::Hub;
    use crate::sequence::settings::SequenceConfig;
    use crate::sys::fork_word::GenerationWord;

    /// The first ordered id of a name that left the table and came back. Six were taken in order, and one of them had come
    /// back.
    fn first_after_a_rest() -> u64 {
        let (table, name) = (NamedTable::new(), SequenceName::new("a").unwrap());
        let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
        let named = table.find_or_make(&name, make).unwrap();
        named.append(&mut named.lock(), Span { first: 1, count: 10, increment: 1 }).wake();
        assert_eq!(total(&named.lock().chain.take(6).spans), 6);
        named.give_back(&mut named.lock(), vec![Span { first: 3, count: 1, increment: 1 }]);
        drop(named);
        assert_eq!(table.sweep(|_| true, 1, 1), 1);
        let named = table.find_or_make(&name, make).unwrap();
        let first = named.lock().chain.take(1).spans[0].first;
        let state = named.lock();
        assert_eq!(state.chain.in_segments() + state.chain.loose(), 4);
        drop(state);
        first
    }

    #[test]
    fn what_a_name_that_comes_back_has_below_its_ordered_ids_is_not_for_ordered_calls() {
        assert_eq!(first_after_a_rest(), 7);
        assert_eq!(Guard::without(&[Guard::RestBelowIsLoose], first_after_a_rest), 3);
    }

    #[test]
    fn what_an_earlier_life_left_is_kept_where_it_comes_while_its_name_leaves_the_table() {
        let (table, name) = (&NamedTable::new(), SequenceName::new("a").unwrap());
        let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
        let named = table.find_or_make(&name, make).unwrap();
        named.append(&mut named.lock(), Span { first: 101, count: 10, increment: 1 }).wake();
        assert_eq!(total(&named.lock().chain.take(5).spans), 5);
        drop(named);
        let (begin, begins) = channel();
        let (leave, leaves) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                begins.recv().unwrap();
                // Asked a second time, it has the shard, and goes on to what is kept.
                let looks = Cell::new(0);
                let is_over = |_: &Named| {
                    looks.set(looks.get() + 1);
                    if looks.get() == 2 {
                        leave.send(()).unwrap();
                    }
                    true
                };
                assert_eq!(table.sweep(is_over, 1, 10), 1);
            });
            let left = vec![Span { first: 1, count: 10, increment: 1 }];
            table.reclaim([(name.clone(), left)], || {
                begin.send(()).unwrap();
                leaves.recv().unwrap();
                false
            });
        });
        assert!(table.find(&name).is_none());
        let named = table.find_or_make(&name, make).unwrap();
        let state = named.lock();
        assert_eq!((state.chain.in_segments(), state.chain.loose(), state.mark), (5, 10, 11));
        drop(state);
        assert_eq!(table.totals().held, 15);
    }

    /// One that leaves has its part of the table, a caller a name and wants the tally: none of them may wait for the other.
    #[test]
    fn who_counts_the_names_keeps_nobody_from_the_tally_while_a_part_of_the_table_is_taken() {
        let hub = Hub::new(SequenceConfig::default(), Arc::new(SystemClock)).unwrap();
        let shard = |name: &SequenceName| hub.names.hasher.hash_one(name) % SHARDS as u64;
        let mut names: Vec<_> = (0..100).map(|n| SequenceName::new(&format!("a{n}")).unwrap()).collect();
        names.sort_by_key(shard);
        let made = |name: &SequenceName| {
            let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
            hub.names.find_or_make(name, make).unwrap()
        };
        let (leaves, stays) = (made(&names[0]), made(&names[99]));
        drop(leaves);
        let is_in_use = stays.lock();
        let ((has, is_had), (go_on, end)) = (channel(), channel::<()>());
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let hub = &hub;
            let counts = scope.spawn(|| hub.stats().names);
            // It waits for the last name by now.
            std::thread::sleep(Duration::from_millis(100));
            scope.spawn(move || {
                // Asked a second time, it has the name's part of the table.
                let looks = Cell::new(0);
                let is_over = |_: &Named| {
                    looks.set(looks.get() + 1);
                    if looks.get() == 2 {
                        has.send(()).unwrap();
                        end.recv().unwrap();
                    }
                    true
                };
                hub.sweep(is_over, 1);
            });
            is_had.recv().unwrap();
            drop(is_in_use);
            std::thread::sleep(Duration::from_millis(100));
            scope.spawn(move || tell.send(hub.is_behind()).unwrap());
            let is_told = told.recv_timeout(Duration::from_secs(10));
            go_on.send(()).unwrap();
            assert_eq!((is_told, counts.join().unwrap()), (Ok(false), 1));
        });
    }

    /// What is told of a name that issued six numbers, and leaves the table while all are counted.
    fn totals_while_a_name_leaves() -> SequenceFigures {
        let table = &NamedTable::new();
        let shard = |name: &SequenceName| table.hasher.hash_one(name) % SHARDS as u64;
        let mut names: Vec<_> = (0..100).map(|n| SequenceName::new(&format!("a{n}")).unwrap()).collect();
        names.sort_by_key(shard);
        let (first, last) = (&names[0], &names[99]);
        assert!(shard(first) < shard(last));
        let made = |name: &SequenceName| {
            let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
            table.find_or_make(name, make).unwrap()
        };
        let (stays, leaves) = (made(first), made(last));
        leaves.append(&mut leaves.lock(), Span { first: 1, count: 10, increment: 1 }).wake();
        assert_eq!(total(&leaves.lock().chain.take(6).spans), 6);
        drop(leaves);
        let is_in_use = stays.lock();
        std::thread::scope(|scope| {
            let totals = scope.spawn(|| table.totals());
            // It waits for the first name by now.
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(table.sweep(|named| named.name == *last, 1, 1), 1);
            drop(is_in_use);
            totals.join().unwrap()
        })
    }

    #[test]
    fn a_name_that_leaves_the_table_while_all_are_counted_is_counted() {
        let totals = totals_while_a_name_leaves();
        assert_eq!((totals.issued, totals.held), (6, 4));
    }

    #[test]
    fn the_settings_of_a_name_are_kept_whichever_of_two_rests_knows_them() {
        let known = Rest { settings: Some(SequenceSettings::default()), ..Rest::default() };
        for (mut rest, other) in [(known.clone(), Rest::default()), (Rest::default(), known.clone())] {
            rest.join(other);
            assert_eq!(rest, known);
        }
    }

    #[test]
    fn what_was_kept_of_many_names_takes_no_room_once_they_are_back() {
        let mut rests = Rests::default();
        let name = |number: usize| SequenceName::new(&number.to_string()).unwrap();
        rests.by_name.extend((0..100_000).map(|number| (name(number), Rest::default())));
        for number in 0..100_000 {
            rests.by_name.remove(&name(number));
            rests.shrink();
        }
        assert!(rests.by_name.capacity() <= ROOMY * FEW, "room for {} names", rests.by_name.capacity());
    }

    #[test]
    fn ordered_ids_of_a_name_that_is_not_used_ascend_over_a_leap() {
        let (table, name) = (NamedTable::new(), SequenceName::new("a").unwrap());
        let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
        let named = table.find_or_make(&name, make).unwrap();
        let span = |first| Span { first, count: 10, increment: 1 };
        named.append(&mut named.lock(), span(101)).wake();
        assert_eq!(total(&named.lock().chain.take(5).spans), 5);
        drop(named);
        assert_eq!(table.sweep(|_| true, 1, 1), 1);
        table.void_rests();
        let named = table.find_or_make(&name, make).unwrap();
        // A grant that comes late is below.
        named.append(&mut named.lock(), span(51)).wake();
        let state = named.lock();
        assert_eq!((state.chain.in_segments(), state.chain.loose()), (0, 10));
        drop(state);
        assert_eq!(table.totals().wasted.leap, 5);
    }
}
