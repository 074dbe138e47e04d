//! One image: which file, where, what kind of damage, and what must come of it.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::past::Past;
use crate::Rng;

const SECTOR: u64 = 512;
/// The registry of 1,024 workers: its length is part of the specification.
const REGISTRY_SECTORS: u64 = 1_318_912 / SECTOR;
/// Small files are cut off and flipped at each byte; none is longer.
const SMALL: u64 = 160;
/// The spill's headers and the first of its records, and then the others.
const SPILL_HEADERS: u64 = 16;
const SPILL_RECORDS: u64 = 8;
const SPILL_SECTORS: u64 = 32_768;
const SPILL_SAMPLE: u64 = 1_200;
const RECORD: usize = 32;

/// Trials that visit everything once, in an order in which any few of them are spread over all files: the multiplier is
/// a prime and no factor of their number.
pub(super) const IMAGES: u64 =
    3 * (REGISTRY_SECTORS + SPILL_HEADERS + SPILL_RECORDS + SPILL_SAMPLE) + 2 * 2 * SMALL;
const STRIDE: u64 = 7_919;

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum File {
    Registry,
    Node,
    Seat,
    Spill,
}

/// Which file, which of its units (a sector, or a byte of a small file), and which kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Spot {
    file: File,
    unit: u64,
    place: u64,
    kind: u64,
}

impl Spot {
    /// Of this trial.
    fn of(number: u64) -> Self {
        let mut at = number.wrapping_mul(STRIDE) % IMAGES;
        for (file, sectors) in
            [(File::Registry, REGISTRY_SECTORS), (File::Spill, SPILL_HEADERS + SPILL_RECORDS + SPILL_SAMPLE)]
        {
            if at < 3 * sectors {
                return Self { file, unit: SECTOR, place: at / 3, kind: at % 3 };
            }
            at -= 3 * sectors;
        }
        // No sector of a small file is zeroed: it has no other than the first.
        let file = if at < 2 * SMALL { File::Node } else { File::Seat };
        let at = at % (2 * SMALL);
        Self { file, unit: 1, place: at / 2, kind: at % 2 }
    }
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Nothing from this offset on is left.
    Cut,
    /// One bit of this byte.
    Flip(u8),
    /// This sector is zeros.
    Zeros,
}

/// What a start must make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Served,
    Refused,
    /// Depends on which bit it is.
    Either,
}

/// An image.
#[derive(Debug)]
pub(super) struct Image {
    file: File,
    path: PathBuf,
    damage: Damage,
    offset: u64,
    /// The length of the file before.
    len: u64,
    /// Ids in the records of the sector, of a spill: all of them, and the most of one.
    held: (u64, u64),
}

