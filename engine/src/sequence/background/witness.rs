//! The witness: per name the numbers that any process was granted, `[0, w)` less a few gaps, in the registry. A grant is
//! used only after a compare-and-set found it unseen (Q5). So it does not matter whether the store lost commits, was put
//! back, or is two stores: the same number is used once.
//!
//! # Invariants
//! - I1 a number that was seen stays seen: `w` only rises, and gaps only shrink, but for those that come with a rise of
//!   `w`, of numbers above it;
//! - I2 an answer that is lost counts as a refusal;
//! - I3 what lies below the first grant that is shown to a record which is new, or which a person opened after a fence,
//!   counts as seen;
//! - I4 where this process was granted more than the record saw, which another witness or none did, what lies below that
//!   counts as seen, gaps included; and so does what lies below the first grant of a name to a process whose witness was
//!   another one, or none, before: it saw nothing of that time.

use crate::registry::sequences::{MOST_GAPS, SequenceChange, SequenceRecord, SequenceRecords};
use crate::registry::{ReadError, SwapError, Versioned};
use crate::sequence::name::SequenceName;
use crate::sys::guards::Guard;

/// How often a change is tried again because another process moved the record. Each try is lost to a change of another
/// process only, so many mean that many grant the same name at once.
const TRIES: u32 = 16;

/// What the witness thinks of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It was not seen; this is the record that says that it is.
    Unseen(SequenceRecord),
    /// Some of it was seen. All unseen numbers that can still be granted lie here or above, or in a gap.
    Seen { from: u64 },
}

/// Looks at a grant of `first .. end`, which is not empty.
pub(crate) fn see(record: Option<&SequenceRecord>, first: u64, end: u64) -> Sight {
    let Some(record) = record else {
        // The name's first use here. What is below may have been issued by another system, so it counts as seen.
        return Sight::Unseen(SequenceRecord { value: end, ..SequenceRecord::default() });
    };
    if !Guard::WitnessCompared.holds() {
        return Sight::Unseen(SequenceRecord { value: record.value.max(end), ..record.clone() });
    }
    let mut record = record.clone();
    if first >= record.value {
        if record.was_opened() && Guard::OpenedIsSeen.holds() {
            // Of what a fence's registry has lost, nothing is known to be unseen.
            record.last = 0;
        } else if first > record.value {
            record.gaps.push((record.value, first));
            if record.gaps.len() > MOST_GAPS {
                // Forgotten is seen: safe, and it costs the grant that comes late.
                record.gaps.remove(0);
            }
        }
        record.value = end;
        return Sight::Unseen(record);
    }
    let Some(at) = record.gaps.iter().position(|(from, upto)| *from <= first && end <= *upto) else {
        return Sight::Seen { from: record.value };
    };
    if Guard::GapCutOut.holds() {
        let (from, upto) = record.gaps[at];
        let left = [(from, first), (end, upto)];
        record.gaps.splice(at..=at, left.into_iter().filter(|(from, upto)| from < upto));
        if record.gaps.len() > MOST_GAPS {
            record.gaps.remove(0);
        }
    }
    Sight::Unseen(record)
}

/// A grant that is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) name: SequenceName,
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// What lies below numbers that were seen comes too late: its name is strict, or it is not known how high the ordered
    /// ids are that it issued.
    pub(crate) goes_above: bool,
    /// How far this process knows that the store had come with it.
    pub(crate) mark: u64,
    /// The witness is another one than before, and this is the first grant of the name since.
    pub(crate) is_first: bool,
    known: Option<Versioned<SequenceRecord>>,
    /// There is one after [`show`].
    pub(crate) verdict: Option<Result<(), Thrown>>,
}

impl Shown {
    pub(crate) fn new(name: SequenceName, first: u64, end: u64) -> Self {
        Self { name, first, end, goes_above: false, mark: 0, is_first: false, known: None, verdict: None }
    }

