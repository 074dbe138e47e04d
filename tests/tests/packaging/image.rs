//! The Dockerfile. No container engine is needed: the steps of its last stage are repeated in an empty folder, with the
//! libraries that the image's base has, and the image's command runs there as the image's user.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Order, Serve, process};

use crate::{install, may_change_user, packaged, state_folder};

const LIMIT: Duration = Duration::from_secs(20);

/// The last stage: its lines, with those that go on joined.
pub(crate) struct Image(Vec<String>);

impl Image {
    pub(crate) fn read() -> Result<Self> {
        let text = packaged("container/Dockerfile")?.replace("\\\n", " ");
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        let last = lines.iter().rposition(|line| line.starts_with("FROM ")).context("no stage")?;
        Ok(Self(lines[last..].to_vec()))
    }

    /// What stands behind each `word`.
    fn all<'i>(&'i self, word: &str) -> Vec<&'i str> {
        self.0.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    }

    fn one<'i>(&'i self, word: &str) -> Result<&'i str> {
        let [value] = self.all(word)[..] else { anyhow::bail!("{word} has to stand once in the last stage") };
        Ok(value)
    }

    /// A command in the form that takes no shell.
    fn command(&self, word: &str) -> Result<Vec<String>> {
        let text = self.one(word)?;
        let list = &text[text.find('[').context("a command for a shell, and there is none")?..];
        serde_json::from_str(list).with_context(|| format!("{word} {text}"))
    }

    /// The arguments of the image's program behind its name, with `command` in place of the image's own if it is given.
    pub(crate) fn arguments(&self, command: Option<Vec<String>>) -> Result<Vec<String>> {
        let mut words = self.command("ENTRYPOINT")?;
        ensure!(words.remove(0) == "/usr/bin/xuid");
        words.extend(command.map_or_else(|| self.command("CMD"), Ok)?);
        Ok(words)
    }

    /// The variables of the image, by which it listens everywhere on the ports that it exposes.
    pub(crate) fn variables(&self) -> Result<Vec<(&str, &str)>> {
        let pairs = self.all("ENV").into_iter().map(|pair| pair.split_once('=').context("no value"));
        let pairs: Vec<_> = pairs.collect::<Result<_>>()?;
        let exposed = self.one("EXPOSE")?;
        for (name, value) in &pairs {
            if let Some(port) = value.strip_prefix("0.0.0.0:") {
                ensure!(exposed.split(' ').any(|open| open == port), "{name} is not exposed");
            }
        }
        Ok(pairs)
    }
}

/// The libraries of a program, as files below `root`: the C library of the image's base.
fn bring_libraries(program: &Path, root: &Path) -> Result<()> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program);
    let (_, text, _) = process::run(ldd, LIMIT)?;
    for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(&path[1..]);
        fs::create_dir_all(to.parent().context("no folder above")?)?;
        fs::copy(path, to).with_context(|| format!("copying {path}"))?;
    }
    Ok(())
}

#[test]
fn the_last_stage_serves_as_its_user_in_a_folder_that_has_no_shell() -> Result<()> {
    if !may_change_user("the image's last stage in an empty folder")? {
        return Ok(());
    }
    let image = Image::read()?;
    ensure!(image.all("RUN").is_empty(), "there is no shell to run it");
    ensure!(image.one("STOPSIGNAL")? == "SIGTERM");
    let copied = image.all("COPY").join("\n");
    ensure!(
        copied.contains(" /usr/bin/xuid\n") && copied.ends_with("--chown=65532:65532 /out/state/ /var/lib/")
    );
    let (user, group) = image.one("USER")?.split_once(':').context("no group")?;
    let user: u32 = user.parse().context("an orchestrator cannot see that a name is not root's")?;
    ensure!(user == 65_532 && group == "65532");

    let root = TempDir::new()?;
    let program = install(root.path())?;
    bring_libraries(&program, root.path())?;
    let volume: Vec<String> = serde_json::from_str(image.one("VOLUME")?)?;
    let [folder] = &volume[..] else { anyhow::bail!("one volume: {volume:?}") };
    state_folder(&root.path().join(&folder[1..]), user)?;
    let inside = [
        "--groups=".to_owned(),
        format!("--userspec={user}:{group}"),
        root.path().to_string_lossy().into_owned(),
    ];
    let mut serve = Serve::by(Path::new("/usr/bin/xuid"), image.arguments(None)?);
    for (name, value) in image.variables()? {
        let value = if value.starts_with("0.0.0.0:") { "127.0.0.1:0" } else { value };
        serve = serve.env(name, value);
    }
    let server = serve.under("chroot", &inside).start()?;
    server.client()?.next(Order::Any)?;
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    ensure!(status.contains(&format!("\nUid:\t{user}\t{user}\t")), "{status}");
    ensure!(!server.log().contains(" WARN "), "{server}");

    let check = image.command("HEALTHCHECK")?;
    let healthy = |address: String| {
        let mut command = Command::new("chroot");
        command.args(&inside).args(&check).env("XUID_SERVER", address);
        process::run(command, LIMIT)
    };
    let (code, said, wrong) = healthy(server.addr.to_string())?;
    ensure!(code == Some(0) && said.trim().parse::<u64>().is_ok(), "{said}{wrong}");
    let address = server.addr.to_string();
    server.stop()?;
    ensure!(healthy(address)?.0 == Some(1), "a server that is gone is not healthy");
    ensure!(root.path().join(&folder[1..]).join("node.json").exists(), "it kept its data elsewhere");
    Ok(())
}
