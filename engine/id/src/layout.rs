//! How the 63 bits of an id are split: `time | worker | sequence`, the sequence lowest.
//!
//! A layout is fixed once a cluster; every process and file that names another is refused. It is pure arithmetic: it
//! reads no clock.
//!
//! # Invariants
//! - I1 the three widths add up to 63, so that an id is never negative in a signed 64-bit column;
//! - I2 for one layout, `(tick, worker, sequence) -> id` is a bijection onto the ids below 2^63.

use std::fmt;
use std::str::FromStr;

use crate::id::Id;

/// Bits of an id; the 64th is zero, so that signed columns and languages can hold it.
pub const ID_BITS: u8 = 63;

/// Unix milliseconds of the default epoch: 2018-04-20 00:00 at UTC+8.
pub const DEFAULT_EPOCH_MS: u64 = 1_524_153_600_000;

/// The split of an id's bits, the length of a tick and the instant of tick 0.
///
/// The default is 41 bits of milliseconds since 2018-04-20 00:00 +08:00, 10 of worker and 12 of sequence:
/// 69 years, 1,024 workers, 4,096 ids a millisecond and worker.
///
/// ```
/// use xuid_id::{Id, Layout};
/// let layout = Layout::default();
/// let parts = layout.decode(Id::from_raw(1_128_275_363_336_683_521).unwrap());
/// assert_eq!(parts.unix_ms, 1_793_155_408_962);
/// assert_eq!(layout.encode(parts.tick, parts.worker, parts.sequence).raw(), 1_128_275_363_336_683_521);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    time_bits: u8,
    worker_bits: u8,
    sequence_bits: u8,
    tick_us: u32,
    epoch_ms: u64,
}

/// An id taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Ticks since the layout's epoch.
    pub tick: u64,
    /// The beginning of that tick, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The worker that minted it.
    pub worker: u32,
    /// Its place within the tick.
    pub sequence: u32,
}

/// Why a layout is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The widths do not fill an id.
    #[error(
        "the bits {time}/{worker}/{sequence} add up to {sum}, and an id has 63: write time/worker/sequence, as in 41/10/12"
    )]
    Sum {
        /// Bits of time.
        time: u8,
        /// Bits of worker.
        worker: u8,
        /// Bits of sequence.
        sequence: u8,
        /// What they add up to.
        sum: u16,
    },
    /// One width is outside what is possible.
    #[error("{field} has {bits} bits, and {least} to {most} are allowed")]
    Width {
        /// Which width.
        field: &'static str,
        /// What was given.
        bits: u8,
        /// The least allowed.
        least: u8,
        /// The most allowed.
        most: u8,
    },
    /// A tick must last something.
    #[error("a tick of {tick_us} us is outside 1 us to 1 h")]
    Tick {
        /// What was given, in microseconds.
        tick_us: u32,
    },
    /// Not three numbers.
    #[error("a layout is written time/worker/sequence in bits, as in 41/10/12")]
    Text,
}

impl Layout {
    /// A layout of those widths, with a tick of `tick_us` microseconds, beginning at `epoch_ms` (Unix).
    ///
    /// # Errors
    /// The widths must add up to 63: time 16 to 60, worker 0 to 20, sequence 1 to 24.
    pub fn new(time: u8, worker: u8, sequence: u8, tick_us: u32, epoch_ms: u64) -> Result<Self, LayoutError> {
        let sum = u16::from(time) + u16::from(worker) + u16::from(sequence);
        if sum != u16::from(ID_BITS) {
            return Err(LayoutError::Sum { time, worker, sequence, sum });
        }
        // 16 bits of time: less is a test's layout only. 20 of worker bounds a registry's size; 24 of sequence
        // keeps a tick's ids within the 32-bit counts of extents and runs.
        for (field, bits, least, most) in
            [("time", time, 16, 60), ("worker", worker, 0, 20), ("sequence", sequence, 1, 24)]
        {
            if bits < least || bits > most {
                return Err(LayoutError::Width { field, bits, least, most });
            }
        }
        if tick_us == 0 || tick_us > 3_600_000_000 {
            return Err(LayoutError::Tick { tick_us });
        }
        Ok(Self { time_bits: time, worker_bits: worker, sequence_bits: sequence, tick_us, epoch_ms })
    }

