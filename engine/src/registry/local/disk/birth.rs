//! When a file was made, or which life of its inode's number it is.

use std::fs::File;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// What tells one use of an inode's number from the next: a filesystem gives the number of a removed file to a new one at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Birth {
    /// The filesystem tells nothing.
    Unknown,
    /// In Unix nanoseconds.
    At(u64),
    /// It tells no time: the number that the filesystem drew for this use.
    Generation(u32),
}

/// Above all times: 292 years after 1970.
const IS_GENERATION: u64 = 1 << 63;

impl Birth {
    /// As 64 bits: a time, or a generation with the highest bit, or 0.
    pub(super) fn to_bits(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::At(ns) => ns,
            Self::Generation(drawn) => IS_GENERATION | u64::from(drawn),
        }
    }

    pub(super) fn of_bits(bits: u64) -> Self {
        match bits {
            0 => Self::Unknown,
            IS_GENERATION.. => Self::Generation(bits as u32),
            ns => Self::At(ns),
        }
    }

    /// Of an open file.
    pub(super) fn of(file: &File) -> Self {
        let time = time(file).map(Self::At);
        time.or_else(|| generation(file).map(Self::Generation)).unwrap_or(Self::Unknown)
    }
}

/// Not by the standard library, which asks the kernel only where its C library does.
fn time(file: &File) -> Option<u64> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let is_told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let seconds = u64::try_from(found.stx_btime.tv_sec).ok().filter(|_| is_told)?;
    let ns = seconds.checked_mul(1_000_000_000)?.checked_add(found.stx_btime.tv_nsec.into())?;
    (1..IS_GENERATION).contains(&ns).then_some(ns)
}

/// ext4 with small inodes and XFS of version 4 have no time and have this; filesystems of a network have neither.
#[expect(unsafe_code, reason = "an ioctl that the system's bindings do not have")]
fn generation(file: &File) -> Option<u32> {
    use std::ffi::c_long;

    use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

    const FS_IOC_GETVERSION: Opcode = opcode::read::<c_long>(b'v', 1);
    let mut drawn: c_long = 0;
    // SAFETY: the number is that of an operation which writes a `long` at most.
    let into = unsafe { Updater::<FS_IOC_GETVERSION, c_long>::new(&mut drawn) };
    // SAFETY: what it writes into lives until it returns, and has a value where only an `int` of it is written.
    unsafe { ioctl(file, into) }.ok()?;
    Some(drawn.cast_unsigned() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_comes_back_from_its_bits() {
        let all = [
            Birth::Unknown,
            Birth::At(1),
            Birth::At(IS_GENERATION - 1),
            Birth::Generation(0),
            Birth::Generation(u32::MAX),
        ];
        for birth in all {
            assert_eq!(Birth::of_bits(birth.to_bits()), birth);
        }
    }

    /// Here the file of a path has a birth, as the standard library tells it, too; two files of one number have two.
    #[test]
    fn a_file_that_takes_the_number_of_a_removed_one_was_born_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let born = || {
            let file = File::create_new(&path).unwrap();
            let told = file
                .metadata()
                .unwrap()
                .created()
                .ok()
                .map(|at| at.duration_since(std::time::UNIX_EPOCH).unwrap());
            assert_eq!(time(&file), told.map(crate::clock::nanos));
            std::fs::remove_file(&path).unwrap();
            (Birth::of(&file), generation(&file))
        };
        let (first, second) = (born(), born());
        assert!(first.0 != second.0 || first.0 == Birth::Unknown, "{first:?}");
        assert!(first.1 != second.1 || first.1.is_none(), "{first:?} {second:?}");
    }
}
