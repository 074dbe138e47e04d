//! A registry that belongs to a user of the ensemble: nobody else reads it or changes it, and nobody is left guessing.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use xuid_tests::{Order, Server, Xuid};

use crate::fixture::{Fixture, SOON};

const AUTH: &str = "XUID_REGISTRY_AUTH";
const OURS: &str = "xuid:open sesame";
const WRONG: &str = "xuid:open barley";

/// A registry that was made with [`OURS`].
fn guarded() -> Result<Fixture> {
    let fixture = Fixture::without_registry()?;
    fixture.registry("init")?.arg("--workers").arg("8").env(AUTH, OURS).run()?.ok()?;
    Ok(fixture)
}

/// It says what is missing and where it is to be said, and shows no secret.
fn is_clear(said: &str) -> Result<()> {
    ensure!(said.contains(AUTH) && said.contains("registry_auth_file"), "{said}");
    ensure!(!said.contains("sesame") && !said.contains("barley"), "a secret is shown: {said}");
    Ok(())
}

fn serves(server: Server) -> Result<()> {
    server.wait_ready(SOON)?;
    server.client()?.next(Order::Fresh)?;
    let log = server.stop()?;
    ensure!(!log.contains("sesame"), "the log shows a secret:\n{log}");
    Ok(())
}

#[test]
fn a_server_without_the_registrys_credentials_or_with_wrong_ones_is_refused() -> Result<()> {
    let fixture = guarded()?;
    is_clear(&Fixture::refused(fixture.serve("data")?)?)?;
    is_clear(&Fixture::refused(fixture.serve("data")?.env(AUTH, WRONG))?)?;
    serves(fixture.serve("data")?.env(AUTH, OURS).start()?)?;
    // The same folder, which has seen it open.
    is_clear(&Fixture::refused(fixture.serve("data")?)?)?;
    serves(fixture.serve("data")?.env(AUTH, OURS).start()?)
}

#[test]
fn credentials_in_a_file_do_as_well() -> Result<()> {
    let fixture = guarded()?;
    let file = fixture.folder("secret");
    for (text, is_right) in [(OURS, true), (WRONG, false)] {
        fs::write(&file, format!("{text}\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        let serve = fixture.serve("data")?.arg("--registry-auth-file").arg(&file);
        let show = fixture.registry("show")?.arg("--registry-auth-file").arg(&file).run()?;
        if is_right {
            serves(serve.start()?)?;
            show.ok()?;
        } else {
            is_clear(&Fixture::refused(serve)?)?;
            is_clear(&show.refused(1)?)?;
        }
    }
    Ok(())
}

#[test]
fn no_command_reads_or_changes_a_guarded_registry_without_its_credentials() -> Result<()> {
    let fixture = guarded()?;
    for wrong in [None, Some(WRONG)] {
        let commands = [
            fixture.registry("show")?,
            fixture.registry("init")?,
            fixture.registry("fence")?.arg("--yes"),
            fixture.registry("adopt")?.arg("--yes"),
            Xuid::new(["workers", "--registry", &fixture.url])?,
        ];
        for command in commands {
            let command = if let Some(auth) = wrong { command.env(AUTH, auth) } else { command };
            let said = command.run()?.refused(1)?;
            println!("{wrong:?}: {}", said.lines().last().unwrap_or_default());
            is_clear(&said)?;
        }
    }
    serves(fixture.serve("data")?.env(AUTH, OURS).start()?)?;
    let shown = fixture.registry("show")?.env(AUTH, OURS).run()?;
    ensure!(!shown.ok()?.contains("damage"), "{}", shown.stdout);
    fixture.registry("fence")?.arg("--yes").env(AUTH, OURS).run()?.ok()?;
    Ok(())
}
