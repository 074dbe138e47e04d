//! What is granted, in batches and side by side.

use std::thread;

use xuid_engine::sequence::store::memory::MemoryDatabase;
use xuid_engine::sequence::store::{Ask, HIGHEST, NewSequence, Outcome, SequenceSettings, Store, StoreError};
use xuid_tests::Rng;

use crate::fixture::{Ranges, Server, ask, create, grant, grant_one, mark, name, on_both, patient};
use xuid_engine::sequence::store::database::open;

on_both!(
    a_batch_of_names_is_granted_as_the_model_says,
    eight_connections_on_the_same_rows_grant_every_number_once,
    a_row_that_another_program_holds_locked_holds_up_no_other,
    several_locked_rows_are_asked_for_behind_the_others,
    a_row_that_a_constraint_keeps_as_it_is_holds_up_no_other,
    a_name_is_found_byte_by_byte_whatever_is_in_it,
    a_mark_at_the_end_of_its_column_grants_what_is_left,
);

/// Other people's tables have constraints and triggers.
fn a_row_that_a_constraint_keeps_as_it_is_holds_up_no_other(server: &mut Server) {
    let mut store = server.prepared();
    for text in ["a", "b", "c"] {
        create(&mut *store, text);
    }
    server
        .sql()
        .exec("ALTER TABLE xuid_sequence ADD CONSTRAINT kept CHECK (name <> 'b' OR next < 2)")
        .unwrap();
    for _ in 0..2 {
        let outcomes = grant(&mut *store, &["a", "b", "c"].map(ask));
        let is_of_row = |outcome: &Outcome| matches!(outcome, Outcome::Away { why } if why.contains("kept"));
        assert!(
            matches!(&outcomes[..], [Outcome::Granted { .. }, refused, Outcome::Granted { .. }] if is_of_row(refused)),
            "{outcomes:?}"
        );
    }
}

/// Settings of every kind, small enough to come to their ends.
fn some_settings(rng: &mut Rng) -> NewSequence {
    let increment = 1 + rng.below(4) as u32;
    let start = rng.below(50);
    let last = if rng.below(2) == 0 { HIGHEST } else { start + rng.below(400) };
    let settings = SequenceSettings {
        step: 1 + rng.below(60),
        increment,
        remainder: rng.below(u64::from(increment)) as u32,
        last,
        strict: rng.below(4) == 0,
    };
    NewSequence { start, settings, description: None }
}

fn a_batch_of_names_is_granted_as_the_model_says(server: &mut Server) {
    let mut rng = Rng::from_env("a batch");
    let (mut store, mut model) = (server.prepared(), MemoryDatabase::new(1).store(0));
    let names: Vec<String> = (0..64).map(|number| format!("name {number} ü")).collect();
    // Every eighth name has no row.
    for text in names.iter().enumerate().filter(|(at, _)| at % 8 != 7).map(|(_, text)| text) {
        let new = some_settings(&mut rng);
        let ours = store.create(&name(text), &new).unwrap();
        assert_eq!(ours, model.create(&name(text), &new).unwrap());
    }
    for _ in 0..12 {
        let mut asks: Vec<Ask> = names
            .iter()
            .filter_map(|text| {
                let least = 1 + rng.below(20);
                let ask = Ask { name: name(text), count: least + rng.below(80), least, floor: 0 };
                (rng.below(4) > 0).then_some(ask)
            })
            .collect();
        // Any order, which is not that of the rows.
        for at in 0..asks.len() {
            let other = at + rng.below((asks.len() - at) as u64) as usize;
            asks.swap(at, other);
        }
        let mut expected = Vec::new();
        model.grant(&asks, &mut expected);
        assert_eq!(grant(&mut *store, &asks), expected);
    }
    let all = store.list("", "", 100).unwrap();
    assert_eq!(all, model.list("", "", 100).unwrap());
}

fn eight_connections_on_the_same_rows_grant_every_number_once(server: &mut Server) {
    let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
    let mut store = server.prepared();
    for text in &names {
        create(&mut *store, text);
    }
    let url = server.url();
    let work = |seed: u64| {
        let (mut rng, mut ranges) = (Rng::new(seed), Ranges::default());
        let mut store = open(&url, &patient("xuid")).unwrap();
        for _ in 0..25 {
            let mut asks: Vec<Ask> = names.iter().map(|text| ask(text)).collect();
            asks.rotate_left(rng.below(12) as usize);
            asks.truncate(1 + rng.below(12) as usize);
            let outcomes = grant(&mut *store, &asks);
            assert!(
                outcomes.iter().all(|outcome| matches!(outcome, Outcome::Granted { .. })),
                "{outcomes:?}"
            );
            ranges.take(&asks, &outcomes);
        }
        ranges
    };
    let mut ranges = Ranges::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || work(seed))).collect();
        for thread in threads {
            ranges.join(thread.join().unwrap());
        }
    });
    for text in &names {
        assert_eq!(ranges.total(text), mark(&mut server.sql(), text) - 1, "{text}");
    }
}

