//! Which code a part was run on, and on what machine.
//!
//! The revision is that of the code only: writing the results down in `docs/` does not make them stale, nor does a
//! change of a benchmark, which no campaign runs. A tree with changes is told apart from its commit by a hash of the
//! changes, so that parts of two different trees are never joined.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::clock;

/// What the code is made of: all but prose, and what measures its speed.
const CODE: &[&str] = &["--", ".", ":(top,exclude)docs", ":(top,exclude)*.md", ":(top,exclude)benches"];

/// Where the work tree is.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The state of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// The last commit that touched code; with `-dirty-` and a hash if there are changes since.
    pub name: String,
    /// Whether there are changes that no commit has.
    pub dirty: bool,
}

impl Revision {
    /// The code in this work tree. Without its history every run stands for itself: there is nothing to resume by.
    pub fn of(root: &Path) -> Result<Self> {
        if !root.join(".git").exists() {
            return Ok(Self { name: format!("unversioned-{}", clock::unix_ms()), dirty: true });
        }
        let commit = git(root, &["log", "-1", "--abbrev=10", "--format=%h"])?;
        let commit = String::from_utf8(commit)?.trim().to_owned();
        ensure!(!commit.is_empty(), "no commit in {}", root.display());
        let mut changes = git(root, &["diff", "HEAD", "--binary", "--no-ext-diff", "--no-color"])?;
        let new = git(root, &["ls-files", "-z", "--others", "--exclude-standard"])?;
        for path in new.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            changes.extend_from_slice(path);
            let path = root.join(std::str::from_utf8(path).context("a path that is not UTF-8")?);
            // A file that vanishes meanwhile is no change any more.
            changes.extend(fs::read(path).unwrap_or_default());
        }
        let dirty = !changes.is_empty();
        let name = if dirty { format!("{commit}-dirty-{:08x}", fnv(&changes) as u32) } else { commit };
        Ok(Self { name, dirty })
    }
}

fn git(root: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    // Whoever may run the code of a tree may ask for its history, also as another user (a container's root).
    command.arg("-c").arg(format!("safe.directory={}", root.display()));
    command.arg("-C").arg(root).args(args).args(CODE).stdin(Stdio::null());
    let output = command.output().context("git says which commit a part belongs to; it can't be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {} failed: {}", args.join(" "), said.trim());
    Ok(output.stdout)
}

/// Fowler, Noll and Vo's hash (1a, 64 bits): the same in every build, unlike the standard library's.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A machine that parts were run on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    /// Its processor's name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Its kernel.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpus.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| {
            // x86 says "model name"; ARM has numbers only, of which the part is the most telling.
            matches!(key.trim(), "model name" | "CPU part")
        });
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned()),
            cores: thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            kernel: kernel.trim().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(root: &Path, args: &[&str]) {
        let mut command = Command::new("git");
        command.arg("-C").arg(root).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args);
        // Neither the settings of who runs this nor a hook's variables may reach the folder of this test.
        command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn prose_and_benchmarks_leave_a_revision_as_it_is_and_each_change_of_code_makes_another() {
        let dir = tempfile::TempDir::new().unwrap();
        let root = dir.path();
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::create_dir_all(root.join("engine/docs")).unwrap();
        fs::create_dir_all(root.join("benches/src")).unwrap();
        write("engine/code.rs", "1");
        run(root, &["init", "-q"]);
        run(root, &["add", "."]);
        run(root, &["commit", "-q", "-m", "code"]);
        let first = Revision::of(root).unwrap();
        assert!(!first.dirty && !first.name.contains("dirty"), "{first:?}");

        write("docs/figures.txt", "results");
        write("README.md", "results");
        write("engine/notes.md", "results");
        write("benches/src/clock.rs", "1");
        assert_eq!(Revision::of(root).unwrap(), first, "prose that is not committed");
        run(root, &["add", "."]);
        run(root, &["commit", "-q", "-m", "prose"]);
        assert_eq!(Revision::of(root).unwrap(), first, "prose that is committed");

        write("engine/code.rs", "2");
        let second = Revision::of(root).unwrap();
        assert!(second.dirty && second.name.starts_with(&first.name), "{second:?}");
        write("engine/new.rs", "3");
        let third = Revision::of(root).unwrap();
        assert_ne!(second, third, "a new file");
        write("engine/new.rs", "4");
        assert_ne!(Revision::of(root).unwrap(), third, "another text in it");
        run(root, &["add", "."]);
        run(root, &["commit", "-q", "-m", "code"]);
        let last = Revision::of(root).unwrap();
        assert!(!last.dirty && last != first, "{last:?}");
    }
}
