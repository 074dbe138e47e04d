//! Data folders: copies, their spill files, and small file systems to put them on.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{Ledger, not_tried, process};

/// Mounting takes no time.
const LIMIT: Duration = Duration::from_secs(10);

/// A new folder that goes when it is dropped, a data folder in it that is not made yet, and a ledger for its ids.
pub fn fresh() -> Result<(TempDir, PathBuf, Ledger)> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    Ok((home, data, Ledger::default()))
}

/// Copies a folder with everything in it; `to` must not exist. What loses its name meanwhile is left out, as a hot
/// backup does.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            match fs::copy(entry.path(), &target) {
                // A file may get another name meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => drop(copied?),
            }
        }
    }
    Ok(())
}

/// Files of a folder whose name begins with `prefix`, sorted.
pub fn files(dir: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(prefix) && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The spill files in use: `spill-0`, `spill-1` and so on, without those set aside.
pub fn spills(dir: &Path) -> Result<Vec<PathBuf>> {
    let all = files(dir, "spill-")?;
    Ok(all.into_iter().filter(|path| !path.to_string_lossy().contains(".refused")).collect())
}

/// Overwrites a file in place with the bytes of another, without shortening it first: a process that has it
/// mapped sees the old bytes come back.
pub fn overwrite(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from)?;
    let mut file = OpenOptions::new().write(true).open(to)?;
    Ok(file.write_all(&bytes)?)
}

/// Cuts a file off after `len` bytes.
pub fn shorten(path: &Path, len: u64) -> Result<()> {
    Ok(OpenOptions::new().write(true).open(path)?.set_len(len)?)
}

/// Inverts `len` bytes of a file from `offset` on.
pub fn flip(path: &Path, offset: u64, len: usize) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset)?;
    for byte in &mut bytes {
        *byte ^= 0xff;
    }
    Ok(file.write_all_at(&bytes, offset)?)
}

/// A small file system of its own, unmounted on drop.
///
/// Where this user may mount, every process sees it. Elsewhere a process holds it in a user namespace, and others reach
/// it through that process's root: [`Mount::dir`] is a path for both.
#[derive(Debug)]
pub struct Mount {
    /// Where it is mounted, in the namespace of `holder`.
    place: PathBuf,
    /// Where this process and its children find it.
    dir: PathBuf,
    /// Keeps the namespace until its standard input is closed, so that it never outlives this process.
    holder: Option<Child>,
}

impl Mount {
    /// Mounts a tmpfs of `size` (as mount says it: `4m`) on `place`. `None`, told as a trial that is not made, where
    /// this user may neither mount nor make a user namespace.
    ///
    /// Fails if `CI=true` wants the trial made.
    pub fn tmpfs(place: &Path, size: &str) -> Result<Option<Self>> {
        fs::create_dir_all(place)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(place);
        let (code, _, refused) = process::run(command, LIMIT)?;
        if code == Some(0) {
            return Ok(Some(Self { place: place.to_owned(), dir: place.to_owned(), holder: None }));
        }
        let mount = Self::in_namespace(place, size)?;
        if mount.is_none() {
            println!("{}", refused.trim());
            not_tried("a small disk", "this user may neither mount a tmpfs nor make a user namespace")?;
        }
        Ok(mount)
    }

    /// Mounts it in a user namespace of its own; `None` where there are none.
    fn in_namespace(place: &Path, size: &str) -> Result<Option<Self>> {
        const HOLD: &str = r#"mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat"#;
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", HOLD, "sh", size]).arg(place);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut holder) = command.spawn() else { return Ok(None) };
        let mut said = String::new();
        BufReader::new(holder.stdout.take().context("no standard output")?).read_line(&mut said)?;
        if said.is_empty() {
            holder.wait()?;
            return Ok(None);
        }
        let dir = PathBuf::from(format!("/proc/{}/root{}", holder.id(), place.display()));
        Ok(Some(Self { place: place.to_owned(), dir, holder: Some(holder) }))
    }

    /// The folder in which every process of this user finds it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes it read-only, or writable again.
    ///
    /// Fails if a file is still open for writing.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        self.remount(if read_only { "ro" } else { "rw" })
    }

    /// Makes it larger or smaller, as mount says it: `64m`.
    pub fn resize(&self, size: &str) -> Result<()> {
        self.remount(&format!("size={size}"))
    }

    fn remount(&self, option: &str) -> Result<()> {
        let mut command = match &self.holder {
            None => Command::new("mount"),
            Some(holder) => {
                let mut command = Command::new("nsenter");
                command.args([
                    "--target",
                    &holder.id().to_string(),
                    "--user",
                    "--mount",
                    "--preserve-credentials",
                ]);
                command.arg("mount");
                command
            }
        };
        // With the source named, `mount` adds no option that it reads of the old mount: among those is the
        // owner's number outside the holder's namespace, and inside it that is no user's.
        command.args(["-o", &format!("remount,{option}"), "tmpfs"]).arg(&self.place);
        let (code, _, stderr) = process::run(command, LIMIT)?;
        ensure!(code == Some(0), "remounting: {stderr}");
        Ok(())
    }

    /// Writes zeros into `name` until the file system is full; returns how many bytes fitted.
    pub fn fill(&self, name: &str) -> Result<u64> {
        let mut file = fs::File::create(self.dir.join(name))?;
        let mut written = 0;
        for block in [64 * 1024_usize, 1024, 1] {
            let zeros = vec![0; block];
            while let Ok(len) = file.write(&zeros)
                && len > 0
            {
                written += len as u64;
            }
        }
        Ok(written)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            // Its input ends, so it ends, and the namespace with it.
            drop(holder.stdin.take());
            if let Err(error) = holder.wait() {
                println!("the namespace of {}: {error}", self.place.display());
            }
            return;
        }
        let mut command = Command::new("umount");
        command.arg("-l").arg(&self.place);
        if let Err(error) = process::run(command, LIMIT) {
            println!("unmounting {}: {error}", self.place.display());
        }
    }
}
