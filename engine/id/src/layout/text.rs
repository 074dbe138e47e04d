//! Layouts by name and as text.

use std::fmt;
use std::str::FromStr;

use super::{DEFAULT_EPOCH_MS, Face, Layout, LayoutError};

/// The layouts that have a name.
const NAMED: [(&str, Layout); 8] = [
    ("xuid", Layout::unchecked(41, 10, 12, 1_000, DEFAULT_EPOCH_MS)),
    ("twitter", Layout::unchecked(41, 10, 12, 1_000, 1_288_834_974_657)),
    ("bwmarrin", Layout::unchecked(41, 10, 12, 1_000, 1_288_834_974_657)),
    ("discord", Layout::unchecked(41, 10, 12, 1_000, 1_420_070_400_000)),
    ("instagram", Layout::unchecked(40, 13, 10, 1_000, 1_314_220_021_721)),
    ("sonyflake", Layout::unchecked(39, 16, 8, 10_000, 1_409_529_600_000).with_face(Face::WorkerLowest)),
    ("sonyflake2", Layout::unchecked(39, 16, 8, 10_000, 1_735_689_600_000).with_face(Face::WorkerLowest)),
    ("js", Layout::unchecked(41, 5, 7, 1_000, DEFAULT_EPOCH_MS)),
];

impl Layout {
    /// The layouts that have a name, which [`FromStr`] knows: those of known generators, and `js`, whose ids JavaScript can
    /// hold in a number.
    pub fn named() -> impl Iterator<Item = (&'static str, Self)> {
        NAMED.into_iter()
    }

    /// The length of a tick as people write it: `10ms`.
    fn tick_text(self) -> String {
        match self.tick_us {
            us if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
            us if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
            us => format!("{us}us"),
        }
    }

    /// The text that [`FromStr`] reads as this layout, without what is as it would be anyway.
    #[must_use]
    pub fn to_text(self) -> String {
        use fmt::Write as _;
        let Self { time_bits, worker_bits, sequence_bits, tick_us, epoch_ms, face } = self;
        let mut text = format!("{time_bits}/{worker_bits}/{sequence_bits}");
        if tick_us != 1_000 {
            let _ = write!(text, ",tick={}", self.tick_text());
        }
        if epoch_ms != DEFAULT_EPOCH_MS {
            let _ = write!(text, ",epoch={epoch_ms}");
        }
        if face != Face::Plain {
            let _ = write!(text, ",face={face}");
        }
        text
    }

    fn with_option(self, option: &str) -> Result<Self, LayoutError> {
        let unknown = || LayoutError::Option { option: option.to_owned() };
        let (key, value) = option.split_once('=').ok_or_else(unknown)?;
        let (key, value) = (key.trim(), value.trim());
        match key {
            "tick" => {
                let tick_us = microseconds(value).ok_or_else(unknown)?;
                let Self { time_bits, worker_bits, sequence_bits, epoch_ms, face, .. } = self;
                Ok(Self::new(time_bits, worker_bits, sequence_bits, tick_us, epoch_ms)?.with_face(face))
            }
            "epoch" => Ok(self.with_epoch_ms(value.parse().map_err(|_| unknown())?)),
            "face" => Ok(self.with_face(value.parse().map_err(|_| unknown())?)),
            _ => Err(unknown()),
        }
    }
}

/// `10ms`, `500us`, `1s`.
fn microseconds(text: &str) -> Option<u32> {
    let digits = text.find(|char: char| !char.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit: u32 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    number.parse::<u32>().ok()?.checked_mul(unit)
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time_bits, worker_bits, sequence_bits, tick_us, epoch_ms, face } = self;
        write!(f, "{time_bits}/{worker_bits}/{sequence_bits}, tick {tick_us} us, epoch {epoch_ms}")?;
        if *face != Face::Plain {
            write!(f, ", face {face}")?;
        }
        Ok(())
    }
}

/// A name, or `41/10/12`: a tick of one millisecond from the default epoch, the plain face, and behind it what is
/// otherwise: `39/16/8,tick=10ms,epoch=1409529600000,face=worker-lowest`.
impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let mut widths = first.split('/').map(|width| width.trim().parse::<u8>());
        let layout = if let Some((_, layout)) = Self::named().find(|(name, _)| *name == first) {
            layout
        } else if let (Some(Ok(time)), Some(Ok(worker)), Some(Ok(sequence)), None) =
            (widths.next(), widths.next(), widths.next(), widths.next())
        {
            Self::new(time, worker, sequence, 1_000, DEFAULT_EPOCH_MS)?
        } else {
            return Err(LayoutError::Text);
        };
        parts.try_fold(layout, Self::with_option)?.checked_face()
    }
}
