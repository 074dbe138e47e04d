use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::measure::{self, together};
use crate::subject::{Kind, Supply, Worker};

/// Every subject there is.
fn each() -> Vec<Subject> {
    let mut each = all();
    each.extend(of_sequences());
    each
}

/// Ids each of two threads collects.
const IDS: u64 = 200_000;

/// Two threads that begin together; returns how many ids they brought, and how many of them twice.
fn duplicates(subject: &Subject) -> (usize, usize) {
    let fixture = (subject.set_up)();
    let calls = IDS.div_ceil(subject.ids_per_call);
    let collect = |worker: &mut Box<dyn Worker + '_>, _| {
        // Room beforehand: threads that grow their vectors do not meet.
        let mut ids = Vec::with_capacity((calls * subject.ids_per_call) as usize);
        worker.collect(calls, &mut ids);
        ids
    };
    let mut ids = together(2, Duration::ZERO, || fixture.worker(), collect).concat();
    (ids.len(), measure::duplicates(&mut ids) as usize)
}

#[test]
fn every_subject_brings_as_many_ids_as_it_says() {
    for subject in each() {
        let fixture = (subject.set_up)();
        let mut ids = Vec::new();
        fixture.worker().collect(3, &mut ids);
        // On a machine too busy for the engine's threads a call may be refused: then the subject has to say so.
        let whole = ids.len() as u64 == 3 * subject.ids_per_call;
        assert_eq!(whole, fixture.objection().is_none(), "{}: {} ids", subject.name, ids.len());
    }
}

#[test]
fn this_engine_and_the_limits_bring_no_id_twice() {
    // Plain loops over slices count from zero in each thread: they are no generators.
    let counted = |subject: &Subject| subject.kind != Kind::Peer && !subject.name.starts_with("limit/write");
    for subject in each().iter().filter(|subject| counted(subject)) {
        let (ids, twice) = duplicates(subject);
        assert_eq!(twice, 0, "{}: of {ids} ids", subject.name);
    }
}

#[test]
fn two_threads_that_count_the_same_are_found() {
    let subject = named("limit/write-16").unwrap();
    assert_eq!(duplicates(&subject), (2 * IDS as usize, IDS as usize));
}

#[test]
fn no_peer_brings_an_id_twice_as_it_is_used_here() {
    let mut found = Vec::new();
    for subject in each().iter().filter(|subject| subject.kind == Kind::Peer) {
        let (ids, twice) = duplicates(subject);
        println!("{:40} {ids} ids, {twice} duplicates", subject.name);
        if twice > 0 {
            found.push(subject.name);
        }
    }
    // All promise unique ids within one process with workers of their own, and are used within that. One that broke
    // its promise would be named in the tables and stand here.
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn names_are_unique_and_tell_the_supply() {
    let mut names = HashSet::new();
    for subject in each() {
        assert!(names.insert(subject.name), "{} is there twice", subject.name);
        assert!(!subject.name.contains(char::is_whitespace), "{}", subject.name);
        assert_eq!(
            subject.name.ends_with("-sustained"),
            subject.supply == Supply::Sustained,
            "{}",
            subject.name
        );
        assert!(!subject.about.is_empty() && !subject.about.contains('\n'), "{}", subject.name);
        assert_eq!(named(subject.name).map(|found| found.about), Some(subject.about));
    }
}