    /// How far the witness has seen it.
    fn seen(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.record.value)
    }

    /// I4. It is not shown: what was seen goes on above that.
    fn is_below_own(&self) -> bool {
        self.seen() < self.mark && self.first < self.mark && Guard::OwnAboveWitness.holds()
    }

    /// Its name's ordered ids may be higher.
    fn is_below_seen(&self) -> bool {
        self.goes_above && self.first < self.seen() && Guard::StrictAboveSeen.holds()
    }

    /// What the witness has seen, and what it can't have seen (I4).
    fn believed(&self) -> Option<SequenceRecord> {
        let mut record = self.known.as_ref()?.record.clone();
        if (self.is_first || record.value < self.mark) && Guard::OwnAboveWitness.holds() {
            record.gaps.clear();
            record.value = record.value.max(self.mark).max(if self.is_first { self.first } else { 0 });
        }
        Some(record)
    }
}

/// Why a grant is thrown away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Thrown {
    /// Some of it was seen before; the store's mark is to be raised to this.
    Seen { from: u64 },
    /// It goes above all that was seen, and higher numbers were seen, which may have been returned before it was asked for; or
    /// this process knows of more than was seen. The store's mark is to be raised to this.
    Late { from: u64 },
    /// The witness did not answer.
    Away(String),
    /// It has no room for a name that is new to it.
    Full(String),
    /// Other processes moved the name's record again and again.
    Contended,
    /// The name's record can't be had, and waits for a person; those of other names can.
    Refused(String),
}

impl Thrown {
    fn of_read(error: &ReadError) -> Self {
        match error {
            ReadError::Closed { .. } | ReadError::Damaged { .. } => Self::Refused(error.to_string()),
            _ => Self::Away(error.to_string()),
        }
    }
}

/// Why the record of each of these names can't be had, where it waits for a person.
pub(crate) fn refusals(records: &mut dyn SequenceRecords, names: &[&str]) -> Vec<Option<String>> {
    let mut found = Vec::with_capacity(names.len());
    records.read(names, &mut found);
    let why = |found: Result<_, ReadError>| match Thrown::of_read(&found.err()?) {
        Thrown::Refused(why) => Some(why),
        _ => None,
    };
    let mut whys: Vec<_> = found.into_iter().map(why).collect();
    // A name without an answer would not be asked for again.
    whys.resize(names.len(), Some("the registry's adaptor gave no answer".into()));
    whys
}

/// Why it is not known what the witness saw of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// The witness did not answer.
    Away(String),
    /// The name's record can't be had, and waits for a person; those of other names can.
    Refused(String),
}

/// How far the store had come with each of these names by what the witness saw; 0 where it saw nothing. Not by what a person said of
/// a name after a fence of the registry, nor by the mark of a registry that was the store once.
pub(crate) fn own_marks(records: &mut dyn SequenceRecords, names: &[&str]) -> Vec<Result<u64, Unseen>> {
    let mut found = Vec::with_capacity(names.len());
    records.read(names, &mut found);
    let mark = |found: Result<Versioned<SequenceRecord>, ReadError>| match found {
        Ok(Versioned { record, .. }) if record.step == 0 && !record.was_opened() => Ok(record.value),
        Ok(_) | Err(ReadError::Absent { .. }) => Ok(0),
        Err(error) => Err(match Thrown::of_read(&error) {
            Thrown::Refused(why) => Unseen::Refused(why),
            _ => Unseen::Away(error.to_string()),
        }),
    };
    let mut marks: Vec<_> = found.into_iter().map(mark).collect();
    // Of what an adaptor with a defect does not answer nothing is known.
    marks.resize(names.len(), Err(Unseen::Away("the registry's adaptor gave no answer".into())));
    marks
}

