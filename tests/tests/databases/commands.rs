//! The commands at a store itself, and a server on it, as an operator runs them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::{Output, Serve, Server as XuidServer, Sql, Xuid, clock, folder, http};

use crate::fixture::{Server, mark, on_both};

on_both!(
    a_store_is_prepared_checked_and_served_by_commands,
    a_store_is_fenced_by_commands_as_a_whole_and_by_name,
    a_fence_of_one_table_opens_no_names_of_another_one_beside_it,
    a_row_that_cannot_be_used_keeps_a_fence_from_raising_all_others,
    a_fence_that_was_put_back_is_missed_and_one_that_is_told_of_it_is_later,
    a_password_is_said_by_the_variable_or_a_file_and_by_no_argument,
    a_table_that_lacks_a_column_is_refused_by_check_and_serve,
);

/// On a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// `xuid sequence` at the store itself.
fn at_store(words: &[&str]) -> Result<Output> {
    Xuid::new(["sequence"].iter().chain(words))?.run()
}

/// `xuid sequence` through a server.
fn through(server: &XuidServer, words: &[&str]) -> Result<Output> {
    Xuid::new(["sequence"].iter().chain(words))?.arg("--server").arg(server.addr.to_string()).run()
}

fn serve(data: &Path, url: &str) -> Result<XuidServer> {
    Serve::new(data)?.arg("--sequences").arg(url).start()
}

fn says(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{text:?} lacks one of {parts:?}");
}

/// The rows of both tables.
fn rows(sql: &mut Sql) -> Vec<Vec<String>> {
    let mut rows = sql.rows("SELECT name, next, step, description FROM xuid_sequence ORDER BY name").unwrap();
    rows.extend(sql.rows("SELECT one, identity FROM xuid_store").unwrap());
    rows
}

fn a_store_is_prepared_checked_and_served_by_commands(server: &mut Server) {
    let (url, mut sql) = (server.url().to_string(), server.sql());
    let unprepared = at_store(&["check", &url]).unwrap().refused(1).unwrap();
    says(&unprepared, &["no table xuid_sequence", "xuid sequence init"]);
    let made = at_store(&["init", &url]).unwrap();
    says(made.ok().unwrap(), &["made in", "xuid_sequence", "xuid_store", "identity"]);
    let checked = at_store(&["check", &url]).unwrap();
    says(checked.ok().unwrap(), &["host", "version", "xuid_sequence", "identity", "fit"]);
    assert!(!checked.stdout.contains("UNFIT"), "{}", checked.stdout);

    let (_home, data, _) = folder::fresh().unwrap();
    let xuid = serve(&data, &url).unwrap();
    let unknown = through(&xuid, &["next", "orders"]).unwrap().refused(1).unwrap();
    says(&unknown, &["NO_SEQUENCE", "xuid sequence create"]);
    let create = ["create", "orders", "--start", "10", "--step", "10000", "--description", "of the shop"];
    through(&xuid, &create).unwrap().ok().unwrap();
    through(&xuid, &create).unwrap().ok().unwrap();
    says(&through(&xuid, &["create", "orders"]).unwrap().refused(1).unwrap(), &["EXISTS"]);
    through(&xuid, &["create", "users", "--strict", "--increment", "3", "--remainder", "2"])
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(mark(&mut sql, "orders"), 10);
    let numbers = through(&xuid, &["next", "orders", "-n", "3"]).unwrap();
    assert_eq!(numbers.ok().unwrap().lines().collect::<Vec<_>>(), ["10", "11", "12"]);
    let numbers = through(&xuid, &["next", "users", "-n", "2", "--json"]).unwrap().json().unwrap();
    // A strict sequence may waste its first number: of a grant that was asked for before the call waited.
    let pairs = [serde_json::json!(["2", "5"]), serde_json::json!(["5", "8"])];
    assert!(pairs.contains(&numbers), "{numbers}");
    assert_eq!(mark(&mut sql, "orders"), 10_010);
    let shown = through(&xuid, &["show", "orders", "--json"]).unwrap().json().unwrap();
    assert_eq!(
        (&shown["next"], &shown["issued"], &shown["held"]),
        (&"10010".into(), &"3".into(), &"9997".into())
    );
    assert_eq!(shown["description"], "of the shop");
    let list = through(&xuid, &["list"]).unwrap();
    says(
        list.ok().unwrap(),
        &["orders  next 10010  step 10000", "users  next", "strict  increment 3 remainder 2"],
    );
    through(&xuid, &["alter", "orders", "--step", "500", "--last", "2000"]).unwrap().refused(1).unwrap();
    through(&xuid, &["alter", "orders", "--step", "500"]).unwrap().ok().unwrap();
    let retired = through(&xuid, &["retire", "users", "--json"]).unwrap().json().unwrap();
    let number = |name: &str| retired[name].as_str().and_then(|text| text.parse::<u64>().ok()).unwrap();
    assert_eq!(number("next"), number("last") + 1);
    let ended = through(&xuid, &["next", "users"]).unwrap().refused(1).unwrap();
    says(&ended, &["EXHAUSTED"]);
    xuid.stop().unwrap();

    // Once more nothing changes, and the sequence goes on where it was.
    let before = rows(&mut sql);
    says(at_store(&["init", &url]).unwrap().ok().unwrap(), &["has its tables already", "identity"]);
    assert_eq!(rows(&mut sql), before);
    let xuid = serve(&data, &url).unwrap();
    assert_eq!(through(&xuid, &["next", "orders"]).unwrap().ok().unwrap().trim(), "13");
    xuid.stop().unwrap();
}

