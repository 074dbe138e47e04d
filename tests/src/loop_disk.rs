//! A disk that hangs, is full or takes no more writes: an ext4 on a loop device.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::{not_tried, process};

/// Formatting and mounting take no time.
const LIMIT: Duration = Duration::from_secs(20);

/// An ext4 of 64 MiB on a loop device; both go when it is dropped.
#[derive(Debug)]
pub struct LoopDisk {
    device: String,
    place: PathBuf,
}

impl LoopDisk {
    /// `None`, told as the trial `what` that is not made, where this machine refuses it.
    ///
    /// Fails if `CI=true` wants the trial made.
    pub fn new(what: &str, home: &Path) -> Result<Option<Self>> {
        Self::with_inodes(what, home, 256)
    }

    /// The same with inodes of so many bytes: in 128 there is no room for the time of a file's birth.
    pub fn with_inodes(what: &str, home: &Path, bytes: u32) -> Result<Option<Self>> {
        let (image, place) = (home.join("image"), home.join("disk"));
        let script = r#"
            truncate -s 64M "$1"
            mkfs.ext4 -q -I "$3" "$1" >/dev/null
            mkdir "$2"
            device="$(losetup -f --show "$1")"
            mount "$device" "$2" || { losetup -d "$device"; exit 1; }
            fsfreeze -f "$2" && fsfreeze -u "$2" || { umount "$2"; losetup -d "$device"; exit 1; }
            echo "$device""#;
        match shell(script, &[&image.to_string_lossy(), &place.to_string_lossy(), &bytes.to_string()])? {
            Ok(device) => Ok(Some(Self { device, place })),
            Err(why) => {
                let why = format!("no ext4 on a loop device can be made and frozen here: {why}");
                not_tried(what, &why).map(|()| None)
            }
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.place
    }

    /// Freezes it until that is dropped: what is written to it waits in the kernel, where no signal ends the wait.
    ///
    /// Drop it before anything that waits for the end of a process that writes there.
    pub fn freeze(&self) -> Result<Frozen> {
        self.told(r#"fsfreeze -f "$1""#).context("fsfreeze")?;
        Ok(Frozen(self.place.clone()))
    }

    /// Writes zeros into the file `name` until the disk is full; returns how many bytes fitted.
    pub fn fill(&self, name: &str) -> Result<u64> {
        let mut file = fs::File::create(self.place.join(name))?;
        let mut written = 0;
        for block in [64 * 1024_usize, 4_096, 1] {
            let zeros = vec![0; block];
            while let Ok(len) = file.write(&zeros)
                && len > 0
            {
                written += len as u64;
            }
        }
        // What was only promised may not fit.
        let _ = file.sync_all();
        Ok(written)
    }

    /// Makes it read-only as an error of its own does (`errors=remount-ro`), files that are open for writing or not. An
    /// ordinary remount is refused while there are such files.
    pub fn fail(&self) -> Result<()> {
        self.told(r#"mount -o remount,abort "$1"; ! touch "$1/probe" 2>/dev/null"#).context("remount,abort")
    }

    /// Mounts it anew, sound and writable. No file of it may be open.
    pub fn mount_again(&self) -> Result<()> {
        let script =
            r#"umount "$1"; e2fsck -fy "$2" >/dev/null || [ $? -lt 4 ]; mount "$2" "$1"; touch "$1/probe""#;
        self.told(script).context("mounting again")
    }

    /// Has its journal commit each second if there is anything to commit, and not every five seconds.
    pub fn commit_each_second(&self) -> Result<()> {
        self.told(r#"mount -o remount,commit=1 "$1""#).context("remount,commit=1")
    }

    /// Mounts its file `name` on the new file `place`, until that is dropped.
    pub fn bind(&self, name: &str, place: &Path) -> Result<Bound> {
        fs::File::create_new(place)?;
        let file = self.place.join(name);
        let bound = shell(r#"mount --bind "$1" "$2""#, &[&file.to_string_lossy(), &place.to_string_lossy()])?;
        bound.map(|_| Bound(place.to_owned())).map_err(|why| anyhow!(why)).context("mount --bind")
    }

    /// How many writes its device has had.
    pub fn writes(&self) -> Result<u64> {
        let name = self.device.trim_start_matches("/dev/");
        let figures = fs::read_to_string(format!("/sys/class/block/{name}/stat"))?;
        let writes = figures.split_whitespace().nth(4).context("a device's figures lack its writes")?;
        Ok(writes.parse()?)
    }

    fn told(&self, script: &str) -> Result<()> {
        let said = shell(script, &[&self.place.to_string_lossy(), &self.device])?;
        said.map(drop).map_err(|why| anyhow!(why))
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let away =
            shell(r#"umount -l "$2"; losetup -d "$1""#, &[&self.device, &self.place.to_string_lossy()]);
        if let Ok(Err(why)) = away {
            println!("{} stays: {why}", self.device);
        }
    }
}

/// A file system in memory that tells neither when a file was made nor its generation, until it is dropped.
#[derive(Debug)]
pub struct RamFs(PathBuf);

impl RamFs {
    /// `None`, told as the trial `what` that is not made, where this machine refuses it.
    ///
    /// Fails if `CI=true` wants the trial made.
    pub fn new(what: &str, home: &Path) -> Result<Option<Self>> {
        let place = home.join("ram");
        match shell(r#"mkdir "$1"; mount -t ramfs ramfs "$1""#, &[&place.to_string_lossy()])? {
            Ok(_) => Ok(Some(Self(place))),
            Err(why) => not_tried(what, &format!("no ramfs can be mounted here: {why}")).map(|()| None),
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.0
    }
}

impl Drop for RamFs {
    fn drop(&mut self) {
        if let Ok(Err(why)) = shell(r#"umount -l "$1""#, &[&self.0.to_string_lossy()]) {
            println!("{} stays mounted: {why}", self.0.display());
        }
    }
}

/// A disk that is frozen until this is dropped, which has to be before the disk is.
#[derive(Debug)]
#[must_use = "it is thawed when this is dropped"]
pub struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Ok(Err(why)) = shell(r#"fsfreeze -u "$1""#, &[&self.0.to_string_lossy()]) {
            println!("{} stays frozen: {why}", self.0.display());
        }
    }
}

/// A file that is mounted on another one until this is dropped, which has to be before the disk is.
#[derive(Debug)]
#[must_use = "it is unmounted when this is dropped"]
pub struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        if let Ok(Err(why)) = shell(r#"umount -l "$1""#, &[&self.0.to_string_lossy()]) {
            println!("{} stays mounted: {why}", self.0.display());
        }
    }
}

/// Runs a script of the shell with arguments; what it wrote, or why it failed.
fn shell(script: &str, arguments: &[&str]) -> Result<Result<String, String>> {
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).args(arguments);
    let (code, said, wrong) = process::run(command, LIMIT)?;
    Ok(if code == Some(0) { Ok(said.trim().to_owned()) } else { Err(wrong.trim().to_owned()) })
}