fn a_row_that_another_program_holds_locked_holds_up_no_other(server: &mut Server) {
    let mut store = server.prepared();
    for text in ["a", "b", "c"] {
        create(&mut *store, text);
    }
    let mut other = server.sql();
    other.exec("BEGIN").unwrap();
    other.exec("UPDATE xuid_sequence SET next = next + 5 WHERE name = 'b'").unwrap();
    let asks = ["a", "b", "c"].map(ask);
    let outcomes = grant(&mut *store, &asks);
    assert!(
        matches!(
            outcomes[..],
            [Outcome::Granted { first: 1, .. }, Outcome::Away { .. }, Outcome::Granted { first: 1, .. }]
        ),
        "{outcomes:?}"
    );
    // It says so each time, and answers what others ask.
    assert!(matches!(grant_one(&mut *store, "b"), Outcome::Away { .. }));
    assert!(!store.was_silent());
    other.exec("COMMIT").unwrap();
    assert!(matches!(grant_one(&mut *store, "b"), Outcome::Granted { first: 6, end: 1_006, .. }));
}

fn several_locked_rows_are_asked_for_behind_the_others(server: &mut Server) {
    let mut store = server.prepared();
    let names = ["a", "b", "c", "d", "e", "f"];
    for text in names {
        create(&mut *store, text);
    }
    let mut other = server.sql();
    other.exec("BEGIN").unwrap();
    // One by one: MariaDB locks all rows that it looks at.
    for text in &names[..4] {
        other.exec(&format!("UPDATE xuid_sequence SET next = next + 5 WHERE name = '{text}'")).unwrap();
    }
    let rounds: Vec<_> = (0..4).map(|_| grant(&mut *store, &names.map(ask))).collect();
    let are_granted =
        |outcomes: &[Outcome]| outcomes.iter().all(|outcome| matches!(outcome, Outcome::Granted { .. }));
    for round in &rounds[1..] {
        assert!(
            are_granted(&round[4..]) && !round[..4].iter().any(|one| are_granted(std::slice::from_ref(one))),
            "{round:?}"
        );
    }
    // Each try waits: for one of them in a call, another one each time.
    let tried = |outcomes: &[Outcome]| -> Vec<usize> {
        let is_tried = |n: &usize| matches!(&outcomes[*n], Outcome::Away { why } if !why.contains("so is another one's"));
        (0..4).filter(is_tried).collect()
    };
    assert_eq!((tried(&rounds[2]).len(), tried(&rounds[3]).len()), (1, 1), "{rounds:?}");
    assert_ne!(tried(&rounds[2]), tried(&rounds[3]));
    other.exec("COMMIT").unwrap();
    for _ in 0..4 {
        grant(&mut *store, &names.map(ask));
    }
    assert!(are_granted(&grant(&mut *store, &names.map(ask))));
}

fn a_name_is_found_byte_by_byte_whatever_is_in_it(server: &mut Server) {
    let mut store = server.prepared();
    let names = ["order", "Order", "ORDER", "größe", "GRÖSSE", "a'b\"c`d\\e%f_g", "🦀", "e\u{301}", "é"];
    for (number, text) in names.iter().enumerate() {
        let new = NewSequence { start: number as u64 * 10_000, ..NewSequence::default() };
        store.create(&name(text), &new).unwrap();
    }
    let asks = names.map(ask);
    for (number, outcome) in grant(&mut *store, &asks).iter().enumerate() {
        let start = number as u64 * 10_000;
        assert!(matches!(outcome, Outcome::Granted { first, .. } if *first == start), "{outcome:?}");
    }
    assert_eq!(grant_one(&mut *store, "ordeR"), Outcome::Absent);
    let read = store.read(&name("ordeR"));
    let Err(StoreError::Absent { similar: Some(similar) }) = read else { panic!("{read:?}") };
    assert_eq!(similar.to_lowercase(), "order");
    assert_eq!(grant_one(&mut *store, "other"), Outcome::Absent);
    let read = store.read(&name("other"));
    assert!(matches!(read, Err(StoreError::Absent { similar: None })), "{read:?}");
}

fn a_mark_at_the_end_of_its_column_grants_what_is_left(server: &mut Server) {
    let mut store = server.prepared();
    let new = NewSequence { start: HIGHEST - 10, ..NewSequence::default() };
    store.create(&name("full"), &new).unwrap();
    create(&mut *store, "empty");
    let asks = [ask("full"), ask("empty")];
    let outcomes = grant(&mut *store, &asks);
    assert!(
        matches!(
            outcomes[..],
            [Outcome::Granted { end: HIGHEST, .. }, Outcome::Granted { first: 1, end: 1_001, .. }]
        ),
        "{outcomes:?}"
    );
    let outcomes = grant(&mut *store, &asks);
    assert!(
        matches!(outcomes[..], [Outcome::Exhausted { .. }, Outcome::Granted { first: 1_001, .. }]),
        "{outcomes:?}"
    );
}
