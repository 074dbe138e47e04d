//! Every file of a data folder damaged in one place, and the real binary started on it.
//!
//! A trial is an image: a folder with a past (two lives, land in the spill), one of its files cut off at a multiple of
//! 512 bytes, one bit of a sector turned, or a sector of zeros. The server starts or refuses as the [kind of
//! file](self::image) demands, serves what is left of the spill to the last id, and repeats nothing; what it refused it
//! serves when the damage is taken back.
//!
//! All sectors of the registry are visited, all bytes of the small files, both headers of the spill, and the spill's
//! sectors that hold records; of its empty ones (the file has a fixed size of 32,768 sectors) a sample. That is what
//! the first [`IMAGES`] trials are. Those after them visit every sector of a spill that is full, in the engine's own
//! campaign `files`: hours of starts of the real binary.
//!
//! # Invariants
//! - F1 no id comes twice over all lives of a folder, whatever was damaged;
//! - F2 a refusal ends with 1, names the file, says what was found and what to do; nothing panics;
//! - F3 no more of the spill is lost than the damaged sector held;
//! - F4 a record, a header and a mark of which one copy is damaged lose nothing.

mod image;
mod past;

use std::ops::Range;

use anyhow::{Context, Result, ensure};

use self::image::{Fate, IMAGES, Image};
use self::past::Past;
use super::trials::{caught, side_by_side};
use super::{Campaign, EngineCampaign, Need, Progress, Tally};
use crate::Rng;

/// Starts of a server wait for the disk as much as for a processor.
const LANES: usize = 3;

/// The campaign `files`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files;

impl Campaign for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn what(&self) -> &'static str {
        "every file of a data folder cut off, flipped and zeroed at every 512 bytes"
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Server, Need::EngineTests, Need::Installed("setpriv")]
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        let (here, there) = (trials.start..trials.end.min(IMAGES), trials.start.max(IMAGES)..trials.end);
        let mut tally = side_by_side("files", (here, LANES), progress, seed, trial);
        if !there.is_empty() {
            let engine = EngineCampaign::new("files", "files", self.what());
            tally += &engine.run(there.start - IMAGES..there.end - IMAGES, progress)?;
        }
        Ok(tally)
    }
}

fn seed(trial: u64) -> u64 {
    Rng::new(0xf11e_0000_0000 ^ trial).word()
}

fn trial(number: u64, tally: &mut Tally) -> Result<()> {
    let mut rng = Rng::new(seed(number));
    let mut past = Past::live(&mut rng)?;
    let image = Image::of(number, &past, &mut rng)?;
    // Even a panic leaves the ids that came before it to be compared.
    let played = caught(|| play(&image, &mut past, &mut rng, tally)).with_context(|| format!("{image}"));
    let report = past.ledger.report();
    (tally.ids, tally.duplicates) = (report.ids, report.duplicates);
    past.ledger.check().with_context(|| format!("{image}"))?;
    played
}

fn play(image: &Image, past: &mut Past, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    tally.note(&format!("images {}", image.kind()), 1);
    let before = image.make()?;
    let left = past.left;
    match past.start()? {
        Ok(server) => {
            ensure!(image.fate() != Fate::Refused, "it served\n{server}");
            tally.note("served", 1);
            let lost = past.serve_what_is_left(server, rng, tally)?;
            let most = image.most_lost(left);
            ensure!(lost <= most, "{lost} of {left} ids in the spill are lost, and the image took {most}");
            tally.waste("damaged", lost);
        }
        Err(said) => {
            ensure!(image.fate() != Fate::Served, "it refused: {said}");
            tally.note("refused", 1);
            image.check_refusal(&said)?;
            image.undo(&before)?;
            let Ok(server) = past.start()? else { anyhow::bail!("it refuses what is whole again") };
            let lost = past.serve_what_is_left(server, rng, tally)?;
            ensure!(lost == 0, "{lost} ids are lost by a refusal");
        }
    }
    let Ok(server) = past.start()? else { anyhow::bail!("the life after that is refused") };
    past.serve_what_is_left(server, rng, tally).map(drop)
}
