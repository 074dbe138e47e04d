//! What the commands do at a store: make, alter, list, prepare, look and fence.

use xuid_engine::sequence::store::database::{check, init, open};
use xuid_engine::sequence::store::{
    Alteration, HIGHEST, NewLast, NewSequence, Outcome, SequenceSettings, Store, StoreError,
};

use crate::fixture::{Server, create, grant_one, mark, name, on_both, patient};

on_both!(
    a_sequence_is_made_once_and_altered_upwards_only,
    a_mark_is_raised_and_never_lowered,
    names_are_listed_in_the_order_of_their_bytes,
    a_store_is_prepared_once_and_used_without_being_prepared,
    rows_of_other_shapes_are_made_with_what_their_columns_hold,
);

fn a_sequence_is_made_once_and_altered_upwards_only(server: &mut Server) {
    let mut store = server.prepared();
    let settings = SequenceSettings { step: 7, increment: 3, remainder: 1, last: 500, strict: true };
    let new = NewSequence { start: 10, settings, description: Some("for 'orders'".into()) };
    let row = store.create(&name("orders"), &new).unwrap();
    assert_eq!((row.next, row.settings, row.description.as_deref()), (10, settings, Some("for 'orders'")));
    let again = store.create(&name("orders"), &NewSequence::default());
    assert!(matches!(&again, Err(StoreError::Exists(found)) if **found == row), "{again:?}");
    let alter = |store: &mut dyn Store, last| {
        store.alter(&name("orders"), &Alteration { last: Some(last), ..Alteration::default() })
    };
    let error = alter(&mut *store, NewLast::At(499)).unwrap_err();
    assert!(matches!(&error, StoreError::Refused { why } if why.contains("500")), "{error:?}");
    assert_eq!(alter(&mut *store, NewLast::At(500)).unwrap().settings.last, 500);
    assert_eq!(alter(&mut *store, NewLast::At(u64::MAX)).unwrap().settings.last, HIGHEST);
    let change = Alteration { step: Some(9), description: Some("other".into()), last: None };
    let altered = store.alter(&name("orders"), &change).unwrap();
    assert_eq!((altered.settings.step, altered.description.as_deref()), (9, Some("other")));
    assert_eq!(alter(&mut *store, NewLast::Retired).unwrap().settings.last, 9);
    assert!(matches!(grant_one(&mut *store, "orders"), Outcome::Exhausted { .. }));
    assert!(matches!(store.alter(&name("absent"), &change), Err(StoreError::Absent { .. })));
    assert!(
        matches!(store.read(&name("Orders")), Err(StoreError::Absent { similar: Some(found) }) if found == "orders")
    );
}

fn a_mark_is_raised_and_never_lowered(server: &mut Server) {
    let mut store = server.prepared();
    create(&mut *store, "orders");
    assert_eq!(store.raise(&name("orders"), 5_000).unwrap().next, 5_000);
    assert_eq!(store.raise(&name("orders"), 4_000).unwrap().next, 5_000);
    assert_eq!(mark(&mut server.sql(), "orders"), 5_000);
    assert!(matches!(grant_one(&mut *store, "orders"), Outcome::Granted { first: 5_000, .. }));
    assert_eq!(store.raise(&name("orders"), u64::MAX).unwrap().next, HIGHEST);
    assert!(matches!(store.raise(&name("absent"), 1), Err(StoreError::Absent { similar: None })));
}

fn names_are_listed_in_the_order_of_their_bytes(server: &mut Server) {
    let mut store = server.prepared();
    let mut names = ["b", "B", "a", "a%", "a_b", "ab", "é", "z", "🦀"];
    for text in &names {
        create(&mut *store, text);
    }
    // A row whose name is none, by somebody else's hand.
    server.sql().exec("INSERT INTO xuid_sequence (name, next) VALUES (' c', 1)").unwrap();
    names.sort_unstable();
    let listed = |store: &mut dyn Store, prefix: &str, after: &str, limit| -> Vec<String> {
        store.list(prefix, after, limit).unwrap().iter().map(|row| row.name.to_string()).collect()
    };
    assert_eq!(listed(&mut *store, "", "", 100), names);
    assert_eq!(listed(&mut *store, "a", "", 100), ["a", "a%", "a_b", "ab"]);
    assert_eq!(listed(&mut *store, "a%", "", 100), ["a%"]);
    assert_eq!(listed(&mut *store, "", "a%", 3), ["a_b", "ab", "b"]);
    assert_eq!(listed(&mut *store, "", "", 1), ["B"]);
}

fn a_store_is_prepared_once_and_used_without_being_prepared(server: &mut Server) {
    let (url, options) = (server.url(), patient("xuid"));
    let made = init(&url, &options).unwrap();
    assert_eq!((made.made.len(), made.identity.recorded.as_ref()), (2, Some(&made.identity.current)));
    let again = init(&url, &options).unwrap();
    assert_eq!((again.made.len(), again.identity), (0, made.identity.clone()));
    let report = check(&url, &options).unwrap();
    assert!(report.is_fit() && report.identity == made.identity, "{report:?}");
    assert!(report.table.contains("xuid_sequence") && !report.version.is_empty());
    // Where nothing was prepared, nothing is made, and the identity is the database's alone.
    server.sql().exec("DROP TABLE xuid_store").unwrap();
    let mut store = open(&url, &options).unwrap();
    create(&mut *store, "orders");
    assert!(matches!(grant_one(&mut *store, "orders"), Outcome::Granted { .. }));
    assert_eq!(store.identity().unwrap().recorded, None);
    assert!(server.sql().rows("SELECT * FROM xuid_store").is_err());
    // A table that is made meanwhile is found.
    assert!(init(&url, &options).unwrap().identity.recorded.is_some());
    let found = store.identity().unwrap();
    assert_eq!((found.current, found.recorded), (made.identity.current, made.identity.recorded));
}

fn rows_of_other_shapes_are_made_with_what_their_columns_hold(server: &mut Server) {
    server
        .sql()
        .exec("CREATE TABLE leaf_alloc (biz_tag varchar(9) PRIMARY KEY, max_id bigint NOT NULL, step int NOT NULL)")
        .unwrap();
    let mut store = open(&server.url(), &patient("leaf")).unwrap();
    let row = store.create(&name("orders"), &NewSequence { start: 77, ..NewSequence::default() }).unwrap();
    assert_eq!((row.next, row.settings), (77, SequenceSettings::default()));
    assert!(matches!(grant_one(&mut *store, "orders"), Outcome::Granted { first: 77, end: 1_077, .. }));
    let long = store.create(&name("a longer name"), &NewSequence::default()).unwrap_err();
    assert!(matches!(&long, StoreError::Refused { why } if why.contains("biz_tag")), "{long:?}");
    assert_eq!(grant_one(&mut *store, "a longer name"), Outcome::Absent);
    let odd = SequenceSettings { increment: 2, ..SequenceSettings::default() };
    let new = NewSequence { settings: odd, ..NewSequence::default() };
    assert!(matches!(store.create(&name("odd"), &new), Err(StoreError::Refused { .. })));
    let last = Alteration { last: Some(NewLast::Retired), ..Alteration::default() };
    assert!(matches!(store.alter(&name("orders"), &last), Err(StoreError::Refused { .. })));
    // Leaf's table is not prepared by us, but its identity is written beside it.
    let made = init(&server.url(), &patient("leaf")).unwrap();
    assert!(made.made.iter().all(|table| table.contains("xuid_store")), "{made:?}");
}