fn a_store_is_fenced_by_commands_as_a_whole_and_by_name(server: &mut Server) {
    let (url, mut sql) = (server.url().to_string(), server.sql());
    at_store(&["init", &url]).unwrap().ok().unwrap();
    let (_home, data, _) = folder::fresh().unwrap();
    let xuid = serve(&data, &url).unwrap();
    for name in ["orders", "users"] {
        through(&xuid, &["create", name]).unwrap().ok().unwrap();
        through(&xuid, &["next", name]).unwrap().ok().unwrap();
    }
    xuid.stop().unwrap();
    let before = rows(&mut sql);
    let unsaid = at_store(&["fence", &url]).unwrap().refused(2).unwrap();
    says(&unsaid, &["raises the mark of every sequence", "--yes"]);
    assert_eq!(rows(&mut sql), before, "nothing happens unless it is confirmed");
    says(&at_store(&["fence", &url, "nothing", "--yes"]).unwrap().refused(1).unwrap(), &["no such sequence"]);
    says(&at_store(&["fence", &url, "@any", "--yes"]).unwrap().refused(2).unwrap(), &["begins with @"]);
    let absent =
        at_store(&["fence", &url, "--data-dir", "/nonexistent", "--yes"]).unwrap().refused(1).unwrap();
    says(&absent, &["/nonexistent"]);
    assert_eq!(rows(&mut sql), before);

    let one = at_store(&["fence", &url, "users", "--above", "5000", "--margin", "7", "--yes"]).unwrap();
    assert_eq!(one.ok().unwrap().trim(), "users  1001 -> 5007");
    assert_eq!((mark(&mut sql, "orders"), mark(&mut sql, "users")), (1_001, 5_007));
    let one = Xuid::new(["sequence", "fence", "--name", "users", "--margin", "3", "--yes"]).unwrap();
    let one = one.env("XUID_SEQUENCES", &url).run().unwrap();
    assert_eq!(one.ok().unwrap().trim(), "users  5007 -> 5010");
    let again = at_store(&["fence", &url, "users", "--above", "100", "--margin", "0", "--yes"]).unwrap();
    assert_eq!(again.ok().unwrap().trim(), "users  5010 -> 5010", "a mark is never lowered");
    // The store goes back by itself, and what the server's folder saw counts. Ten steps come on top.
    sql.exec("UPDATE xuid_sequence SET next = 50 WHERE name = 'orders'").unwrap();
    // A server that has no witness, or was asked for nothing, has a file as well, and no number in it.
    let (_other_home, other, _) = folder::fresh().unwrap();
    serve(&other, &url).unwrap().stop().unwrap();
    let both = ["--data-dir", data.to_str().unwrap(), "--data-dir", other.to_str().unwrap()];
    let both = at_store(&[&["fence", &url], &both[..], &["--yes"]].concat()).unwrap().refused(1).unwrap();
    says(&both, &[other.to_str().unwrap(), "no number of a sequence is recorded there", "--above"]);
    assert_eq!(mark(&mut sql, "orders"), 50);
    let whole = at_store(&["fence", &url, "--data-dir", data.to_str().unwrap(), "--yes"]).unwrap();
    let raised: Vec<&str> = whole.ok().unwrap().lines().collect();
    assert_eq!(raised, ["orders  50 -> 11001", "users  5010 -> 15010"]);
    let xuid = serve(&data, &url).unwrap();
    // What the stop saved is used up first.
    assert_eq!(through(&xuid, &["next", "orders"]).unwrap().ok().unwrap().trim(), "2");
    let numbers = through(&xuid, &["next", "orders", "-n", "1100"]).unwrap();
    let numbers: Vec<&str> = numbers.ok().unwrap().lines().collect();
    assert_eq!((numbers[0], numbers[997], numbers[998], numbers[1_099]), ("3", "1000", "11001", "11102"));
    xuid.stop().unwrap();
    // What a server without a witness left tells of what it held then, and of nothing else.
    let (_third_home, third, _) = folder::fresh().unwrap();
    let serve = Serve::new(&third).unwrap().arg("--sequences").arg(&url);
    let xuid = serve.arg("--sequence-witness").arg("none").start().unwrap();
    through(&xuid, &["next", "orders"]).unwrap().ok().unwrap();
    xuid.stop().unwrap();
    assert!(third.join("sequences.rest-0").exists());
    let left = ["fence", &url, "--data-dir", third.to_str().unwrap(), "--yes"];
    let before = rows(&mut sql);
    let refused = at_store(&left).unwrap().refused(1).unwrap();
    says(&refused, &[third.to_str().unwrap(), "has no witness", "--above"]);
    assert_eq!(rows(&mut sql), before);
    at_store(&[&left[..], &["--above", "1000000"]].concat()).unwrap().ok().unwrap();
    assert!(mark(&mut sql, "orders") > 1_000_000);
}

