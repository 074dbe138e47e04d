//! The port on a database of which a test says what it does.

use std::cell::{Cell, RefCell};

use super::*;
use crate::sequence::store::SequenceSettings;

// Of the thread of a test: it polls what it waits for itself.
thread_local! {
    /// Rows that another program has locked.
    static LOCKED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// In a transaction for this name the connection is lost, and the next one is to another host.
    static BREAKS: Cell<&'static str> = const { Cell::new("") };
    static HOST: Cell<u32> = const { Cell::new(0) };
    static IS_AWAY: Cell<bool> = const { Cell::new(false) };
    static CONNECTS: Cell<u32> = const { Cell::new(0) };
}

fn host(number: u32) -> Identity {
    Identity { current: format!("host {number}"), recorded: None, fenced: None }
}

/// A database that does what the thread's test says.
struct Scripted;

impl Dialect for Scripted {
    type Connection = u32;

    const THREAD: &str = "xuid-scripted";

    fn check_url(_: &str) -> Result<(), String> {
        Ok(())
    }

    async fn connect(_: &str, name: &str, _: &DatabaseOptions) -> Result<(u32, Report), Denied> {
        CONNECTS.set(CONNECTS.get() + 1);
        if IS_AWAY.get() {
            return Err(Denied::Next { why: "it is away".into() });
        }
        let report = Report {
            host: name.to_owned(),
            version: String::new(),
            identity: host(HOST.get()),
            table: String::new(),
            checks: Vec::new(),
        };
        Ok((HOST.get(), report))
    }

    async fn make_tables(_: &str, _: &DatabaseOptions) -> Result<Vec<String>, Denied> {
        Ok(Vec::new())
    }

    async fn identity(connection: &mut u32) -> Result<Identity, Failure> {
        Ok(host(*connection))
    }

    async fn grant(connection: &mut u32, asks: &[Ask]) -> Result<Granted, Failure> {
        let is_of = |name: &str| asks.iter().any(|ask| ask.name.as_str() == name);
        if LOCKED.with_borrow(|locked| locked.iter().any(|name| is_of(name))) {
            let why = "the row is locked".into();
            return Err(Failure::Said { why, is_refusal: false, ends_connection: false });
        }
        if is_of(BREAKS.get()) {
            HOST.set(HOST.get() + 1);
            return Err(Failure::Lost { why: "the connection broke".into() });
        }
        let settings = SequenceSettings::default();
        let granted = |_: &Ask| Outcome::Granted { first: 1, end: 1_001, settings };
        Ok(Granted { identity: host(*connection), outcomes: asks.iter().map(granted).collect() })
    }

    async fn similar(_: &mut u32, _: &SequenceName) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    async fn read(_: &mut u32, _: &SequenceName) -> Result<Option<Row>, Failure> {
        Ok(None)
    }

    async fn list(_: &mut u32, _: &str, _: &str, _: usize) -> Result<Vec<FoundRow>, Failure> {
        Ok(Vec::new())
    }

    async fn create(_: &mut u32, _: &SequenceName, _: &NewSequence) -> Result<(Row, bool), Failure> {
        Err(Failure::refused("none is made here"))
    }

    async fn alter(_: &mut u32, _: &SequenceName, _: &Alteration) -> Result<Option<Row>, Failure> {
        Ok(None)
    }

    async fn raise(_: &mut u32, _: &SequenceName, _: u64) -> Result<Option<Row>, Failure> {
        Ok(None)
    }

    async fn beside(_: &mut u32) -> Result<Beside, Failure> {
        Ok(Beside { table: Table::default(), others: Vec::new(), identity: host(0).current })
    }

    async fn tiny_tokens(_: &mut u32) -> Result<Option<Vec<TinyToken>>, Failure> {
        Ok(None)
    }

    async fn record_identity(connection: &mut u32, _: Writes) -> Result<Identity, Failure> {
        Ok(host(*connection))
    }
}

fn store() -> DatabaseStore<Scripted> {
    let url = "mysql://app@h1/ids".parse().unwrap();
    DatabaseStore::new(&url, &DatabaseOptions::default()).unwrap()
}

fn grant(store: &mut DatabaseStore<Scripted>, names: &[&str]) -> (Option<Identity>, Vec<Outcome>) {
    let ask = |name: &&str| Ask { name: SequenceName::new(name).unwrap(), count: 1, least: 1, floor: 0 };
    let asks: Vec<Ask> = names.iter().map(ask).collect();
    let mut outcomes = Vec::new();
    let identity = store.grant(&asks, &mut outcomes);
    (identity, outcomes)
}

/// Without a witness, the one identity that a call tells of is all that is compared.
#[test]
fn what_another_host_granted_in_the_same_call_is_no_grant() {
    let mut store = store();
    LOCKED.set(vec!["b"]);
    grant(&mut store, &["a", "b"]);
    LOCKED.set(vec!["c"]);
    BREAKS.set("d");
    let (identity, outcomes) = grant(&mut store, &["a", "c", "d", "e", "b"]);
    assert_eq!(identity, Some(host(0)));
    assert!(
        matches!(
            outcomes[..],
            [
                Outcome::Granted { .. },
                Outcome::Away { .. },
                Outcome::Unknown { .. },
                Outcome::Unknown { .. },
                Outcome::Unknown { .. },
            ]
        ),
        "{outcomes:?}"
    );
}

/// A stop waits for a call, and connecting may take three seconds for each host.
#[test]
fn a_row_that_was_locked_is_not_tried_where_the_connection_was_lost_in_the_same_call() {
    let mut store = store();
    LOCKED.set(vec!["b"]);
    grant(&mut store, &["a", "b"]);
    BREAKS.set("a");
    IS_AWAY.set(true);
    let before = CONNECTS.get();
    let (_, outcomes) = grant(&mut store, &["a", "b"]);
    assert!(matches!(outcomes[..], [Outcome::Unknown { .. }, Outcome::Away { .. }]), "{outcomes:?}");
    assert_eq!(CONNECTS.get(), before);
}

/// Else leftovers of another database's table would be used.
#[test]
fn a_store_is_where_its_url_and_its_table_say() {
    assert_eq!(store().place(), "mysql://ids/xuid_sequence");
}
