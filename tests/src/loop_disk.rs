//! A disk that hangs: an ext4 on a loop device, frozen as `fsfreeze` does it.

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
        let (image, place) = (home.join("image"), home.join("disk"));
        let script = r#"
            truncate -s 64M "$1"
            mkfs.ext4 -q "$1"
            mkdir "$2"
            device="$(losetup -f --show "$1")"
            mount "$device" "$2" || { losetup -d "$device"; exit 1; }
            fsfreeze -f "$2" && fsfreeze -u "$2" || { umount "$2"; losetup -d "$device"; exit 1; }
            echo "$device""#;
        match shell(script, &[&image.to_string_lossy(), &place.to_string_lossy()])? {
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
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        let frozen = shell(r#"fsfreeze -f "$1""#, &[&self.place.to_string_lossy()])?;
        frozen.map(|_| Frozen(self)).map_err(|why| anyhow!(why)).context("fsfreeze")
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

/// A disk that is frozen until this is dropped.
#[derive(Debug)]
#[must_use = "it is thawed when this is dropped"]
pub struct Frozen<'d>(&'d LoopDisk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Ok(Err(why)) = shell(r#"fsfreeze -u "$1""#, &[&self.0.place.to_string_lossy()]) {
            println!("{} stays frozen: {why}", self.0.place.display());
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
