//! A registry that is not the one that was meant: refused at the start, with both values.

use anyhow::{Result, ensure};
use xuid_tests::{Order, Xuid};

use crate::fixture::Fixture;

const LAYOUT: &str = "41/10/12";
const EPOCH: &str = "1524153600000";

#[test]
fn another_layout_or_epoch_than_at_genesis_is_refused_with_both_values() -> Result<()> {
    let fixture = Fixture::start()?;
    let cases = [
        ("--layout", "40/11/12", LAYOUT),
        ("--layout", "42/10/11", LAYOUT),
        ("--epoch", "1600000000000", EPOCH),
        ("--epoch", "1524153600001", EPOCH),
    ];
    for (flag, asked, found) in cases {
        let said = Fixture::refused(fixture.serve("data")?.arg(flag).arg(asked))?;
        ensure!(said.contains(asked) && said.contains(found), "{flag} {asked}: {said}");
    }
    // A refusal leaves nothing behind, and the right values are no difference.
    let server = fixture.serve("data")?.arg("--layout").arg(LAYOUT).arg("--epoch").arg(EPOCH).start()?;
    server.wait_ready(crate::fixture::SOON)?;
    server.client()?.next(Order::Fresh)?;
    server.stop().map(drop)
}

#[test]
fn a_registry_of_another_layout_is_used_as_it_is_unless_one_is_asked_for() -> Result<()> {
    let fixture = Fixture::without_registry()?;
    fixture.init(&["--layout", "42/9/12", "--epoch", "1700000000000"])?;
    let server = fixture.server("data")?;
    let banner = server.banner();
    ensure!(banner.contains("42/9/12"), "{banner}");
    let said = Fixture::refused(fixture.serve("other")?.arg("--layout").arg(LAYOUT))?;
    ensure!(said.contains("42/9/12") && said.contains(LAYOUT), "{said}");
    let said = Fixture::refused(fixture.serve("other")?.arg("--epoch").arg(EPOCH))?;
    ensure!(said.contains("1700000000000") && said.contains(EPOCH), "{said}");
    server.stop().map(drop)
}

#[test]
fn a_data_folder_of_another_cluster_is_refused_with_both_ids() -> Result<()> {
    let fixture = Fixture::start()?;
    let other = fixture.ensemble.url("/other");
    Xuid::new(["registry", "init", &other])?.run()?.ok()?;
    let ids = [&fixture.url, &other].map(|url| -> Result<String> {
        let said = Xuid::new(["registry", "show", url])?.run()?;
        let line = said.ok()?.lines().find_map(|line| line.trim().strip_prefix("cluster"));
        Ok(line.unwrap_or_default().trim().to_owned())
    });
    let [ours, theirs] = ids;
    let (ours, theirs) = (ours?, theirs?);
    ensure!(ours.len() == 32 && theirs.len() == 32 && ours != theirs, "{ours} {theirs}");
    fixture.server("data")?.stop()?;
    for _ in 0..2 {
        let said = Fixture::refused(fixture.serve_at(&other, "data")?)?;
        ensure!(
            said.contains(&ours) && said.contains(&theirs),
            "{ours} and {theirs} are not both in: {said}"
        );
    }
    // A local registry in the folder of an ensemble's node is another cluster as well.
    let said = Fixture::refused(xuid_tests::Serve::new(&fixture.folder("data"))?)?;
    ensure!(said.contains(&ours), "{said}");
    fixture.server("data")?.stop()?;
    Ok(())
}
