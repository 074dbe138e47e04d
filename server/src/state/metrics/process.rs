//! What the kernel says of this process, under the names that Prometheus' own clients use, and what was built.

use std::fs;
use std::sync::OnceLock;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use xuid_engine::clock::{Clock, Reading, SystemClock};

use super::family::{Family, Kind, Samples, family};
use crate::state::server::VERSION;

/// Figures that the kernel does not tell, as where `/proc` is hidden, are left out.
pub(super) fn families() -> Vec<Family> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name: &str| kib(&status, name).map(|kib| kib * 1024.0);
    let fraction = |name, help, kind, value| family(name, help, kind, Samples::Fraction(value));
    vec![
        family(
            "xuid_build_info",
            "1; its labels say what runs here: the version, the commit if it is known, and the compiler",
            Kind::Gauge,
            Samples::Info(vec![
                ("version", VERSION),
                ("commit", option_env!("XUID_COMMIT").unwrap_or("unknown")),
                ("rustc", option_env!("XUID_RUSTC").unwrap_or("unknown")),
            ]),
        ),
        fraction(
            "process_cpu_seconds",
            "Seconds of processor time used, in user and kernel mode",
            Kind::Counter,
            Some(cpu_seconds()),
        ),
        fraction("process_resident_memory_bytes", "Resident memory", Kind::Gauge, bytes("VmRSS:")),
        fraction("process_virtual_memory_bytes", "Virtual memory", Kind::Gauge, bytes("VmSize:")),
        fraction("process_open_fds", "Open file descriptors", Kind::Gauge, open_fds()),
        fraction(
            "process_max_fds",
            "File descriptors that may be open at most",
            Kind::Gauge,
            getrlimit(Resource::Nofile).current.map(|most| most as f64),
        ),
        fraction(
            "process_start_time_seconds",
            "When the process began, in seconds since 1970",
            Kind::Gauge,
            start_time(),
        ),
    ]
}

fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// A line `NAME 123 kB` of `/proc/self/status`.
fn kib(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<f64> {
    // The descriptor of the folder itself is among them.
    let open = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    Some(open as f64)
}

/// Read once: a wall clock that is set later must not make it look like another process.
fn start_time() -> Option<f64> {
    static START: OnceLock<Option<f64>> = OnceLock::new();
    *START.get_or_init(|| {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let ticks = start_ticks(&stat)?;
        let Reading { wall, boot } = SystemClock.read();
        let age = boot as f64 / 1e9 - ticks / clock_ticks_per_second() as f64;
        Some(wall as f64 / 1e9 - age)
    })
}

/// Field 22 of `/proc/self/stat`: clock ticks from the boot of the machine to the start of the process. The name of the
/// program, field 2, may hold blanks and brackets.
fn start_ticks(stat: &str) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_names_with_blanks_and_brackets() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 5 6 0 0 20 0 3 0 123456 1000 200";
        assert_eq!(start_ticks(stat), Some(123_456.0));
        assert_eq!(kib("VmSize:\t   9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12.0));
        assert_eq!((start_ticks("7"), kib("", "VmRSS:")), (None, None));
    }

    #[test]
    fn the_kernel_tells_of_this_process() {
        let started = start_time().unwrap();
        let age = SystemClock.read().wall as f64 / 1e9 - started;
        assert!((0.0..86_400.0).contains(&age), "started {age} s ago");
        assert!(cpu_seconds() > 0.0 && open_fds().unwrap() >= 3.0);
    }
}
