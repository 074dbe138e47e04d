//! Ten thousand names on one server; a hundred thousand with `XUID_LONG=1`, as in the campaign `nodes`.

use anyhow::Result;
use xuid_tests::sequences::scenes;

#[test]
fn ten_thousand_names_cost_little_start_nothing_and_come_back_as_they_were() -> Result<()> {
    let is_long = std::env::var_os("XUID_LONG").is_some();
    let many = scenes::many_names(if is_long { 100_000 } else { 10_000 })?;
    println!("many names: {} bytes a name in use", many.bytes_a_name());
    Ok(())
}