/// What is written of a fence stands in `xuid_store`, which the tables of a schema share.
fn a_fence_of_one_table_opens_no_names_of_another_one_beside_it(server: &mut Server) {
    let (url, mut sql) = (server.url().to_string(), server.sql());
    for table in ["xuid", "xuid:apart"] {
        at_store(&["init", &url, "--sequence-table", table]).unwrap().ok().unwrap();
    }
    sql.exec("CREATE TABLE last_year (biz_tag varchar(128) PRIMARY KEY, max_id bigint, step int)").unwrap();
    let (_home, data, _) = folder::fresh().unwrap();
    let serve = |witness: &str| {
        let serve = Serve::new(&data).unwrap().arg("--sequences").arg(&url);
        serve
            .arg("--sequence-table")
            .arg("xuid:apart")
            .arg("--sequence-witness")
            .arg(witness)
            .start()
            .unwrap()
    };
    let xuid = serve("folder");
    through(&xuid, &["create", "orders"]).unwrap().ok().unwrap();
    assert_eq!(through(&xuid, &["next", "orders"]).unwrap().ok().unwrap().trim(), "1");
    xuid.kill().unwrap();
    // The database loses that grant, and the witness, which knows of it, is taken away.
    sql.exec("UPDATE apart SET next = 1").unwrap();
    let xuid = serve("none");
    says(&through(&xuid, &["next", "orders"]).unwrap().refused(1).unwrap(), &["STORE_BEHIND"]);

    let fence = |more: &[&str]| at_store(&[&["fence", &url, "--yes"], more].concat()).unwrap();
    let refused = fence(&[]).refused(2).unwrap();
    says(
        &refused,
        &["apart is a table of sequences in the same schema", "--sequence-table xuid:", "--unused-table"],
    );
    let refused = fence(&["--unused-table", "apart"]).refused(2).unwrap();
    says(&refused, &["last_year is a table of sequences in the same schema", "--sequence-table leaf:"]);
    let both = ["--sequence-table", "xuid", "--sequence-table", "xuid:apart"];
    says(&fence(&both).refused(2).unwrap(), &["last_year"]);
    says(
        &fence(&[&["orders"], &both[..]].concat()).refused(2).unwrap(),
        &["one name", "--sequence-table once"],
    );
    says(&through(&xuid, &["next", "orders"]).unwrap().refused(1).unwrap(), &["STORE_BEHIND"]);
    let fenced = fence(&[&both[..], &["--unused-table", "last_year", "--above", "5000"]].concat());
    says(fenced.ok().unwrap(), &["orders  ", " -> 15000"]);
    clock::wait_until("the names are open", PATIENCE, || {
        Ok(through(&xuid, &["next", "orders"])?.ok().is_ok_and(|number| number.trim() == "15000"))
    })
    .unwrap();
    xuid.stop().unwrap();
}

