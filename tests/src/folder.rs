//! Data folders: copies, their spill files, and small file systems to put them on.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;

/// Copies a folder with everything in it; `to` must not exist. What loses its name meanwhile is left out, as a hot backup
/// does.
///
/// # Errors
/// Reading or writing failed.
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
///
/// # Errors
/// The folder can't be read.
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
///
/// # Errors
/// The folder can't be read.
pub fn spills(dir: &Path) -> Result<Vec<PathBuf>> {
    let all = files(dir, "spill-")?;
    Ok(all.into_iter().filter(|path| !path.to_string_lossy().contains(".refused")).collect())
}

/// Overwrites a file in place with the bytes of another, without shortening it first: a process that has it
/// mapped sees the old bytes come back.
///
/// # Errors
/// Reading or writing failed.
pub fn overwrite(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from)?;
    let mut file = OpenOptions::new().write(true).open(to)?;
    Ok(file.write_all(&bytes)?)
}

/// Inverts `len` bytes of a file from `offset` on.
///
/// # Errors
/// Reading or writing failed.
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
#[derive(Debug)]
pub struct Mount {
    dir: PathBuf,
}

impl Mount {
    /// Mounts a tmpfs of `size` (as mount says it: `4m`) on `dir`. `None`, said aloud, where mounting is not allowed.
    ///
    /// # Errors
    /// There is no `mount` command.
    pub fn tmpfs(dir: &Path, size: &str) -> Result<Option<Self>> {
        fs::create_dir_all(dir)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(dir);
        let (code, _, stderr) = process::run(command, Duration::from_secs(10))?;
        if code != Some(0) {
            println!("SKIPPED a part: this user may not mount a tmpfs here ({})", stderr.trim());
            return Ok(None);
        }
        Ok(Some(Self { dir: dir.to_owned() }))
    }

    /// Makes it read-only, or writable again.
    ///
    /// # Errors
    /// The kernel refuses, for example because a file is still open for writing.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        let mut command = Command::new("mount");
        command.args(["-o", if read_only { "remount,ro" } else { "remount,rw" }]).arg(&self.dir);
        let (code, _, stderr) = process::run(command, Duration::from_secs(10))?;
        ensure!(code == Some(0), "remounting: {stderr}");
        Ok(())
    }

    /// Makes it larger or smaller, as mount says it: `64m`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn resize(&self, size: &str) -> Result<()> {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,size={size}")]).arg(&self.dir);
        let (code, _, stderr) = process::run(command, Duration::from_secs(10))?;
        ensure!(code == Some(0), "remounting: {stderr}");
        Ok(())
    }

    /// Writes zeros into `name` until the file system is full; returns how many bytes fitted.
    ///
    /// # Errors
    /// The file can't be created.
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
        let mut command = Command::new("umount");
        command.arg("-l").arg(&self.dir);
        if let Err(error) = process::run(command, Duration::from_secs(10)) {
            println!("unmounting {}: {error}", self.dir.display());
        }
    }
}
