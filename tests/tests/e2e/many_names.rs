//! Ten thousand names on one server; the campaign `nodes` has a hundred thousand.

use anyhow::Result;
use xuid_tests::sequences::scenes;

#[test]
fn ten_thousand_names_cost_little_start_nothing_and_come_back_as_they_were() -> Result<()> {
    let many = scenes::many_names(10_000)?;
    println!("many names: {} bytes a name in use", many.bytes_a_name());
    Ok(())
}
