//! What one ZooKeeper server is started from: its folder, and Java's command line.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use super::spawner;

/// Where Debian's and Ubuntu's packages put them. Without the two of log4j a server runs and logs nothing.
const JARS: &str = "zookeeper.jar zookeeper-jute.jar slf4j-api.jar slf4j-log4j12.jar log4j-1.2.jar";
const JAR_FOLDER: &str = "/usr/share/java";
/// Names a folder of jars instead: the `lib` of Apache's own archive, where a system has no package.
const JARS_VARIABLE: &str = "XUID_ZOOKEEPER_JARS";

/// Logins by SASL, by DIGEST-MD5.
#[derive(Debug, Clone, Copy)]
pub struct Sasl {
    /// The user that there is, and the password.
    pub user: (&'static str, &'static str),
    /// What becomes of clients that are not logged in: a property of Java, or none for the server's default.
    pub strictness: &'static str,
}

impl Sasl {
    /// Only clients that are logged in are served.
    pub const REQUIRED: &str = "zookeeper.sessionRequireClientSASLAuth";
    /// Clients whose login failed are served like those that never tried.
    pub const LAX: &str = "zookeeper.allowSaslFailedClients";

    /// What tells Java of them; writes the file that it names.
    fn options(&self, dir: &Path) -> Result<Vec<String>> {
        let file = dir.join("jaas.conf");
        let (user, password) = self.user;
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        fs::write(&file, format!("Server {{ {module} user_{user}=\"{password}\"; }};\n"))?;
        let mut options = vec![
            format!("-Djava.security.auth.login.config={}", file.display()),
            "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
                .to_owned(),
        ];
        if !self.strictness.is_empty() {
            options.push(format!("-D{}=true", self.strictness));
        }
        Ok(options)
    }
}

/// Writes a node's folder: its number, its configuration with the ensemble's members, and what it logs.
pub(super) fn prepare(dir: &Path, number: usize, port: u16, members: &str) -> Result<()> {
    fs::create_dir_all(dir.join("data"))?;
    fs::write(dir.join("data/myid"), format!("{number}\n"))?;
    fs::write(dir.join("zoo.cfg"), format!("{}{members}", config(dir, port)))?;
    fs::write(dir.join("log4j.properties"), LOGS)?;
    Ok(())
}

/// The command that runs the server of a folder, logging to its file `log`.
pub(super) fn command(dir: &Path, sasl: Option<&Sasl>) -> Result<Command> {
    let log = File::options().create(true).append(true).open(dir.join("log"))?;
    let mut java = spawner::mortal("java");
    // A heap and compilers for a tree of some thousand nodes; they keep three servers small on two cores.
    java.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    java.arg(format!("-Dlog4j.configuration=file:{}", dir.join("log4j.properties").display()));
    java.args(sasl.map(|sasl| sasl.options(dir)).transpose()?.unwrap_or_default());
    java.args(["-cp", &class_path()?, "org.apache.zookeeper.server.quorum.QuorumPeerMain"]);
    java.arg(dir.join("zoo.cfg"));
    java.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(java)
}

/// What Java has to load.
fn class_path() -> Result<String> {
    if let Ok(folder) = env::var(JARS_VARIABLE) {
        return Ok(format!("{folder}/*"));
    }
    let jars: Vec<String> = JARS.split(' ').map(|jar| format!("{JAR_FOLDER}/{jar}")).collect();
    for jar in &jars {
        ensure!(Path::new(jar).exists(), "no {jar}: tests/run installs zookeeper, or set {JARS_VARIABLE}");
    }
    Ok(jars.join(":"))
}

/// Ticks of 200 ms make sessions as short as 400 ms possible, and elections quick. Nothing here survives a power
/// cut, and nothing has to: `forceSync=no` spares a sync a write.
fn config(dir: &Path, port: u16) -> String {
    format!(
        "tickTime=200\ninitLimit=20\nsyncLimit=10\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         minSessionTimeout=400\nmaxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n\
         4lw.commands.whitelist=*\nforceSync=no\npreAllocSize=1024\n",
        dir.join("data").display()
    )
}

/// Everything to standard output, which is the node's file `log`.
const LOGS: &str = "log4j.rootLogger=INFO, CONSOLE\n\
    log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender\n\
    log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout\n\
    log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %-5p %C{1}: %m%n\n";
