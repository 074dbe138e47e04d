//! Ids and numbers of each call, from a server that nothing happens to.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use xuid_tests::{Ledger, Serve, Server, clock};

use crate::conform::{Program, ids, is_long, next, number, runs};
use crate::languages::Language;

/// Most single ids of one request: they come in one line.
const PIECE: u32 = 20_000;

pub(crate) fn ids_of_each_call_come_once(language: Language) -> Result<()> {
    // With XUID_LONG=1 a million of each client one by one, and 430,000 by the other calls.
    let (singles, many) = if is_long() { (1_000_000, 100_000) } else { (40_000, 40_000) };
    draw(language, &Serve::fresh()?.start()?, singles, many, true)
}

/// The first has the worker lowest, and runs with a stride; the ids of the second have 53 bits; those of the last are opaque.
pub(crate) fn ids_of_each_call_are_of_the_layout(language: Language) -> Result<()> {
    for layout in ["sonyflake", "js"] {
        let server = Serve::fresh()?.arg("--layout").arg(layout).arg("--workers").arg("16").start()?;
        draw(language, &server, 4_000, 4_000, true)?;
    }
    let home = TempDir::new()?;
    let key = home.path().join("key");
    std::fs::write(&key, "1b1a1918131211100b0a090803020100\n")?;
    let server = Serve::new(&home.path().join("data"))?.arg("--opaque-key-file").arg(&key).start()?;
    draw(language, &server, 4_000, 4_000, false)
}

/// Takes so many ids one by one and `many` by each other call, none twice, and has one taken apart by the server and, if it has
/// its fields in an order, by the client.
fn draw(language: Language, server: &Server, singles: u32, many: u32, has_order: bool) -> Result<()> {
    let mut program = Program::connected(language, &[server.addr], &json!({}))?;
    let mut ledger = Ledger::default();
    let mut add = |found: Vec<u64>, count: u32| -> Result<()> {
        ensure!(found.len() == count as usize, "{} ids of {count}", found.len());
        for id in found {
            ledger.add_id(id);
        }
        Ok(())
    };
    // Several calls at once, beside 16 in flight of each.
    let ahead = program.begin(json!({ "do": "prefetch", "times": many }))?;
    let piece = PIECE.min(singles / 2);
    for _ in 0..singles / (2 * piece) {
        for ticket in [program.begin(next(piece, 16))?, program.begin(next(piece, 16))?] {
            add(ids(&program.success(ticket)?)?, piece)?;
        }
    }
    add(ids(&program.success(ahead)?)?, many)?;
    let mut last_ordered = 0;
    for order in ["any", "fresh", "ordered"] {
        let asked = json!({ "do": "array", "count": many / 10, "order": order, "wait_ms": 5_000 });
        if order == "ordered" && !has_order {
            let refused = program.refused(&asked)?;
            refused.is_any(&["refused"])?;
            ensure!(refused.whole.contains("NO_ORDER"), "{}", refused.whole);
            continue;
        }
        let found = ids(&program.ask(&asked)?)?;
        if order == "ordered" {
            ensure!(found.is_sorted_by(|one, other| one < other) && found[0] > last_ordered, "{found:?}");
            last_ordered = *found.last().context("no id")?;
        }
        add(found, many / 10)?;
        let asked = json!({ "do": "runs", "count": many, "order": order, "wait_ms": 5_000 });
        let found = runs(&program.ask(&asked)?)?;
        let all: Vec<u64> = found
            .iter()
            .flat_map(|(first, count, stride)| (0..*count).map(move |at| first + at * stride))
            .collect();
        ensure!(has_order || found.len() == many as usize, "{} runs of opaque ids", found.len());
        ensure!(order != "ordered" || (all.is_sorted() && all[0] > last_ordered), "{found:?}");
        add(all, many)?;
    }
    println!("{language:?}: {}", ledger.check()?);
    let one = program.ask(&next(1, 1))?["ids"][0].clone();
    let by_call = program.ask(&json!({ "do": "decode", "number": one }))?;
    let time_of = json!({ "do": "time_of", "number": one });
    if has_order {
        let by_layout = program.ask(&time_of)?;
        for field in ["unix_ms", "worker", "sequence"] {
            ensure!(
                by_call[field] == by_layout[field] && !by_call[field].is_null(),
                "{by_call} and {by_layout}"
            );
        }
    } else {
        let refused = program.refused(&time_of)?;
        refused.is_any(&["usage"])?;
        ensure!(refused.whole.contains("opaque"), "{}", refused.whole);
        ensure!(number(&by_call["unix_ms"])?.abs_diff(clock::unix_ms()) < 700_000, "{by_call}");
    }
    program.ask(&json!({ "do": "ping" }))?;
    ensure!(program.ask(&json!({ "do": "info" }))?["info"].is_object());
    program.refused(&json!({ "do": "array", "count": 0 }))?.is_any(&["usage", "refused"])?;
    program.ask(&json!({ "do": "close" }))?;
    program.refused(&next(1, 1))?.is_any(&["closed"])?;
    program.finish()
}

