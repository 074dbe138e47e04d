//! How many connections there may be: as many as are wanted, or as descriptors and memory allow.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Connections to the admin port at a time: there are never so many probes and people.
const PROBES: u64 = 64;

/// Connections of clients that are refused and closed with care at a time.
const FAREWELLS: u64 = 64;

/// Descriptors for files that are open for a moment: registry, spill, hints, pages of a client's names.
const FILES: u64 = 64;

/// Descriptors without which there is no server: standard streams, signals, their runtime and the first one, two ports,
/// the files of the data folder and those that are open while they are made; and four for the runtime of each thread.
/// Fewer would be found out in the middle of a start, and some libraries panic then.
const LEAST_FILES: u64 = 28;
const FILES_A_THREAD: u64 = 4;

/// Connections where no number was asked for and nothing else bounds them.
const MOST_BY_DEFAULT: u64 = 65_536;

/// Memory for each connection by default. An idle one takes some 3 KiB; this leaves room for those that are busy.
const BYTES_A_CONNECTION: u64 = 64 * 1024;

/// The part of the memory that replies which clients do not read may take, of all connections together.
const PART_FOR_UNREAD: u64 = 8;

/// What there may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// Connections of clients.
    pub(crate) connections: usize,
    /// Connections to the admin port.
    pub(crate) probes: usize,
    /// Connections that are refused and closed with care.
    pub(crate) farewells: usize,
    /// Bytes of replies that clients have not read.
    pub(crate) unread: usize,
}

impl Allowed {
    /// Raises the limit of open files, as far as it may be raised, to what `wanted` clients need; without a number, to
    /// what memory has room for.
    ///
    /// # Errors
    /// It can't be raised to what a server with so many threads needs to start.
    pub(crate) fn new(wanted: Option<usize>, threads: usize) -> Result<Self> {
        let connections = wanted.map_or_else(|| by_memory(memory()), |wanted| wanted as u64);
        let least = LEAST_FILES + FILES_A_THREAD * threads as u64;
        let needed = least + connections + PROBES + FAREWELLS + FILES;
        let files = raise_files(needed);
        ensure!(
            files >= least,
            "too many open files: {files} are allowed (ulimit -n), and a server with {threads} threads needs {least} \
             before it serves anybody"
        );
        let allowed = Self::share(connections, files - least);
        if wanted.is_some() && files < needed {
            warn!(
                limit = files,
                needed,
                connections = allowed.connections,
                "fewer open files are allowed than max_connections needs (ulimit -n): fewer connections are served"
            );
        }
        Ok(allowed)
    }

    /// Shares descriptors out, so that a probe is answered however many clients there are.
    fn share(connections: u64, files: u64) -> Self {
        let eighth = (files / 8).max(1);
        let (probes, farewells, rest) = if files >= connections + PROBES + FAREWELLS + FILES {
            (PROBES, FAREWELLS, FILES)
        } else {
            (eighth.min(PROBES), eighth.min(FAREWELLS), eighth.min(FILES))
        };
        let connections = files.saturating_sub(probes + farewells + rest).clamp(1, connections);
        Self {
            connections: connections as usize,
            probes: probes as usize,
            farewells: farewells as usize,
            unread: (memory() / PART_FOR_UNREAD) as usize,
        }
    }
}

/// Raises the limit of open files to `needed`, as far as that is allowed; returns what it is then.
fn raise_files(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(now) = current.filter(|current| *current < needed) else { return needed };
    let possible = maximum.map_or(needed, |maximum| maximum.min(needed));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum }) {
        Ok(()) => possible,
        Err(error) => {
            debug!(%error, "the limit of open files stays as it was");
            now
        }
    }
}

fn by_memory(memory: u64) -> u64 {
    (memory / BYTES_A_CONNECTION).clamp(1_024, MOST_BY_DEFAULT)
}

/// Bytes of memory that this process may have: the machine's, or what a group of processes around it may have.
fn memory() -> u64 {
    let machine = rustix::system::sysinfo();
    // 32 bits wide on some platforms, and 64 on ours.
    let machine = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limits(&groups).filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.fold(machine, u64::min)
}

/// The files in which the limits of such groups stand, the outer ones included, of both versions. Within a container that
/// sees its own group alone it is the root, whatever the path says.
fn limits(groups: &str) -> impl Iterator<Item = PathBuf> {
    let fields = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    fields.flat_map(|(controllers, path)| {
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        };
        let counts = controllers.is_empty() || controllers.split(',').any(|name| name == "memory");
        let groups = Path::new(path).ancestors().filter(move |_| counts);
        groups.map(move |group| Path::new(root).join(group.strip_prefix("/").unwrap_or(group)).join(file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_kept_for_probes_however_few_there_are() {
        let unread = Allowed::share(1, 64).unread;
        assert!(unread > 1 << 20);
        let all = Allowed { connections: 4_096, probes: 64, farewells: 64, unread };
        assert_eq!(Allowed::share(4_096, 5_000), all);
        let few = Allowed::share(4_096, 64);
        assert_eq!(few, Allowed { connections: 40, probes: 8, farewells: 8, unread });
        assert_eq!(Allowed::share(4_096, 0).connections, 1);
        assert_eq!(Allowed::share(10, 64).connections, 10);
    }

    #[test]
    fn a_small_machine_has_fewer_connections_by_default_and_a_large_one_not_all_there_could_be() {
        assert_eq!([64 << 20, 256 << 20, 64 << 30].map(by_memory), [1_024, 4_096, 65_536]);
        assert!(memory() > 64 << 20);
    }

    #[test]
    fn the_limit_of_each_group_around_counts() {
        let of = |groups: &str| limits(groups).map(|path| path.display().to_string()).collect::<Vec<_>>();
        let unit = [
            "/sys/fs/cgroup/system.slice/xuid.service/memory.max",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(of("0::/system.slice/xuid.service\n"), unit);
        assert_eq!(of("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        let first = [
            "/sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        assert_eq!(of("12:cpu,cpuacct:/docker/1f\n9:memory:/docker/1f\n1:name=systemd:/docker/1f\n"), first);
        assert_eq!(of("rubbish\n"), Vec::<String>::new());
    }
}
