//! The recipes of docs/sequences.md for moving over: their commands run, and go on where the old system was.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Serve, Server as XuidServer, Sql, Xuid, folder};

use crate::fixture::Server;
use crate::shapes::{leaf_table, tiny_id_table};

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