    /// The same split with another epoch.
    #[must_use]
    #[inline]
    pub fn with_epoch_ms(self, epoch_ms: u64) -> Self {
        Self { epoch_ms, ..self }
    }

    /// Bits of time.
    #[must_use]
    #[inline]
    pub fn time_bits(&self) -> u8 {
        self.time_bits
    }

    /// Bits of worker.
    #[must_use]
    #[inline]
    pub fn worker_bits(&self) -> u8 {
        self.worker_bits
    }

    /// Bits of sequence.
    #[must_use]
    #[inline]
    pub fn sequence_bits(&self) -> u8 {
        self.sequence_bits
    }

    /// Length of a tick in microseconds.
    #[must_use]
    #[inline]
    pub fn tick_us(&self) -> u32 {
        self.tick_us
    }

    /// The instant of tick 0, in milliseconds since the Unix epoch.
    #[must_use]
    #[inline]
    pub fn epoch_ms(&self) -> u64 {
        self.epoch_ms
    }

    /// Workers this layout can tell apart.
    #[must_use]
    #[inline]
    pub fn workers(&self) -> u32 {
        1 << self.worker_bits
    }

    /// Ids of one worker in one tick.
    #[must_use]
    #[inline]
    pub fn sequences(&self) -> u32 {
        1 << self.sequence_bits
    }

    /// Distance between a plot and the same plot one tick later.
    #[must_use]
    #[inline]
    pub fn stride(&self) -> u64 {
        1 << (self.worker_bits + self.sequence_bits)
    }

    /// The last tick that fits.
    #[must_use]
    #[inline]
    pub fn last_tick(&self) -> u64 {
        (1 << self.time_bits) - 1
    }

    /// The id of a plot. A part that does not fit is a programmer's error.
    ///
    /// # Panics
    /// If a part is out of the layout's range.
    #[must_use]
    #[inline]
    pub fn encode(&self, tick: u64, worker: u32, sequence: u32) -> Id {
        assert!(tick <= self.last_tick(), "tick {tick} is past the last, {}", self.last_tick());
        assert!(worker < self.workers(), "worker {worker} of {}", self.workers());
        assert!(sequence < self.sequences(), "sequence {sequence} of {}", self.sequences());
        let high = (tick << self.worker_bits) | u64::from(worker);
        Id::new((high << self.sequence_bits) | u64::from(sequence))
    }

    /// An id taken apart.
    #[must_use]
    #[inline]
    pub fn decode(&self, id: Id) -> Parts {
        let raw = id.raw();
        let tick = self.tick_of(raw);
        let worker = (raw >> self.sequence_bits) & (u64::from(self.workers()) - 1);
        let sequence = raw & (u64::from(self.sequences()) - 1);
        Parts { tick, unix_ms: self.tick_to_ms(tick), worker: worker as u32, sequence: sequence as u32 }
    }

    /// The tick of a raw id.
    #[must_use]
    #[inline]
    pub fn tick_of(&self, raw: u64) -> u64 {
        raw >> (self.worker_bits + self.sequence_bits)
    }

    /// The beginning of a tick in Unix milliseconds, rounded down.
    #[must_use]
    #[inline]
    pub fn tick_to_ms(&self, tick: u64) -> u64 {
        // Ticks of hours and many bits of time reach beyond 64 bits of milliseconds.
        let ms = u128::from(self.epoch_ms) + u128::from(tick) * u128::from(self.tick_us) / 1_000;
        ms.min(u128::from(u64::MAX)) as u64
    }

    /// The beginning of a tick in Unix nanoseconds.
    #[must_use]
    #[inline]
    pub fn tick_to_ns(&self, tick: u64) -> u64 {
        let ns = u128::from(self.epoch_ms) * 1_000_000 + u128::from(tick) * u128::from(self.tick_us) * 1_000;
        ns.min(u128::from(u64::MAX)) as u64
    }

    /// The tick that holds a wall time of Unix nanoseconds; `None` before the epoch. Not bounded by
    /// [`last_tick`](Self::last_tick).
    #[must_use]
    #[inline]
    pub fn tick_at_ns(&self, unix_ns: u64) -> Option<u64> {
        let epoch_ns = u128::from(self.epoch_ms) * 1_000_000;
        let since = u128::from(unix_ns).checked_sub(epoch_ns)?;
        Some((since / (u128::from(self.tick_us) * 1_000)) as u64)
    }

