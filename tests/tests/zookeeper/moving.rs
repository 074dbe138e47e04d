//! Closed workers, and a registry of a part of the workers, in an ensemble.

use anyhow::{Context, Result, ensure};
use xuid_tests::{Serve, Xuid, clock};

use crate::fixture::{Fixture, SOON, worker};

fn open(fixture: &Fixture, workers: &str, after: u64) -> Result<Xuid> {
    let after = after.to_string();
    Ok(fixture.registry("open")?.arg("--workers").arg(workers).arg("--after-id").arg(after).arg("--yes"))
}

#[test]
fn closed_workers_of_a_part_are_opened_beside_servers_and_kept_by_a_fence() -> Result<()> {
    let fixture = Fixture::without_registry()?;
    fixture.registry("init")?.arg("--workers").arg("500..508").arg("--closed").arg("500..506").run()?.ok()?;
    let server = fixture.server("data")?;
    ensure!((506..508).contains(&worker(&server)?), "{}", worker(&server)?);
    let said = Fixture::refused(fixture.serve("other")?.arg("--worker").arg("501"))?;
    ensure!(said.contains("closed"), "{said}");
    let said = Fixture::refused(fixture.serve("other")?.arg("--worker").arg("8"))?;
    ensure!(said.contains("500 to 507"), "{said}");
    ensure!(fixture.show()?.contains("closed    6"), "{}", fixture.show()?);

    let last = server.client()?.next(xuid_tests::Order::Fresh)?;
    let said = open(&fixture, "500..502", last)?.run()?;
    println!("opened: {}", said.ok()?.trim());
    let ahead = || -> Result<Vec<u64>> {
        let listed = fixture.workers()?;
        Ok(listed.values().map(|entry| entry.reserved_until_ms.saturating_sub(clock::unix_ms())).collect())
    };
    let opened = ahead()?;
    ensure!(opened[..2].iter().all(|ms| (100_000..130_000).contains(ms)), "{opened:?}");
    ensure!(fixture.show()?.contains("closed    4"), "{}", fixture.show()?);
    let said = open(&fixture, "501..504", last)?.run()?.refused(2)?;
    ensure!(said.contains("not closed"), "{said}");
    ensure!(server.client()?.next(xuid_tests::Order::Fresh)? > last, "it goes on");
    server.stop()?;

    // A record that cannot be believed, and one that is gone, were closed when the registry was made: they are again.
    fixture.tamper.write(&Fixture::node("w/500"), b"rubbish")?;
    fixture.tamper.delete(&Fixture::node("w/503"))?;
    fixture.fence()?;
    let listed = fixture.workers()?;
    ensure!(listed.values().all(|entry| entry.error.is_none()), "{listed:?}");
    ensure!(fixture.show()?.contains("closed    5"), "500 is closed again: {}", fixture.show()?);
    // The one that was open by its record is open still.
    let fenced = ahead()?;
    ensure!(fenced[1] > 100_000, "{fenced:?}");
    open(&fixture, "502..506", last)?.run()?.ok().context("after the fence")?;
    let opened = fixture.workers()?;
    ensure!(opened[&502].reserved_until_ms >= opened[&501].reserved_until_ms, "{opened:?}");
    Ok(())
}

#[test]
fn where_an_id_came_from_is_known_by_registry_folder_and_server() -> Result<()> {
    let fixture = Fixture::start()?;
    let server = fixture.server("data")?;
    let mut client = server.client()?;
    let got = client.next(xuid_tests::Order::Fresh)?;
    let later = got + (3_600_000 << 22);
    let ask = |id: u64, more: &[&str]| -> Result<serde_json::Value> {
        let command = Xuid::new(["provenance", "--json", &id.to_string()])?;
        more.iter().fold(command, Xuid::arg).run()?.json()
    };
    let (folder, server_at) = (fixture.folder("data"), server.addr.to_string());
    let by_registry = ["--registry", &fixture.url, "--data-dir", folder.to_str().context("a name")?];
    for more in [&by_registry[..], &["--server", &server_at]] {
        let found = ask(got, more)?;
        ensure!(found["verdict"] == "granted" && found["holder"].is_string(), "{more:?}: {found}");
        let found = ask(later, more)?;
        ensure!(found["verdict"] == "not granted" && found["issued"] == "no", "{more:?}: {found}");
    }
    server.stop()?;
    ensure!(ask(got, &by_registry)?["issued"] == "maybe");
    // A registry that is closed concludes nothing.
    let eras = fixture.tamper.children(&Fixture::node("era"))?;
    for era in eras {
        fixture.tamper.delete(&Fixture::node(&format!("era/{era}")))?;
    }
    let found = ask(later, &by_registry)?;
    ensure!(found["issued"] == "maybe", "{found}");
    Ok(())
}

#[test]
fn where_all_workers_are_closed_a_server_waits_until_one_is_open() -> Result<()> {
    let fixture = Fixture::without_registry()?;
    fixture.registry("init")?.arg("--workers").arg("2").arg("--closed").arg("0..2").run()?.ok()?;
    let server = Serve::spawn(fixture.serve("data")?)?;
    clock::wait_until("it says why", SOON, || {
        Ok(server.log().contains("is closed, as another generator has it"))
    })?;
    server.kill()?;
    Ok(())
}