/// Shows grants of different names to the witness, together. Each has a verdict afterwards.
pub(crate) fn show(records: &mut dyn SequenceRecords, shown: &mut [Shown]) {
    for _ in 0..TRIES {
        look_up(records, shown);
        let mut changes = Vec::new();
        let mut places = Vec::new();
        for (place, one) in shown.iter_mut().enumerate().filter(|(_, one)| one.verdict.is_none()) {
            if one.is_below_own() {
                one.verdict = Some(Err(Thrown::Late { from: one.mark }));
                continue;
            }
            match see(one.believed().as_ref(), one.first, one.end) {
                Sight::Seen { from } => one.verdict = Some(Err(Thrown::Seen { from })),
                Sight::Unseen(_) if one.is_below_seen() => {
                    one.verdict = Some(Err(Thrown::Late { from: one.seen() }));
                }
                Sight::Unseen(record) => places.push((place, record)),
            }
        }
        for (place, record) in &places {
            let one = &shown[*place];
            let expected = one.known.as_ref().map(|known| known.version);
            changes.push(SequenceChange { name: one.name.as_str(), expected, record: record.clone() });
        }
        if changes.is_empty() {
            return;
        }
        let mut done = Vec::with_capacity(changes.len());
        records.swap(&changes, &mut done);
        drop(changes);
        for ((place, _), done) in places.into_iter().zip(done) {
            settle(&mut shown[place], done);
        }
    }
    for one in shown.iter_mut().filter(|one| one.verdict.is_none()) {
        one.verdict = Some(Err(Thrown::Contended));
    }
}

