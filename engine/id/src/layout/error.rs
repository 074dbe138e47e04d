//! Why a layout is refused.

/// Why a layout is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The widths are too few or too many bits.
    #[error(
        "the bits {time}/{worker}/{sequence} add up to {sum}, and an id has 40 to 63: write time/worker/sequence, as in 41/10/12"
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
    /// The code of a face that this program does not know.
    #[error("the face {code} is not known: 0 is plain, 1 worker-lowest, 2 opaque")]
    FaceCode {
        /// What was found.
        code: u8,
    },
    /// An opaque id has 63 bits.
    #[error("opaque ids need a layout of 63 bits, and this one has {bits}: choose wider fields")]
    OpaqueBits {
        /// Bits of the layout.
        bits: u8,
    },
    /// An option of a layout's text says nothing that can be used.
    #[error(
        "{option:?} of a layout is none of tick=10ms, epoch=MS (Unix milliseconds) and face=worker-lowest"
    )]
    Option {
        /// What was found.
        option: String,
    },
    /// Neither a name nor three numbers.
    #[error(
        "a layout is one of xuid, twitter, bwmarrin, discord, instagram, sonyflake, sonyflake2, js, or is written \
         time/worker/sequence in bits, as in 41/10/12, and behind that tick=10ms, epoch=MS and face=worker-lowest, each after \
         a comma"
    )]
    Text,
}
