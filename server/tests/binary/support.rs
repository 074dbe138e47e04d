//! Starting the binary and waiting for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use xuid_protocol::{Hello, PREFACE, ParsedReply, Reply, parse_reply, request_hello};

/// Nothing here takes longer, on a busy machine either.
const LIMIT: Duration = Duration::from_secs(30);

/// A command of the binary, without the settings of whoever runs the tests.
pub(crate) fn xuid(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xuid"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("XUID_")) {
        command.env_remove(name);
    }
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    xuid(args).output().unwrap()
}

/// Runs a command by the shell, which gets it as `"$@"`: `"$@" >&-`. One that hangs ends with 124.
pub(crate) fn shell(script: &str, args: &[&str]) -> Output {
    let command = xuid(args);
    let mut shell = Command::new("timeout");
    shell.args([&LIMIT.as_secs().to_string(), "sh", "-c", script, "sh"]).arg(command.get_program());
    for (name, _) in command.get_envs() {
        shell.env_remove(name);
    }
    shell.args(command.get_args()).stdin(Stdio::null()).output().unwrap()
}

/// What it wrote to standard output.
pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Exit code and standard error of a command that fails.
pub(crate) fn failure(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A server on free ports; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Server {
    /// Starts one on this folder and reads its first line.
    pub(crate) fn start(folder: &Path, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        Self::start_at(&ports, folder, more, variables, Stdio::null())
    }

    /// Starts one where it is told to listen, whose log goes there.
    pub(crate) fn start_at(
        ports: &[&str],
        folder: &Path,
        more: &[&str],
        variables: &[(&str, &str)],
        log: impl Into<Stdio>,
    ) -> Self {
        let mut command = xuid(&["serve", "--data-dir"]);
        command.arg(folder).args(ports).args(more).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let mut found = first.split([' ', ',', '/', '\n']).filter_map(|word| word.parse().ok());
        let (addr, admin) = (found.next().expect(&first), found.next().expect(&first));
        Self { child, addr, admin }
    }

    /// One that was started elsewhere, and is where it was told to be.
    pub(crate) fn of(child: Child, addr: SocketAddr, admin: SocketAddr) -> Self {
        Self { child, addr, admin }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Its exit code, when it ends by itself.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let begin = now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begin.elapsed() < LIMIT, "it did not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that sent preface and HELLO.
pub(crate) fn greet(addr: SocketAddr, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = PREFACE.to_vec();
    request_hello(&mut bytes, 1, &Hello { token: token.as_bytes(), ..Hello::new("test") }).unwrap();
    stream.write_all(&bytes).unwrap();
    stream
}

/// Reads one frame and says what it is.
pub(crate) fn reply<T>(stream: &mut TcpStream, look: impl FnOnce(&Reply<'_>) -> T) -> T {
    let mut bytes = Vec::new();
    loop {
        match parse_reply(&bytes, 1 << 24).unwrap() {
            ParsedReply::Incomplete { need } => {
                let begin = bytes.len();
                bytes.resize(need, 0);
                stream.read_exact(&mut bytes[begin..]).unwrap();
            }
            ParsedReply::Frame { reply, .. } => return look(&reply),
        }
    }
}

/// Tries until it is so.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `GET path` of the admin port: status and body.
pub(crate) fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    // In one piece: a port that speaks TLS answers the first byte.
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a test measures real time")]
    Instant::now()
}
