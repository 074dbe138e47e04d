//! The compose file, by a parser of YAML: each of its servers runs as a process, by the command line and the variables
//! that it has there, on one private ZooKeeper in place of the three.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::zookeeper::Ensemble;
use xuid_tests::{Ledger, Serve, Xuid, process};
use yaml_rust2::{Yaml, YamlLoader};

use crate::image::Image;
use crate::packaged;

/// A lame duck of some seconds, a drain of 5 s and a second.
const LIMIT: Duration = Duration::from_secs(20);

/// A field of a mapping, or of the one that is merged into it (`<<`).
fn field<'y>(mapping: &'y Yaml, name: &str) -> &'y Yaml {
    match &mapping[name] {
        Yaml::BadValue if !mapping["<<"].is_badvalue() => field(&mapping["<<"], name),
        found => found,
    }
}

fn words(list: &Yaml) -> Vec<String> {
    list.as_vec().into_iter().flatten().filter_map(Yaml::as_str).map(str::to_owned).collect()
}

struct Compose(Yaml);

impl Compose {
    fn read() -> Result<Self> {
        let documents = YamlLoader::load_from_str(&packaged("container/compose.yaml")?)?;
        Ok(Self(documents.into_iter().next().context("an empty file")?))
    }

    fn service(&self, name: &str) -> &Yaml {
        &self.0["services"][name]
    }

    /// The services of an image, by name.
    fn of_image(&self, image: &str) -> Result<Vec<(&str, &Yaml)>> {
        let services = self.0["services"].as_hash().context("no services")?;
        let named = services.iter().filter_map(|(name, service)| Some((name.as_str()?, service)));
        let is_of =
            |service: &Yaml| field(service, "image").as_str().is_some_and(|found| found.starts_with(image));
        Ok(named.filter(|(_, service)| is_of(service)).collect())
    }

    /// The hosts of the registry, as the commands write them. Each is a service, and one of the ensemble.
    fn hosts(&self) -> Result<String> {
        let nodes = self.of_image("zookeeper:")?;
        ensure!(nodes.len() == 3, "{} nodes", nodes.len());
        let mut own = BTreeSet::new();
        for (name, node) in &nodes {
            let environment = field(node, "environment");
            let members = field(environment, "ZOO_SERVERS").as_str().context("no ZOO_SERVERS")?;
            let number = field(environment, "ZOO_MY_ID").as_i64().context("no ZOO_MY_ID")?;
            let member = format!("server.{number}={name}:2888:3888;2181");
            ensure!(members.split(' ').any(|found| found == member), "{name} is not {member} of {members}");
            own.insert(number);
        }
        ensure!(own.len() == 3, "two nodes have one number");
        let hosts: Vec<String> = nodes.iter().map(|(name, _)| format!("{name}:2181")).collect();
        Ok(hosts.join(","))
    }
}

#[test]
fn each_server_of_the_compose_file_serves_ids_of_its_own_by_its_command_line() -> Result<()> {
    let (image, compose) = (Image::read()?, Compose::read()?);
    let hosts = compose.hosts()?;
    let ensemble = Ensemble::start(1)?;
    let arguments = |service: &Yaml| -> Result<Vec<String>> {
        let words = image.arguments(Some(words(field(service, "command"))))?;
        ensure!(words.iter().any(|word| word.contains(&hosts)), "another registry: {words:?}");
        Ok(words.iter().map(|word| word.replace(&hosts, &ensemble.connect_string())).collect())
    };
    let init = compose.service("init");
    ensure!(words(field(init, "profiles")) == ["init"], "it would run whenever the servers are started");
    Xuid::new(arguments(init)?)?.run()?.ok()?;

    let home = TempDir::new()?;
    let (mut servers, mut volumes) = (Vec::new(), BTreeSet::new());
    let named = compose.of_image("xuid")?;
    for (name, service) in named.iter().filter(|(name, _)| *name != "init") {
        let mut serve = Serve::exactly(arguments(service)?)?;
        for (variable, value) in image.variables()? {
            let value = match value {
                "/var/lib/xuid" => home.path().join(name).to_string_lossy().into_owned(),
                value if value.starts_with("0.0.0.0:") => "127.0.0.1:0".to_owned(),
                value => value.to_owned(),
            };
            serve = serve.env(variable, &value);
        }
        let mounted = words(field(service, "volumes"));
        let [volume] = &mounted[..] else { anyhow::bail!("{name} has {mounted:?}") };
        let volume = volume.strip_suffix(":/var/lib/xuid").context("mounted elsewhere")?;
        ensure!(!compose.0["volumes"][volume].is_badvalue(), "{volume} is no volume of the file");
        ensure!(volumes.insert(volume.to_owned()), "two servers have the volume {volume}");
        servers.push(serve.start().with_context(|| (*name).to_owned())?);
    }
    ensure!(servers.len() == 3, "{} servers", servers.len());
    let mut ledger = Ledger::default();
    for server in &servers {
        server.wait_ready(LIMIT)?;
        server.drain(50_000, &mut ledger)?;
    }
    println!("compose: {}", ledger.check()?);
    for server in &servers {
        process::terminate(server.child())?;
    }
    for server in &mut servers {
        let status = process::wait_exit(server.child_mut(), LIMIT)?;
        ensure!(status.code() == Some(0), "a clean stop ended with {status:?}\n{server}");
    }
    Ok(())
}
