//! Databases and tables that are refused, each with a message of its own.

use xuid_engine::sequence::store::database::{DatabaseOptions, check, init, open};
use xuid_engine::sequence::store::{Outcome, StoreError};

use crate::fixture::{Server, ask, create, grant_one, on_both, patient};

on_both!(
    a_table_that_does_not_have_its_shape_is_refused_with_what_it_lacks,
    a_role_without_rights_is_told_which,
    a_row_that_cannot_be_used_says_why_and_is_left_alone,
    a_row_that_says_nothing_of_being_strict_is_not_and_keeps_nobody_up,
);

/// What a server is told that opens this table.
fn refusal(server: &Server, options: &DatabaseOptions) -> String {
    let mut store = open(&server.url(), options).unwrap();
    let outcome = grant_one(&mut *store, "order");
    let Outcome::Away { why } = outcome else { panic!("{outcome:?}") };
    assert!(
        store
            .identity()
            .is_err_and(|error| matches!(error, StoreError::Refused { .. } | StoreError::Away { .. }))
    );
    why
}

fn says(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{text:?} lacks one of {parts:?}");
}

/// Each setting that loses commits is told with its remedy, and used only by who insists.
fn is_unfit(server: &Server, parts: &[&str]) {
    says(&refusal(server, &patient("xuid")), parts);
    assert!(!check(&server.url(), &patient("xuid")).unwrap().is_fit());
    let insisting = DatabaseOptions { allow_unsafe: true, ..patient("xuid") };
    let mut store = open(&server.url(), &insisting).unwrap();
    assert!(matches!(grant_one(&mut *store, "order"), Outcome::Granted { .. }));
}

fn is_fit(server: &Server) {
    assert!(check(&server.url(), &patient("xuid")).unwrap().is_fit());
    assert!(matches!(grant_one(&mut *server.store(), "order"), Outcome::Granted { .. }));
}

#[test]
fn a_mariadb_whose_commits_are_not_durable_is_refused_setting_by_setting() {
    let server = Server::mariadb(&["--log-bin=bin", "--sync-binlog=1"]);
    create(&mut *server.prepared(), "order");
    is_fit(&server);
    let mut sql = server.sql();
    sql.exec("SET GLOBAL sync_binlog = 0").unwrap();
    is_unfit(&server, &["sync_binlog is 0", "SET GLOBAL sync_binlog = 1", "binary log"]);
    sql.exec("SET GLOBAL sync_binlog = 1, GLOBAL innodb_flush_log_at_trx_commit = 2").unwrap();
    is_unfit(
        &server,
        &["innodb_flush_log_at_trx_commit is 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"],
    );
    sql.exec("SET GLOBAL innodb_flush_log_at_trx_commit = 1").unwrap();
    sql.exec("ALTER TABLE xuid_sequence ENGINE=MyISAM").unwrap();
    is_unfit(&server, &["engine is MyISAM", "ENGINE=InnoDB"]);
    sql.exec("ALTER TABLE xuid_sequence ENGINE=InnoDB").unwrap();
    is_fit(&server);
}

#[test]
fn a_mariadb_without_a_binary_log_needs_no_sync_of_it() {
    let server = Server::mariadb(&["--sync-binlog=0"]);
    create(&mut *server.prepared(), "order");
    is_fit(&server);
}

#[test]
fn a_postgres_whose_commits_are_not_durable_is_refused_setting_by_setting() {
    for (setting, parts) in [
        ("fsync=off", ["fsync is off", "postgresql.conf"]),
        ("full_page_writes=off", ["full_page_writes is off", "crash"]),
    ] {
        let server = Server::postgres(&[setting]);
        assert!(init(&server.url(), &patient("xuid")).unwrap_err().to_string().contains(parts[0]));
        let insisting = DatabaseOptions { allow_unsafe: true, ..patient("xuid") };
        init(&server.url(), &insisting).unwrap();
        create(&mut *open(&server.url(), &insisting).unwrap(), "order");
        is_unfit(&server, &parts);
    }
}

#[test]
fn a_postgres_table_that_a_crash_empties_is_refused() {
    let server = Server::postgres(&[]);
    create(&mut *server.prepared(), "order");
    server.sql().exec("ALTER TABLE xuid_sequence SET UNLOGGED").unwrap();
    is_unfit(&server, &["unlogged", "SET LOGGED"]);
}

