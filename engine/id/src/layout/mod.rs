//! How the bits of an id are split: `time | worker | sequence`, and how callers see them: the face.
//!
//! A layout is fixed once a cluster; every process and file that names another is refused. It is pure arithmetic: it
//! reads no clock.
//!
//! # Invariants
//! - I1 the three widths add up to 63 at most, so that an id is never negative in a signed 64-bit column;
//! - I2 for one layout, `(tick, worker, sequence) -> id` is a bijection onto the ids below 2^[`bits`](Layout::bits).

mod error;
mod face;
mod text;

pub use self::error::LayoutError;
use self::face::swap_low;
pub use self::face::{Face, UnknownFace};
use crate::id::Id;

/// The most bits of an id; the 64th is zero, so that signed columns and languages can hold it.
pub const ID_BITS: u8 = 63;

/// The fewest bits of an id.
const LEAST_BITS: u8 = 40;

/// Unix milliseconds of the default epoch: 2018-04-20 00:00 at UTC+8.
pub const DEFAULT_EPOCH_MS: u64 = 1_524_153_600_000;

/// The split of an id's bits, the length of a tick, the instant of tick 0, and the face.
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
    face: Face,
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

impl Layout {
    /// A layout of those widths, with a tick of `tick_us` microseconds, beginning at `epoch_ms` (Unix), and with the plain
    /// face.
    ///
    /// # Errors
    /// The widths must add up to 40 to 63: time 16 to 60, worker 0 to 22, sequence 1 to 24.
    pub fn new(time: u8, worker: u8, sequence: u8, tick_us: u32, epoch_ms: u64) -> Result<Self, LayoutError> {
        let sum = u16::from(time) + u16::from(worker) + u16::from(sequence);
        if !(u16::from(LEAST_BITS)..=u16::from(ID_BITS)).contains(&sum) {
            return Err(LayoutError::Sum { time, worker, sequence, sum });
        }
        // 16 bits of time: less is a test's layout only. 22 of worker are what the widest known generators have; 24 of
        // sequence keep a tick's ids within the 32-bit counts of extents and runs.
        for (field, bits, least, most) in
            [("time", time, 16, 60), ("worker", worker, 0, 22), ("sequence", sequence, 1, 24)]
        {
            if bits < least || bits > most {
                return Err(LayoutError::Width { field, bits, least, most });
            }
        }
        if tick_us == 0 || tick_us > 3_600_000_000 {
            return Err(LayoutError::Tick { tick_us });
        }
        Ok(Self::unchecked(time, worker, sequence, tick_us, epoch_ms))
    }

    /// A layout of widths that add up.
    const fn unchecked(
        time_bits: u8,
        worker_bits: u8,
        sequence_bits: u8,
        tick_us: u32,
        epoch_ms: u64,
    ) -> Self {
        Self { time_bits, worker_bits, sequence_bits, tick_us, epoch_ms, face: Face::Plain }
    }

    /// The same split with another face.
    #[must_use]
    #[inline]
    pub const fn with_face(self, face: Face) -> Self {
        Self { face, ..self }
    }

    /// The face: how callers see the fields.
    #[must_use]
    #[inline]
    pub fn face(&self) -> Face {
        self.face
    }

    /// The same split with the plain face: what a generator counts in.
    #[must_use]
    #[inline]
    pub fn plots(self) -> Self {
        self.with_face(Face::Plain)
    }

    /// Bits of an id.
    #[must_use]
    #[inline]
    pub fn bits(&self) -> u8 {
        self.time_bits + self.worker_bits + self.sequence_bits
    }

    /// The highest id.
    #[must_use]
    #[inline]
    pub fn last_id(&self) -> Id {
        Id::new((1 << self.bits()) - 1)
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

    /// The id of its parts, with the layout's face. A part that does not fit is a programmer's error.
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
        self.face_of((high << self.sequence_bits) | u64::from(sequence))
    }

    /// An id taken apart; with an opaque face one that was opened.
    #[must_use]
    #[inline]
    pub fn decode(&self, id: Id) -> Parts {
        let plot = self.plot_of(id);
        let tick = self.tick_of(plot);
        let worker = (plot >> self.sequence_bits) & (u64::from(self.workers()) - 1);
        let sequence = plot & (u64::from(self.sequences()) - 1);
        Parts { tick, unix_ms: self.tick_to_ms(tick), worker: worker as u32, sequence: sequence as u32 }
    }

    /// The id that callers see of a plot; with an opaque face the plot, which is still to be sealed.
    #[must_use]
    #[inline]
    pub fn face_of(&self, plot: u64) -> Id {
        Id::new(match self.face {
            Face::Plain | Face::Opaque => plot,
            Face::WorkerLowest => swap_low(plot, self.sequence_bits, self.worker_bits),
        })
    }

    /// The plot of an id that callers see; with an opaque face of one that was opened.
    #[must_use]
    #[inline]
    pub fn plot_of(&self, id: Id) -> u64 {
        match self.face {
            Face::Plain | Face::Opaque => id.raw(),
            Face::WorkerLowest => swap_low(id.raw(), self.worker_bits, self.sequence_bits),
        }
    }

    /// The distance between the ids of neighbouring plots of one tick.
    #[must_use]
    #[inline]
    pub fn run_stride(&self) -> u32 {
        match self.face {
            Face::Plain | Face::Opaque => 1,
            Face::WorkerLowest => 1 << self.worker_bits,
        }
    }

    /// The tick of a raw id, whatever lies below.
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

    /// The layout as 16 bytes, little-endian: time, worker and sequence bits, the face, tick in us (u32), epoch
    /// in Unix ms (u64). Files carry it.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = self.time_bits;
        bytes[1] = self.worker_bits;
        bytes[2] = self.sequence_bits;
        bytes[3] = self.face.code();
        bytes[4..8].copy_from_slice(&self.tick_us.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch_ms.to_le_bytes());
        bytes
    }

    /// The layout of 16 bytes as [`to_bytes`](Self::to_bytes) writes them.
    ///
    /// # Errors
    /// As [`new`](Self::new), for a face that is not known, and for an opaque one of fewer than 63 bits.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, LayoutError> {
        let [time, worker, sequence, face, t0, t1, t2, t3, epoch @ ..] = bytes;
        let face = Face::from_code(face).ok_or(LayoutError::FaceCode { code: face })?;
        let tick_us = u32::from_le_bytes([t0, t1, t2, t3]);
        Self::new(time, worker, sequence, tick_us, u64::from_le_bytes(epoch))?.with_face(face).checked_face()
    }

    /// The same split with opaque ids.
    ///
    /// # Errors
    /// [`LayoutError::OpaqueBits`] if an id has fewer than 63 bits.
    pub fn opaque(self) -> Result<Self, LayoutError> {
        self.with_face(Face::Opaque).checked_face()
    }

    /// The same if its face can show its bits.
    fn checked_face(self) -> Result<Self, LayoutError> {
        match self.face {
            // A key permutes the ids of 63 bits.
            Face::Opaque if self.bits() != ID_BITS => Err(LayoutError::OpaqueBits { bits: self.bits() }),
            _ => Ok(self),
        }
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::unchecked(41, 10, 12, 1_000, DEFAULT_EPOCH_MS)
    }
}

#[cfg(test)]
mod tests;
