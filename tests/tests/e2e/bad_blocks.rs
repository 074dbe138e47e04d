//! Blocks that a real disk cannot read, below a real file system: ext4 on a loop device whose file ends before them. A
//! read of them is EIO, and a write of a whole block succeeds, as on a disk that has spare ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Ledger, Server, Xuid, clock, process};

/// Blocks of 4 KiB of the file system, the last of which are to be lost.
const BLOCKS: u64 = 16 << 10;

/// Formatting and mounting take no time.
const LIMIT: Duration = Duration::from_secs(20);

/// A file system on a loop device.
struct Disk {
    image: PathBuf,
    device: String,
    place: PathBuf,
}

/// Runs a script of the shell with arguments; `None` if it fails.
fn shell(script: &str, arguments: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).args(arguments);
    let (code, said, wrong) = process::run(command, LIMIT)?;
    if code != Some(0) {
        println!("{}", wrong.trim());
    }
    Ok((code == Some(0)).then(|| said.trim().to_owned()))
}

impl Disk {
    /// `None` where this user may not make one.
    fn new(home: &Path) -> Result<Option<Self>> {
        let (image, place) = (home.join("image"), home.join("disk"));
        let script = r#"
            truncate -s "$(($3 * 4096))" "$1"
            mkfs.ext4 -q -b 4096 -O ^has_journal,^metadata_csum "$1"
            mkdir "$2"
            device="$(losetup -f --show "$1")"
            mount "$device" "$2" || { losetup -d "$device"; exit 1; }
            echo "$device""#;
        let made = shell(script, &[&image.to_string_lossy(), &place.to_string_lossy(), &BLOCKS.to_string()])?;
        Ok(made.map(|device| Self { image, device, place }))
    }

    /// Leads blocks (of a file, the how manieth) to the end of the disk, with what they hold, and cuts that off.
    fn lose(&self, blocks: &[(&str, u64)]) -> Result<()> {
        let move_one = r#"
            old="$(debugfs -R "bmap $2 $3" "$1" 2>/dev/null | tail -1 | cut -d " " -f 1)"
            dd if="$1" of="$1" bs=4096 skip="$old" seek="$4" count=1 conv=notrunc status=none
            printf 'extent_open %s\nset_bmap %s %s\nextent_close\n' "$2" "$3" "$4" | debugfs -w "$1" 2>/dev/null
            debugfs -R "bmap $2 $3" "$1" 2>/dev/null | tail -1 | grep -qx "$4""#;
        let (image, place) = (self.image.to_string_lossy(), self.place.to_string_lossy());
        let first = BLOCKS - blocks.len() as u64;
        // In use, so that debugfs puts nothing of its own there.
        let reserve = r#"umount "$1"; debugfs -w -R "setb $3 $4" "$2" 2>/dev/null"#;
        let count = blocks.len().to_string();
        shell(reserve, &[&place, &self.device, &first.to_string(), &count])?.context("unmounting")?;
        for ((file, block), lost) in blocks.iter().zip(first..) {
            shell(move_one, &[&self.device, file, &block.to_string(), &lost.to_string()])?
                .context("debugfs")?;
        }
        let cut = r#"
            sync
            blockdev --flushbufs "$1"
            mount "$1" "$2"
            truncate -s "$(($4 * 4096))" "$3""#;
        shell(cut, &[&self.device, &place, &image, &first.to_string()])?.context("mounting again")?;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = shell(
            r#"umount -l "$2" || true; losetup -d "$1""#,
            &[&self.device, &self.place.to_string_lossy()],
        );
    }
}

#[test]
fn blocks_that_the_disk_cannot_read_cost_what_is_on_them_and_are_written_again() -> Result<()> {
    let home = TempDir::new()?;
    let Some(disk) = Disk::new(home.path())? else {
        // Not counted, and no failure in CI: this takes root, e2fsprogs and loop devices, and a user namespace is no
        // help.
        println!("not tried: this user may not make an ext4 on a loop device");
        return Ok(());
    };
    let data = disk.place.join("data");
    let mut ledger = Ledger::default();
    let server = Server::start(&data)?;
    server.drain(1_000, &mut ledger)?;
    clock::idle(Duration::from_millis(2_500));
    server.stop()?;
    // A header and the first workers of the registry; of the spill a header, the first records, and some in the midst
    // of what is read ahead.
    let registry = [("/data/registry", 1), ("/data/registry", 2)];
    disk.lose(
        &[&registry[..], &[("/data/spill-0", 0), ("/data/spill-0", 2), ("/data/spill-0", 3_000)]].concat(),
    )?;
    let seen = Xuid::new(["inspect"])?.arg(&data).run()?;
    ensure!(seen.stdout.contains("cannot be read; the next start writes it again"), "{seen:?}");
    ensure!(
        seen.stdout.contains("256 records, which the disk does not give"),
        "two pages of the spill: {seen:?}"
    );
    ensure!(seen.refused(1)?.contains("not all of it"), "it says that there is more: {seen:?}");

    let server = Server::start(&data)?;
    server.drain(3_000_000, &mut ledger)?;
    let log = server.log();
    ensure!(log.contains("unreadable=256"), "two pages of the spill, and no more for their sake\n{server}");
    ensure!(log.contains("header_repaired=true"), "{server}");
    let active = server.metrics()?.value("xuid_spill_active");
    ensure!(active.is_some_and(|active| active > 0.5), "the spill is given up\n{server}");
    server.stop()?;
    let server = Server::start(&data)?;
    server.drain(3_000_000, &mut ledger)?;
    let log = server.log();
    ensure!(!log.contains("the registry had damaged records"), "it was not written again\n{server}");
    server.stop()?;
    println!("blocks that cannot be read: {}", ledger.check()?);
    Ok(())
}
