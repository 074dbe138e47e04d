//! A real server for a test, a hand in its tree, and a way to it that notes what is asked.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode};

use super::super::target::ZooKeeperUrl;
use crate::clock::boot_ns;

/// Where Debian's and Ubuntu's packages put them; `tests/run` installs them.
const JARS: &str = "zookeeper.jar:zookeeper-jute.jar:slf4j-api.jar:slf4j-log4j12.jar:log4j-1.2.jar";

/// A start takes half a second; on a busy machine more.
const LONG: Duration = Duration::from_secs(40);

pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = boot_ns();
    while !condition() {
        assert!(boot_ns() - begun < LONG.as_nanos() as u64, "{what}: not within {LONG:?}");
        sleep(Duration::from_millis(20));
    }
}

/// One server. It ends with the value.
pub(super) struct Ensemble {
    port: u16,
    child: Child,
    runtime: Runtime,
    _home: TempDir,
}

impl Ensemble {
    pub(super) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With these properties of Java's.
    pub(super) fn start_with(properties: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let config = home.path().join("zoo.cfg");
        let data = home.path().join("data");
        let text = format!(
            "tickTime=200\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
             minSessionTimeout=400\nmaxSessionTimeout=60000\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
             forceSync=no\npreAllocSize=1024\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let jars: Vec<_> = JARS.split(':').map(|jar| format!("/usr/share/java/{jar}")).collect();
        let jars = std::env::var("XUID_ZOOKEEPER_JARS")
            .map_or_else(|_| jars.join(":"), |folder| format!("{folder}/*"));
        // The kernel ends it with the thread that started it, which is this test's.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "java", "-Xmx128m", "-XX:+UseSerialGC"]);
        command.args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-cp", &jars]);
        command.args(properties).arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&config);
        let log = File::create(home.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("no ZooKeeper: tests/run installs it ({error})"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ensemble = Self { port, child, runtime, _home: home };
        until("a server of ZooKeeper, which tests/run installs", || ensemble.is_serving());
        ensemble
    }

    fn is_serving(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut answer = String::new();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        // "imok" comes before it serves.
        stream.write_all(b"srvr").is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.contains("Mode: standalone")
    }

    pub(super) fn url(&self) -> ZooKeeperUrl {
        url(self.port)
    }

    fn with<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, zookeeper_client::Error>) -> T {
        self.with_below("/xuid", work)
    }

    fn with_below<T>(
        &self,
        root: &str,
        work: impl AsyncFnOnce(Client) -> Result<T, zookeeper_client::Error>,
    ) -> T {
        self.runtime
            .block_on(async {
                let client = Client::connect(&format!("127.0.0.1:{}{root}", self.port)).await?;
                work(client).await
            })
            .unwrap()
    }

    /// No node can be made from now on. For a server that enforces quotas.
    pub(super) fn fill(&self) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let limit = |count: &str| format!("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit={count}");
        let [quota, limits, stats] =
            ["", "/zookeeper_limits", "/zookeeper_stats"].map(|path| format!("/zookeeper/quota/xuid{path}"));
        self.with_below("", async |client| {
            client.create(&quota, b"", &options).await?;
            client.create(&limits, limit("-1").as_bytes(), &options).await?;
            client.create(&stats, b"count=0,bytes=0", &options).await?;
            // As the server has counted them.
            let counted = String::from_utf8(client.get_data(&stats).await?.0).unwrap();
            let count = counted.strip_prefix("count=").and_then(|rest| rest.split(',').next()).unwrap();
            client.set_data(&limits, limit(count).as_bytes(), None).await.map(drop)
        });
    }

    /// Makes a node anew with that data: its version is 0 again.
    pub(super) fn replace(&self, path: &str, data: &[u8]) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.with(async |client| {
            client.delete(path, None).await?;
            client.create(path, data, &options).await.map(drop)
        });
    }

    pub(super) fn create(&self, path: &str, data: &[u8]) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.with(async |client| client.create(path, data, &options).await.map(drop));
    }

    pub(super) fn delete(&self, path: &str) {
        self.with(async |client| client.delete(path, None).await);
    }

    pub(super) fn children(&self, path: &str) -> Vec<String> {
        self.with(async |client| client.list_children(path).await)
    }

    pub(super) fn data(&self, path: &str) -> Vec<u8> {
        self.with(async |client| client.get_data(path).await).0
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Below the ports that Linux gives to outgoing connections: one of those may connect to itself while nothing listens.
fn free_port() -> u16 {
    let ports = std::iter::repeat_with(|| 12_000 + (getrandom::u32().unwrap() % 20_000) as u16);
    ports.take(1_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

fn url(port: u16) -> ZooKeeperUrl {
    format!("zookeeper://127.0.0.1:{port}/xuid").parse().unwrap()
}

/// A way to a server that notes the operation of each request.
pub(super) struct Recorder {
    port: u16,
    /// Connections on which something was asked.
    pub(super) connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<Vec<i32>>>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    held: Held,
}

/// After which operation a connection passes nothing on, and whether one does not now.
type Held = Arc<(AtomicI32, AtomicBool)>;

impl Recorder {
    pub(super) fn before(ensemble: &Ensemble) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let recorder = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            asked: Arc::default(),
            open: Arc::default(),
            held: Arc::default(),
        };
        let (connections, asked, open, server) =
            (recorder.connections.clone(), recorder.asked.clone(), recorder.open.clone(), ensemble.port);
        let held = recorder.held.clone();
        // It ends with the process: a test has few.
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                open.lock().unwrap().push(client.try_clone().unwrap());
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (connections, asked, held) = (connections.clone(), asked.clone(), held.clone());
                spawn(move || pass_on(client, server, &connections, &asked, &held));
            }
        });
        recorder
    }

    pub(super) fn url(&self) -> ZooKeeperUrl {
        url(self.port)
    }

    /// Ends every connection there is.
    pub(super) fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// What is asked after that operation on the same connection waits until another one is named.
    pub(super) fn hold_after(&self, operation: i32) {
        self.held.0.store(operation, SeqCst);
    }

    /// Whether something waits.
    pub(super) fn is_held(&self) -> bool {
        self.held.1.load(SeqCst)
    }

    /// The operations asked for on each connection, in their order.
    pub(super) fn requests(&self) -> Vec<Vec<i32>> {
        self.asked.lock().unwrap().clone()
    }
}

/// Passes frames on: four bytes of length, then those of a request, which begin with its number and its operation. The
/// first of a connection is none.
fn pass_on(
    mut from: TcpStream,
    mut to: TcpStream,
    connections: &AtomicUsize,
    asked: &Mutex<Vec<Vec<i32>>>,
    held: &(AtomicI32, AtomicBool),
) -> Option<()> {
    let (mut at, mut frames, mut last) = (None, 0, 0);
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut frame).ok()?;
        frames += 1;
        if frames > 1 {
            let mut asked = asked.lock().unwrap();
            let at = *at.get_or_insert_with(|| {
                asked.push(Vec::new());
                connections.fetch_add(1, SeqCst);
                asked.len() - 1
            });
            let operation = i32::from_be_bytes(frame.get(4..8)?.try_into().ok()?);
            asked[at].push(operation);
            drop(asked);
            while last != 0 && held.0.load(SeqCst) == last {
                held.1.store(true, SeqCst);
                sleep(Duration::from_millis(1));
            }
            last = operation;
        }
        to.write_all(&length).ok()?;
        to.write_all(&frame).ok()?;
    }
}
