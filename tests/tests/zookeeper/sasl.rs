//! Logins by SASL: they work, also after the connection and the session were lost, and where one does not the ensemble's
//! part and ours are told apart.

use anyhow::{Context, Result, ensure};
use xuid_tests::zookeeper::{Sasl, Tamper};
use xuid_tests::{Order, Serve, Server, Xuid, clock};

use crate::fixture::{Fixture, SOON, sum, wait_refusing, worker};

const AUTH: &str = "XUID_REGISTRY_AUTH";
const SCHEME: &str = "XUID_REGISTRY_AUTH_SCHEME";
const OURS: &str = "xuid:open sesame";
const WRONG: &str = "xuid:open barley";
const UNKNOWN: &str = "nobody:open barley";

/// Knows [`OURS`], and serves others too.
const OPTIONAL: Sasl = Sasl { user: ("xuid", "open sesame"), strictness: "" };

/// What is said of a login that is refused, of one that counts for nothing, and where there is none.
const REJECTED: &str = "refuses the login by SASL: it does not know the user, or the password is another";
const IGNORED: &str = "let this process in without a login by SASL: its servers have no SASL";
const WANTED: &str = "lets in only clients that log in: set registry_auth_scheme to sasl";

/// A registry that was made by a user who is logged in.
fn guarded(sasl: Sasl) -> Result<Fixture> {
    let fixture = Fixture::with_logins(Some(sasl))?;
    let init = fixture.registry("init")?.arg("--workers").arg("8");
    init.env(AUTH, OURS).env(SCHEME, "sasl").run()?.ok()?;
    Ok(fixture)
}

fn serve(fixture: &Fixture, auth: &str) -> Result<Serve> {
    Ok(fixture.serve("data")?.env(AUTH, auth).arg("--registry-auth-scheme").arg("sasl"))
}

/// A server of the registry's user, with all that the client has to say in its log.
fn start(fixture: &Fixture) -> Result<Server> {
    let server = serve(fixture, OURS)?.arg("--log").arg("debug,zookeeper_client=trace").start()?;
    serves(&server)?;
    Ok(server)
}

fn shows_no_secret(said: &str) -> Result<()> {
    ensure!(!said.contains("sesame") && !said.contains("barley"), "a secret is shown: {said}");
    Ok(())
}

/// It ends, says this, and names where user and password are said.
fn is_refused(serve: Serve, why: &str) -> Result<()> {
    is_clear(&Fixture::refused(serve)?, why)
}

fn is_clear(said: &str, why: &str) -> Result<()> {
    ensure!(said.contains(why), "{why:?} is not in: {said}");
    ensure!(why == IGNORED || said.contains(AUTH) && said.contains("registry_auth_file"), "{said}");
    shows_no_secret(said)
}

/// It has a window, or gets one soon.
fn serves(server: &Server) -> Result<()> {
    let mut client = server.client()?;
    let waited = clock::wait_until("a fresh id", SOON, || Ok(client.try_next(Order::Fresh)?.is_some()));
    waited.map(drop).with_context(|| format!("{server}"))
}

fn stop(server: Server) -> Result<()> {
    shows_no_secret(&server.stop()?)
}

#[test]
fn a_server_that_is_logged_in_goes_on_after_its_session_and_its_connection_were_lost() -> Result<()> {
    let mut fixture = guarded(OPTIONAL)?;
    let server = start(&fixture)?;
    let live = Fixture::node(&format!("live/{}", worker(&server)?));
    let before = fixture.tamper.expect(&live)?.stat.ephemeral_owner;

    fixture.tamper.expire_owner(&live)?;
    clock::wait_until("the worker is announced by another session", SOON, || {
        Ok(fixture.tamper.read(&live)?.is_some_and(|node| node.stat.ephemeral_owner != before))
    })?;
    fixture.ensemble.restart_with(Some(OPTIONAL))?;
    let renewals = sum(&server, &["xuid_registry_reserve_seconds_count"])?;
    clock::wait_until("a window is renewed over the new connection", SOON, || {
        Ok(sum(&server, &["xuid_registry_reserve_seconds_count"])? > renewals)
    })?;
    serves(&server)?;

    // What was made over all this is the user's alone.
    let stranger = Tamper::connect(&fixture.ensemble.connect_string())?;
    for path in ["genesis", "clock", "w/7"] {
        let read = stranger.read(&Fixture::node(path));
        ensure!(read.is_err_and(|error| error.to_string().contains("not authorized")), "{path} is open");
    }
    ensure!(stranger.read(&live).is_err(), "{live} is open");
    stop(server)
}

#[test]
fn a_login_that_is_refused_ends_a_start_and_every_command_and_says_why() -> Result<()> {
    let fixture = guarded(OPTIONAL)?;
    is_refused(serve(&fixture, WRONG)?, REJECTED)?;
    is_refused(serve(&fixture, UNKNOWN)?, REJECTED)?;
    let commands = [
        fixture.registry("show")?,
        fixture.registry("init")?,
        fixture.registry("fence")?.arg("--yes"),
        fixture.registry("adopt")?.arg("--yes"),
        Xuid::new(["workers", "--registry", &fixture.url])?,
    ];
    for command in commands {
        let said = command.env(AUTH, WRONG).env(SCHEME, "sasl").run()?.refused(1)?;
        is_clear(&said, REJECTED)?;
    }
    // Of another scheme: a user, but not that of the registry.
    is_refused(fixture.serve("data")?.env(AUTH, OURS), "registry_auth_scheme")?;
    stop(start(&fixture)?)
}

#[test]
fn an_ensemble_that_wants_logins_says_so_to_those_who_come_without() -> Result<()> {
    let fixture = guarded(Sasl { strictness: Sasl::REQUIRED, ..OPTIONAL })?;
    is_refused(fixture.serve("data")?, WANTED)?;
    is_refused(fixture.serve("data")?.env(AUTH, OURS), WANTED)?;
    is_refused(serve(&fixture, WRONG)?, REJECTED)?;
    stop(start(&fixture)?)
}

#[test]
fn a_login_that_counts_for_nothing_is_refused_before_anything_is_made() -> Result<()> {
    // Once without SASL, and once where a login that failed does no harm.
    for (sasl, auth) in [(None, OURS), (Some(Sasl { strictness: Sasl::LAX, ..OPTIONAL }), WRONG)] {
        let fixture = Fixture::with_logins(sasl)?;
        let init = fixture.registry("init")?.env(AUTH, auth).env(SCHEME, "sasl").run()?;
        is_clear(&init.refused(1)?, IGNORED)?;
        ensure!(fixture.tamper.children("/")? == ["zookeeper"], "{:?}", fixture.tamper.children("/")?);
        // A registry that is open to everybody is none of the user's either.
        fixture.init(&[])?;
        is_refused(serve(&fixture, auth)?, IGNORED)?;
    }
    Ok(())
}

#[test]
fn a_server_whose_login_fails_in_use_says_so_and_goes_on_once_it_does_not() -> Result<()> {
    let mut fixture = guarded(OPTIONAL)?;
    let server = start(&fixture)?;
    let other = Sasl { user: ("xuid", "open barley"), ..OPTIONAL };
    for (sasl, why) in [(None, IGNORED), (Some(other), REJECTED)] {
        fixture.ensemble.restart_with(sasl)?;
        wait_refusing(&server, &[why])?;
        ensure!(sum(&server, &["xuid_registry_state", "refused"])? > 0.0, "another state\n{server}");
    }
    fixture.ensemble.restart_with(Some(OPTIONAL))?;
    serves(&server)?;
    stop(server)
}