impl Image {
    /// The image of this trial.
    pub(super) fn of(number: u64, past: &Past, rng: &mut Rng) -> Result<Self> {
        let Spot { file, unit, place, kind } = Spot::of(number);
        // The empty sectors of a spill are drawn, since there are too many of them.
        let place = if file == File::Spill && place >= SPILL_HEADERS + SPILL_RECORDS {
            SPILL_HEADERS + SPILL_RECORDS + rng.below(SPILL_SECTORS - SPILL_HEADERS - SPILL_RECORDS)
        } else {
            place
        };
        let path = past.data.join(match file {
            File::Registry => "registry",
            File::Node => "node.json",
            File::Seat => "registry.seat-0",
            File::Spill => "spill-0",
        });
        let bytes = fs::read(&path)?;
        let len = bytes.len() as u64;
        // A small file is shorter than the most: then one of its places is visited again.
        let begin = place * unit % len;
        let (damage, offset) = match kind {
            0 => (Damage::Cut, begin),
            1 => (Damage::Flip(1 << rng.below(8)), (begin + rng.below(unit)).min(len - 1)),
            _ => (Damage::Zeros, begin),
        };
        let mut held = (0, 0);
        if file == File::Spill {
            for record in bytes[begin as usize..].chunks_exact(RECORD).take(SECTOR as usize / RECORD) {
                // Ids a tick at offset 8, ticks at offset 12.
                let number = |at: usize| {
                    record[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
                };
                let ids = number(8).saturating_mul(number(12));
                held = (ids.saturating_add(held.0), ids.max(held.1));
            }
        }
        ensure!(offset < len, "{} is shorter than it was", path.display());
        Ok(Self { file, path, damage, offset, len, held })
    }

    /// For counting.
    pub(super) fn kind(&self) -> String {
        let damage = match self.damage {
            Damage::Cut => "cut off",
            Damage::Flip(_) => "flipped",
            Damage::Zeros => "zeroed",
        };
        format!("{:?} {damage}", self.file).to_lowercase()
    }

    /// Damages the file in place; what was there before.
    pub(super) fn make(&self) -> Result<Vec<u8>> {
        let before = fs::read(&self.path)?;
        let file = OpenOptions::new().write(true).open(&self.path)?;
        match self.damage {
            Damage::Cut => file.set_len(self.offset)?,
            Damage::Flip(bit) => file.write_all_at(&[before[self.offset as usize] ^ bit], self.offset)?,
            Damage::Zeros => {
                let len = SECTOR.min(self.len - self.offset) as usize;
                file.write_all_at(&vec![0; len], self.offset)?;
            }
        }
        Ok(before)
    }

    /// Takes the damage back. What a refused start may have written elsewhere in the file is left.
    pub(super) fn undo(&self, before: &[u8]) -> Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        let end = if self.damage == Damage::Cut {
            before.len()
        } else {
            before.len().min(self.offset as usize + SECTOR as usize)
        };
        Ok(file.write_all_at(&before[self.offset as usize..end], self.offset)?)
    }

    /// What a start must make of it.
    pub(super) fn fate(&self) -> Fate {
        match (self.file, self.damage) {
            // A part is missing, and nobody knows what it had granted, or whose folder it is.
            (File::Registry | File::Node, Damage::Cut) => Fate::Refused,
            // Another cluster, or none that can be read; but a bit may turn a small letter into a large one.
            (File::Node, _) => Fate::Either,
            // Two copies of everything; hints; a spill that can't be trusted is set aside, and damaged records are
            // skipped.
            _ => Fate::Served,
        }
    }

    /// How many of the ids in the spill may be lost by it.
    pub(super) fn most_lost(&self, left: u64) -> u64 {
        match (self.file, self.damage) {
            (File::Spill, Damage::Cut) => left,
            (File::Spill, _) if self.offset < SPILL_HEADERS * SECTOR => 0,
            (File::Spill, Damage::Flip(_)) => self.held.1,
            (File::Spill, Damage::Zeros) => self.held.0,
            _ => 0,
        }
    }

    /// F2.
    pub(super) fn check_refusal(&self, said: &str) -> Result<()> {
        let last = said.lines().rfind(|line| line.starts_with("xuid: ")).unwrap_or_default();
        // What is the wrong one for the registry is told of the whole folder: the file can't be told from a right one.
        let named = if self.file == File::Node { self.path.parent() } else { Some(self.path.as_path()) };
        let named = named.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        ensure!(last.contains(&named), "it does not name {named}: {said}");
        let advice = ["xuid registry", "remove this file", "another folder", "a folder of its own"];
        ensure!(advice.iter().any(|word| last.contains(word)), "it does not say what to do: {last}");
        Ok(())
    }
}

impl fmt::Display for Image {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, offset, len) =
            (self.path.file_name().unwrap_or_default().display(), self.offset, self.len);
        write!(out, "{name} of {len} bytes, {:?} at {offset}", self.damage)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_sector_of_the_registry_and_every_byte_of_the_small_files_is_visited_once() {
        let spots: HashSet<Spot> = (0..IMAGES).map(Spot::of).collect();
        assert_eq!(spots.len() as u64, IMAGES, "the stride is a factor of the number of images");
        let of = |file| spots.iter().filter(|spot| spot.file == file).count() as u64;
        assert_eq!(of(File::Registry), 3 * 2_576);
        assert_eq!((of(File::Node), of(File::Seat)), (2 * SMALL, 2 * SMALL));
    }
}