/// Its mark could not be raised, and it may be put right behind the fence.
fn a_row_that_cannot_be_used_keeps_a_fence_from_raising_all_others(server: &mut Server) {
    let (url, mut sql) = (server.url().to_string(), server.sql());
    let columns = "biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL, step int NOT NULL";
    sql.exec(&format!("CREATE TABLE leaf_alloc ({columns})")).unwrap();
    sql.exec("INSERT INTO leaf_alloc VALUES ('order', 1, 2000), ('parked', 500, 0), ('', 1, 1)").unwrap();
    let table = ["--sequence-table", "leaf"];
    at_store(&[&["init", &url], &table[..]].concat()).unwrap().ok().unwrap();
    let fence = [&["fence", &url, "--yes"], &table[..]].concat();
    let refused = at_store(&fence).unwrap().refused(1).unwrap();
    says(&refused, &["'parked'", "step", "fence again"]);
    let marks = sql.rows("SELECT biz_tag, max_id FROM leaf_alloc ORDER BY max_id, biz_tag").unwrap();
    assert_eq!(marks, [["", "1"], ["order", "1"], ["parked", "500"]]);
    sql.exec("UPDATE leaf_alloc SET step = 10 WHERE biz_tag = 'parked'").unwrap();
    let raised = at_store(&fence).unwrap();
    says(raised.ok().unwrap(), &["order  1 -> 20001", "parked  500 -> 20500"]);
}

/// By a server with what is the default beside a registry of its own: what its folder remembers outlives it.
fn a_fence_that_was_put_back_is_missed_and_one_that_is_told_of_it_is_later(server: &mut Server) {
    let (url, mut sql) = (server.url().to_string(), server.sql());
    at_store(&["init", &url]).unwrap().ok().unwrap();
    let day = if server.is_mariadb() { "INTERVAL 1 DAY" } else { "INTERVAL '1 day'" };
    let mut fenced =
        |sign| sql.exec(&format!("UPDATE xuid_store SET fenced_at = now() {sign} {day}")).unwrap();
    // The database's clock was ahead then.
    fenced("+");
    let (_home, data, _) = folder::fresh().unwrap();
    let xuid = serve(&data, &url).unwrap();
    through(&xuid, &["create", "orders"]).unwrap().ok().unwrap();
    assert_eq!(through(&xuid, &["next", "orders"]).unwrap().ok().unwrap().trim(), "1");
    xuid.kill().unwrap();
    fenced("-");
    let xuid = serve(&data, &url).unwrap();
    says(&through(&xuid, &["next", "orders"]).unwrap().refused(1).unwrap(), &["STORE_BEHIND"]);
    let waits_for_fence = || xuid.metrics().unwrap().sum(&["xuid_sequence_waits_for_fence"]);
    assert!(waits_for_fence() > 0.5);
    at_store(&["fence", &url, "--data-dir", data.to_str().unwrap(), "--yes"]).unwrap().ok().unwrap();
    clock::wait_until("the names are open", PATIENCE, || {
        let number = through(&xuid, &["next", "orders"])?;
        Ok(number.ok().is_ok_and(|number| number.trim().parse::<u64>().is_ok_and(|number| number >= 11_001)))
    })
    .unwrap();
    assert!(waits_for_fence() < 0.5);
    xuid.stop().unwrap();
}

