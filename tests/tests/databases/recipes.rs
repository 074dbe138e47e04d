//! The recipes of docs/sequences.md for moving over: their commands run, and go on where the old system was.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Serve, Server as XuidServer, Sql, Xuid, clock, folder, http};

use crate::fixture::Server;
use crate::shapes::{leaf_table, tiny_id_table};

/// A busy machine answers within that.
const LONG: Duration = Duration::from_secs(30);

/// The blocks of a recipe in their order, each with its language.
fn blocks(title: &str) -> Result<Vec<(String, String)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sequences.md");
    let docs = fs::read_to_string(path)?;
    let (_, recipe) = docs.split_once(&format!("\n### {title}\n")).context("no such recipe")?;
    let recipe = recipe.split("\n#").next().unwrap_or_default();
    let fenced = recipe.split("```").skip(1).step_by(2);
    let blocks = fenced.filter_map(|block| block.split_once('\n'));
    Ok(blocks.map(|(language, text)| (language.to_owned(), text.to_owned())).collect())
}

/// What the commands of a recipe printed that take numbers, and the rows that its statements selected.
#[derive(Default)]
struct Outcome {
    numbers: Vec<u64>,
    rows: Vec<Vec<String>>,
}

/// Follows a recipe to the letter, but for the database's address, the data folder and the ports.
fn follow(title: &str, server: &Server) -> Result<Outcome> {
    let (_home, data, _) = folder::fresh()?;
    let (mut sql, mut outcome): (Sql, _) = (server.sql(), Outcome::default());
    let mut xuid: Option<XuidServer> = None;
    for (language, text) in blocks(title)? {
        for line in text.lines() {
            match language.as_str() {
                "sql" if line.starts_with("SELECT") => outcome.rows.extend(sql.rows(line)?),
                "sql" => sql.exec(line)?,
                _ => command(line, server, &data, &mut xuid, &mut outcome.numbers)
                    .with_context(|| format!("{title}: {line}"))?,
            }
        }
    }
    ensure!(!outcome.numbers.is_empty(), "{title} takes no number");
    xuid.context("no server")?.stop()?;
    Ok(outcome)
}

fn command(
    line: &str,
    server: &Server,
    data: &Path,
    xuid: &mut Option<XuidServer>,
    numbers: &mut Vec<u64>,
) -> Result<()> {
    let url = server.url().to_string();
    let words = line.split_whitespace();
    let words = words.map(|word| if word.contains("@db1/") { url.clone() } else { word.to_owned() });
    let words: Vec<String> = words.collect();
    ensure!(words.first().is_some_and(|program| program == "xuid"), "another program");
    if words[1] == "serve" {
        let serve = words[2..].iter().fold(Serve::new(data)?, Serve::arg);
        *xuid = Some(serve.start()?);
        return Ok(());
    }
    let at_store = matches!(words[2].as_str(), "init" | "check" | "fence");
    let mut command = Xuid::new(&words[1..])?;
    if !at_store {
        let addr = xuid.as_ref().context("before the server")?.addr;
        command = command.arg("--server").arg(addr.to_string());
    }
    let output = command.run()?;
    let said = output.ok()?;
    if words[2] == "next" {
        numbers.extend(said.lines().map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(())
}

#[test]
fn from_leaf_and_from_tinyid_the_rows_go_on_where_they_were() -> Result<()> {
    for server in [Server::mariadb(&[]), Server::postgres(&[])] {
        leaf_table(&server);
        ensure!(follow("From Leaf", &server)?.numbers == [1, 2, 3]);
        tiny_id_table(&server);
        let mut sql = server.sql();
        sql.exec("UPDATE tiny_id_info SET biz_type = 'order'")?;
        ensure!(follow("From tinyid", &server)?.numbers == [3, 5, 7]);
    }
    Ok(())
}

/// What tinyid's client gets of a token and a name.
fn tinyid_answers(xuid: &XuidServer, token: &str, name: &str) -> Result<String> {
    let path = format!("/tinyid/id/nextId?bizType={name}&token={token}");
    Ok(http::get(xuid.http()?, &path)?.1)
}

fn on_tinyid_s_table(server: &Server) -> Result<XuidServer> {
    let serve = Serve::fresh()?.arg("--http").arg("127.0.0.1:0").arg("--sequence-table").arg("tinyid");
    serve.arg("--sequences").arg(server.url().to_string()).start()
}

#[test]
fn a_token_of_tinyid_s_table_is_good_for_its_name_alone() -> Result<()> {
    for server in [Server::mariadb(&[]), Server::postgres(&[])] {
        tiny_id_table(&server);
        let mut sql = server.sql();
        let known = |answer: &str| answer.starts_with("{\"data\":[") && answer.contains("\"code\":200");
        let wrong = r#"{"data":null,"code":5,"message":"token is error"}"#;

        // Without a table of tokens the server's own count, and it has none.
        let xuid = on_tinyid_s_table(&server)?;
        let answers = || Ok(known(&tinyid_answers(&xuid, "any", "test_odd")?));
        clock::wait_until("the rows are looked for", LONG, answers)?;
        xuid.stop()?;

        sql.exec("CREATE TABLE tiny_id_token (id int PRIMARY KEY, token varchar(255), biz_type varchar(63), remark varchar(255))")?;
        sql.exec("INSERT INTO tiny_id_token VALUES (1, '0f673adf80504e2eaa552f5d791b644c', 'test_odd', ''), (2, 't', 'other', '')")?;
        let xuid = on_tinyid_s_table(&server)?;
        let token = "0f673adf80504e2eaa552f5d791b644c";
        clock::wait_until("the rows are read", LONG, || {
            Ok(known(&tinyid_answers(&xuid, token, "test_odd")?))
        })?;
        for (token, name) in [("t", "test_odd"), ("", "test_odd"), (token, "other"), (token, "")] {
            ensure!(tinyid_answers(&xuid, token, name)? == wrong, "{token} for {name}");
        }
        xuid.stop()?;
    }
    Ok(())
}

#[test]
fn from_cosid_redis_and_auto_increment_a_sequence_begins_above_the_mark() -> Result<()> {
    let server = Server::mariadb(&[]);
    let mut sql = server.sql();
    sql.exec(
        "CREATE TABLE cosid (name varchar(100) PRIMARY KEY, last_max_id bigint NOT NULL, last_fetch_time bigint NOT NULL)",
    )?;
    sql.exec("INSERT INTO cosid VALUES ('shop.order', 41000, 0)")?;
    let done = follow("From CosId", &server)?;
    ensure!((done.rows.concat(), &done.numbers[..]) == (vec!["41000".to_owned()], &[41_001][..]));
    ensure!(follow("From INCR of Redis", &server)?.numbers == [41_001]);
    sql.exec("CREATE TABLE orders (id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, what text)")?;
    sql.exec("INSERT INTO orders VALUES (41000, 'a book')")?;
    let done = follow("From AUTO_INCREMENT", &server)?;
    ensure!((done.rows.concat(), &done.numbers[..]) == (vec!["41000".to_owned()], &[41_001][..]));
    let made = sql.rows("SHOW CREATE TABLE orders")?.concat();
    ensure!(!made[1].contains("`id` bigint(20) NOT NULL AUTO_INCREMENT"), "{made:?}");
    ensure!(
        sql.exec("INSERT INTO orders (what) VALUES ('another')").is_err(),
        "the table still makes numbers"
    );
    Ok(())
}
