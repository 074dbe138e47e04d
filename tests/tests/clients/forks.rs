//! A process that forks while it holds ids ahead: of the five languages only Python's programs do.

use anyhow::Result;
use serde_json::json;
use xuid_tests::{Ledger, Serve};

use crate::conform::{Program, ids, is_long};
use crate::languages::Language;
use crate::losses::add;

const CHILDREN: u32 = 8;

#[test]
fn children_of_a_filled_source_draw_and_no_id_comes_twice() -> Result<()> {
    let each = if is_long() { 100_000 } else { 10_000 };
    let server = Serve::fresh()?.start()?;
    let mut program = Program::connected(Language::Python, &[server.addr], &json!({}))?;
    let answer = program.ask(&json!({ "do": "fork", "children": CHILDREN, "each": each }))?;
    let mut ledger = Ledger::default();
    add(&mut ledger, &answer, CHILDREN * each)?;
    for id in ids(&json!({ "ids": answer["parents"] }))? {
        ledger.add_id(id);
    }
    println!("{CHILDREN} children and their parent: {}", ledger.check()?);
    program.finish()?;
    server.stop().map(drop)
}