pub(crate) fn numbers_of_a_sequence_come_once_and_without_a_gap(language: Language) -> Result<()> {
    let server = Serve::fresh()?.arg("--sequences").arg("registry").start()?;
    // A busy disk may take longer for a first grant than a request waits.
    let mut program = Program::connected(language, &[server.addr], &json!({ "retry_for_ms": 30_000 }))?;
    let missing = program.refused(&json!({ "do": "seq_next", "name": "orders" }))?;
    missing.is_any(&["refused"])?;
    ensure!(missing.whole.contains("NO_SEQUENCE"), "{}", missing.whole);
    let settings = json!({ "start": "9007199254740993", "step": "500" });
    let created = program.ask(&json!({ "do": "seq_create", "name": "orders", "settings": settings }))?;
    ensure!(number(&created["info"]["next"])? == 9_007_199_254_740_993, "{created}");
    let mut seen = BTreeSet::new();
    let mut add = |found: Vec<u64>| {
        let distinct = found.into_iter().all(|number| seen.insert(number));
        ensure!(distinct, "a number came twice");
        Ok(())
    };
    let asked = json!({ "do": "seq_next", "name": "orders", "times": 5_000, "in_flight": 16 });
    add(ids(&program.ask(&asked)?)?)?;
    let bulk = json!({ "name": "orders", "count": 1_000, "order": "ordered", "wait_ms": 5_000 });
    let with = |deed: &str, contiguous: bool| {
        let mut asked = bulk.clone();
        asked["do"] = deed.into();
        if contiguous {
            asked["contiguous"] = true.into();
        }
        asked
    };
    let array = ids(&program.ask(&with("seq_array", false))?)?;
    ensure!(array.len() == 1_000 && array.is_sorted_by(|one, other| one < other));
    add(array)?;
    for contiguous in [false, true] {
        let found = runs(&program.ask(&with("seq_runs", contiguous))?)?;
        ensure!(!contiguous || found.len() == 1, "{found:?}");
        for (first, count, stride) in found {
            add((0..count).map(|at| first + at * stride).collect())?;
        }
    }
    let (first, last) = (seen.first().copied().context("none")?, seen.last().copied().context("none")?);
    ensure!(seen.len() == 8_000 && first == 9_007_199_254_740_993, "{} from {first}", seen.len());
    // A run in one piece may leave out what did not fit into it.
    ensure!(last - first < 12_000, "{first} to {last}");
    let names = program.ask(&json!({ "do": "seq_list", "prefix": "ord", "after": "", "limit": 10 }))?;
    ensure!(names["list"].as_array().is_some_and(|names| names.len() == 1), "{names}");
    program.ask(&json!({ "do": "seq_alter", "name": "orders", "settings": { "step": "700" } }))?;
    let info = program.ask(&json!({ "do": "seq_info", "name": "orders" }))?;
    ensure!(number(&info["info"]["step"])? == 700, "{info}");
    program.finish()
}