/// Reads the records that are not known.
fn look_up(records: &mut dyn SequenceRecords, shown: &mut [Shown]) {
    let unknown = |one: &&mut Shown| one.verdict.is_none() && one.known.is_none();
    let mut asked: Vec<&mut Shown> = shown.iter_mut().filter(unknown).collect();
    if asked.is_empty() {
        return;
    }
    let names: Vec<SequenceName> = asked.iter().map(|one| one.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(SequenceName::as_str).collect();
    let mut found = Vec::with_capacity(names.len());
    records.read(&names, &mut found);
    for (one, found) in asked.iter_mut().zip(found) {
        match found {
            Ok(found) => one.known = Some(found),
            // Its first use.
            Err(ReadError::Absent { .. }) => {}
            Err(error) => one.verdict = Some(Err(Thrown::of_read(&error))),
        }
    }
}

/// What became of a change. Whatever it was, the record is to be read again.
fn settle(one: &mut Shown, done: Result<(), SwapError>) {
    one.known = None;
    match done {
        Ok(()) => one.verdict = Some(Ok(())),
        Err(SwapError::Conflict) => {}
        Err(SwapError::Read(error)) => one.verdict = Some(Err(Thrown::of_read(&error))),
        Err(error @ SwapError::Full { .. }) => one.verdict = Some(Err(Thrown::Full(error.to_string()))),
        Err(error) => one.verdict = Some(Err(Thrown::Away(error.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::registry::ClusterId;
    use crate::registry::local::sequences::LocalSequences;
    use crate::registry::local::{CreateOptions, LocalRegistry, fence_restored};
    use crate::registry::sequences::memory::{MemoryRecords, RecordFault};
    use crate::sequence::store::registry::RegistryStore;
    use crate::sequence::store::{Fence, Store, fence};

    fn record(value: u64, gaps: &[(u64, u64)]) -> SequenceRecord {
        SequenceRecord { value, gaps: gaps.to_vec(), ..SequenceRecord::default() }
    }

    #[test]
    fn a_grant_above_all_that_was_seen_leaves_a_gap_and_one_in_a_gap_is_cut_out() {
        assert_eq!(see(None, 5, 9), Sight::Unseen(record(9, &[])));
        let seen = record(10, &[]);
        assert_eq!(see(Some(&seen), 10, 20), Sight::Unseen(record(20, &[])));
        let gap = record(30, &[(10, 20)]);
        assert_eq!(see(Some(&seen), 20, 30), Sight::Unseen(gap.clone()));
        for (first, end, left) in [
            (10, 20, vec![]),
            (10, 12, vec![(12, 20)]),
            (18, 20, vec![(10, 18)]),
            (12, 18, vec![(10, 12), (18, 20)]),
        ] {
            assert_eq!(see(Some(&gap), first, end), Sight::Unseen(record(30, &left)));
        }
        for (first, end) in [(0, 1), (9, 11), (19, 21), (10, 30), (29, 40), (0, 50)] {
            assert_eq!(see(Some(&gap), first, end), Sight::Seen { from: 30 }, "{first}..{end}");
        }
    }

    /// Numbers that were taken as unseen twice, of grants as a store may make them that loses what it likes.
    fn seen_twice(grants: &[(u64, u64)]) -> Option<u64> {
        let (mut found, mut used) = (None, std::collections::HashSet::new());
        for (first, width) in grants {
            let (first, end) = (*first, first + width);
            if let Sight::Unseen(next) = see(found.as_ref(), first, end) {
                assert!(next.gaps.len() <= MOST_GAPS && next.gaps.is_sorted());
                assert!(next.gaps.iter().all(|(from, upto)| from < upto && *upto < next.value));
                found = Some(next);
                if let Some(twice) = (first..end).find(|number| !used.insert(*number)) {
                    return Some(twice);
                }
            }
        }
        None
    }

    fn grants() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..120, 1_u64..12), 1..60)
    }

    proptest! {
        #[test]
        fn no_number_is_unseen_twice_whatever_is_granted(grants in grants()) {
            prop_assert_eq!(seen_twice(&grants), None);
        }
    }

    #[test]
    fn a_witness_that_does_not_compare_or_cut_is_found_out() {
        let put_back = [(1, 10), (1, 10)];
        assert!(Guard::without(&[Guard::WitnessCompared], || seen_twice(&put_back)).is_some());
        let late = [(1, 10), (21, 10), (11, 10), (11, 10)];
        assert!(Guard::without(&[Guard::GapCutOut], || seen_twice(&late)).is_some());
        assert_eq!((seen_twice(&put_back), seen_twice(&late)), (None, None));
    }

    fn shown(grants: &[(&str, u64, u64)]) -> Vec<Shown> {
        let one = |(name, first, end): &(&str, u64, u64)| {
            Shown::new(SequenceName::new(name).unwrap(), *first, *end)
        };
        grants.iter().map(one).collect()
    }

    #[test]
    fn grants_of_many_names_share_a_change_and_each_has_its_verdict() {
        let mut records = MemoryRecords::new(ClusterId::from_bytes([1; 16]));
        let mut first = shown(&[("a", 1, 11), ("b", 1, 11)]);
        show(&mut records, &mut first);
        assert!(first.iter().all(|one| one.verdict == Some(Ok(()))));
        let mut second = shown(&[("a", 1, 11), ("b", 11, 21), ("c", 5, 6)]);
        show(&mut records, &mut second);
        let verdicts: Vec<_> = second.into_iter().map(|one| one.verdict.unwrap()).collect();
        assert_eq!(verdicts, [Err(Thrown::Seen { from: 11 }), Ok(()), Ok(())]);
        assert_eq!(records.record("b"), Some(record(21, &[])));
    }

    /// What becomes of a strict grant in a gap: another process may have returned higher numbers before it was asked for.
    fn strict_in_a_gap() -> Option<Result<(), Thrown>> {
        let mut records = MemoryRecords::new(ClusterId::from_bytes([1; 16]));
        show(&mut records, &mut shown(&[("a", 1, 5)]));
        show(&mut records, &mut shown(&[("a", 8, 9)]));
        let mut late = shown(&[("a", 5, 6)]);
        late[0].goes_above = true;
        show(&mut records, &mut late);
        late.remove(0).verdict
    }

    #[test]
    fn a_strict_grant_in_a_gap_comes_too_late() {
        assert_eq!(strict_in_a_gap(), Some(Err(Thrown::Late { from: 9 })));
        assert_eq!(Guard::without(&[Guard::StrictAboveSeen], strict_in_a_gap), Some(Ok(())));
    }

    /// What becomes of grants of a name of which this process was granted numbers up to 1,001 before this witness began, and
    /// another process none. Behind the third one the store goes back.
    fn seen_of_what_was_granted_before() -> Vec<Result<(), Thrown>> {
        let mut records = MemoryRecords::new(ClusterId::from_bytes([1; 16]));
        let mut see = |(first, end, mark)| {
            let mut shown = [Shown { mark, ..Shown::new(orders(), first, end) }];
            show(&mut records, &mut shown);
            shown[0].verdict.take().unwrap()
        };
        let grants =
            [(501, 701, 0), (701, 801, 1_001), (1_001, 2_001, 1_001), (701, 801, 2_001), (801, 901, 0)];
        grants.map(&mut see).into()
    }

    #[test]
    fn below_what_this_process_was_granted_there_is_no_gap() {
        let seen = Err(Thrown::Seen { from: 2_001 });
        let wanted = [Ok(()), Err(Thrown::Late { from: 1_001 }), Ok(()), seen.clone(), seen];
        assert_eq!(seen_of_what_was_granted_before(), wanted);
        let without = Guard::without(&[Guard::OwnAboveWitness], seen_of_what_was_granted_before);
        assert_eq!(without[..2], [Ok(()), Ok(())]);
    }

    #[test]
    fn an_answer_that_is_lost_throws_the_grant_away() {
        for fault in [RecordFault::LandsUnseen, RecordFault::LostUnseen, RecordFault::Away] {
            let mut records = MemoryRecords::new(ClusterId::from_bytes([1; 16]));
            records.fail_after(1, fault);
            let mut lost = shown(&[("a", 1, 11)]);
            show(&mut records, &mut lost);
            assert!(matches!(lost[0].verdict, Some(Err(Thrown::Away(_)))), "{fault:?}");
        }
    }

    fn orders() -> SequenceName {
        SequenceName::new("orders").unwrap()
    }

    /// A witness whose record a fence closed and a person opened: what it says of numbers that it saw before, of which the
    /// registry lost some, when the database goes back.
    fn seen_after_a_fence(name_alone: bool) -> Result<(), Thrown> {
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions { layout: crate::Layout::default(), floor: 1_000, workers: 4 };
        drop(LocalRegistry::open_or_create(folder.path(), &options).unwrap());
        let open = || Box::new(LocalSequences::open_or_create(folder.path(), None).unwrap());
        let see = |first, end| {
            let mut shown = [Shown::new(orders(), first, end)];
            show(&mut *open(), &mut shown);
            shown[0].verdict.take().unwrap()
        };
        assert_eq!(see(1, 101), Ok(()));
        fence_restored(folder.path(), 1_763_683_200_000_000_000).unwrap();
        assert!(matches!(see(101, 201), Err(Thrown::Refused(why)) if why.contains("`xuid sequence fence`")));
        let wanted = Fence {
            name: Some(orders()).filter(|_| name_alone),
            above: Some(300),
            margin: Some(0),
            ..Fence::default()
        };
        let done = fence(&mut RegistryStore::new(open()), &wanted).unwrap();
        assert_eq!(done.raised, [(orders(), 101, 300)]);
        assert!(RegistryStore::new(open()).list("", "", 10).unwrap().is_empty(), "it is no sequence");
        assert_eq!(see(101, 201), Err(Thrown::Seen { from: 300 }));
        // The database had come further than the person said.
        assert_eq!(see(1_000, 1_100), Ok(()));
        let again = see(500, 600);
        // From then on it is as before.
        assert_eq!((see(1_200, 1_300), see(1_100, 1_150)), (Ok(()), Ok(())));
        again
    }

    #[test]
    fn what_a_witness_saw_is_opened_after_a_fence_and_nothing_below_the_next_grant_is_unseen() {
        for name_alone in [false, true] {
            assert_eq!(seen_after_a_fence(name_alone), Err(Thrown::Seen { from: 1_100 }));
        }
        assert_eq!(Guard::without(&[Guard::OpenedIsSeen], || seen_after_a_fence(false)), Ok(()));
    }

    /// Eight processes show grants of one name at once; all of them are unseen.
    #[test]
    fn processes_that_meet_at_a_record_all_have_their_verdict() {
        let records = MemoryRecords::new(ClusterId::from_bytes([1; 16]));
        let work = |number: u64| {
            let mut records = records.clone();
            for round in 0..50 {
                let first = (round * 8 + number) * 10;
                let mut one = shown(&[("a", first, first + 10)]);
                // A gap that was forgotten, or many that changed it meanwhile, throws a grant away, and no more.
                show(&mut records, &mut one);
                assert!(one[0].verdict.is_some());
            }
        };
        std::thread::scope(|scope| {
            let work = &work;
            for number in 0..8 {
                scope.spawn(move || work(number));
            }
        });
        assert!(records.record("a").unwrap().value > 3_000);
    }
}
