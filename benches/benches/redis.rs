//! NEXT against Redis's INCR at the same settings and on the same cores, and both by redis-benchmark:
//! `cargo bench -p xuid-benches --bench redis`.
//!
//! Words after `--` pick settings (`50x100`, `redis-benchmark`); a number of rounds is given as `--rounds=9`.

use anyhow::Result;
use xuid_benches::load;

fn main() -> Result<()> {
    if load::serve_if_asked()? {
        return Ok(());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = words.iter().find_map(|word| word.strip_prefix("--rounds="));
    let rounds: usize = rounds.map_or(Ok(5), str::parse)?;
    let picked: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| picked.is_empty() || picked.iter().any(|part| name.contains(part));
    let Some(mut rows) = load::redis_rows(rounds, |setting| wanted(&setting.to_string()))? else {
        println!("redis-server is not installed: nothing to compare with");
        return Ok(());
    };
    if wanted("redis-benchmark") {
        match load::redis_benchmark_rows()? {
            Some(more) => rows.extend(more),
            None => println!("redis-server is not installed: nothing for redis-benchmark to compare with"),
        }
    }
    if picked.contains(&"tcp") {
        rows.extend(load::tcp_rows(rounds)?);
    }
    println!("{rounds} rounds in turn; median [least..most]");
    for row in rows {
        let verdict = if row.met { "met" } else { "MISSED" };
        println!("{:<44} {:>5.2} x  ({}: {verdict})  {}", row.path, row.ratio, row.target, row.figures);
    }
    Ok(())
}
