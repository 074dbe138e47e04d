//! A database that stands still, and commits whose answer cannot be believed.

use std::time::Duration;

use xuid_engine::sequence::store::Outcome;
use xuid_engine::sequence::store::database::{DatabaseOptions, open};
use xuid_tests::{ClientError, Order, Serve, Xuid, clock, folder};

use crate::fixture::{Ranges, Server, ask, create, grant, grant_one, mark, on_both, patient};

on_both!(
    a_database_that_stands_still_leaves_unknown_outcomes_and_is_used_again_when_it_goes_on,
    a_database_that_stands_still_costs_a_stop_no_ids_and_no_caller_its_answer,
);

fn a_database_that_stands_still_leaves_unknown_outcomes_and_is_used_again_when_it_goes_on(
    server: &mut Server,
) {
    create(&mut *server.prepared(), "order");
    let mut ranges = Ranges::default();
    let short = DatabaseOptions {
        connect: Duration::from_millis(500),
        statement: Duration::from_millis(500),
        ..patient("xuid")
    };
    let mut store = open(&server.url(), &short).unwrap();
    let mut take = |store: &mut dyn xuid_engine::sequence::store::Store| {
        let asks = [ask("order")];
        let outcomes = grant(store, &asks);
        ranges.take(&asks, &outcomes);
        outcomes[0].clone()
    };
    clock::wait_until("a grant", Duration::from_mins(1), || {
        Ok(matches!(take(&mut *store), Outcome::Granted { .. }))
    })
    .unwrap();
    server.freeze();
    // The request is sent, and what comes of it is not known; after that nothing is sent any more.
    let first = take(&mut *store);
    assert!(matches!(first, Outcome::Unknown { .. }), "{first:?}");
    for _ in 0..2 {
        let later = take(&mut *store);
        assert!(matches!(later, Outcome::Away { .. }), "{later:?}");
        assert!(store.was_silent());
    }
    server.thaw();
    clock::wait_until("a grant after it", Duration::from_mins(1), || {
        Ok(matches!(take(&mut *store), Outcome::Granted { .. }))
    })
    .unwrap();
    ranges.total("order");
    assert!(ranges.end("order") <= mark(&mut server.sql(), "order"));
}

fn a_database_that_stands_still_costs_a_stop_no_ids_and_no_caller_its_answer(server: &mut Server) {
    create(&mut *server.prepared(), "order");
    let (_home, data, _) = folder::fresh().unwrap();
    let serve = Serve::new(&data)
        .unwrap()
        .arg("--drain")
        .arg("500ms")
        .arg("--sequences")
        .arg(server.url().to_string());
    let mut xuid = serve.start().unwrap();
    let mut client = xuid.client().unwrap();
    client.next(Order::Any).unwrap();
    clock::wait_until("a number", Duration::from_mins(1), || Ok(client.seq_next("order").is_ok())).unwrap();
    server.freeze();
    // More than is held, for longer than the stop takes.
    let waiting = std::thread::spawn(move || {
        client.seq_array("order", 100_000, Duration::from_mins(1), Order::Ordered)
    });
    std::thread::sleep(Duration::from_millis(300));
    let status = xuid.wind_down().unwrap();
    let log = xuid.log();
    assert!(status.success() || log.contains("the named sequences did not stop"), "{status} {log}");
    let told = waiting.join().unwrap();
    assert!(matches!(&told, Err(ClientError::Refused(refusal)) if refusal.status == 0x8014), "{told:?}");
    server.thaw();
    let seen = Xuid::new(["inspect", "--json"]).unwrap().arg(&data).run().unwrap().json().unwrap();
    let left = seen["spills"][0]["ids"].as_u64().unwrap_or_default();
    assert!(left > 0, "{seen}");
}

/// The commit is on this host and perhaps on no other, although the database says that it committed.
#[test]
fn a_commit_that_no_standby_confirmed_is_unknown() {
    let server = Server::postgres(&[]);
    create(&mut *server.prepared(), "order");
    let mut sql = server.sql();
    // This session waits for no standby, and no other is told of it by default.
    sql.exec("SET synchronous_commit = local").unwrap();
    sql.exec("ALTER ROLE postgres SET client_min_messages = error").unwrap();
    sql.exec("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").unwrap();
    sql.exec("SELECT pg_reload_conf()").unwrap();
    let url = server.url();
    clock::wait_until("the new setting", Duration::from_mins(1), || {
        Ok(server.sql().rows("SHOW synchronous_standby_names")? == [["nobody"]])
    })
    .unwrap();
    let outcome = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut store = open(&url, &patient("xuid")).unwrap();
            grant_one(&mut *store, "order")
        });
        // A transaction that changed nothing does not wait, so this one is the grant's.
        let cancelled = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                         WHERE application_name = 'xuid' AND wait_event = 'SyncRep'";
        clock::wait_until("a commit that waits", Duration::from_mins(1), || Ok(sql.number(cancelled)? > 0))
            .unwrap();
        asking.join().unwrap()
    });
    assert!(
        matches!(&outcome, Outcome::Unknown { why } if why.contains("synchronous replication")),
        "{outcome:?}"
    );
    assert_eq!(mark(&mut sql, "order"), 1_001, "the commit is not here");
}
