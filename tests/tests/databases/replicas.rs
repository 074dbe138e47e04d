//! Replicas that are promoted: the same rows, or older ones, under another identity.

use std::time::Duration;

use xuid_engine::sequence::store::database::{DatabaseUrl, init, open};
use xuid_engine::sequence::store::{Fence, Identity, Outcome, Store, fence};
use xuid_tests::{MariaDb, Postgres, Sql, clock};

use crate::fixture::{Server, create, grant_one, patient};

/// Waits until a replica has our mark.
fn wait_mark(sql: &mut Sql, expected: u64) {
    clock::wait_until("the replica has the mark", Duration::from_mins(1), || {
        Ok(sql.number("SELECT next FROM xuid_sequence").is_ok_and(|found| found == expected))
    })
    .unwrap();
}

fn granted(store: &mut dyn Store) -> (u64, Identity) {
    let (mut out, mut asked) = (Vec::new(), None);
    // The connection to the old host is found broken first.
    clock::wait_until("a grant", Duration::from_mins(1), || {
        out.clear();
        asked = store.grant(&[crate::fixture::ask("order")], &mut out);
        Ok(matches!(out[0], Outcome::Granted { .. }))
    })
    .unwrap();
    let Outcome::Granted { first, .. } = out[0] else { panic!("{out:?}") };
    (first, asked.unwrap())
}

/// After the promotion: the commit that the replica lost is granted again, which is what the witness is for, and the
/// identity tells.
fn is_told_by_its_identity(mut store: Box<dyn Store>, before: &Identity) {
    assert_eq!(before.recorded.as_ref(), Some(&before.current));
    let (first, after) = granted(&mut *store);
    assert_eq!(first, 1_001, "the replica lost what came after");
    assert_ne!(after.current, before.current);
    assert_eq!(after.recorded, before.recorded, "what is written is copied");
    assert_eq!(store.identity().unwrap(), after);
    let fenced = fence(&mut *store, &Fence::default()).unwrap();
    assert_eq!(fenced.raised[0].1, 2_001);
    let identity = fenced.identity.unwrap();
    assert_eq!(identity.recorded.as_ref(), Some(&identity.current));
    assert!(identity.fenced.is_some() && identity.fenced != after.fenced, "{identity:?}");
    let (first, after) = granted(&mut *store);
    assert_eq!((first, after), (12_001, identity));
}

#[test]
fn a_promoted_postgres_standby_has_another_identity() {
    let mut primary = Postgres::start(&[]).unwrap();
    let url = primary.url().parse().unwrap();
    init(&url, &patient("xuid")).unwrap();
    create(&mut *open(&url, &patient("xuid")).unwrap(), "order");
    let standby = primary.standby().unwrap();
    let both: DatabaseUrl =
        format!("postgres://postgres@{},{}/postgres", standby.addr(), primary.addr()).parse().unwrap();
    let mut store = open(&both, &patient("xuid")).unwrap();
    let (first, before) = granted(&mut *store);
    assert_eq!(first, 1, "the standby comes first in the URL and cannot be written to");
    let mut sql = standby.sql().unwrap();
    wait_mark(&mut sql, 1_001);
    // What it does not receive any more is lost with the primary.
    sql.exec("ALTER SYSTEM SET primary_conninfo = ''").unwrap();
    sql.exec("SELECT pg_reload_conf()").unwrap();
    clock::wait_until("the standby is cut off", Duration::from_mins(1), || {
        Ok(sql.number("SELECT count(*) FROM pg_stat_wal_receiver")? == 0)
    })
    .unwrap();
    assert_eq!(granted(&mut *store).0, 1_001);
    primary.kill().unwrap();
    standby.promote().unwrap();
    is_told_by_its_identity(store, &before);
}

#[test]
fn a_promoted_mariadb_replica_has_another_identity() {
    let mut primary = MariaDb::start(&["--log-bin=bin", "--server-id=1", "--sync-binlog=1"]).unwrap();
    let replica = MariaDb::start(&["--server-id=2", "--read-only=1"]).unwrap();
    let mut sql = replica.sql().unwrap();
    let follow = format!(
        "CHANGE MASTER TO master_host='127.0.0.1', master_port={}, master_user='root', master_use_gtid=slave_pos",
        primary.addr().port()
    );
    sql.exec(&follow).unwrap();
    sql.exec("START SLAVE").unwrap();
    let both: DatabaseUrl =
        format!("mysql://root@{},{}/test", replica.addr(), primary.addr()).parse().unwrap();
    init(&both, &patient("xuid")).unwrap();
    let mut store = open(&both, &patient("xuid")).unwrap();
    create(&mut *store, "order");
    let (first, before) = granted(&mut *store);
    assert_eq!(first, 1, "the replica comes first in the URL and cannot be written to");
    wait_mark(&mut sql, 1_001);
    sql.exec("STOP SLAVE").unwrap();
    assert_eq!(granted(&mut *store).0, 1_001);
    primary.kill().unwrap();
    sql.exec("SET GLOBAL read_only = 0").unwrap();
    is_told_by_its_identity(store, &before);
}

/// A restart is no promotion.
#[test]
fn a_restarted_server_keeps_its_identity() {
    for mut server in [Server::postgres(&[]), Server::mariadb(&[])] {
        let mut store = server.prepared();
        create(&mut *store, "order");
        let before = store.identity().unwrap();
        assert!(matches!(grant_one(&mut *store, "order"), Outcome::Granted { .. }));
        server.kill();
        server.restart();
        assert_eq!(granted(&mut *store).1, before);
    }
}
