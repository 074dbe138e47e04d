//! A fence opens names for servers once all their marks were raised, and on the host where they were.

use super::super::meddled::{Asked, MeddledStore};
use crate::sequence::SequenceName;
use crate::sequence::store::memory::{MemoryDatabase, MemoryStore};
use crate::sequence::store::{Fence, NewSequence, Store, StoreError, fence, fence_all};

fn with_row(database: &MemoryDatabase, host: usize) -> MemoryStore {
    let mut store = database.store(host);
    store.create(&SequenceName::new("a").unwrap(), &NewSequence::default()).unwrap();
    store
}

fn recorded(database: &MemoryDatabase, host: usize) -> Option<String> {
    database.store(host).identity().unwrap().recorded
}

#[test]
fn nothing_is_opened_before_the_marks_of_all_tables_are_raised() {
    let [first, second] = [MemoryDatabase::new(1), MemoryDatabase::new(1)];
    let mut fails = true;
    let meddle = |asked| {
        let failure = StoreError::Away { why: "it is away".into() };
        if asked == Asked::Raise && std::mem::take(&mut fails) { Err(failure) } else { Ok(()) }
    };
    let mut one = with_row(&first, 0);
    let mut other = MeddledStore { inner: with_row(&second, 0), meddle, says_why: true };
    fence_all(&mut [&mut one, &mut other], &Fence::default()).unwrap_err();
    assert_eq!((first.mark(0, "a"), second.mark(0, "a")), (Some(10_001), Some(1)));
    assert_eq!((recorded(&first, 0), recorded(&second, 0)), (None, None));
    let done = fence_all(&mut [&mut one, &mut other], &Fence::default()).unwrap();
    assert_eq!(done.raised.iter().map(|row| row.2).collect::<Vec<_>>(), [20_001, 10_001]);
    assert_eq!((recorded(&first, 0), recorded(&second, 0)), (Some("host 0".into()), Some("host 0".into())));
}

/// A database on whose first host a fence is refused, since the second one answers from this question on.
fn fenced_while_another_host_answers(from: Asked) -> MemoryDatabase {
    let database = MemoryDatabase::new(2);
    with_row(&database, 1);
    let inner = with_row(&database, 0);
    let moved = inner.clone();
    let meddle = |asked| {
        if asked == from {
            moved.connect_to(1);
        }
        Ok(())
    };
    let refused = fence(&mut MeddledStore { inner, meddle, says_why: true }, &Fence::default());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("on host 0, and host 1 answers now"), "{refused}");
    database
}

#[test]
fn a_fence_that_another_host_answered_in_its_middle_opens_neither() {
    let database = fenced_while_another_host_answers(Asked::Raise);
    assert_eq!((recorded(&database, 0), recorded(&database, 1)), (None, None));
}

/// Each table has a connection of its own, and the first host may have turned away the second one. What is written on a host opens
/// the names of all tables there, and of one of them no mark was raised on it.
#[test]
fn tables_of_which_two_hosts_answer_are_not_opened_on_either() {
    let database = MemoryDatabase::new(2);
    let (mut one, mut other) = (with_row(&database, 0), with_row(&database, 1));
    let refused = fence_all(&mut [&mut one, &mut other], &Fence::default()).unwrap_err().to_string();
    assert!(refused.contains("host 0") && refused.contains("host 1"), "{refused}");
    assert_eq!((recorded(&database, 0), recorded(&database, 1)), (None, None));
}

/// Nothing tells of which of the tables a data folder's mark is.
#[test]
fn what_is_known_of_a_name_counts_in_each_table() {
    let [first, second] = [MemoryDatabase::new(1), MemoryDatabase::new(1)];
    let (mut one, mut other) = (with_row(&first, 0), with_row(&second, 0));
    let known = [(SequenceName::new("a").unwrap(), 5_000)].into();
    let done = fence_all(&mut [&mut one, &mut other], &Fence { known, ..Fence::default() }).unwrap();
    assert_eq!((first.mark(0, "a"), second.mark(0, "a")), (Some(15_000), Some(15_000)));
    assert!(done.absent.is_empty());
}

#[test]
fn another_host_than_the_one_that_was_looked_at_is_not_fenced() {
    let database = MemoryDatabase::new(1);
    let mut store = with_row(&database, 0);
    let on = Some("host 1".to_owned());
    let refused = fence(&mut store, &Fence { on, ..Fence::default() }).unwrap_err().to_string();
    assert!(refused.contains("on host 1, and host 0 answers now"), "{refused}");
    assert_eq!((database.mark(0, "a"), recorded(&database, 0)), (Some(1), None));
}

/// Its names are open now, and none of their marks was raised: that is told.
#[test]
fn a_fence_that_another_host_wrote_down_is_no_success() {
    fenced_while_another_host_answers(Asked::Record);
}
