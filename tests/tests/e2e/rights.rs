//! Who may open what lies in a data folder: its user alone, so that no other user's lock stops a server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Ledger, Serve, Server, Xuid, folder, not_tried, process};

fn mode(path: &Path) -> Result<u32> {
    let found = fs::metadata(path).with_context(|| format!("{}", path.display()))?;
    Ok(found.permissions().mode() & 0o7777)
}

fn set(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// The folder and all that is in it has these modes, and there is something.
fn all_have(data: &Path, of_folder: u32, of_files: u32) -> Result<()> {
    ensure!(mode(data)? == of_folder, "{} has {:o}", data.display(), mode(data)?);
    let files = folder::files(data, "")?;
    ensure!(files.len() >= 5, "registry, seat, what is known, spill and node.json: {files:?}");
    for path in files {
        ensure!(mode(&path)? == of_files, "{} has {:o}", path.display(), mode(&path)?);
    }
    Ok(())
}

#[test]
fn a_folder_is_made_for_its_user_alone_whatever_the_umask_and_stays_so_through_a_fence() -> Result<()> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    let open: Vec<String> = ["-c", "umask 000; exec \"$@\"", "sh"].map(str::to_owned).into();
    let server = Serve::new(&data)?.under("sh", &open).start()?;
    server.drain(1_000, &mut Ledger::default())?;
    all_have(&data, 0o700, 0o600)?;
    server.stop()?;
    Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run()?.ok()?;
    all_have(&data, 0o700, 0o600)?;
    set(home.path(), 0o755)?;
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid=65534", "--clear-groups", "--regid=65534", "flock", "-n"]);
    stranger.arg(data.join("registry")).arg("true");
    let (code, _, said) = process::run(stranger, Duration::from_secs(5))?;
    if code == Some(127) || said.contains("setpriv: ") {
        return not_tried("another user's lock", "this user may not become another one");
    }
    ensure!(code != Some(0), "another user locked the registry");
    Ok(())
}

#[test]
fn a_folder_of_wider_rights_is_narrowed_at_a_start_or_the_log_says_why_not() -> Result<()> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    Server::start(&data)?.stop()?;
    let widen = || -> Result<()> {
        set(&data, 0o755)?;
        folder::files(&data, "")?.iter().try_for_each(|path| set(path, 0o644))
    };
    widen()?;
    let log = Server::start(&data)?.stop()?;
    ensure!(!log.contains("other users have rights"), "{log}");
    all_have(&data, 0o700, 0o600)?;

    widen()?;
    fs::write(data.join("notes.txt"), "")?;
    set(&data.join("notes.txt"), 0o644)?;
    let log = Server::start(&data)?.stop()?;
    let told = log.lines().find(|line| line.contains("other users have rights")).context(log.clone())?;
    ensure!(told.contains("WARN") && told.contains("notes.txt"), "{told}");
    ensure!((mode(&data)?, mode(&data.join("notes.txt"))?) == (0o755, 0o644), "what is others' was changed");
    ensure!(mode(&data.join("registry"))? == 0o600, "the registry is open still");
    Ok(())
}