fn a_password_is_said_by_the_variable_or_a_file_and_by_no_argument(server: &mut Server) {
    let said = server.url().to_string();
    let secret = said.replacen('@', ":hunter2@", 1);
    if server.is_mariadb() {
        server.sql().exec("SET PASSWORD = PASSWORD('hunter2')").unwrap();
    }
    let (home, data, _) = folder::fresh().unwrap();
    let refused = |output: Output| {
        let text = output.refused(2).unwrap();
        says(&text, &["password"]);
        assert!(!text.contains("hunter2"), "{text}");
    };
    for command in ["init", "check", "fence"] {
        refused(at_store(&[command, &secret]).unwrap());
    }
    refused(Serve::new(&data).unwrap().arg("--sequences").arg(&secret).run_to_exit().unwrap());
    for command in ["init", "check"] {
        let said = Xuid::new(["sequence", command]).unwrap().env("XUID_SEQUENCES", &secret).run().unwrap();
        assert!(!said.ok().unwrap().contains("hunter2"), "{}", said.stdout);
    }
    let file = home.path().join("url");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let xuid = Serve::new(&data).unwrap().arg("--sequences-url-file").arg(&file).start().unwrap();
    through(&xuid, &["create", "orders"]).unwrap().ok().unwrap();
    assert_eq!(through(&xuid, &["next", "orders"]).unwrap().ok().unwrap().trim(), "1");
    let log = xuid.stop().unwrap();
    assert!(!log.contains("hunter2"), "{log}");
}

fn a_table_that_lacks_a_column_is_refused_by_check_and_serve(server: &mut Server) {
    let (url, mut sql) = (server.url().to_string(), server.sql());
    at_store(&["init", &url]).unwrap().ok().unwrap();
    sql.exec("ALTER TABLE xuid_sequence DROP COLUMN step").unwrap();
    let parts = ["no column step", "xuid_sequence"];
    says(&at_store(&["check", &url]).unwrap().refused(1).unwrap(), &parts);
    let (_home, data, _) = folder::fresh().unwrap();
    let xuid = serve(&data, &url).unwrap();
    let refused = through(&xuid, &["create", "orders"]).unwrap().refused(1).unwrap();
    says(&refused, &parts);
    xuid.stop().unwrap();
}

/// Exit code 1, with the setting, its value and its remedy; a server says the same, and grants nothing.
fn is_unfit(url: &str, parts: &[&str]) -> Result<()> {
    let output = at_store(&["check", url])?;
    says(&output.refused(1)?, parts);
    ensure!(output.stdout.lines().any(|line| line.starts_with("UNFIT")), "{}", output.stdout);
    let (_home, data, _) = folder::fresh()?;
    let xuid = serve(&data, url)?;
    through(&xuid, &["next", "orders"])?.refused(1)?;
    let is_told = || Ok(http::get(xuid.admin, "/readyz")?.1.contains(parts[0]));
    clock::wait_until("the server says what is wrong", PATIENCE, is_told)?;
    xuid.stop()?;
    let xuid = Serve::new(&data)?.arg("--sequences").arg(url).arg("--sequences-unsafe").start()?;
    through(&xuid, &["next", "orders"])?.ok()?;
    xuid.stop().map(drop)
}

fn is_fit(url: &str) -> Result<()> {
    let output = at_store(&["check", url])?;
    ensure!(!output.ok()?.contains("UNFIT"), "{}", output.stdout);
    Ok(())
}

