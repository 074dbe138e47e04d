//! What the kernel says about a process, and commands with a time limit.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::clock;

/// Clock ticks of `/proc/PID/stat` in a second: 100 on every Linux of today, whatever the kernel's own rate.
const TICKS_PER_SECOND: f64 = 100.0;

/// Anonymous resident memory in bytes.
pub fn rss_anon(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).context("no RssAnon")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kib * 1024)
}

/// Seconds of processor time used so far, in user and kernel mode.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').context("no command in stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // utime and stime are fields 14 and 15 of the line, 11 and 12 after the command.
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / TICKS_PER_SECOND)
}

/// How long the first thread of a process ran, or could have run while others had the processors. The rest it waited.
pub fn busy(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"))?;
    let mut spans = stat.split_whitespace().map(str::parse::<u64>);
    let mut next = || spans.next().context("no two spans in schedstat");
    Ok(Duration::from_nanos(next()?? + next()??))
}

/// Whether a process of which nobody has heard the end yet has called exit. It has no sockets any more then, although a
/// thread of it may still be inside the kernel.
pub fn has_called_exit(pid: u32) -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').context("no command in stat")?;
    Ok(rest.trim_start().starts_with('Z'))
}

/// Sends SIGTERM.
pub fn terminate(child: &Child) -> Result<()> {
    signal(child, Signal::TERM)
}

/// SIGHUP, at which a server reads its files again.
pub fn reload(child: &Child) -> Result<()> {
    signal(child, Signal::HUP)
}

/// SIGINT.
pub fn interrupt(child: &Child) -> Result<()> {
    signal(child, Signal::INT)
}

/// Stops the process where it stands; none of its threads runs when this returns.
pub fn freeze(child: &Child) -> Result<()> {
    signal(child, Signal::STOP)?;
    clock::wait_until("every thread is stopped", Duration::from_secs(5), || is_stopped(child)).map(drop)
}

fn is_stopped(child: &Child) -> Result<bool> {
    for task in fs::read_dir(format!("/proc/{}/task", child.id()))? {
        // A thread that ended meanwhile does not run either.
        let stat = fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        if state.is_some_and(|state| !"TtZX".contains(state)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stops a process and those that it started.
pub fn freeze_family(child: &Child) -> Result<()> {
    freeze(child)?;
    for pid in children(child.id())? {
        kill_process(Pid::from_raw(i32::try_from(pid)?).context("process id 0")?, Signal::STOP)?;
    }
    Ok(())
}

/// Lets a stopped process and those that it started go on.
pub fn thaw_family(child: &Child) -> Result<()> {
    for pid in children(child.id())? {
        kill_process(Pid::from_raw(i32::try_from(pid)?).context("process id 0")?, Signal::CONT)?;
    }
    thaw(child)
}

/// Kills a process and those that it started, and waits until none of them is there.
pub fn kill_family(child: &mut Child) -> Result<()> {
    // Stopped first, so that it starts no other meanwhile.
    freeze(child)?;
    let children = children(child.id())?;
    child.kill()?;
    child.wait()?;
    for pid in &children {
        // One that has ended already is what is wanted.
        let _ = kill_process(Pid::from_raw(i32::try_from(*pid)?).context("process id 0")?, Signal::KILL);
    }
    // Not before it is a zombie: while it exits it has no executable any more, and still its shared memory.
    clock::wait_until("every child is gone", Duration::from_secs(10), || {
        Ok(children.iter().all(|pid| is_gone(*pid)))
    })?;
    Ok(())
}

fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// The processes that a process started and that have not ended.
fn children(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // One that ended meanwhile is no child.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
        let its_parent = fields.and_then(|mut fields| fields.nth(1)?.parse::<u32>().ok());
        if its_parent == Some(parent) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Lets every user read a folder, and enter it.
pub fn open_to_all(dir: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?)
}

/// Lets a stopped process go on.
pub fn thaw(child: &Child) -> Result<()> {
    signal(child, Signal::CONT)
}

fn signal(child: &Child, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("process id 0")?;
    Ok(kill_process(pid, signal)?)
}

/// Allows this process `wanted` open files, as far as the hard limit goes. Processes started earlier keep theirs.
pub fn allow_open_files(wanted: u64) -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let target = limit.maximum.map_or(wanted, |hard| wanted.min(hard));
    if limit.current.is_some_and(|soft| soft < target) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum: limit.maximum })?;
    }
    Ok(target)
}

/// Waits for the end of a process; past `limit` it is killed and that is an error.
pub fn wait_exit(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let begin = clock::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begin.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("the process did not end within {limit:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a command to its end: exit code (none after a signal), standard output, standard error.
pub fn run(command: Command, limit: Duration) -> Result<(Option<i32>, String, String)> {
    run_fed(command, Stdio::null(), limit)
}

/// The same, with that on its standard input.
pub fn run_fed(mut command: Command, input: Stdio, limit: Duration) -> Result<(Option<i32>, String, String)> {
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let ended = wait_exit(&mut child, limit);
    let (stdout, stderr) = (joined(stdout), joined(stderr));
    let status = ended.with_context(|| format!("{command:?} printed:\n{stdout}\n{stderr}"))?;
    Ok((status.code(), stdout, stderr))
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks ends the text; what was read until then still counts.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn joined(thread: JoinHandle<String>) -> String {
    thread.join().unwrap_or_default()
}
