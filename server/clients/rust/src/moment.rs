//! The time that an age is measured by: it goes on while the machine is suspended, which the standard library's and
//! the runtime's does not on Linux.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// A point in time, comparable with those of the same process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Costs what the runtime's clock costs: no system call on Linux 5.3 and later.
    pub(crate) fn now() -> Self {
        Self(since_boot())
    }

    /// Zero if that is later.
    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    // It never fails: no time since boot is negative.
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Since the first look. Whether that counts a suspension is the system's choice.
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    use std::sync::LazyLock;
    use tokio::time::Instant;
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// A time namespace in which the machine slept for so many seconds.
    const SLEPT: u64 = 1_000_000;
    const INSIDE: &str = "XUID_TEST_SLEPT";
    const OWN_NAME: &str = "moment::tests::it_counts_the_time_in_which_the_machine_slept";

    #[test]
    fn it_counts_the_time_in_which_the_machine_slept() {
        if std::env::var_os(INSIDE).is_some() {
            let awake = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
            let all = Moment::now().0;
            assert!(all >= awake + Duration::from_secs(SLEPT), "{all:?} since boot, {awake:?} awake");
            return;
        }
        let unshare = |program: &std::ffi::OsStr| {
            let mut command = Command::new("unshare");
            let slept = SLEPT.to_string();
            command.args(["--user", "--map-root-user", "--time", "--boottime", &slept]).arg(program);
            command
        };
        if !unshare("true".as_ref()).status().is_ok_and(|status| status.success()) {
            println!("not tried: this user may not make a time namespace");
            return;
        }
        let own = std::env::current_exe().unwrap();
        let ended = unshare(own.as_os_str()).args(["--exact", OWN_NAME]).env(INSIDE, "1").output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
    }
}