/// The server's own default would let a commit return before it is on disk.
#[test]
fn a_postgres_that_commits_asynchronously_by_default_is_made_to_wait() {
    let server = Server::postgres(&["synchronous_commit=off"]);
    create(&mut *server.prepared(), "order");
    is_fit(&server);
    let mut sql = server.sql();
    sql.exec(
        "CREATE TABLE seen (value text);
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
         CREATE TRIGGER look AFTER UPDATE ON xuid_sequence FOR EACH ROW EXECUTE FUNCTION look()",
    )
    .unwrap();
    is_fit(&server);
    sql.exec("ALTER ROLE postgres SET synchronous_commit = remote_apply").unwrap();
    is_fit(&server);
    let seen = sql.rows("SELECT value FROM seen").unwrap().concat();
    assert_eq!(seen, ["on", "remote_apply"]);
}

#[test]
fn a_host_that_cannot_be_written_to_is_passed_over() {
    let mariadb = Server::mariadb(&[]);
    create(&mut *mariadb.prepared(), "order");
    mariadb.sql().exec("SET GLOBAL read_only = 1").unwrap();
    says(&refusal(&mariadb, &patient("xuid")), &["read-only", "read_only"]);
    let postgres = Server::postgres(&[]);
    create(&mut *postgres.prepared(), "order");
    postgres.sql().exec("ALTER ROLE postgres SET default_transaction_read_only = on").unwrap();
    says(&refusal(&postgres, &patient("xuid")), &["read-only", "default_transaction_read_only"]);
}

#[test]
fn a_host_that_becomes_read_only_is_left() {
    let server = Server::mariadb(&[]);
    create(&mut *server.prepared(), "order");
    let mut sql = server.sql();
    // Root may write to a read-only server.
    sql.exec("CREATE USER app; GRANT ALL ON test.* TO app").unwrap();
    let url = format!("mysql://app@{}/test", server.addr()).parse().unwrap();
    let mut store = open(&url, &patient("xuid")).unwrap();
    assert!(matches!(grant_one(&mut *store, "order"), Outcome::Granted { .. }));
    sql.exec("SET GLOBAL read_only = 1").unwrap();
    for _ in 0..2 {
        let outcome = grant_one(&mut *store, "order");
        assert!(matches!(&outcome, Outcome::Away { why } if why.contains("read-only")), "{outcome:?}");
    }
    sql.exec("SET GLOBAL read_only = 0").unwrap();
    assert!(matches!(grant_one(&mut *store, "order"), Outcome::Granted { first: 1_001, .. }));
}

/// MySQL's usual collations take both for one row.
#[test]
fn a_name_that_differs_in_case_is_absent_and_the_other_is_told() {
    for server in [Server::mariadb(&[]), Server::postgres(&[])] {
        let mut sql = server.sql();
        sql.exec("CREATE TABLE leaf_alloc (biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL, step int NOT NULL)")
            .unwrap();
        sql.exec("INSERT INTO leaf_alloc VALUES ('order', 1, 2000)").unwrap();
        let mut store = open(&server.url(), &patient("leaf")).unwrap();
        for other in ["Order", "ORDER"] {
            assert_eq!(grant_one(&mut *store, other), Outcome::Absent);
            let error = store.read(&ask(other).name).unwrap_err().to_string();
            assert!(error.contains("there is 'order'"), "{error}");
        }
        assert_eq!(sql.number("SELECT max_id FROM leaf_alloc").unwrap(), 1, "the other row moved");
        assert!(matches!(grant_one(&mut *store, "order"), Outcome::Granted { first: 1, .. }));
    }
}

fn a_table_that_does_not_have_its_shape_is_refused_with_what_it_lacks(server: &mut Server) {
    let mut sql = server.sql();
    let mut refused = |columns: &str, parts: &[&str]| {
        sql.exec("DROP TABLE IF EXISTS leaf_alloc").unwrap();
        sql.exec(&format!("CREATE TABLE leaf_alloc ({columns})")).unwrap();
        says(&refusal(server, &patient("leaf")), parts);
    };
    refused("biz_tag varchar(128) PRIMARY KEY, max_id bigint", &["no column step", "biz_tag, max_id, step"]);
    refused(
        "biz_tag varchar(128) PRIMARY KEY, max_id int, step int",
        &["max_id", "int", "64 bits", "bigint"],
    );
    refused(
        "biz_tag varchar(128), max_id bigint, step int",
        &["no unique key on biz_tag", "ADD UNIQUE (biz_tag)"],
    );
    refused(
        "biz_tag varchar(128), shop int, max_id bigint, step int, UNIQUE (biz_tag, shop)",
        &["no unique key on biz_tag"],
    );
    refused("biz_tag int PRIMARY KEY, max_id bigint, step int", &["biz_tag", "varchar(128)"]);
    refused("biz_tag varchar(128) PRIMARY KEY, max_id bigint, step varchar(9)", &["step", "no integer"]);
    says(&refusal(server, &patient("xuid")), &["no table xuid_sequence", "xuid sequence init"]);
    says(&refusal(server, &patient("tinyid:elsewhere")), &["no table elsewhere"]);
}