fn prepare(url: &str) -> Result<()> {
    at_store(&["init", url])?.ok()?;
    let (_home, data, _) = folder::fresh()?;
    let xuid = serve(&data, url)?;
    through(&xuid, &["create", "orders"])?.ok()?;
    xuid.stop().map(drop)
}

#[test]
fn a_mariadb_that_can_lose_commits_is_unfit_by_command() -> Result<()> {
    let server = Server::mariadb(&["--log-bin=bin", "--sync-binlog=1"]);
    let (url, mut sql) = (server.url().to_string(), server.sql());
    prepare(&url)?;
    is_fit(&url)?;
    for (spoil, mend, parts) in [
        (
            "SET GLOBAL sync_binlog = 0",
            "SET GLOBAL sync_binlog = 1",
            ["sync_binlog is 0", "SET GLOBAL sync_binlog = 1"],
        ),
        (
            "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            ["innodb_flush_log_at_trx_commit is 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"],
        ),
        (
            "ALTER TABLE xuid_sequence ENGINE=MyISAM",
            "ALTER TABLE xuid_sequence ENGINE=InnoDB",
            ["engine is MyISAM", "ENGINE=InnoDB"],
        ),
    ] {
        sql.exec(spoil)?;
        is_unfit(&url, &parts)?;
        sql.exec(mend)?;
        is_fit(&url)?;
    }
    sql.exec("SET GLOBAL read_only = 1")?;
    says(&at_store(&["check", &url])?.refused(1)?, &["read-only"]);
    says(&at_store(&["init", &url])?.refused(1)?, &["read-only"]);
    Ok(())
}

#[test]
fn a_postgres_that_can_lose_commits_is_unfit_by_command() -> Result<()> {
    let server = Server::postgres(&[]);
    let (url, mut sql) = (server.url().to_string(), server.sql());
    prepare(&url)?;
    is_fit(&url)?;
    sql.exec("ALTER TABLE xuid_sequence SET UNLOGGED")?;
    is_unfit(&url, &["persistence is unlogged", "SET LOGGED"])?;
    sql.exec("ALTER TABLE xuid_sequence SET LOGGED")?;
    is_fit(&url)?;
    for name in ["fsync", "full_page_writes"] {
        sql.exec(&format!("ALTER SYSTEM SET {name} = off"))?;
        sql.exec("SELECT pg_reload_conf()")?;
        // The reload reaches a new session some moments later.
        let is_off = || Ok(server.sql().rows(&format!("SHOW {name}"))?[0][0] == "off");
        clock::wait_until("the setting is off", PATIENCE, is_off)?;
        is_unfit(&url, &[&format!("{name} is off"), "postgresql.conf"])?;
        sql.exec(&format!("ALTER SYSTEM RESET {name}"))?;
        sql.exec("SELECT pg_reload_conf()")?;
        let is_on = || Ok(server.sql().rows(&format!("SHOW {name}"))?[0][0] == "on");
        clock::wait_until("the setting is on", PATIENCE, is_on)?;
    }
    sql.exec("ALTER ROLE postgres SET default_transaction_read_only = on")?;
    says(&at_store(&["check", &url])?.refused(1)?, &["read-only"]);
    Ok(())
}

/// A token that may create is enough to describe a thousand sequences as it likes.
#[test]
fn a_page_of_sequences_fits_into_a_reply_whatever_they_are_described_by() {
    let server = Server::postgres(&[]);
    let url = server.url().to_string();
    at_store(&["init", &url]).unwrap().ok().unwrap();
    let (_home, data, _) = folder::fresh().unwrap();
    let xuid = serve(&data, &url).unwrap();
    let mut client = xuid.client().unwrap();
    for (n, described) in (0..1_000).zip(["\u{1}".repeat(256), "\"".repeat(256)].iter().cycle()) {
        let settings = serde_json::json!({ "description": described });
        client.seq_create(&format!("{n:0120}"), &settings).unwrap();
    }
    let listed = through(&xuid, &["list", "--json"]).unwrap();
    let names = listed.ok().unwrap().matches(&"0".repeat(117)).count();
    assert!(names >= 1_000, "{names} of 1,000");
}
