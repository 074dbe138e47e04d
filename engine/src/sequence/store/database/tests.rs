//! The port on a database of which a test says what it does.

use std::cell::{Cell, RefCell};

use super::table::Shape;
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
    /// A row that another process makes right before the next one is made: its name, and its mark.
    static FENCED_BY: Cell<Option<(&'static str, i64)>> = const { Cell::new(None) };
    /// The table, in the order of its names.
    static ROWS: RefCell<Vec<FoundRow>> = const { RefCell::new(Vec::new()) };
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

    async fn read(_: &mut u32, name: &SequenceName) -> Result<Option<Row>, Failure> {
        let row = ROWS.with_borrow(|rows| rows.iter().find(|row| row.name == name.as_str()).cloned());
        row.map(|row| row.row(Shape::Xuid).map_err(Failure::refused)).transpose()
    }

    async fn list(_: &mut u32, _: &str, after: &str, limit: usize) -> Result<Vec<FoundRow>, Failure> {
        let rows = ROWS.with_borrow(|rows| {
            rows.iter().filter(|row| row.name.as_str() > after).take(limit).cloned().collect()
        });
        Ok(rows)
    }

    async fn create(
        connection: &mut u32,
        name: &SequenceName,
        new: &NewSequence,
    ) -> Result<Created, Failure> {
        if let Some((name, least)) = FENCED_BY.take() {
            let row = FoundRow { mark: Some(least), ..found(name, 1) };
            ROWS.with_borrow_mut(|rows| rows.push(row));
        }
        if let Some(row) = Self::read(connection, name).await? {
            return Ok(Created::There(row));
        }
        let said = Self::read(connection, &SequenceName::of_new_names()).await?;
        if said.is_some_and(|said| said.next > new.start) {
            return Ok(Created::BelowAFence);
        }
        let row = FoundRow { mark: i64::try_from(new.start).ok(), ..found(name.as_str(), 1) };
        ROWS.with_borrow_mut(|rows| rows.push(row.clone()));
        row.row(Shape::Xuid).map(Created::New).map_err(Failure::refused)
    }

    async fn wait_for_new(_: &mut u32) -> Result<(), Failure> {
        Ok(())
    }

    async fn alter(_: &mut u32, _: &SequenceName, _: &Alteration) -> Result<Option<Row>, Failure> {
        Ok(None)
    }

    async fn raise(connection: &mut u32, name: &SequenceName, least: u64) -> Result<Option<Row>, Failure> {
        ROWS.with_borrow_mut(|rows| {
            if let Some(row) = rows.iter_mut().find(|row| row.name == name.as_str()) {
                row.mark = row.mark.max(i64::try_from(least).ok());
            }
        });
        Self::read(connection, name).await
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

fn found(name: &str, step: i64) -> FoundRow {
    FoundRow::some(name, 1, step)
}

/// A name that was made since a dump, and lost with it, is made again by who uses it next.
#[test]
fn a_name_is_made_no_lower_than_the_row_of_new_names_says() {
    let (mut store, name) = (store(), |text: &str| SequenceName::new(text).unwrap());
    let made = |store: &mut DatabaseStore<Scripted>, text: &str, start| {
        store.create(&name(text), &NewSequence { start, ..NewSequence::default() }).unwrap().next
    };
    store.allow_new(NewNames::default(), 1).unwrap();
    assert!(ROWS.with_borrow(Vec::is_empty), "nothing is missing, so nothing is written");
    assert_eq!((store.new_names().unwrap().least, made(&mut store, "a", 1)), (1, 1));
    for (said, least) in [(500, 500), (70, 500), (600, 600), (u64::MAX, HIGHEST)] {
        store.allow_new(NewNames::default(), said).unwrap();
        assert_eq!(store.new_names().unwrap(), NewNames { are_closed: false, least });
        assert_eq!(made(&mut store, &format!("{said}"), 1), least);
        assert_eq!(made(&mut store, &format!("{said}, higher"), 1_000), least.max(1_000));
    }
    // One that cannot be used says nothing, and it may have said more.
    ROWS.with_borrow_mut(|rows| rows.iter_mut().for_each(|row| row.step = Some(0)));
    let refused = store.create(&name("z"), &NewSequence::default()).unwrap_err();
    assert!(matches!(&refused, StoreError::Refused { why } if why.contains("the row '@new'")), "{refused}");
    assert_eq!(store.new_names().unwrap_err().to_string(), refused.to_string());
    // None of its numbers could be issued.
    ROWS.set(vec![FoundRow { mark: Some(500), ..found("@new", 1) }]);
    let settings = SequenceSettings { last: 499, ..SequenceSettings::default() };
    let bounded = NewSequence { settings, ..NewSequence::default() };
    ROWS.with_borrow_mut(|rows| rows.push(found("there", 1)));
    assert!(matches!(store.create(&name("there"), &bounded), Err(StoreError::Exists(row)) if row.next == 1));
    let refused = store.create(&name("z"), &bounded).unwrap_err();
    assert!(matches!(&refused, StoreError::Refused { why } if why.contains("begin at 500")), "{refused}");
}

/// The row of new names is made, or rises, between the look at it and the name's own row.
#[test]
fn a_name_is_made_anew_if_a_fence_said_meanwhile_where_new_ones_begin() {
    let (mut store, name) = (store(), |text: &str| SequenceName::new(text).unwrap());
    FENCED_BY.set(Some(("@new", 700)));
    assert_eq!(store.create(&name("a"), &NewSequence::default()).unwrap().next, 700);
    // And one that another server made meanwhile is its own.
    FENCED_BY.set(Some(("b", 9)));
    let exists = store.create(&name("b"), &NewSequence::default());
    assert!(matches!(exists, Err(StoreError::Exists(row)) if row.next == 9));
    // Two fences at once: the later one finds the row of the other.
    ROWS.set(Vec::new());
    FENCED_BY.set(Some(("@new", 100)));
    store.allow_new(NewNames::default(), 400).unwrap();
    assert_eq!(store.new_names().unwrap().least, 400);
}

/// A fence raises no mark of it, and opens the store.
#[test]
fn a_row_that_cannot_be_used_is_found_on_whatever_page_it_lies() {
    let mut store = store();
    for last in [0, 1, PAGE - 1, PAGE, 2 * PAGE] {
        let mut rows: Vec<FoundRow> = (0..last).map(|n| found(&format!("n{n:06}"), 1)).collect();
        // No sequence's, whatever it says.
        rows.insert(0, found("@new", 0));
        ROWS.set(rows.clone());
        assert_eq!(store.unusable().unwrap(), None, "{last} rows");
        rows.push(found("z", 0));
        ROWS.set(rows);
        let (name, why) = store.unusable().unwrap().expect("it is found");
        assert!(name.as_str() == "z" && why.contains("step is 0"), "{last} rows: {name} {why}");
    }
}

#[test]
fn a_page_of_a_list_is_full_whatever_lies_between_its_rows() {
    let mut store = store();
    let usable = |n: u32| !n.is_multiple_of(3);
    let rows = (0..30).map(|n| found(&format!("n{n:02}"), i64::from(usable(n))));
    ROWS.set([found("@new", 1)].into_iter().chain(rows).collect());
    let names = |rows: Vec<Row>| rows.into_iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
    let all: Vec<String> = (0..30).filter(|n| usable(*n)).map(|n| format!("n{n:02}")).collect();
    assert_eq!(names(store.list("", "", 100).unwrap()), all);
    let first = names(store.list("", "", 7).unwrap());
    assert_eq!(first, all[..7]);
    assert_eq!(names(store.list("", &first[6], 7).unwrap()), all[7..14]);
}

/// Else leftovers of another database's table would be used.
#[test]
fn a_store_is_where_its_url_and_its_table_say() {
    assert_eq!(store().place(), "mysql://ids/xuid_sequence");
}