    /// Ticks in a duration of nanoseconds, rounded up.
    #[must_use]
    #[inline]
    pub fn ticks_in_ns(&self, ns: u64) -> u64 {
        ns.div_ceil(u64::from(self.tick_us) * 1_000)
    }

    /// The layout as 16 bytes, little-endian: time, worker and sequence bits, a zero, tick in us (u32), epoch
    /// in Unix ms (u64). Files carry it.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = self.time_bits;
        bytes[1] = self.worker_bits;
        bytes[2] = self.sequence_bits;
        bytes[4..8].copy_from_slice(&self.tick_us.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch_ms.to_le_bytes());
        bytes
    }

    /// The layout of 16 bytes as [`to_bytes`](Self::to_bytes) writes them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, LayoutError> {
        let [time, worker, sequence, _, t0, t1, t2, t3, epoch @ ..] = bytes;
        Self::new(time, worker, sequence, u32::from_le_bytes([t0, t1, t2, t3]), u64::from_le_bytes(epoch))
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self { time_bits: 41, worker_bits: 10, sequence_bits: 12, tick_us: 1_000, epoch_ms: DEFAULT_EPOCH_MS }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time_bits, worker_bits, sequence_bits, tick_us, epoch_ms } = self;
        write!(f, "{time_bits}/{worker_bits}/{sequence_bits}, tick {tick_us} us, epoch {epoch_ms}")
    }
}

/// `41/10/12`: a tick of one millisecond from the default epoch.
impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let mut widths = text.split('/').map(|width| width.trim().parse::<u8>());
        match (widths.next(), widths.next(), widths.next(), widths.next()) {
            (Some(Ok(time)), Some(Ok(worker)), Some(Ok(sequence)), None) => {
                Self::new(time, worker, sequence, 1_000, DEFAULT_EPOCH_MS)
            }
            _ => Err(LayoutError::Text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_layout() -> impl Strategy<Value = Layout> {
        (0u8..=20, 1u8..=24, 1u32..=1_000_000, 0u64..=4_000_000_000_000).prop_filter_map(
            "time bits",
            |(worker, sequence, tick, epoch)| {
                Layout::new(ID_BITS - worker - sequence, worker, sequence, tick, epoch).ok()
            },
        )
    }

    proptest! {
        #[test]
        fn an_id_decodes_to_the_parts_it_was_made_of(
            layout in any_layout(), t in any::<u64>(), w in any::<u32>(), s in any::<u32>()
        ) {
            let (tick, worker, sequence) = (t & layout.last_tick(), w % layout.workers(), s % layout.sequences());
            let parts = layout.decode(layout.encode(tick, worker, sequence));
            prop_assert_eq!((parts.tick, parts.worker, parts.sequence), (tick, worker, sequence));
        }

        #[test]
        fn every_raw_id_below_two_to_the_63_encodes_back_to_itself(layout in any_layout(), raw in 0u64..1 << 63) {
            let parts = layout.decode(Id::new(raw));
            prop_assert_eq!(layout.encode(parts.tick, parts.worker, parts.sequence).raw(), raw);
        }

        #[test]
        fn a_layout_survives_its_bytes(layout in any_layout()) {
            prop_assert_eq!(Layout::from_bytes(layout.to_bytes()), Ok(layout));
        }

        #[test]
        fn a_tick_begins_at_its_own_instant(layout in any_layout(), tick in 0u64..1 << 40) {
            let ns = layout.tick_to_ns(tick);
            if ns < u64::MAX {
                prop_assert_eq!(layout.tick_at_ns(ns), Some(tick));
            }
        }
    }

    #[test]
    fn widths_that_do_not_fill_an_id_are_refused_with_the_sum() {
        let error = Layout::new(41, 10, 13, 1_000, 0).unwrap_err();
        assert!(error.to_string().contains("add up to 64"), "{error}");
        assert_eq!("41/10".parse::<Layout>(), Err(LayoutError::Text));
        assert_eq!("41/10/12".parse(), Ok(Layout::default()));
    }
}