fn a_role_without_rights_is_told_which(server: &mut Server) {
    create(&mut *server.prepared(), "order");
    let make = if server.is_mariadb() {
        "CREATE USER app IDENTIFIED BY 'secret'; GRANT SELECT ON test.xuid_sequence TO app"
    } else {
        "CREATE ROLE app LOGIN PASSWORD 'secret'; GRANT SELECT ON xuid_sequence TO app"
    };
    let mut sql = server.sql();
    sql.exec(make).unwrap();
    let url = if server.is_mariadb() { "mysql" } else { "postgres" };
    let database = if server.is_mariadb() { "test" } else { "postgres" };
    let url = format!("{url}://app:secret@{}/{database}", server.addr()).parse().unwrap();
    let mut store = open(&url, &patient("xuid")).unwrap();
    let outcome = grant_one(&mut *store, "order");
    let Outcome::Away { why } = &outcome else { panic!("{outcome:?}") };
    says(&why.to_uppercase(), &["UPDATE", "XUID_SEQUENCE"]);
    assert!(!why.contains("secret") && !store.describe().contains("secret"), "{why}");
    // These two are all it takes.
    let table = if server.is_mariadb() { "test.xuid_sequence" } else { "xuid_sequence" };
    sql.exec(&format!("GRANT UPDATE ON {table} TO app")).unwrap();
    assert!(matches!(grant_one(&mut *store, "order"), Outcome::Granted { .. }));
}

fn a_row_that_cannot_be_used_says_why_and_is_left_alone(server: &mut Server) {
    let mut sql = server.sql();
    sql.exec(
        "CREATE TABLE tiny_id_info (biz_type varchar(63) PRIMARY KEY, max_id bigint, step int, delta int, \
         remainder int, version bigint)",
    )
    .unwrap();
    for (name, values) in [
        ("negative", "-5, 10, 1, 0, 0"),
        ("null", "NULL, 10, 1, 0, 0"),
        ("delta", "0, 10, 0, 0, 0"),
        ("remainder", "0, 10, 2, 2, 0"),
        ("step", "0, 0, 1, 0, 0"),
        ("sound", "0, 10, 1, 0, 0"),
    ] {
        sql.exec(&format!("INSERT INTO tiny_id_info VALUES ('{name}', {values})")).unwrap();
    }
    let before = sql.rows("SELECT * FROM tiny_id_info WHERE biz_type <> 'sound' ORDER BY biz_type").unwrap();
    let mut store = open(&server.url(), &patient("tinyid")).unwrap();
    let asks = ["negative", "null", "delta", "remainder", "step", "sound"].map(ask);
    let outcomes = crate::fixture::grant(&mut *store, &asks);
    for outcome in &outcomes[..5] {
        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcomes:?}");
    }
    assert!(matches!(outcomes[5], Outcome::Granted { first: 1, end: 11, .. }), "{outcomes:?}");
    let after = sql.rows("SELECT * FROM tiny_id_info WHERE biz_type <> 'sound' ORDER BY biz_type").unwrap();
    assert_eq!(before, after);
}

/// In a table that somebody made by hand.
fn a_row_that_says_nothing_of_being_strict_is_not_and_keeps_nobody_up(server: &mut Server) {
    create(&mut *server.prepared(), "order");
    let (mut sql, mysql) = (server.sql(), server.is_mariadb());
    let change = if mysql { "MODIFY strict tinyint(1)" } else { "ALTER strict DROP NOT NULL" };
    sql.exec(&format!("ALTER TABLE xuid_sequence {change}")).unwrap();
    sql.exec("UPDATE xuid_sequence SET strict = NULL").unwrap();
    let outcome = grant_one(&mut *server.store(), "order");
    assert!(
        matches!(outcome, Outcome::Granted { first: 1, settings, .. } if !settings.strict),
        "{outcome:?}"
    );
}
