//! Where names begin that are made behind a fence, and beside one.

use std::thread;
use std::time::Duration;

use xuid_engine::sequence::store::database::{DatabaseOptions, open};
use xuid_engine::sequence::store::{Fence, NewSequence, Store, StoreError, fence};

use crate::fixture::{Server, mark, name, on_both, patient};

on_both!(
    a_fence_waits_for_a_name_that_is_being_made_and_raises_it,
    names_that_are_made_beside_a_fence_begin_where_it_says_or_are_raised_by_it,
    a_table_that_takes_no_row_of_new_names_says_so_and_is_fenced_without_one,
);

/// Long enough for what does not wait to end.
const A_MOMENT: Duration = Duration::from_millis(500);

fn store(server: &Server) -> Box<dyn Store> {
    let options = DatabaseOptions { lock: Duration::from_secs(10), ..patient("xuid") };
    open(&server.url(), &options).unwrap()
}

fn above(above: u64) -> Fence {
    Fence { above: Some(above), margin: Some(0), ..Fence::default() }
}

/// What a server does that makes a name, up to its commit: it has looked for the fence's word, and there was none.
fn a_fence_waits_for_a_name_that_is_being_made_and_raises_it(server: &mut Server) {
    drop(server.prepared());
    let mut sql = server.sql();
    let insert = "INSERT INTO xuid_sequence (name, next) VALUES ('late', 1)";
    if server.is_mariadb() {
        sql.exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").unwrap();
        sql.exec("START TRANSACTION").unwrap();
        sql.exec(insert).unwrap();
        let said = "SELECT next FROM xuid_sequence WHERE name = '@new' LOCK IN SHARE MODE";
        assert!(sql.rows(said).unwrap().is_empty());
    } else {
        sql.exec("BEGIN").unwrap();
        sql.exec(insert).unwrap();
    }
    let mut fenced = store(server);
    let done = thread::spawn(move || fence(&mut *fenced, &above(500)));
    thread::sleep(A_MOMENT);
    assert!(!done.is_finished(), "the fence did not wait");
    sql.exec("COMMIT").unwrap();
    let done = done.join().unwrap().unwrap();
    assert_eq!((done.raised, done.new_start), (vec![(name("late"), 1, 500)], Some(500)));
    assert_eq!(mark(&mut sql, "late"), 500);
}

fn names_that_are_made_beside_a_fence_begin_where_it_says_or_are_raised_by_it(server: &mut Server) {
    const NAMES: usize = 300;
    drop(server.prepared());
    let makers = ["a", "b"].map(|maker| {
        let mut store = store(server);
        thread::spawn(move || {
            for n in 0..NAMES {
                store.create(&name(&format!("{maker}{n}")), &NewSequence::default()).unwrap();
            }
        })
    });
    // One while they are at it, as far as that can be told.
    let mut sql = server.sql();
    while sql.number("SELECT count(*) FROM xuid_sequence").unwrap() < 50 {
        thread::yield_now();
    }
    fence(&mut *store(server), &above(500)).unwrap();
    let low = sql.number("SELECT count(*) FROM xuid_sequence WHERE next < 500").unwrap();
    for maker in makers {
        maker.join().unwrap();
    }
    assert_eq!(sql.number("SELECT count(*) FROM xuid_sequence").unwrap(), 2 * NAMES as u64 + 1);
    assert_eq!((low, sql.number("SELECT count(*) FROM xuid_sequence WHERE next < 500").unwrap()), (0, 0));
}

fn a_table_that_takes_no_row_of_new_names_says_so_and_is_fenced_without_one(server: &mut Server) {
    let mut store = server.prepared();
    store.create(&name("orders"), &NewSequence::default()).unwrap();
    let mut sql = server.sql();
    sql.exec("ALTER TABLE xuid_sequence ADD CONSTRAINT plain CHECK (name NOT LIKE '@%')").unwrap();
    let refused = fence(&mut *store, &above(500)).unwrap_err();
    let says = |why: &String| why.contains("the row '@new'") && why.contains("--new-start 1");
    assert!(matches!(&refused, StoreError::Refused { why } if says(why)), "{refused}");
    assert_eq!(mark(&mut sql, "orders"), 1);
    let done = fence(&mut *store, &Fence { new_start: Some(1), ..above(500) }).unwrap();
    assert_eq!((done.raised, done.new_start), (vec![(name("orders"), 1, 500)], None));
    // One that is unusable is named to who makes a name, and to the next fence.
    sql.exec("ALTER TABLE xuid_sequence DROP CONSTRAINT plain").unwrap();
    sql.exec("INSERT INTO xuid_sequence (name, next, last, step) VALUES ('@new', 900, 1000, 1)").unwrap();
    assert_eq!(store.create(&name("users"), &NewSequence::default()).unwrap().next, 900);
    // A name that is there is not made, and stays where it is.
    let there = store.create(&name("orders"), &NewSequence::default());
    assert!(matches!(&there, Err(StoreError::Exists(row)) if row.next == 500), "{there:?}");
    assert_eq!(mark(&mut sql, "orders"), 500);
    sql.exec(if server.is_mariadb() {
        "ALTER TABLE xuid_sequence MODIFY next bigint"
    } else {
        "ALTER TABLE xuid_sequence ALTER next DROP NOT NULL"
    })
    .unwrap();
    sql.exec("UPDATE xuid_sequence SET next = NULL WHERE name = '@new'").unwrap();
    let refused = store.create(&name("late"), &NewSequence::default()).unwrap_err();
    assert!(matches!(&refused, StoreError::Refused { why } if why.contains("the row '@new'")), "{refused}");
    assert_eq!(fence(&mut *store, &above(500)).unwrap_err().to_string(), refused.to_string());
}
