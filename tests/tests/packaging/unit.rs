//! The unit of systemd, without systemd: its command line, run as another user, and what `systemd-analyze` says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Order, Serve, binary, not_tried, process};

use crate::{install, may_change_user, packaged, state_folder};

const UNIT: &str = "systemd/xuid.service";
const ENVIRONMENT: &str = "systemd/xuid.env";
/// Any user that is not root and owns nothing.
const USER: u32 = 65_534;
const LIMIT: Duration = Duration::from_secs(20);

/// The value of a key that stands once in the unit.
fn setting<'u>(unit: &'u str, key: &str) -> Result<&'u str> {
    let mut values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().with_context(|| format!("no {key} in the unit"))?;
    ensure!(values.next().is_none(), "{key} stands twice in the unit");
    Ok(value)
}

/// The variables of the example, those behind a `#` too: they are to be uncommented.
fn variables(example: &str) -> Vec<(&str, &str)> {
    let given = example.lines().map(|line| line.trim_start_matches('#'));
    given.filter(|line| line.starts_with("XUID_")).filter_map(|line| line.split_once('=')).collect()
}

/// The next message to the manager that is none of the watchdog's.
fn told(manager: &UnixDatagram) -> Result<String> {
    let mut bytes = [0; 512];
    loop {
        let length = manager.recv(&mut bytes).context("no message to the manager")?;
        let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if message != "WATCHDOG=1" {
            return Ok(message);
        }
    }
}

#[test]
fn the_units_command_line_serves_as_its_user_and_tells_its_manager_so() -> Result<()> {
    if !may_change_user("the unit's command as another user")? {
        return Ok(());
    }
    let (unit, example) = (packaged(UNIT)?, packaged(ENVIRONMENT)?);
    ensure!(setting(&unit, "Type")? == "notify");
    let home = TempDir::new()?;
    let program = install(home.path())?;
    let state = home.path().join("var/lib").join(setting(&unit, "StateDirectory")?);
    state_folder(&state, USER)?;
    let above = state.parent().context("no folder above")?.to_string_lossy().into_owned();
    let command = setting(&unit, "ExecStart")?.replace("%S", &above);
    let arguments = command.strip_prefix("/usr/bin/xuid ").context("another program")?;
    ensure!(arguments.contains(&*state.to_string_lossy()), "not in its folder: {arguments}");

    let path = home.path().join("notify");
    let manager = UnixDatagram::bind(&path)?;
    manager.set_read_timeout(Some(LIMIT))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
    let mut serve = Serve::by(&program, arguments.split_whitespace());
    for (name, value) in variables(&example) {
        serve = match name {
            "XUID_LISTEN" | "XUID_ADMIN" => serve.env(name, "127.0.0.1:0"),
            "XUID_REGISTRY" | "XUID_REGISTRY_AUTH" | "XUID_TOKEN" | "XUID_TOKENS" => serve,
            _ => serve.env(name, value),
        };
    }
    let mut server = serve
        .env("XUID_LAME_DUCK", "0")
        .env("NOTIFY_SOCKET", &path.to_string_lossy())
        .env("WATCHDOG_USEC", "1000000")
        .under(
            "setpriv",
            &[
                format!("--reuid={USER}"),
                format!("--regid={USER}"),
                "--clear-groups".to_owned(),
                "--no-new-privs".to_owned(),
                "--inh-caps=-all".to_owned(),
                "--bounding-set=-all".to_owned(),
            ],
        )
        .start()?;
    ensure!(told(&manager)?.starts_with("READY=1\n"), "{server}");
    server.client()?.next(Order::Any)?;
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    ensure!(status.contains(&format!("\nUid:\t{USER}\t{USER}\t")), "{status}");
    ensure!(!server.log().contains("are no settings of xuid"), "{server}");
    process::terminate(server.child())?;
    ensure!(told(&manager)?.starts_with("STOPPING=1\n"), "{server}");
    ensure!(process::wait_exit(server.child_mut(), LIMIT)?.code() == Some(0), "{server}");
    Ok(())
}

#[test]
fn systemd_finds_no_mistake_in_the_unit_and_an_exposure_under_two() -> Result<()> {
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments);
        process::run(command, LIMIT)
    };
    if analyze(&["--version"]).is_err() {
        return not_tried("systemd's own look at the unit", "there is no systemd-analyze here");
    }
    let home = TempDir::new()?;
    let unit = home.path().join("xuid.service");
    // It also looks whether the program is there.
    fs::write(&unit, packaged(UNIT)?.replace("/usr/bin/xuid", &binary()?.to_string_lossy()))?;
    let unit = unit.to_string_lossy();
    let (code, said, wrong) = analyze(&["verify", "--man=no", &unit])?;
    ensure!(code == Some(0) && wrong.is_empty(), "{said}{wrong}");
    // In tenths; with less allowed it fails, or this would show nothing.
    for (threshold, wanted) in [("--threshold=20", Some(0)), ("--threshold=5", Some(1))] {
        let (code, said, wrong) = analyze(&["security", "--offline=true", "--no-pager", threshold, &unit])?;
        ensure!(code == wanted, "{threshold}: {code:?}\n{said}{wrong}");
    }
    Ok(())
}

#[test]
fn the_units_user_is_the_one_that_is_made_and_its_time_to_stop_is_enough() -> Result<()> {
    let unit = packaged(UNIT)?;
    let user = setting(&unit, "User")?;
    ensure!(packaged("systemd/xuid.sysusers.conf")?.contains(&format!("\nu {user} - ")));
    let seconds = |key| -> Result<u64> {
        setting(&unit, key)?.strip_suffix('s').and_then(|time| time.parse().ok()).context("no seconds")
    };
    // A drain of 5 s and a second; a producer may stand still for 5 s.
    ensure!(seconds("TimeoutStopSec")? > 6 && seconds("WatchdogSec")? > 10);
    Ok(())
}
