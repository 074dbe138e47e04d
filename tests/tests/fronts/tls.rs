//! TLS at both fronts as at the binary port, by curl and redis-cli: the same certificates, and the same rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Serve, Server, clock, process};

use crate::LONG;

/// What the certificates' owner gives to a client.
#[derive(Clone, Copy)]
struct Shown<'a> {
    ca: &'a Path,
    identity: Option<&'a Identity>,
    token: Option<&'a str>,
}

impl<'a> Shown<'a> {
    fn new(ca: &'a Authority) -> Self {
        Self { ca: &ca.cert, identity: None, token: None }
    }
}

/// A certificate and its key.
struct Identity {
    cert: PathBuf,
    key: PathBuf,
}

/// One that signs others.
type Authority = Identity;

impl Identity {
    fn authority(folder: &Path, name: &str) -> Result<Self> {
        Self::made(folder, name, &["-addext", "basicConstraints=critical,CA:TRUE"])
    }

    fn issue(&self, folder: &Path, name: &str) -> Result<Self> {
        let (ca, key) = (self.cert.to_string_lossy(), self.key.to_string_lossy());
        Self::made(folder, name, &["-CA", &ca, "-CAkey", &key, "-addext", "subjectAltName=IP:127.0.0.1"])
    }

    fn made(folder: &Path, name: &str, more: &[&str]) -> Result<Self> {
        let file = |kind: &str| folder.join(format!("{name}{kind}.pem"));
        let (cert, key, config) = (file(""), file("-key"), folder.join("openssl.cnf"));
        // Without those of the machine, which may add extensions.
        fs::write(&config, "[req]\ndistinguished_name = name\n[name]\n")?;
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        command.args(["-days", "30", "-subj", &format!("/CN={name}")]).args(more);
        command.arg("-config").arg(config).arg("-keyout").arg(&key).arg("-out").arg(&cert);
        let (code, _, stderr) = process::run(command, LONG)?;
        ensure!(code == Some(0), "openssl says: {stderr}");
        Ok(Self { cert, key })
    }
}

/// A server with both fronts, and this certificate.
fn serve(own: &Identity, address: &str) -> Result<Serve> {
    let serve = Serve::fresh()?.arg("--resp").arg(address).arg("--http").arg(address);
    let serve = serve.arg("--sequences").arg("registry").arg("--sequence-create").arg("test:*");
    Ok(serve.arg("--tls-cert").arg(&own.cert).arg("--tls-key").arg(&own.key))
}

/// The next number by HTTPS; none: there was no TLS with this client, and curl said so.
fn curl(server: &Server, shown: Shown<'_>) -> Result<Option<String>> {
    let mut command = Command::new("curl");
    command.args(["-sS", "--cacert"]).arg(shown.ca);
    if let Some(Identity { cert, key }) = shown.identity {
        command.arg("--cert").arg(cert).arg("--key").arg(key);
    }
    if let Some(token) = shown.token {
        command.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    command.arg(format!("https://127.0.0.1:{}/api/segment/get/test:a", server.http()?.port()));
    let (code, stdout, _) = process::run(command, LONG)?;
    Ok((code == Some(0)).then_some(stdout))
}

/// The same by redis-cli.
fn cli(server: &Server, shown: Shown<'_>) -> Result<Option<String>> {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.resp()?.port().to_string(), "--tls", "--cacert"]).arg(shown.ca);
    if let Some(Identity { cert, key }) = shown.identity {
        command.arg("--cert").arg(cert).arg("--key").arg(key);
    }
    if let Some(token) = shown.token {
        command.args(["--no-auth-warning", "-a", token]);
    }
    command.args(["INCR", "test:a"]);
    let (code, stdout, _) = process::run(command, LONG)?;
    Ok((code == Some(0)).then(|| stdout.trim().to_owned()))
}

/// Both get a number, and these are the next two.
fn both_get(server: &Server, shown: Shown<'_>, first: u64) -> Result<()> {
    let got = (curl(server, shown)?, cli(server, shown)?);
    let expected = (Some(first.to_string()), Some((first + 1).to_string()));
    ensure!(got == expected, "{got:?} instead of {expected:?}\n{server}");
    Ok(())
}

fn neither_gets(server: &Server, shown: Shown<'_>) -> Result<()> {
    let got = (curl(server, shown)?, cli(server, shown)?);
    ensure!(got == (None, None), "{got:?}\n{server}");
    Ok(())
}

#[test]
fn both_fronts_speak_tls_where_the_server_does_and_tell_others_so() -> Result<()> {
    let home = TempDir::new()?;
    let (ours, other) =
        (Authority::authority(home.path(), "ours")?, Authority::authority(home.path(), "other")?);
    let server = serve(&ours.issue(home.path(), "server")?, "127.0.0.1:0")?.start()?;
    both_get(&server, Shown::new(&ours), 1)?;
    neither_gets(&server, Shown::new(&other))?;
    let mut plain = Command::new("curl");
    plain.args(["-sS", &format!("http://{}/v1/openapi.json", server.http()?)]);
    let (_, said, _) = process::run(plain, LONG)?;
    ensure!(said.contains("\"status\":400") && said.contains("this port speaks HTTPS only"), "{said}");
    let mut plain = Command::new("redis-cli");
    plain.args(["-p", &server.resp()?.port().to_string(), "PING"]);
    let (_, said, more) = process::run(plain, LONG)?;
    ensure!(said.contains("this port speaks TLS only"), "{said}{more}");
    both_get(&server, Shown::new(&ours), 3)?;
    server.stop().map(drop)
}

#[test]
fn both_fronts_ask_for_a_certificate_where_the_server_does() -> Result<()> {
    let home = TempDir::new()?;
    let (ours, other) =
        (Authority::authority(home.path(), "ours")?, Authority::authority(home.path(), "other")?);
    let own = ours.issue(home.path(), "server")?;
    let server = serve(&own, "127.0.0.1:0")?.arg("--tls-client-ca").arg(&ours.cert).start()?;
    let (client, foreign) = (ours.issue(home.path(), "client")?, other.issue(home.path(), "foreign")?);
    both_get(&server, Shown { identity: Some(&client), ..Shown::new(&ours) }, 1)?;
    neither_gets(&server, Shown::new(&ours))?;
    neither_gets(&server, Shown { identity: Some(&foreign), ..Shown::new(&ours) })?;
    both_get(&server, Shown { identity: Some(&client), ..Shown::new(&ours) }, 3)?;
    server.stop().map(drop)
}

#[test]
fn both_fronts_have_a_new_certificate_after_sighup() -> Result<()> {
    let home = TempDir::new()?;
    let (old, new) = (Authority::authority(home.path(), "old")?, Authority::authority(home.path(), "new")?);
    let own = old.issue(home.path(), "server")?;
    let server = serve(&own, "127.0.0.1:0")?.start()?;
    both_get(&server, Shown::new(&old), 1)?;
    let replaced = new.issue(home.path(), "replaced")?;
    fs::copy(&replaced.cert, &own.cert)?;
    fs::copy(&replaced.key, &own.key)?;
    neither_gets(&server, Shown::new(&new)).context("before the signal")?;
    process::reload(server.child())?;
    clock::wait_until("it is reloaded", LONG, || Ok(server.log().contains("SIGHUP: reloaded")))?;
    both_get(&server, Shown::new(&new), 3)?;
    neither_gets(&server, Shown::new(&old))?;
    server.stop().map(drop)
}

#[test]
fn off_loopback_both_fronts_need_tls_and_a_token_or_a_word_that_they_may_do_without() -> Result<()> {
    const TOKEN: &str = "s3cret";
    let home = TempDir::new()?;
    let ours = Authority::authority(home.path(), "ours")?;
    let own = ours.issue(home.path(), "server")?;
    for front in ["resp", "http"] {
        let at = || Ok::<_, anyhow::Error>(Serve::fresh()?.arg(format!("--{front}")).arg("0.0.0.0:0"));
        let with_tls = |serve: Serve| serve.arg("--tls-cert").arg(&own.cert).arg("--tls-key").arg(&own.key);
        for (serve, lacks) in [
            (at()?, "without TLS and a token"),
            (at()?.env("XUID_TOKEN", TOKEN), "without TLS"),
            (with_tls(at()?), "without a token"),
        ] {
            let refused = serve.run_to_exit()?;
            let said =
                [format!("{front} is bound to 0.0.0.0:"), format!(", which other machines reach, {lacks};")];
            ensure!(refused.code == Some(2), "{refused:?}");
            ensure!(said.iter().all(|said| refused.stderr.contains(said)), "{refused:?}");
        }
        let open = at()?.arg("--insecure-listen").start()?;
        ensure!(open.banner().contains(&format!("insecure: {front} is bound to 0.0.0.0")), "{open}");
        open.stop()?;
    }
    let server = serve(&own, "0.0.0.0:0")?.env("XUID_TOKEN", TOKEN).start()?;
    ensure!(!server.banner().contains("insecure"), "{server}");
    both_get(&server, Shown { token: Some(TOKEN), ..Shown::new(&ours) }, 1)?;
    let refused = curl(&server, Shown::new(&ours))?.context("no answer to a client without a token")?;
    ensure!(refused.contains("\"status\":401"), "{refused}");
    let refused = cli(&server, Shown::new(&ours))?.context("no answer to a client without a token")?;
    ensure!(refused.starts_with("NOAUTH "), "{refused}");
    server.stop().map(drop)
}
